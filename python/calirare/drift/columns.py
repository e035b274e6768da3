"""What columns of numbers and of categories held in the run's graph, and how far those of another graph lie from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.drift.neighbourhoods import design_effect
from calirare.drift.noise import Noise

TAIL = 0.05
FEW = 5  # expected number below which chi-squared wants categories taken together
COMMON = 8  # categories whose design effect is worked out
POINTS = 513  # of a stored distribution: distances are right to 2 thousandths


@dataclass(frozen=True, eq=False)
class ReferenceNumbers:
    """One column of numbers in the run's graph.

    Attributes:
        n: nodes looked at, > 0.
        quantiles: of the numbers at equal steps, rising, float32 [POINTS]; none where every number is missing.
        gaps: share of missing numbers.
        effect: design effect of the numbers.
        tail_effect: design effect of being among the lowest or highest twentieth.
        gap_effect: design effect of being missing.
    """

    n: int
    quantiles: NumpyArray
    gaps: float
    effect: float
    tail_effect: float
    gap_effect: float

    @classmethod
    def of(cls, values: NumpyArray, patch: NumpyArray) -> Self:
        """Returns what a column holds.

        Args:
            values: float64 [n], NaN where missing, n > 0.
            patch: of each node, int64 [n].
        """
        missing = np.isnan(values)
        there = values[~missing].astype(np.float32)
        quantiles = distribution(there) if len(there) else there
        gap_effect = design_effect(missing.astype(float), patch)
        if not len(there):
            return cls(len(values), quantiles, 1.0, 1.0, 1.0, gap_effect)
        places, own = _places(quantiles, there), patch[~missing]
        tails = [design_effect(tail.astype(float), own) for tail in (places < TAIL, places > 1 - TAIL)]
        effect = design_effect(places, own)
        return cls(len(values), quantiles, float(missing.mean()), effect, max(tails), gap_effect)

    def state(self) -> tuple[dict[str, NumpyArray], dict[str, Any]]:
        """Returns the arrays by name, and the rest as JSON holds it."""
        facts = {name: getattr(self, name) for name in ("n", "gaps", "effect", "tail_effect", "gap_effect")}
        return {"quantiles": self.quantiles}, facts

    @classmethod
    def from_state(cls, arrays: dict[str, NumpyArray], facts: dict[str, Any]) -> Self:
        """Returns the column of a `state`."""
        return cls(quantiles=arrays["quantiles"], **facts)


@dataclass(frozen=True)
class CurrentNumbers:
    """How a column lies in another graph.

    Attributes:
        distance: largest difference of the two distribution functions, in [0, 1].
        distance_by_chance: what it stays below on graphs of the same law.
        beyond: share of the numbers outside the range that the run's graph had.
        beyond_by_chance: what it stays below.
        gaps: share of missing numbers.
        gaps_then: in the run's graph.
        gaps_by_chance: what their difference stays below.
        low: least number; NaN where all are missing, and so below.
        high: greatest number.
        low_then: in the run's graph.
        high_then: in the run's graph.
    """

    distance: float
    distance_by_chance: float
    beyond: float
    beyond_by_chance: float
    gaps: float
    gaps_then: float
    gaps_by_chance: float
    low: float
    high: float
    low_then: float
    high_then: float


def distribution(values: NumpyArray) -> NumpyArray:
    """Returns the quantiles of numbers, [m], m > 0, at equal steps, [POINTS]."""
    return np.quantile(values, np.linspace(0, 1, POINTS), method="inverted_cdf")


def compare_numbers(then: ReferenceNumbers, values: NumpyArray, noise: Noise) -> CurrentNumbers:
    """Returns how a column of another graph lies to the run's.

    Args:
        then: in the run's graph.
        values: float64 [m], NaN where missing, m > 0.
        noise: of the tests.
    """
    there = np.sort(values[~np.isnan(values)].astype(np.float32))  # as they are stored
    gaps, known, m = 1 - len(there) / len(values), then.n * (1 - then.gaps), len(values)
    gap_noise = _gap_noise(then, gaps, m, noise)
    q = then.quantiles
    ends = [float(x) for both in (there, q) for x in ((both[0], both[-1]) if len(both) else (np.nan, np.nan))]
    if not len(there) or not len(q):
        return CurrentNumbers(0.0, 1.0, 0.0, 1.0, gaps, then.gaps, gap_noise, *ends)
    beyond = float(np.searchsorted(there, q[0], "left") + len(there) - np.searchsorted(there, q[-1], "right"))
    return CurrentNumbers(
        _distance(q, there),
        noise.distance(known, len(there), then.effect) + 1 / POINTS,
        beyond / len(there),
        noise.beyond(known, len(there), then.tail_effect) / len(there),
        gaps,
        then.gaps,
        gap_noise,
        *ends,
    )


def _gap_noise(then: ReferenceNumbers | ReferenceCategories, gaps: float, m: int, noise: Noise) -> float:
    """Returns what the difference of two shares of missing values stays below by chance."""
    share = (then.gaps * then.n + gaps * m) / (then.n + m)
    return noise.mean(then.n, m, then.gap_effect, share * (1 - share))


def _distance(quantiles: NumpyArray, there: NumpyArray) -> float:
    """Returns the largest difference of the distribution functions, at and just below every stored number."""
    steps = len(quantiles) - 1
    at = (np.searchsorted(quantiles, quantiles, "right") - 1) / steps
    below = np.searchsorted(quantiles, quantiles, "left") / steps
    now_at = np.searchsorted(there, quantiles, "right") / len(there)
    now_below = np.searchsorted(there, quantiles, "left") / len(there)
    return float(max(np.abs(now_at - at).max(), np.abs(now_below - below).max()))


def _places(quantiles: NumpyArray, values: NumpyArray) -> NumpyArray:
    """Returns the place of each value in the distribution, in [0, 1]; in the middle of values alike."""
    both = np.searchsorted(quantiles, values, "left") + np.searchsorted(quantiles, values, "right")
    return both / (2 * len(quantiles))


@dataclass(frozen=True, eq=False)
class ReferenceCategories:
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
class CurrentCategories:
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


def compare_categories(then: ReferenceCategories, values: NumpyArray, noise: Noise) -> CurrentCategories:
    """Returns how a column of another graph lies to the run's.

    Args:
        then: in the run's graph.
        values: numbers of categories as the run knows them, the number after its last for others; float64 [m], m > 0.
        noise: of the tests.
    """
    there = values[~np.isnan(values)].astype(np.int64)
    gaps, m, known, k = 1 - len(there) / len(values), len(values), then.counts.sum(), len(then.counts)
    gap_noise = _gap_noise(then, gaps, m, noise)
    if not len(there) or not known:
        return CurrentCategories(0.0, False, 0.0, 1.0, gaps, then.gaps, gap_noise)
    counts = np.bincount(there, minlength=k + 1).astype(np.float64)
    now, beyond = counts[:k], float(counts[k:].sum() + counts[:k][then.counts == 0].sum())
    distance = (np.abs(now / len(there) - then.counts / known).sum() + counts[k:].sum() / len(there)) / 2
    single = float((then.counts == 1).sum())
    unseen_noise = noise.unseen(float(known), len(there), then.effect, single)
    told = _told(then.counts, now, then.effect, noise)
    return CurrentCategories(float(distance), told, beyond / len(there), unseen_noise, gaps, then.gaps, gap_noise)


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
