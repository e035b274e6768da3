"""Hop columns before they are scaled: of all nodes of a graph, or of those that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from calirare._util.array_files import release, scratch
from calirare.graph import Graph, default_names
from calirare.graph.arrays import rows_of
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
        names = list(features)
        for hop in range(1, self.hops + 1):
            names += [f"{'neighbours' if hop == 1 else f'{hop} hops'}' {name}" for name in features]
        if self.hops:
            names.append("log degree")
            for whose, _ in self.relations:
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


def blocks_of(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Yields the rows of a matrix in blocks."""
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))
