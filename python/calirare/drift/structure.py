"""How a graph's edges are spread: numbers of neighbours, nodes without any, and nodes apart from the main part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.drift.columns import TAIL, CurrentNumbers, ReferenceNumbers, compare_numbers, distribution
from calirare.drift.findings import FEW
from calirare.drift.neighbourhoods import component_sizes, design_effect
from calirare.drift.noise import Noise
from calirare_ext import Csr


@dataclass(frozen=True, eq=False)
class ReferenceEdges:
    """The edges of the run's graph.

    Attributes:
        degrees: numbers of neighbours.
        isolated: share of nodes without any.
        isolated_effect: its design effect.
        apart: share of nodes with neighbours that lie outside the largest component.
        apart_effect: its design effect: how many nodes such a component has, seen from a node of it.
    """

    degrees: ReferenceNumbers
    isolated: float
    isolated_effect: float
    apart: float
    apart_effect: float

    @classmethod
    def of(cls, adjacency: Csr, patch: NumpyArray) -> Self:
        """Returns what the edges of a graph are like.

        Args:
            adjacency: [n, n], symmetric.
            patch: of each node, int64 [n].
        """
        degrees, alone, sizes = _look(adjacency)
        effect = max(1.0, float(sizes @ sizes) / max(float(sizes.sum()), 1.0))
        return cls(
            ReferenceNumbers.of(degrees, patch),
            float(alone.mean()),
            design_effect(alone, patch),
            float(sizes.sum()) / len(degrees),
            effect,
        )

    def state(self) -> tuple[dict[str, NumpyArray], dict[str, Any]]:
        """Returns the arrays by name, and the rest as JSON holds it."""
        arrays, facts = self.degrees.state()
        names = ("isolated", "isolated_effect", "apart", "apart_effect")
        return arrays, {name: getattr(self, name) for name in names} | {"degrees": facts}

    @classmethod
    def from_state(cls, arrays: dict[str, NumpyArray], facts: dict[str, Any]) -> Self:
        """Returns the edges of a `state`."""
        rest = {name: float(value) for name, value in facts.items() if name != "degrees"}
        return cls(ReferenceNumbers.from_state(arrays, facts["degrees"]), **rest)


@dataclass(frozen=True)
class CurrentEdges:
    """How the edges of another graph lie to the run's.

    Attributes:
        degrees: numbers of neighbours.
        isolated: share of nodes without any, now, then, and what their difference stays below by chance.
        apart: the same of nodes with neighbours outside the largest component; None where it was not looked at.
        hub: share of nodes that the node of most neighbours is one of, now and then; None where it was not looked at.
        usual: mean number of neighbours of the middle nine tenths of the nodes, now and then.
    """

    degrees: CurrentNumbers
    isolated: tuple[float, float, float]
    apart: tuple[float, float, float] | None
    hub: tuple[float, float] | None
    usual: tuple[float, float]


def compare_edges(then: ReferenceEdges, adjacency: Csr, noise: Noise) -> CurrentEdges:
    """Returns how the edges of another graph, [m, m], m > 0, lie to the run's."""
    degrees, _, sizes = _look(adjacency)
    apart = _share(float(sizes.sum()) / len(degrees), len(degrees), then, then.apart, then.apart_effect, noise)
    shares = float(degrees.max()) / len(degrees), float(then.degrees.quantiles[-1]) / then.degrees.n
    hub = shares if min(len(degrees), then.degrees.n) >= FEW else None  # a tenth of few nodes are few neighbours
    return replace(compare_degrees(then, degrees, noise), apart=apart, hub=hub)


def compare_degrees(then: ReferenceEdges, degrees: NumpyArray, noise: Noise) -> CurrentEdges:
    """Returns the same as far as numbers of neighbours of some nodes tell, float64 [m], m > 0."""
    alone = _share(float((degrees == 0).mean()), len(degrees), then, then.isolated, then.isolated_effect, noise)
    usual = _usual(distribution(degrees)), _usual(then.degrees.quantiles)
    return CurrentEdges(compare_numbers(then.degrees, degrees, noise), alone, None, None, usual)


def _usual(quantiles: NumpyArray) -> float:
    """Returns the mean of the middle nine tenths of a distribution, which a hub does not move."""
    beside = round(TAIL * (len(quantiles) - 1))
    return float(quantiles[beside : len(quantiles) - beside].mean())


def _share(
    now: float, m: int, then: ReferenceEdges, before: float, effect: float, noise: Noise
) -> tuple[float, float, float]:
    """Returns a share of m nodes, that of the run's, and what their difference stays below by chance."""
    n = then.degrees.n
    both = (now * m + before * n) / (n + m)
    return now, before, noise.mean(n, m, effect, both * (1 - both))


def _look(adjacency: Csr) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
    """Returns numbers of neighbours, 1 where there is none, [n] each, and sizes of components but for the largest.

    Nodes without neighbours are no component.
    """
    degrees = adjacency.indptr.diff().cpu().numpy().astype(np.float64)
    return degrees, (degrees == 0).astype(np.float64), component_sizes(adjacency)[:-1].astype(np.float64)
