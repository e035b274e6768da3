"""Hop columns of one node without an edge, for all of its edges at once, for detectors on columns."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from calirare.explain.removal import Propagator, Rows
from calirare.graph import Graph, normalize_features
from calirare.models import HopColumns
from calirare_ext import Csr, as_dense, rows_of_inputs

BLOCK = 2_000_000  # numbers of edges times rows times width worked on together, in cache


class ColumnEdges:
    """The hop columns that a node would have without an edge.

    Args:
        columns: what is read of the graph.
        graph: as the detector takes it.
    """

    def __init__(self, columns: HopColumns, graph: Graph) -> None:
        self.columns, self.taken = columns, graph
        self._last: tuple[int, Tensor, Tensor] | None = None

    @cached_property
    def graph(self) -> Graph:
        """The graph with the features that are propagated."""
        ready, own = normalize_features(self.taken), self.columns.own
        return ready if own is None else own.transform(ready)

    @cached_property
    def x(self) -> Rows:
        """These features, [n, d]."""
        x = self.graph.x
        return Rows(x.shape[0], x.shape[1], lambda rows: as_dense(rows_of_inputs(x, rows)).double())

    @cached_property
    def mean(self) -> Propagator:
        """The mean of the neighbours."""
        return Propagator(self.graph.adjacency, -1.0, 0.0)

    @cached_property
    def once(self) -> Rows:
        """The features' means over the neighbours, [n, d]."""
        return self.mean(self.x)

    def with_and_without(self, node: int, ends: Tensor) -> Tensor:
        """Returns the columns of a node with all edges, and without each (int64 [b, 2]), float32 [1 + b, d].

        The last ones are kept: detectors that share columns need them one after the other.
        """
        if self._last is None or self._last[0] != node or not torch.equal(self._last[1], ends):
            self._last = node, ends, self._made(node, ends)
        return self._last[2]

    def _made(self, node: int, ends: Tensor) -> Tensor:
        rows = self.mean.numbers_of_means(node, max(self.columns.hops, 1))
        kinds = 2 * len(self.graph.relations) if self.columns.hops else 0
        step = max(1, BLOCK // max(max(rows, kinds) * self.x.shape[1], 1))
        ends, weights = self.mean.with_none_removed(node, ends)
        pairs = zip(ends.split(step), weights.split(step), strict=True)
        raw = torch.cat([self._raw(node, some, these).float() for some, these in pairs])
        return self.columns.scaled.of_numbers(raw)

    def _raw(self, node: int, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns the columns of the node before they are scaled, float64 [b, d]; an edge of weight 0 is none."""
        b, hops = len(ends), self.columns.hops
        parts = [self.x[torch.tensor([node])].expand(b, -1)]
        if hops:
            gone = self.mean.removed(ends, weights)
            parts += self.mean.means(node, gone, self.x, self.once, hops)
            parts.append(self._log_degree(self.graph.adjacency, node, ends))
            for relation in self.graph.relations:
                for matrix in (relation.out, relation.into):
                    parts += [self._mean_of(matrix, node, ends), self._log_degree(matrix, node, ends)]
        return torch.cat(parts, 1)

    def _log_degree(self, matrix: Csr, node: int, ends: Tensor) -> Tensor:
        """Returns log(1 + number of neighbours), [b, 1]."""
        others, columns = self._lost(matrix, node, ends)
        columns = columns.sort().values
        gone = torch.searchsorted(columns, others, right=True) - torch.searchsorted(columns, others)
        return torch.log1p((columns.numel() - gone).double())[:, None]

    def _mean_of(self, matrix: Csr, node: int, ends: Tensor) -> Tensor:
        """Returns the mean over the entries of the node's row that are left, [b, d]: of those before and behind."""
        others, columns = self._lost(matrix, node, ends)
        columns, order = columns.sort()
        values = matrix.values[int(matrix.indptr[node]) : int(matrix.indptr[node + 1])].double()[order, None]
        before, behind = torch.searchsorted(columns, others), torch.searchsorted(columns, others, right=True)
        total = _left(values, before, behind)
        return _left(values * self.x[columns], before, behind) / torch.where(total == 0, 1.0, total)

    def _lost(self, matrix: Csr, node: int, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the neighbour that each edge leads to from the node, -1 for none [b], and all of its columns [e]."""
        other = torch.where(ends[:, 0] == node, ends[:, 1], torch.where(ends[:, 1] == node, ends[:, 0], -1))
        columns = matrix.indices[int(matrix.indptr[node]) : int(matrix.indptr[node + 1])].long()
        return torch.where(ends[:, 0] == ends[:, 1], -1, other), columns


def _left(x: Tensor, before: Tensor, behind: Tensor) -> Tensor:
    """Returns the sum of rows of x [e, d] up to some and from others on, [b, d]: what is left out is in no sum."""
    nothing = x.new_zeros(1, x.shape[1])
    first, last = torch.cat([nothing, x.cumsum(0)]), torch.cat([x.flip(0).cumsum(0).flip(0), nothing])
    return first[before] + last[behind]


class SharedColumns:
    """Hop columns of the members of an average, which are often the same though each member has its own copy.

    Args:
        graph: as the detectors take it.
        own: likewise the graph that they were trained on; None: it is `graph`.
    """

    def __init__(self, graph: Graph, own: Graph | None = None) -> None:
        self.graph, self.own, self.known = graph, graph if own is None else own, list[ColumnEdges]()

    def of(self, columns: HopColumns) -> ColumnEdges:
        """Returns what is made of columns; of equal ones the same object, whose `columns` stand for them."""
        for each in self.known:
            if each.columns is columns or each.columns.same_as(columns):
                return each
        self.known.append(ColumnEdges(columns, self.graph))
        return self.known[-1]
