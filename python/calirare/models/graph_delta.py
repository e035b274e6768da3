"""A known graph with a few nodes added to it, of which no more is made than the rows that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.graph import Graph
from calirare_ext import Csr, row_parts, row_sums


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
    """The rows of a graph's adjacency as arrays.

    Args:
        graph: the graph, on the CPU.

    Attributes:
        n: number of nodes.
        sums: of the rows, float64 [n].
        bare: nodes without a self loop, bool [n].
    """

    def __init__(self, graph: Graph) -> None:
        a: Csr = graph.adjacency
        self.n = graph.n_nodes
        self.indptr, self.indices, self.values = (part.numpy() for part in (a.indptr, a.indices, a.values))
        self.sums, self.bare = row_sums(a).numpy(), ~_stored_loops(a).numpy()

    def entries(self, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns the entries of some rows, one row after the other: the row's place in `nodes`, column and value."""
        starts, counts = self.indptr[nodes], self.indptr[nodes + 1] - self.indptr[nodes]
        place = np.repeat(np.arange(len(nodes)), counts)
        entry = np.arange(int(counts.sum())) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return place, self.indices[entry].astype(np.int64), self.values[entry]

    def between(self, nodes: NumpyArray, others: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns the entries of rows `nodes`, ascending, in columns `others`: both places, and the value.

        The matrix is symmetric: the rows of the few `others` are searched for `nodes`, however long they are.
        """
        wanted, found = nodes.astype(self.indices.dtype), list[tuple[NumpyArray, NumpyArray, NumpyArray]]()
        for j, other in enumerate(others):
            first, last = self.indptr[other], self.indptr[other + 1]
            row = self.indices[first:last]
            at = np.searchsorted(row, wanted)
            hits = np.flatnonzero(at < len(row))
            hits = hits[row[at[hits]] == wanted[hits]]
            found.append((hits, np.full(len(hits), j), self.values[first + at[hits]]))
        if not found:
            return wanted[:0].astype(np.int64), wanted[:0].astype(np.int64), self.values[:0]
        places, columns, values = zip(*found, strict=True)
        return np.concatenate(places), np.concatenate(columns), np.concatenate(values)


class GraphDelta:
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

        self.touched = np.unique(edges.known[edges.known < known.n])  # known nodes that a new edge ends at

    def new_entries(self, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns the entries that new edges make in some rows: the row's place in `nodes`, column and value."""
        first, last = np.searchsorted(self.rows, nodes, "left"), np.searchsorted(self.rows, nodes, "right")
        counts = last - first
        entry = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        return np.repeat(np.arange(len(nodes)), counts), self.columns[entry], self.weights[entry]

    def entries(self, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns all entries of some rows, likewise."""
        old = np.flatnonzero(nodes < self.known.n)
        place, *known = self.known.entries(nodes[old])
        more, *new = self.new_entries(nodes)
        columns, values = (np.concatenate(pair) for pair in zip(known, new, strict=True))
        return np.concatenate([old[place], more]), columns, values

    def sums(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the sums of some rows, float64."""
        return _or(self.known.sums, nodes, 0.0) + self.added(nodes)

    def bare(self, nodes: NumpyArray) -> NumpyArray:
        """Returns which of some nodes have no self loop."""
        return _or(self.known.bare, nodes, fill=True)

    def added(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the weight that new edges add to the rows of some nodes, float64."""
        total = np.concatenate([[0.0], np.cumsum(self.weights, dtype=np.float64)])
        return total[np.searchsorted(self.rows, nodes, "right")] - total[np.searchsorted(self.rows, nodes, "left")]


def _or(of_known: NumpyArray, nodes: NumpyArray, fill: float | bool) -> NumpyArray:
    """Returns what is stored of known nodes, and of new ones something else."""
    old = nodes < len(of_known)
    return np.where(old, of_known[np.where(old, nodes, 0)], fill)


def _stored_loops(a: Csr) -> Tensor:
    """Returns which nodes have a stored self loop, bool [n]."""
    found = torch.zeros(a.n_rows, dtype=torch.bool)
    for first, last in row_parts(a):
        rows = torch.arange(first, last).repeat_interleave(a.indptr[first : last + 1].diff())
        columns = a.indices[int(a.indptr[first]) : int(a.indptr[last])]
        found[rows[rows == columns]] = True
    return found


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
