"""Columns a tabular model reads of a node: its own features, its neighbours' means over several hops, its degree."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calirare._util.array_files import release, scratch
from calirare.features import FeatureMap
from calirare.graph import Graph, default_names, normalize_features
from calirare.graph.arrays import rows_of
from calirare.models.fitted import State, prefixed, unprefixed
from calirare_ext import Csr, cut, neighbour_means

BLOCK = 32_768  # nodes whose columns are made together, where those of all never are
FEW = 0.25  # share of the nodes that neighbours may be for what lies between two hops to be made at them alone


class ColumnRows:
    """[x, M x, .., M^K x, log(1 + degree)] of some nodes of one graph, with M = D^-1 A; of relations one hop each way.

    What lies between two hops, M x of all nodes, is made once and kept; of few nodes it is made at their neighbours.

    Args:
        graph: with features that are propagated as they are.
        hops: K >= 0; 0 are the features alone.
    """

    def __init__(self, graph: Graph, hops: int) -> None:
        self.graph, self.hops = graph, hops
        self.x = graph.x.to_dense() if isinstance(graph.x, Csr) else graph.x
        self._levels = [self.x]  # M^l x of all nodes, as far as they were asked for
        self.last: tuple[Tensor, Tensor] | None = None  # nodes, and their columns as a model reads them

    @cached_property
    def relations(self) -> list[tuple[str, Csr]]:
        """Name and matrix of each relation, each way."""
        return [
            (f"{relation.name} {way}", matrix)
            for relation in self.graph.relations
            for way, matrix in (("to", relation.out), ("from", relation.into))
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        features = self.graph.feature_names or default_names(self.graph.n_features)
        names = list(hop_names(features, self.hops))
        for whose, _ in self.relations if self.hops else ():
            names += [*(f"{whose} {name}" for name in features), f"log degree, {whose}"]
        return tuple(names)

    def every(self) -> Tensor:
        """Returns the columns of all nodes, [n, d]."""
        blocks = [self.x]
        for _ in range(self.hops):
            blocks.append(neighbour_means(self.graph.adjacency, blocks[-1]))
        if self.hops:
            blocks.append(self.log_degree(self.graph.adjacency))
            for _, matrix in self.relations:
                blocks += [neighbour_means(matrix, self.x), self.log_degree(matrix)]
        return torch.cat(blocks, 1)

    def at(self, nodes: Tensor) -> Tensor:
        """Returns the columns of some nodes (int64 [r]), [r, d]."""
        blocks = [self.x[nodes], *(self._hop(hop, nodes) for hop in range(1, self.hops + 1))]
        if self.hops:
            blocks.append(self.log_degree(self.graph.adjacency, nodes))
            for _, matrix in self.relations:
                blocks += [neighbour_means(matrix.select_rows(nodes), self.x), self.log_degree(matrix, nodes)]
        return torch.cat(blocks, 1)

    def _hop(self, hop: int, nodes: Tensor) -> Tensor:
        """Returns M^hop x at some nodes."""
        block = self.graph.adjacency.select_rows(nodes)
        if len(self._levels) >= hop or block.nnz > FEW * self.graph.n_nodes:
            return neighbour_means(block, self.level(hop - 1))
        block, near = cut(self.graph.adjacency, nodes)
        return neighbour_means(block, self._hop(hop - 1, near))

    def level(self, hop: int) -> Tensor:
        """Returns M^hop x of all nodes, made once."""
        while len(self._levels) <= hop:
            below = self._levels[-1]
            out = scratch(below.shape[0], below.shape[1], below.device)
            for rows in blocks_of(out.shape[0]):
                out[rows] = neighbour_means(rows_of(self.graph.adjacency, rows), below)
                release(below)
            release(out)
            self._levels.append(out)
        return self._levels[hop]

    def log_degree(self, matrix: Csr, nodes: Tensor | None = None) -> Tensor:
        """Returns log(1 + number of neighbours), [r, 1]."""
        degree = matrix.indptr.diff()
        return torch.log1p((degree if nodes is None else degree[nodes]).to(self.x))[:, None]


def hop_names(features: tuple[str, ...], hops: int) -> tuple[str, ...]:
    """Returns the names of the columns of an undirected graph with features of these names."""
    names = list(features)
    for hop in range(1, hops + 1):
        names += [f"{'neighbours' if hop == 1 else f'{hop} hops'}' {name}" for name in features]
    return (*names, "log degree") if hops else tuple(names)


def blocks_of(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Yields the rows of a matrix in blocks."""
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


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
            hops: K; without edges 0.
            seed: of the maps, and of the sample.
            labelled: the nodes that a model learns from, int64 [m]; None: not known.
            like: columns of another reach, fitted on the same graph: words are reduced to the same directions.

        Raises:
            InputError: the features cannot be mapped.
        """
        ready, own = normalize_features(graph), None
        hops = hops if graph.n_edges else 0
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
        _ROWS.setdefault(graph, WeakKeyDictionary())[columns] = rows
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
        rows = self.rows(graph)
        if rows.last is None or not torch.equal(rows.last[0], nodes):
            rows.last = nodes, self.scaled.of_numbers(rows.at(nodes))
        return rows.last[1]  # members of an average ask one by one

    def rows(self, graph: Graph) -> ColumnRows:
        """Returns the columns of a graph before they are scaled, made at the nodes that are asked for."""
        kept = _ROWS.setdefault(graph, WeakKeyDictionary())
        if self not in kept:
            kept[self] = ColumnRows(self.ready(graph), self.hops)
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
_ROWS: WeakKeyDictionary[Graph, WeakKeyDictionary[HopColumns, ColumnRows]] = WeakKeyDictionary()


def _alone(raw: Tensor | Csr, names: tuple[str, ...]) -> Graph:
    """Returns columns as the features of nodes without an edge."""
    return Graph(Csr.zeros(raw.shape[0], raw.device), raw, feature_names=names, trusted=True)


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
