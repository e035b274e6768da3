"""The edges of a graph, P(rare) along them, and their differences from those of another graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.drift.columns import TAIL, ReferenceNumbers, Summary, distance_finding, distribution
from calirare.drift.findings import (
    APART,
    CORRELATION,
    EDGES,
    FEW,
    HUB,
    ISOLATED,
    MEAN,
    SCORES,
    Finding,
    Limits,
    finding,
    percent,
)
from calirare.drift.neighbourhoods import component_sizes, design_effect, drawn, edges_of
from calirare.drift.noise import Noise
from calirare_ext import Csr

LEAST = 30  # edges from which on their correlation is looked at
TINY = 1e-12  # a variance of ranks below it is rounding


@dataclass(frozen=True, eq=False)
class ReferenceEdges(Summary):
    """The edges of the run's graph.

    Attributes:
        degrees: numbers of neighbours.
        isolated: proportion of nodes without any.
        isolated_effect: its design effect.
        apart: proportion of nodes with neighbours that lie outside the largest component.
        apart_effect: its design effect: the mean over such nodes of their component's size.
    """

    degrees: ReferenceNumbers
    isolated: float
    isolated_effect: float
    apart: float
    apart_effect: float

    @classmethod
    def of(cls, adjacency: Csr, patch: NumpyArray) -> Self:
        """Returns the summary of edges, symmetric [n, n], with the patch of each node, int64 [n]."""
        degrees, sizes = _degrees(adjacency), _other_components(adjacency)
        isolated = (degrees == 0).astype(np.float64)
        return cls(
            ReferenceNumbers.of(degrees, patch),
            float(isolated.mean()),
            design_effect(isolated, patch),
            float(sizes.sum()) / len(degrees),
            max(1.0, float(sizes @ sizes) / max(float(sizes.sum()), 1.0)),
        )

    def compare(self, adjacency: Csr, noise: Noise) -> Iterator[Finding]:
        """Yields the findings about the edges of another graph, [m, m], m > 0."""
        degrees = _degrees(adjacency)
        yield from self.compare_degrees(degrees, noise)
        m, apart = len(degrees), float(_other_components(adjacency).sum()) / len(degrees)
        yield self._proportion(
            "nodes apart from the main part", m, (apart, self.apart), self.apart_effect, APART, noise
        )
        if min(m, self.degrees.n) >= FEW:  # a tenth of few nodes are few neighbours
            here, before = float(degrees.max()) / m, float(self.degrees.quantiles[-1]) / self.degrees.n
            why = (
                f"{percent(here)} of the nodes are its neighbours; in training it was {percent(before)}. Their "
                "neighbour columns depend on this one node: if it is another one now, P(rare) may be wrong for all"
            )
            # No difference: that of another graph is another node.
            values = (here, before, 0.0)
            yield finding("edges", "node of most neighbours", "proportion", values, HUB, why, max(here, before))

    def compare_degrees(self, degrees: NumpyArray, noise: Noise) -> Iterator[Finding]:
        """Yields the findings about the numbers of neighbours of some nodes, float64 [m], m > 0; first the distance."""
        distance, critical = self.degrees.distance(degrees, noise)
        why = f"values differ by {distance:.2f}, where 1 is no overlap"
        yield finding("edges", "number of neighbours", "distance", (distance, None, critical), EDGES, why)
        isolated = float((degrees == 0).mean()), self.isolated
        yield self._proportion("isolated nodes", len(degrees), isolated, self.isolated_effect, ISOLATED, noise)

    def usual(self, degrees: NumpyArray) -> tuple[float, float]:
        """Returns the usual number of neighbours, of nodes with these, float64 [m], and in the run's graph."""
        return _usual(distribution(degrees)), _usual(self.degrees.quantiles)

    def _proportion(
        self, name: str, m: int, values: tuple[float, float], effect: float, limits: Limits, noise: Noise
    ) -> Finding:
        """Returns the finding about a proportion of m nodes, now and in the run's graph."""
        current, reference = values
        critical = noise.proportions(self.degrees.n, m, effect, reference, current)
        why = f"{percent(current)} of the nodes; in training {percent(reference)}"
        return finding("edges", name, "proportion", (current, reference, critical), limits, why)


def _degrees(adjacency: Csr) -> NumpyArray:
    """Returns the numbers of neighbours, float64 [n]."""
    return adjacency.indptr.diff().cpu().numpy().astype(np.float64)


def _other_components(adjacency: Csr) -> NumpyArray:
    """Returns the sizes of all components but the largest, float64; nodes without neighbours are no component."""
    return component_sizes(adjacency)[:-1].astype(np.float64)


def _usual(quantiles: NumpyArray) -> float:
    """Returns the mean of the middle nine tenths of a distribution, which a hub does not move."""
    cut = round(TAIL * (len(quantiles) - 1))
    return float(quantiles[cut : len(quantiles) - cut].mean())


@dataclass(frozen=True, eq=False)
class ReferenceScores(Summary):
    """P(rare) of nodes of the run's graph outside its training labels.

    Attributes:
        numbers: its distribution.
        mean: of it.
        variance: of it.
        effect: design effect of its mean.
        alike: rank correlation at the ends of edges, and its standard error; see `correlation_along`.
    """

    numbers: ReferenceNumbers
    mean: float
    variance: float
    effect: float
    alike: tuple[float, float] | None

    @classmethod
    def of(cls, p: NumpyArray, nodes: NumpyArray, adjacency: Csr, patch: NumpyArray) -> Self:
        """Returns the summary of P(rare); arguments as of `correlation_along`, one node at least."""
        own, alike = patch[nodes], correlation_along(p, nodes, adjacency, patch)
        return cls(ReferenceNumbers.of(p, own), float(p.mean()), float(p.var()), design_effect(p, own), alike)

    def compare(
        self, p: NumpyArray, nodes: NumpyArray, adjacency: Csr, patch: NumpyArray, noise: Noise
    ) -> Iterator[Finding]:
        """Yields the findings about P(rare) of another graph; arguments as of `correlation_along`, and the tests'."""
        yield from self.compare_distribution(p, noise)
        alike = correlation_along(p, nodes, adjacency, patch)
        if alike is not None and self.alike is not None:
            (current, error), (reference, its_error) = alike, self.alike
            why = f"rank correlation {current:.2f} along edges where it was {reference:.2f}"
            values = (current, reference, noise.deviations * math.hypot(error, its_error))
            yield finding("P(rare)", "neighbours' P(rare)", "correlation", values, CORRELATION, why)

    def compare_distribution(self, p: NumpyArray, noise: Noise) -> Iterator[Finding]:
        """Yields the findings about P(rare) of some nodes, [m], m > 0, whatever their edges."""
        mean, critical = float(p.mean()), noise.mean(self.numbers.n, len(p), self.effect, self.variance)
        beyond = abs(mean - self.mean) > critical
        ratio = abs(math.log(mean / self.mean)) if min(mean, self.mean) > 0 else math.inf if beyond else 0.0
        verdict = MEAN.verdict(ratio, 0.0 if beyond else math.inf)
        why = "" if verdict == "ok" else f"{mean:.3g} where it was {self.mean:.3g}"
        yield Finding("P(rare)", "mean P(rare)", "mean", mean, self.mean, critical, verdict, why)
        yield distance_finding("P(rare)", "P(rare)", *self.numbers.distance(p, noise), "probabilities", SCORES)


def correlation_along(
    p: NumpyArray, nodes: NumpyArray, adjacency: Csr, patch: NumpyArray
) -> tuple[float, float] | None:
    """Returns the rank correlation of P(rare) at the ends of edges, and its standard error over patches (jackknife).

    An edge weighs 1 over the larger of its ends' numbers of neighbours, so that a hub, one probability, counts for no
    more than a node. None with fewer than 30 edges.

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
        return None
    degrees = np.diff(adjacency.indptr.cpu().numpy())
    one, other, weight = ranks[rows], ranks[columns], 1 / np.maximum(degrees[rows], degrees[columns])
    sums = (2 * one**0, one + other, one**2 + other**2, 2 * one * other)
    moments = np.stack([np.bincount(patch[rows], weight * x) for x in sums])
    whole, number = moments.sum(1), int((moments[0] > 0).sum())
    without = np.array([_correlation(whole - part) for part in moments.T if part[0] > 0])
    error = np.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum())
    return _correlation(whole), float(error)


def _correlation(moments: NumpyArray) -> float:
    """Returns the correlation from weight, sum, sum of squares and of products of all ends of edges."""
    n, total, squares, products = moments
    if n <= 0:
        return 0.0
    variance = squares - total**2 / n
    return float((products - total**2 / n) / variance) if variance > TINY * n else 0.0
