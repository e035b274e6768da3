"""What columns of numbers held in the run's graph, and how far those of another graph lie from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.drift.neighbourhoods import design_effect, design_effects
from calirare.drift.noise import Noise

TAIL = 0.05
POINTS = 513  # of a stored distribution: distances are right to 2 thousandths


@dataclass(frozen=True, eq=False)
class NumbersThen:
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

    @classmethod
    def of_rows(cls, rows: NumpyArray, patch: NumpyArray) -> list[Self]:
        """Returns what columns hold of which no value is missing.

        Args:
            rows: a column each, float64 [b, n], n > 0.
            patch: of each node, int64 [n].
        """
        n, there = rows.shape[1], rows.astype(np.float32)
        order = np.argsort(there, axis=1)
        rising = np.take_along_axis(there, order, 1)
        at = np.maximum(np.ceil(n * np.linspace(0, 1, POINTS) - 1), 0).astype(np.int64)  # numpy's inverted_cdf
        places = np.empty(rows.shape)
        np.put_along_axis(places, order, _places_in_order(rising, at), 1)
        effects = design_effects(places, patch)
        low, high = (design_effects(tail.astype(float), patch) for tail in (places < TAIL, places > 1 - TAIL))
        parts = zip(rising[:, at], effects.tolist(), np.maximum(low, high).tolist(), strict=True)
        return [cls(n, quantiles, 0.0, effect, tail, 1.0) for quantiles, effect, tail in parts]

    def state(self) -> tuple[dict[str, NumpyArray], dict[str, Any]]:
        """Returns the arrays by name, and the rest as JSON holds it."""
        facts = {name: getattr(self, name) for name in ("n", "gaps", "effect", "tail_effect", "gap_effect")}
        return {"quantiles": self.quantiles}, facts

    @classmethod
    def from_state(cls, arrays: dict[str, NumpyArray], facts: dict[str, Any]) -> Self:
        """Returns the column of a `state`."""
        return cls(quantiles=arrays["quantiles"], **facts)


@dataclass(frozen=True)
class NumbersNow:
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


def compare_numbers(then: NumbersThen, values: NumpyArray, noise: Noise) -> NumbersNow:
    """Returns how a column of another graph lies to the run's.

    Args:
        then: in the run's graph.
        values: float64 [m], NaN where missing, m > 0.
        noise: of the tests.
    """
    there = np.sort(values[~np.isnan(values)].astype(np.float32))  # as they are stored
    gaps, known, m = 1 - len(there) / len(values), then.n * (1 - then.gaps), len(values)
    share = (then.gaps * then.n + gaps * m) / (then.n + m)
    gap_noise = noise.mean(then.n, m, then.gap_effect, share * (1 - share))
    q = then.quantiles
    ends = [float(x) for both in (there, q) for x in ((both[0], both[-1]) if len(both) else (np.nan, np.nan))]
    if not len(there) or not len(q):
        return NumbersNow(0.0, 1.0, 0.0, 1.0, gaps, then.gaps, gap_noise, *ends)
    beyond = float(np.searchsorted(there, q[0], "left") + len(there) - np.searchsorted(there, q[-1], "right"))
    return NumbersNow(
        _distance(q, there),
        noise.distance(known, len(there), then.effect) + 1 / POINTS,
        beyond / len(there),
        noise.beyond(known, len(there), then.tail_effect) / len(there),
        gaps,
        then.gaps,
        gap_noise,
        *ends,
    )


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


def _places_in_order(rising: NumpyArray, at: NumpyArray) -> NumpyArray:
    """Returns the same of rising values, [b, n], whose stored quantiles are those `at` these places."""
    n = rising.shape[1]
    new = np.ones(rising.shape, dtype=bool)
    new[:, 1:] = rising[:, 1:] != rising[:, :-1]
    ends = np.ones(rising.shape, dtype=bool)
    ends[:, :-1] = new[:, 1:]
    first = np.maximum.accumulate(np.where(new, np.arange(n), 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, np.arange(n), n)[:, ::-1], axis=1)[:, ::-1]
    below = np.searchsorted(at, np.arange(n + 1))  # stored quantiles before each place
    return (below[first] + below[last + 1]) / (2 * len(at))
