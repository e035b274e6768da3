"""Columns of numbers and of categories in the run's graph, and their differences from those of another graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.drift.findings import DISTANCE, GAPS, NEVER_SEEN, Finding, Limits, Part, finding, percent
from calirare.drift.neighbourhoods import design_effect
from calirare.drift.noise import Noise
from calirare.features import Stored

TAIL = 0.05
FEW = 5  # expected number below which chi-squared wants categories taken together
GROUPS = 10  # of a column's values, by which its weight is measured
COMMON = 8  # categories whose design effect is computed
POINTS = 513  # of a stored distribution: distances are right to 2 thousandths


@dataclass(frozen=True, eq=False)
class Summary(Stored):
    """What is stored of a part of the run's graph: arrays, numbers, and a column of numbers in some."""

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns the summary of a `state`."""
        columns = {k: ReferenceNumbers.from_state(tensors, v) for k, v in facts.items() if isinstance(v, dict)}
        return super().from_state({} if columns else tensors, facts | columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceColumn(Summary):
    """One column in the run's graph.

    Attributes:
        n: nodes looked at, > 0.
        gaps: proportion of missing values.
        effect: design effect of the values; of the more common categories their mean weighted by variance.
        gap_effect: design effect of being missing.
        weight: how much of P(rare) goes with the column, in [0, 1], see `weight_of`; 1 where it is not known.
    """

    n: int
    gaps: float
    effect: float
    gap_effect: float
    weight: float = 1.0

    def _compare_gaps(self, name: str, gaps: float, m: int, noise: Noise) -> Finding:
        """Returns the finding about the proportion of m values that are missing."""
        critical = noise.proportions(self.n, m, self.gap_effect, self.gaps, gaps)
        why = f"{percent(gaps)} of the values are missing; in training {percent(self.gaps)}"
        return finding("column", name, "gaps", (gaps, self.gaps, critical), GAPS, why)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceNumbers(ReferenceColumn):
    """One column of numbers in the run's graph.

    Attributes:
        quantiles: of the numbers at equal steps, rising, float32 [POINTS]; none where every number is missing.
        tail_effect: design effect of being among the lowest or highest twentieth.
    """

    quantiles: NumpyArray
    tail_effect: float

    @classmethod
    def of(cls, values: NumpyArray, patch: NumpyArray) -> Self:
        """Returns the summary of values, float64 [n], NaN where missing, n > 0, with the patch of each, int64 [n]."""
        missing = np.isnan(values)
        present, own = values[~missing].astype(np.float32), patch[~missing]
        quantiles = distribution(present) if len(present) else present
        places = _places(quantiles, present) if len(present) else present
        return cls(
            n=len(values),
            quantiles=quantiles,
            gaps=float(missing.mean()),
            effect=design_effect(places, own),
            tail_effect=max(design_effect(tail.astype(float), own) for tail in (places < TAIL, places > 1 - TAIL)),
            gap_effect=design_effect(missing.astype(float), patch),
        )

    def compare(self, name: str, values: NumpyArray, noise: Noise, unit: str = "") -> Iterator[Finding]:
        """Yields the findings about a column of another graph.

        Args:
            name: of the column.
            values: float64 [m], NaN where missing, m > 0.
            noise: of the tests.
            unit: of the numbers, for messages.
        """
        present, q = _sorted(values), self.quantiles
        gaps, beyond, critical = 1 - len(present) / len(values), 0.0, 1.0
        if len(present) and len(q):
            outside = np.searchsorted(present, q[0], "left") + len(present) - np.searchsorted(present, q[-1], "right")
            beyond = float(outside) / len(present)
            critical = noise.beyond(self.n * (1 - self.gaps), len(present), self.tail_effect) / len(present)
        ends = [float(x) for both in (present, q) for x in ((both[0], both[-1]) if len(both) else (np.nan, np.nan))]
        where = "{:.4g} to {:.4g}; in training {:.4g} to {:.4g}".format(*ends)
        why = f"{percent(beyond)} of the values are outside the run's range, {where}{unit}"
        yield finding("column", name, "beyond the range", (beyond, 0.0, critical), NEVER_SEEN, why)
        yield distance_finding("column", name, *self._distance(present, noise), "values")
        yield self._compare_gaps(name, gaps, len(values), noise)

    def distance(self, values: NumpyArray, noise: Noise) -> tuple[float, float]:
        """Returns the largest difference of the distribution functions, and its critical value.

        Args:
            values: float64 [m], NaN where missing, m > 0.
            noise: of the tests.
        """
        return self._distance(_sorted(values), noise)

    def _distance(self, present: NumpyArray, noise: Noise) -> tuple[float, float]:
        """Returns the same for sorted numbers; the difference is taken at and just below every stored number."""
        q, steps = self.quantiles, len(self.quantiles) - 1
        if not len(present) or not len(q):
            return 0.0, 1.0
        at = (np.searchsorted(q, q, "right") - 1) / steps - np.searchsorted(present, q, "right") / len(present)
        below = (np.searchsorted(q, q, "left")) / steps - np.searchsorted(present, q, "left") / len(present)
        critical = noise.distance(self.n * (1 - self.gaps), len(present), self.effect) + 1 / POINTS
        return float(max(np.abs(at).max(), np.abs(below).max())), critical


def centred(p: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
    """Returns P(rare) of nodes and its ranks, float64 [n] each, minus their means: what `weight_of` reads."""
    from scipy.stats import rankdata

    return p - p.mean(), rankdata(p) - (len(p) + 1) / 2


def weight_of(values: NumpyArray, scored: tuple[NumpyArray, NumpyArray]) -> float:
    """Returns the part of the variance of P(rare) that is between groups of values, beyond chance, in [0, 1].

    A correlation ratio: it is large for a column that moves P(rare), in whatever form, and for one that goes with such
    a column. Groups are tenths of the values, or the values themselves where there are few, and missing ones. The
    larger one of P(rare) and of its ranks counts: few nodes make the first, the many others the second.

    Args:
        values: of the nodes, numbers or numbers of categories, float64 [n], NaN where missing.
        scored: P(rare) of the nodes, `centred`.
    """
    here, n, found = ~np.isnan(values), len(values), 0.0
    _, place, counts = np.unique(values[here], return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    kinds = np.arange(len(counts)) if len(counts) <= GROUPS else np.floor(GROUPS * ranks / n)
    groups = np.zeros(n, dtype=np.int64)  # 0: missing
    groups[here] = 1 + kinds[place]
    sizes = np.bincount(groups)
    there = sizes > 0
    k = int(there.sum())
    if n <= k or np.ptp(scored[0]) == 0:
        return 0.0
    for each in scored:
        between = float((np.bincount(groups, each)[there] ** 2 / sizes[there]).sum() / np.square(each).sum())
        found = max(found, (between - (k - 1) / (n - 1)) / (1 - (k - 1) / (n - 1)))
    return found


def distribution(values: NumpyArray) -> NumpyArray:
    """Returns the quantiles of numbers, [m], m > 0, at equal steps, [POINTS]."""
    return np.quantile(values, np.linspace(0, 1, POINTS), method="inverted_cdf")


def distance_finding(
    part: Part, name: str, distance: float, critical: float, noun: str, limits: Limits = DISTANCE
) -> Finding:
    """Returns the finding about a distance of two distributions."""
    why = f"{noun} differ by {distance:.2f}, where 1 is no overlap"
    return finding(part, name, "distance", (distance, None, critical), limits, why)


def _sorted(values: NumpyArray) -> NumpyArray:
    """Returns the numbers that are not missing, ascending, in float32 as they are stored."""
    return np.sort(values[~np.isnan(values)].astype(np.float32))


def _places(quantiles: NumpyArray, values: NumpyArray) -> NumpyArray:
    """Returns the place of each value in the distribution, in [0, 1]; in the middle of equal values."""
    both = np.searchsorted(quantiles, values, "left") + np.searchsorted(quantiles, values, "right")
    return both / (2 * len(quantiles))


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceCategories(ReferenceColumn):
    """One column of categories in the run's graph, with the counts of the known ones, float64 [k]."""

    counts: NumpyArray

    @classmethod
    def of(cls, values: NumpyArray, patch: NumpyArray, n_categories: int) -> Self:
        """Returns the summary of a column.

        Args:
            values: numbers of categories, float64 [n], NaN where missing, n > 0.
            patch: of each node, int64 [n].
            n_categories: known ones.
        """
        missing = np.isnan(values)
        present = values[~missing].astype(np.int64)
        counts = np.bincount(present, minlength=n_categories).astype(np.float64)[:n_categories]
        common = [c for c in np.argsort(-counts, kind="stable")[:COMMON] if counts[c] > 0]
        spread = [counts[c] * (len(present) - counts[c]) for c in common]
        effects = [design_effect((present == c).astype(float), patch[~missing]) for c in common]
        return cls(
            n=len(values),
            counts=counts,
            gaps=float(missing.mean()),
            effect=float(np.average(effects, weights=spread)) if sum(spread) > 0 else 1.0,
            gap_effect=design_effect(missing.astype(float), patch),
        )

    def compare(self, name: str, values: NumpyArray, noise: Noise) -> Iterator[Finding]:
        """Yields the findings about a column of another graph.

        Args:
            name: of the column.
            values: numbers of categories as the run knows them, the number after its last for others; float64 [m],
                m > 0.
            noise: of the tests.
        """
        present = values[~np.isnan(values)].astype(np.int64)
        m, known, k = len(present), self.counts.sum(), len(self.counts)
        distance, differ, unseen, critical = 0.0, False, 0.0, 1.0
        if m and known:
            counts = np.bincount(present, minlength=k + 1).astype(np.float64)
            current, others = counts[:k], counts[k:].sum()
            distance = float(np.abs(current / m - self.counts / known).sum() + others / m) / 2
            differ = self._differs(current, noise)
            unseen = float(others + current[self.counts == 0].sum()) / m
            critical = noise.unseen(float(known), m, self.effect, float((self.counts == 1).sum()))
        why = f"{percent(unseen)} of the values are of categories that the run's graph did not have"
        yield finding("column", name, "new categories", (unseen, 0.0, critical), NEVER_SEEN, why)
        # Chi-squared tests whether the proportions differ at all, the distance is by how much.
        yield distance_finding("column", name, distance, 0.0 if differ else 1.0, "categories")
        yield self._compare_gaps(name, 1 - m / len(values), len(values), noise)

    def _differs(self, current: NumpyArray, noise: Noise) -> bool:
        """Returns whether chi-squared rejects that two samples have equal proportions; rare categories are pooled."""
        n, m = self.counts.sum(), current.sum()
        if not m:
            return True  # none of the values is of a known category
        rare = (self.counts + current) * min(n, m) / (n + m) < FEW
        rows = np.array([np.append(x[~rare], x[rare].sum()) for x in (self.counts, current)])
        rows = rows[:, rows.sum(0) > 0]
        if rows.shape[1] < 2:
            return False
        p = rows.sum(0) / (n + m)
        statistic = float(((rows[0] / n - rows[1] / m) ** 2 / p).sum() / (1 / n + 1 / m))
        return statistic > noise.chi_squared(rows.shape[1] - 1, self.effect)
