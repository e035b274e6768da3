"""The simulation study: bias and consistency of the estimators where the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from torch import Tensor

from calirare._util.arrays import check_count
from calirare_lab.multilabel.simulate import Sample, World, worlds
from calirare_multilabel import CopulaOptions, conditional_expectation, marginal_ece
from calirare_multilabel.evaluate import kernel_gap

SIZES = (250, 1_000, 4_000, 16_000, 64_000, 256_000)
LARGEST_KERNEL = 4_000
KERNEL_ROWS = 20_000  # rows the kernel estimators see per cell at most, ten samples at least
DRAWS = 3_000_000  # label rows drawn per cell at most, which sets the repetitions of large samples
NORMS = (1.0, 2.0)
SLACK = 3  # times what n^(-p/2) leaves of a bias is still called falling
TELLING = 0.5  # the rule is asked only where a bias that has not at least halved fails it
PRINTED = CopulaOptions(label_model="density")
Gap = Callable[[Sample], Tensor]

# Estimators of E[y | f] - f at every row; binning, which has no such gap, is apart.
GAPS: dict[str, Gap] = {
    "copula": lambda s: conditional_expectation(s.labels, s.scores, options=PRINTED) - s.scores,
    "copula_threshold": lambda s: conditional_expectation(s.labels, s.scores) - s.scores,
    "kde": lambda s: kernel_gap(s.labels, s.scores)[0],
    "kde_residual": lambda s: kernel_gap(s.labels, s.scores, target="residuals", bandwidth="regression")[0],
}


@dataclass(frozen=True)
class Cell:
    """One estimator on samples of one size from one world.

    Attributes:
        world: its name.
        estimator: its name.
        n: rows per sample.
        p: order of the norm.
        repeats: samples.
        truth: the true CE_p^p per label.
        mean: of the estimates.
        deviation: standard deviation of the estimates.
        conditional_rmse: root mean square of estimated minus true E[y|f]; None for binning.
    """

    world: str
    estimator: str
    n: int
    p: float
    repeats: int
    truth: float
    mean: float
    deviation: float
    conditional_rmse: float | None

    @property
    def bias(self) -> float:
        """Mean estimate less the truth."""
        return self.mean - self.truth

    @property
    def standard_error(self) -> float:
        """Of the mean, from the samples."""
        return self.deviation / self.repeats**0.5


def repeats_for(n: int, most: int) -> int:
    """Returns how often a sample of n rows is drawn: `most`, less where that is too much, but not below 10 for it."""
    return min(most, max(10, DRAWS // n))


def kernel_repeats(n: int, count: int) -> int:
    """Returns how many of the `count` samples the kernel estimators take, whose cost is quadratic in n."""
    return min(count, max(10, min(count // 4, KERNEL_ROWS // n)))


def run_cell(world: World, n: int, *, repeats: int = 200, seed: int = 0) -> list[Cell]:
    """Runs every estimator on samples of one size from one world.

    Args:
        world: where the rows come from.
        n: rows per sample.
        repeats: samples at most, >= 2, see `repeats_for`; the kernel estimators take fewer.
        seed: of the draws.

    Returns:
        A cell for each estimator and p: kernel estimators for n up to `LARGEST_KERNEL` alone, binning for p = 1 alone.

    Raises:
        TypeError: repeats is no integer.
        ValueError: repeats is below 2, which leaves no deviation.
    """
    check_count("run_cell", "repeats", repeats, least=2)
    random = np.random.default_rng([seed, n, sum(map(ord, world.name))])
    count = repeats_for(n, repeats)
    values: dict[tuple[str, float], list[float]] = {}
    errors: dict[str, list[float]] = {}
    for draw in range(count):
        sample = world.draw(n, random)
        values.setdefault(("binned", 1.0), []).append(marginal_ece(sample.labels, sample.scores))
        for name, estimate in GAPS.items():
            kernel = name.startswith("kde")
            if kernel and (n > LARGEST_KERNEL or draw >= kernel_repeats(n, count)):
                continue
            gap = estimate(sample)
            for p in NORMS:
                values.setdefault((name, p), []).append(float(gap.abs().pow(p).mean()))
            wrong = gap + sample.scores - sample.conditional
            errors.setdefault(name, []).append(float(wrong.square().mean()))
    return [
        Cell(
            world.name,
            name,
            n,
            p,
            len(found),
            world.true_error(p),
            float(np.mean(found)),
            float(np.std(found, ddof=1)),
            float(np.sqrt(np.mean(errors[name]))) if name in errors else None,
        )
        for (name, p), found in values.items()
    ]


def verdicts(cells: list[Cell]) -> list[dict[str, str | float | bool | None]]:
    """Returns what the cells say about the document's claims, for each copula estimator and world.

    Args:
        cells: of `run_cell`, several sizes.

    Returns:
        For each estimator, world and p the bias at the smallest and the largest n, also in standard errors, and the
        verdicts "unbiased": at the smallest n it is within three of them; "consistent": at the largest n it is within
        three of them, or has at least shrunk to `SLACK` times what n^(-p/2) leaves of the bias at the smallest n. (The
        error of a well specified fit at a row is of order n^(-1/2), what it adds to CE_p^p at most n^(-p/2).)
        "consistent" is None where the range of n is so short that a bias which has not even halved would pass.
    """
    out: list[dict[str, str | float | bool | None]] = []
    for name in ("copula", "copula_threshold"):
        for world in dict.fromkeys(cell.world for cell in cells):
            for p in NORMS:
                row = sorted((c for c in cells if (c.estimator, c.world, c.p) == (name, world, p)), key=lambda c: c.n)
                if len(row) < 2:
                    continue
                first, last = row[0], row[-1]
                left = SLACK * (first.n / last.n) ** (p / 2)
                small_enough = abs(last.bias) <= max(left * abs(first.bias), 3 * last.standard_error)
                out.append(
                    {
                        "estimator": name,
                        "world": world,
                        "p": p,
                        "truth": first.truth,
                        "n_small": first.n,
                        "bias_small": first.bias,
                        "z_small": first.bias / first.standard_error,
                        "n_large": last.n,
                        "bias_large": last.bias,
                        "z_large": last.bias / last.standard_error,
                        "unbiased": abs(first.bias) <= 3 * first.standard_error,
                        "consistent": small_enough if left <= TELLING else None,
                    }
                )
    return out


def run_study(
    *,
    sizes: tuple[int, ...] = SIZES,
    repeats: int = 200,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> dict[str, object]:
    """Runs the study on every world.

    Args:
        sizes: rows per sample.
        repeats: samples per size at most.
        seed: of the draws.
        progress: called with a line after each world and size.

    Returns:
        {"seed", "worlds": name -> description, "cells": list, "verdicts": list}, ready for JSON.
    """
    cells: list[Cell] = []
    for world in worlds():
        for n in sizes:
            cells += run_cell(world, n, repeats=repeats, seed=seed)
            if progress is not None:
                shown = ", ".join(
                    f"{c.estimator} {c.mean:.4f}" for c in cells if (c.world, c.n) == (world.name, n) and c.p == 1
                )
                progress(f"{world.name}, n = {n:,}: truth {world.true_error(1):.4f}; {shown}")
    return {
        "seed": seed,
        "worlds": {world.name: world.description for world in worlds()},
        "cells": [asdict(cell) for cell in cells],
        "verdicts": verdicts(cells),
    }
