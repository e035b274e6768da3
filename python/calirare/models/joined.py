"""A known graph with a few nodes added to it, of which no more is made than the rows that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


def product(place: NumpyArray, weights: NumpyArray, n_rows: int, x: NumpyArray) -> NumpyArray:
    """Returns the sums of weighted rows of x [e, d] by their places, float32 [n_rows, d]."""
    import scipy.sparse as sp

    order = np.argsort(place, kind="stable")
    indptr = np.searchsorted(place[order], np.arange(n_rows + 1))
    a = sp.csr_array((weights[order].astype(np.float32), order, indptr), shape=(n_rows, len(place)))
    return np.asarray(a @ x, dtype=np.float32)


class Level:
    """Rows of known and new nodes, n of the former: stored ones, or made of other rows where they are asked for."""

    def __init__(self, known: Tensor, own: NumpyArray) -> None:
        self.known, self.own = known, own

    def at(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the rows of some nodes, float32 [r, d]."""
        old = nodes < len(self.known)
        out = np.empty((len(nodes), self.own.shape[1]), dtype=np.float32)
        out[old] = self.known[torch.from_numpy(nodes[old])].numpy()
        out[~old] = self.own[nodes[~old] - len(self.known)]
        return out


class MadeLevel(Level):
    """Rows that are made once for each distinct node."""

    def __init__(self, make: Callable[[NumpyArray], NumpyArray]) -> None:
        self.make = make

    def at(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the rows of some nodes, float32 [r, d]."""
        near, inverse = np.unique(nodes, return_inverse=True)
        return self.make(near)[inverse]
