"""What a run says of the nodes of its own graph that did not teach it, and of those of another graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.drift.columns import CurrentNumbers, ReferenceNumbers, compare_numbers
from calirare.drift.neighbourhoods import design_effect, drawn, edges_of
from calirare.drift.noise import Noise
from calirare_ext import Csr

LEAST = 30  # nodes and edges that say something of a distribution
TINY = 1e-12  # a variance of ranks below it is rounding


@dataclass(frozen=True)
class Alike:
    """How much P(rare) of the two ends of an edge is alike.

    Attributes:
        correlation: of their ranks over edges, in [-1, 1]; NaN with fewer than 30 edges. An edge weighs 1 over the
            larger of its ends' numbers of neighbours, so that a hub, one probability, counts for no more than a node.
        error: its standard deviation from patch to patch (jackknife).
    """

    correlation: float
    error: float

    @classmethod
    def of(cls, p: NumpyArray, nodes: NumpyArray, adjacency: Csr, patch: NumpyArray) -> Self:
        """Returns it over the edges among some nodes.

        Args:
            p: P(rare) of the nodes, [m].
            nodes: int64 [m].
            adjacency: [n, n], symmetric.
            patch: of each node, int64 [n].
        """
        from scipy.stats import rankdata

        ranks = np.full(adjacency.n_rows, np.nan)
        ranks[nodes] = rankdata(p) / len(p)
        rows, columns = edges_of(adjacency, drawn(nodes))
        known = np.isfinite(ranks[columns]) & (rows != columns)
        rows, columns = rows[known], columns[known]
        if len(rows) < LEAST:
            return cls(float("nan"), 0.0)
        degrees = np.diff(adjacency.indptr.cpu().numpy())
        one, other, weight = ranks[rows], ranks[columns], 1 / np.maximum(degrees[rows], degrees[columns])
        sums = (2 * one**0, one + other, one**2 + other**2, 2 * one * other)
        moments = np.stack([np.bincount(patch[rows], weight * x) for x in sums])
        whole, number = moments.sum(1), int((moments[0] > 0).sum())
        without = np.array([_correlation(whole - part) for part in moments.T if part[0] > 0])
        error = np.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum())
        return cls(_correlation(whole), float(error))


def _correlation(moments: NumpyArray) -> float:
    """Returns the correlation from weight, sum, sum of squares and of products of all ends of edges."""
    n, total, squares, products = moments
    if n <= 0:
        return 0.0
    variance = squares - total**2 / n
    return float((products - total**2 / n) / variance) if variance > TINY * n else 0.0


@dataclass(frozen=True, eq=False)
class ReferenceScores:
    """P(rare) of nodes of the run's graph that did not teach it.

    Attributes:
        numbers: its distribution.
        mean: of it.
        variance: of it.
        effect: design effect of its mean.
        alike: at the ends of edges.
    """

    numbers: ReferenceNumbers
    mean: float
    variance: float
    effect: float
    alike: Alike

    @classmethod
    def of(cls, p: NumpyArray, nodes: NumpyArray, adjacency: Csr, patch: NumpyArray) -> Self:
        """Returns what a run says of some nodes; arguments as of `Alike.of`, some nodes at least."""
        own = patch[nodes]
        alike = Alike.of(p, nodes, adjacency, patch)
        return cls(ReferenceNumbers.of(p, own), float(p.mean()), float(p.var()), design_effect(p, own), alike)

    def state(self) -> tuple[dict[str, NumpyArray], dict[str, Any]]:
        """Returns the arrays by name, and the rest as JSON holds it."""
        arrays, facts = self.numbers.state()
        alike = None if np.isnan(self.alike.correlation) else asdict(self.alike)
        own = {"mean": self.mean, "variance": self.variance, "effect": self.effect, "alike": alike}
        return arrays, own | {"numbers": facts}

    @classmethod
    def from_state(cls, arrays: dict[str, NumpyArray], facts: dict[str, Any]) -> Self:
        """Returns what a `state` says."""
        alike = Alike(float("nan"), 0.0) if facts["alike"] is None else Alike(**facts["alike"])
        numbers = ReferenceNumbers.from_state(arrays, facts["numbers"])
        return cls(numbers, float(facts["mean"]), float(facts["variance"]), float(facts["effect"]), alike)


@dataclass(frozen=True)
class CurrentScores:
    """How P(rare) in another graph lies to the run's.

    Attributes:
        numbers: its distribution.
        mean: of it.
        mean_then: in the run's graph.
        mean_by_chance: what their difference stays below on graphs of the same law.
        alike: correlation at the ends of edges; NaN where it is not known, and so below.
        alike_then: in the run's graph.
        alike_by_chance: what their difference stays below.
    """

    numbers: CurrentNumbers
    mean: float
    mean_then: float
    mean_by_chance: float
    alike: float
    alike_then: float
    alike_by_chance: float


def compare_scores(
    then: ReferenceScores, p: NumpyArray, nodes: NumpyArray, adjacency: Csr, patch: NumpyArray, noise: Noise
) -> CurrentScores:
    """Returns how P(rare) of another graph lies to the run's.

    Args:
        then: in the run's graph.
        p: of its scored nodes, [m], m > 0.
        nodes: which these are, int64 [m].
        adjacency: [n, n], symmetric.
        patch: of each node, int64 [n].
        noise: of the tests.
    """
    now = Alike.of(p, nodes, adjacency, patch)
    by_chance = noise.deviations * float(np.hypot(now.error, then.alike.error))
    return replace(compare_distribution(then, p, noise), alike=now.correlation, alike_by_chance=by_chance)


def compare_distribution(then: ReferenceScores, p: NumpyArray, noise: Noise) -> CurrentScores:
    """Returns the same of P(rare) of some nodes, [m], m > 0, without what edges tell."""
    by_chance = noise.mean(then.numbers.n, len(p), then.effect, then.variance)
    numbers, unknown = compare_numbers(then.numbers, p, noise), float("nan")
    return CurrentScores(numbers, float(p.mean()), then.mean, by_chance, unknown, then.alike.correlation, unknown)
