"""Which categories a column had in the run's graph, and how often another graph has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.drift.neighbourhoods import design_effect
from calirare.drift.noise import Noise

FEW = 5  # expected number below which chi-squared wants categories taken together
COMMON = 8  # categories whose design effect is worked out


@dataclass(frozen=True, eq=False)
class KindsThen:
    """One column of categories in the run's graph.

    Attributes:
        n: nodes looked at, > 0.
        counts: of the known categories, float64 [k].
        gaps: share of missing values.
        effect: design effect of the commoner categories, their mean weighted by variance.
        gap_effect: design effect of being missing.
    """

    n: int
    counts: NumpyArray
    gaps: float
    effect: float
    gap_effect: float

    @classmethod
    def of(cls, values: NumpyArray, patch: NumpyArray, n_categories: int) -> Self:
        """Returns what a column holds.

        Args:
            values: numbers of categories, float64 [n], NaN where missing, n > 0.
            patch: of each node, int64 [n].
            n_categories: known ones.
        """
        missing = np.isnan(values)
        there = values[~missing].astype(np.int64)
        counts = np.bincount(there, minlength=n_categories).astype(np.float64)[:n_categories]
        common = [c for c in np.argsort(-counts, kind="stable")[:COMMON] if counts[c] > 0]
        spread = [counts[c] * (len(there) - counts[c]) for c in common]
        effects = [design_effect((there == c).astype(float), patch[~missing]) for c in common]
        effect = float(np.average(effects, weights=spread)) if sum(spread) > 0 else 1.0
        gap_effect = design_effect(missing.astype(float), patch)
        return cls(len(values), counts, float(missing.mean()), effect, gap_effect)

    def state(self) -> tuple[dict[str, NumpyArray], dict[str, Any]]:
        """Returns the arrays by name, and the rest as JSON holds it."""
        facts = {"n": self.n, "gaps": self.gaps, "effect": self.effect, "gap_effect": self.gap_effect}
        return {"counts": self.counts}, facts

    @classmethod
    def from_state(cls, arrays: dict[str, NumpyArray], facts: dict[str, Any]) -> Self:
        """Returns the column of a `state`."""
        return cls(counts=arrays["counts"], **facts)


@dataclass(frozen=True)
class KindsNow:
    """How a column lies in another graph.

    Attributes:
        distance: half the sum of differences of the categories' shares, in [0, 1].
        told: whether chi-squared says that the shares differ.
        unseen: share of values of categories that the run's graph did not have.
        unseen_by_chance: what it stays below on graphs of the same law.
        gaps: share of missing values.
        gaps_then: in the run's graph.
        gaps_by_chance: what their difference stays below.
    """

    distance: float
    told: bool
    unseen: float
    unseen_by_chance: float
    gaps: float
    gaps_then: float
    gaps_by_chance: float


def compare_kinds(then: KindsThen, values: NumpyArray, noise: Noise) -> KindsNow:
    """Returns how a column of another graph lies to the run's.

    Args:
        then: in the run's graph.
        values: numbers of categories as the run knows them, the number after its last for others; float64 [m], m > 0.
        noise: of the tests.
    """
    there = values[~np.isnan(values)].astype(np.int64)
    gaps, m, known, k = 1 - len(there) / len(values), len(values), then.counts.sum(), len(then.counts)
    share = (then.gaps * then.n + gaps * m) / (then.n + m)
    gap_noise = noise.mean(then.n, m, then.gap_effect, share * (1 - share))
    if not len(there) or not known:
        return KindsNow(0.0, False, 0.0, 1.0, gaps, then.gaps, gap_noise)
    counts = np.bincount(there, minlength=k + 1).astype(np.float64)
    now, beyond = counts[:k], float(counts[k:].sum() + counts[:k][then.counts == 0].sum())
    distance = (np.abs(now / len(there) - then.counts / known).sum() + counts[k:].sum() / len(there)) / 2
    single = float((then.counts == 1).sum())
    unseen_noise = noise.unseen(float(known), len(there), then.effect, single)
    told = _told(then.counts, now, then.effect, noise)
    return KindsNow(float(distance), told, beyond / len(there), unseen_noise, gaps, then.gaps, gap_noise)


def _told(then: NumpyArray, now: NumpyArray, effect: float, noise: Noise) -> bool:
    """Returns whether two samples have different shares of known categories; rare ones count together."""
    n, m = then.sum(), now.sum()
    if not m:
        return True  # none of the values is of a known category
    expected = (then + now) * min(n, m) / (n + m)
    rare = expected < FEW
    rows = np.array([np.append(x[~rare], x[rare].sum()) for x in (then, now)])
    rows = rows[:, rows.sum(0) > 0]
    if rows.shape[1] < 2:
        return False
    p = rows.sum(0) / (n + m)
    statistic = float(((rows[0] / n - rows[1] / m) ** 2 / p).sum() / (1 / n + 1 / m))
    return statistic > noise.chi_squared(rows.shape[1] - 1, effect)
