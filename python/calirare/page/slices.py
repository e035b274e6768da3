"""Where P(rare) is wrong: expected against observed rare nodes in every part of every division of the nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.page.variables import Variable

LEVEL = 0.05  # chance that a perfectly calibrated model has a flag anywhere on the page
FEWEST = 10  # nodes of a slice that says something


@dataclass(frozen=True)
class Slice:
    """Some of the judged nodes.

    Attributes:
        variable: what the nodes are divided by.
        value: the part.
        nodes: how many, >= 1.
        rare: how many are rare.
        mean_p: mean P(rare).
        observed: share of the rare.
        noise: mean distance of the two that chance alone makes.
        chance: two-sided probability of a distance like theirs if every P(rare) is right, see `slices_of`.
        flag: whether that is too small, among so many slices, to be chance.
    """

    variable: str
    value: str
    nodes: int
    rare: int
    mean_p: float
    observed: float
    noise: float
    chance: float
    flag: bool


def slices_of(variables: list[Variable], p: NumpyArray, rare: NumpyArray, nodes: NumpyArray) -> list[Slice]:
    """Returns the slices of the judged nodes, those of less than `FEWEST` nodes left out.

    If every P(rare) is right, the number of rare nodes in a slice is a sum of independent yes or no with these
    probabilities. Its tails are computed exactly (Poisson-binomial). Flags keep the chance of a single wrong one below
    `LEVEL` over all slices (Holm 1979).

    Args:
        variables: see `variables_of`.
        p: P(rare) of the judged nodes, float [m].
        rare: which of them are rare, bool [m].
        nodes: their numbers, int64 [m].
    """
    found: list[dict[str, Any]] = []
    for variable in variables:
        group = variable.group[nodes]
        for k, name in enumerate(variable.names):
            inside = group == k
            if inside.sum() >= FEWEST:
                found.append({"variable": variable.name, "value": name} | _counts(p[inside], rare[inside]))
    flags = _holm(np.array([each["chance"] for each in found]))
    return [Slice(**each, flag=bool(flag)) for each, flag in zip(found, flags, strict=True)]


def _counts(p: NumpyArray, rare: NumpyArray) -> dict[str, Any]:
    p = np.asarray(p, dtype=np.float64).clip(0, 1)
    spread = math.sqrt(float((p * (1 - p)).sum()))
    return {
        "nodes": len(p),
        "rare": int(rare.sum()),
        "mean_p": float(p.mean()),
        "observed": float(rare.mean()),
        "noise": math.sqrt(2 / math.pi) * spread / len(p),
        "chance": two_sided(p, int(rare.sum())),
    }


def two_sided(p: NumpyArray, count: int) -> float:
    """Returns twice the smaller tail of the count of independent yes or no with probabilities p, at most 1.

    Args:
        p: probabilities of yes, float64 [m], in [0, 1].
        count: of the yes, in [0, m].
    """
    mass = count_distribution(p)
    return float(min(1.0, 2 * min(mass[: count + 1].sum(), mass[count:].sum())))


def count_distribution(p: NumpyArray) -> NumpyArray:
    """Returns the probability of every count of independent yes or no, float64 [m + 1], exact to about 1e-14.

    Generating functions (1 - p) + p x are multiplied in pairs, by Fourier transforms: m log(m)^2 operations.

    Args:
        p: probabilities of yes, float64 [m], m >= 1.
    """
    size = 1 << (len(p) - 1).bit_length()
    yes = np.zeros(size)
    yes[: len(p)] = p
    factors = np.stack([1 - yes, yes], 1)
    while len(factors) > 1:
        length = 2 * factors.shape[1]
        spectrum = np.fft.rfft(factors, length)
        factors = np.fft.irfft(spectrum[0::2] * spectrum[1::2], length)
    return factors[0][: len(p) + 1].clip(0)


def _holm(chances: NumpyArray) -> NumpyArray:
    """Returns which hypotheses fall at `LEVEL` for all together."""
    order, flags = np.argsort(chances), np.zeros(len(chances), dtype=bool)
    flags[order] = np.logical_and.accumulate(chances[order] <= LEVEL / np.arange(len(chances), 0, -1))
    return flags
