"""Columns a tabular model reads of a node: its own features, its neighbours' means over several hops, its degree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calirare.features import FeatureMap
from calirare.graph import Graph, normalize_features
from calirare.models.column_rows import BLOCK, ColumnRows
from calirare.models.fitted import State, prefixed, unprefixed
from calirare_ext import Csr

DIRECTIONS = 128  # width from which sparse words are reduced to as many singular directions
IN_MEMORY = 10**9  # bytes of the columns of all nodes, raw and scaled, up to which they are made together and kept
SAMPLE = 100_000  # nodes on which columns are fitted beyond that


@dataclass(frozen=True, eq=False)
class HopColumns:
    """[x, M x, .., M^K x, log(1 + degree)] with M = D^-1 A the mean of the neighbours, each column scaled.

    A node's own features stay apart from its neighbours', so that a model may weigh them where neighbours are unlike
    (SIGN, Frasca et al. 2020; XGBGraph of GADBench, Tang et al. 2023). Of a graph with typed or directed relations each
    adds the means over the neighbours that a node's edges lead to and come from, and their numbers. Sparse features are
    reduced to their leading singular directions first. Scaling is fitted on one graph and applied to any.

    Attributes:
        hops: K >= 0; 0 are the features alone.
        own: map of the features before they are propagated, or None where they are read as they are.
        scaled: map of all columns.
    """

    hops: int
    own: FeatureMap | None
    scaled: FeatureMap

    @classmethod
    def fit(
        cls,
        graph: Graph,
        hops: int = 2,
        seed: int = 0,
        labelled: Tensor | None = None,
        like: HopColumns | None = None,
    ) -> Self:
        """Returns the columns with maps fitted on a graph; no label is read.

        They are fitted on all nodes, or, where the columns of all would take more than `IN_MEMORY`, on `SAMPLE` random
        ones and those that a model learns from: a column that is constant in the sample may vary among these.

        Args:
            graph: the graph.
            hops: K.
            seed: of the maps, and of the sample.
            labelled: the nodes that a model learns from, int64 [m]; None: not known.
            like: columns of another reach, fitted on the same graph: words are reduced to the same directions.

        Raises:
            InputError: the features cannot be mapped.
        """
        ready, own = normalize_features(graph), None
        if isinstance(ready.x, Csr) and ready.n_features > DIRECTIONS:
            own = FeatureMap.fit(ready, "svd", seed=seed) if like is None else like.own
            assert own is not None
            ready = own.transform(ready)
        if not blockwise(graph, hops):
            raw = _raw(ready, hops)
            columns = cls(hops, own, FeatureMap.fit(raw, "auto", seed=seed))
            _KEPT.setdefault(graph, WeakKeyDictionary())[columns] = columns.scaled.transform(raw)
            return columns
        rows, nodes = ColumnRows(ready, hops), _sample(graph.n_nodes, seed).to(graph.device)
        if labelled is not None:
            nodes = torch.unique(torch.cat([nodes, labelled]))
        columns = cls(hops, own, FeatureMap.fit(_alone(rows.at(nodes), rows.names), "auto", seed=seed))
        _ROWS.setdefault(graph, WeakKeyDictionary())[columns] = ScaledRows(rows, columns.scaled)
        return columns

    @property
    def n_features(self) -> int:
        """Number of columns a model reads."""
        return self.scaled.n_features

    def of(self, graph: Graph) -> Graph:
        """Returns a graph with the columns as its features, float32 [n, d]; made once as long as the graph lives."""
        kept = _KEPT.setdefault(graph, WeakKeyDictionary())
        if self not in kept:
            kept[self] = self.scaled.transform(_raw(self.ready(graph), self.hops))
        return kept[self]

    def blockwise(self, graph: Graph) -> bool:
        """Returns whether the columns of a graph are made of some nodes at a time, see `blockwise`."""
        return blockwise(graph, self.hops)

    def parts_of(self, graph: Graph, nodes: Tensor | None) -> list[Tensor | None]:
        """Returns the nodes that are asked for (None: all) in parts whose columns are made together."""
        if not self.blockwise(graph):
            return [nodes]
        every = torch.arange(graph.n_nodes, device=graph.device) if nodes is None else nodes
        return list(every.split(BLOCK))

    def at(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Returns the columns of some nodes of a graph (int64 [r]), float32 [r, d]."""
        if not self.blockwise(graph):
            x = self.of(graph).x
            assert isinstance(x, Tensor)
            return x[nodes]
        return self._scaled_rows(graph).at(nodes)

    def rows(self, graph: Graph) -> ColumnRows:
        """Returns the columns of a graph before they are scaled, made at the nodes that are asked for."""
        return self._scaled_rows(graph).rows

    def _scaled_rows(self, graph: Graph) -> ScaledRows:
        kept = _ROWS.setdefault(graph, WeakKeyDictionary())
        if self not in kept:
            kept[self] = ScaledRows(ColumnRows(self.ready(graph), self.hops), self.scaled)
        return kept[self]

    def same_as(self, other: HopColumns) -> bool:
        """Returns whether these and others are the same of every graph."""
        (tensors, facts), (others, told) = self.state(), other.state()
        if facts != told or tensors.keys() != others.keys():
            return False
        return all(torch.equal(value.nan_to_num(), others[name].nan_to_num()) for name, value in tensors.items())

    def propagated(self, x: Tensor | Csr) -> Tensor:
        """Returns the features of some nodes, as the detector takes them, as they are propagated, [r, d]."""
        if self.own is not None:
            x = self.own.transform(_alone(x, tuple(column.name for column in self.own.columns))).x
        return x.to_dense() if isinstance(x, Csr) else x

    def ready(self, graph: Graph) -> Graph:
        """Returns a graph with the features that are propagated."""
        ready = normalize_features(graph)
        return ready if self.own is None else self.own.transform(ready)

    def state(self) -> State:
        """Returns what `from_state` makes it of again."""
        parts = {"scaled": self.scaled} | ({} if self.own is None else {"own": self.own})
        states = {name: part.state() for name, part in parts.items()}
        tensors = {key: value for name, (own, _) in states.items() for key, value in prefixed(name, own).items()}
        return tensors, {"hops": self.hops, "maps": {name: facts for name, (_, facts) in states.items()}}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` was taken from.

        Raises:
            LookupError: something is missing.
        """
        maps = {n: FeatureMap.from_state(unprefixed(n, tensors), f) for n, f in facts["maps"].items()}
        return cls(int(facts["hops"]), maps.get("own"), maps["scaled"])


def blockwise(graph: Graph, hops: int) -> bool:
    """Returns whether hop columns are made of some nodes at a time, as all of them would take over `IN_MEMORY`."""
    d = min(graph.n_features, DIRECTIONS) if isinstance(graph.x, Csr) else graph.n_features
    width = d + hops * d + (1 + 2 * len(graph.relations) * (d + 1) if hops else 0)
    return 2 * 4 * graph.n_nodes * width > IN_MEMORY


_KEPT: WeakKeyDictionary[Graph, WeakKeyDictionary[HopColumns, Graph]] = WeakKeyDictionary()
_ROWS: WeakKeyDictionary[Graph, WeakKeyDictionary[HopColumns, ScaledRows]] = WeakKeyDictionary()


class ScaledRows:
    """The columns of some nodes of one graph as a model reads them; the last answer is kept.

    Args:
        rows: before they are scaled.
        scaled: their map.
    """

    def __init__(self, rows: ColumnRows, scaled: FeatureMap) -> None:
        self.rows, self.scaled = rows, scaled
        self._last: tuple[Tensor, Tensor] | None = None

    def at(self, nodes: Tensor) -> Tensor:
        """Returns the columns of some nodes (int64 [r]), float32 [r, d]; members of an average ask one by one."""
        if self._last is None or not torch.equal(self._last[0], nodes):
            self._last = nodes, self.scaled.of_numbers(self.rows.at(nodes))
        return self._last[1]


def _alone(raw: Tensor | Csr, names: tuple[str, ...]) -> Graph:
    """Returns columns as the features of nodes without an edge."""
    n = raw.shape[0]
    indptr = torch.zeros(n + 1, dtype=torch.int64, device=raw.device)
    no_edge = Csr(indptr, indptr.new_empty(0, dtype=torch.int32), torch.empty(0, device=raw.device), n)
    return Graph(no_edge, raw, feature_names=names, trusted=True)


def _sample(n: int, seed: int) -> Tensor:
    """Returns the nodes by which the columns of a large graph are scaled, ascending: up to `SAMPLE` random ones."""
    if n <= SAMPLE:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed % 2**63))[:SAMPLE].sort().values


def _raw(graph: Graph, hops: int) -> Graph:
    """Returns the graph with the columns before they are scaled."""
    rows = ColumnRows(graph, hops)
    return dataclasses.replace(
        graph, x=rows.every(), feature_names=rows.names, feature_normalisation="none", relations=(), trusted=True
    )
