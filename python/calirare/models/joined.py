"""A known graph with a few nodes added to it, of which no more is made than the rows that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.graph import Graph
from calirare_ext import Csr


@dataclass(frozen=True, eq=False)
class NewEdges:
    """The edges of b new nodes, each once; an edge counts in both directions.

    Attributes:
        new: the new node, 0 to b - 1, int64 [e].
        known: its neighbour: a node of the graph, or n + j for new node j, int64 [e].
        weights: > 0, float32 [e].
    """

    new: NumpyArray
    known: NumpyArray
    weights: NumpyArray


class KnownRows:
    """The rows of a graph's adjacency as arrays, and what every degree is.

    Args:
        graph: the graph, on the CPU.
    """

    def __init__(self, graph: Graph) -> None:
        a: Csr = graph.adjacency
        self.n = graph.n_nodes
        self.indptr, self.indices, self.values = (part.numpy() for part in (a.indptr, a.indices, a.values))

    def entries(self, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns the entries of some rows, one row after the other: the row's place in `nodes`, column and value."""
        starts, counts = self.indptr[nodes], self.indptr[nodes + 1] - self.indptr[nodes]
        place = np.repeat(np.arange(len(nodes)), counts)
        entry = np.arange(int(counts.sum())) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return place, self.indices[entry].astype(np.int64), self.values[entry]


class JoinedRows:
    """The same with new nodes, numbered from n on.

    Args:
        known: of the graph.
        edges: of the new nodes.
    """

    def __init__(self, known: KnownRows, edges: NewEdges) -> None:
        self.known = known
        ends = np.concatenate([edges.new + known.n, edges.known]), np.concatenate([edges.known, edges.new + known.n])
        order = np.argsort(ends[0], kind="stable")
        self.rows, self.columns = ends[0][order], ends[1][order]
        self.weights = np.concatenate([edges.weights, edges.weights])[order]

    def entries(self, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns the entries of some rows, distinct: the row's place in `nodes`, column and value."""
        old = np.flatnonzero(nodes < self.known.n)
        place, columns, values = self.known.entries(nodes[old])
        first, last = np.searchsorted(self.rows, nodes, "left"), np.searchsorted(self.rows, nodes, "right")
        counts = last - first
        entry = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        return (
            np.concatenate([old[place], np.repeat(np.arange(len(nodes)), counts)]),
            np.concatenate([columns, self.columns[entry]]),
            np.concatenate([values, self.weights[entry]]),
        )

    def added(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the weight that new edges add to the rows of some nodes, float64."""
        total = np.concatenate([[0.0], np.cumsum(self.weights, dtype=np.float64)])
        return total[np.searchsorted(self.rows, nodes, "right")] - total[np.searchsorted(self.rows, nodes, "left")]


def product(place: NumpyArray, columns: NumpyArray, weights: NumpyArray, n_rows: int, x: Any) -> NumpyArray:
    """Returns sum of weights times rows of x, float32 [n_rows, d]: `x` is asked for distinct rows, ascending."""
    import scipy.sparse as sp

    near, inverse = np.unique(columns, return_inverse=True)
    rows = x(near)
    a = sp.csr_array((weights.astype(np.float32), (place, inverse)), shape=(n_rows, len(near)))
    return np.asarray(a @ rows, dtype=np.float32)


def tensor_rows(x: Tensor, nodes: NumpyArray) -> NumpyArray:
    """Returns rows of a tensor as an array."""
    return x[torch.from_numpy(nodes)].numpy()
