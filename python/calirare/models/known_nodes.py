"""The nodes of a training graph, found again in other graphs: by their names, or by their numbers and edges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare.features import Stored, hashed_names, places_by_name
from calirare.graph import Graph
from calirare_ext import Csr, row_parts

MIXED = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbouring numbers become distant ones
HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class KnownNodes(Stored):
    """Nodes that are known by their names, or, without names, by their numbers in a graph of the same edges among them.

    Attributes:
        keys: hashes of the names, uint64 as int64 [n]; empty where nodes have none.
        edges: what tells the edges from others, see `mark`; empty where nodes have names.
    """

    keys: NumpyArray
    edges: str

    @property
    def n_nodes(self) -> int:
        """How many nodes there are."""
        return int(self.edges.partition("-")[0]) if self.edges else len(self.keys)

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Returns what is kept of the nodes of a graph."""
        if graph.node_names is not None:
            return cls(hashed_names(graph.node_names), "")
        return cls(np.zeros(0, dtype=np.int64), edges_of(graph, graph.n_nodes))

    def places_in(self, graph: Graph) -> NumpyArray | None:
        """Returns of each node of a graph its place among the known ones, int64 [n], -1 for none; None: no node."""
        if self.edges:
            n = self.n_nodes
            return self.numbered(0, graph.n_nodes) if graph.n_nodes >= n and self.edges == edges_of(graph, n) else None
        return None if graph.node_names is None else self.places_of(graph.node_names)

    def places_of(self, names: NumpyArray) -> NumpyArray:
        """Returns the places of nodes by their names, int64 [n], -1 for none."""
        return places_by_name(self.keys, names)

    def numbered(self, first: int, last: int) -> NumpyArray:
        """Returns the places of nodes from one to another of a graph that begins with the known ones, -1 for none."""
        nodes = np.arange(first, last)
        return np.where(nodes < self.n_nodes, nodes, -1)


def edges_of(graph: Graph, n: int) -> str:
    """Returns a fingerprint of the edges among the first n nodes of a graph."""
    a = graph.adjacency.to("cpu")
    blocks = ((first, a.select_rows(torch.arange(first, last))) for first, last in row_parts(a))
    return mark(n, [sums_of(first, rows, n) for first, rows in blocks])


def mark(n: int, sums: Iterable[tuple[int, int]]) -> str:
    """Returns a fingerprint of n nodes with edges, from `sums_of` parts of their rows in any order."""
    every = list(sums)
    count, mixed = (sum(each[i] for each in every) for i in (0, 1))
    return f"{n}-{count}-{mixed % 2**64:016x}"


def sums_of(first: int, rows: Csr, n: int) -> tuple[int, int]:
    """Returns how many entries rows have among the first n nodes, and a sum of hashes of their ends.

    Args:
        first: number of the first row.
        rows: of the adjacency.
        n: number of nodes.
    """
    row = torch.arange(first, first + rows.n_rows).repeat_interleave(rows.indptr.diff())
    ends = row * n + rows.indices
    if max(first + rows.n_rows, rows.n_cols) > n:
        ends = ends[(row < n) & (rows.indices < n)]
    x = ends.numpy().view(np.uint64) * MIXED
    x = (x ^ (x >> HALF)) * MIXED
    return len(x), int((x ^ (x >> HALF)).sum(dtype=np.uint64))
