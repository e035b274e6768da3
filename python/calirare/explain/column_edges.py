"""Hop columns of one node without an edge, for all of its edges at once, and what a model of columns says of them."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.explain.removal import Propagator
from calirare.graph import Graph, normalize_features
from calirare.models import HopColumns
from calirare_ext import Csr

BLOCK = 8_000_000  # numbers of edges times rows times width worked on together


class ColumnEdges:
    """The hop columns that a node would have without an edge.

    Args:
        columns: what is read of the graph.
        graph: as the detector takes it.
    """

    def __init__(self, columns: HopColumns, graph: Graph) -> None:
        self.columns, ready = columns, normalize_features(graph)
        self.graph = ready if columns.own is None else columns.own.transform(ready)
        x = self.graph.x
        self.x = (x.to_dense() if isinstance(x, Csr) else x).double()
        self.mean = Propagator(graph.adjacency, -1.0, 0.0)
        self.once = self.mean(self.x)
        self.names = tuple(column.name for column in columns.scaled.columns)

    def with_and_without(self, node: int, ends: Tensor) -> tuple[Graph, Graph]:
        """Returns the columns of a node with all edges and without each (int64 [b, 2]), as graphs of 1 and b nodes."""
        nobody = torch.tensor([[node, node]])
        whole = self._raw(node, nobody, torch.zeros(1, dtype=torch.float64))
        width = max(self.mean.numbers(node, max(self.columns.hops, 1)) * self.x.shape[1], 1)
        parts = [self._raw(node, part, self.mean.weights_of(part)) for part in ends.split(max(1, BLOCK // width))]
        return self._scaled(whole), self._scaled(torch.cat(parts))

    def _raw(self, node: int, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns the columns of the node before they are scaled, float64 [b, d]; an edge of weight 0 is none."""
        b, hops = len(ends), self.columns.hops
        parts = [self.x[node].expand(b, -1)]
        if hops:
            gone = self.mean.removed(ends, weights)
            parts += self.mean.reached(node, gone, self.x, self.once, hops, lambda level, x: x)
            parts.append(self._log_degree(self.graph.adjacency, node, ends))
            for relation in self.graph.relations:
                for matrix in (relation.out, relation.into):
                    parts += [self._mean_of(matrix, node, ends), self._log_degree(matrix, node, ends)]
        return torch.cat(parts, 1)

    def _log_degree(self, matrix: Csr, node: int, ends: Tensor) -> Tensor:
        """Returns log(1 + number of neighbours), [b, 1]."""
        return torch.log1p(self._kept(matrix, node, ends)[0].sum(1, keepdim=True).double())

    def _mean_of(self, matrix: Csr, node: int, ends: Tensor) -> Tensor:
        """Returns the mean over the entries of the node's row that are left, [b, d]."""
        kept, columns, values = self._kept(matrix, node, ends)
        weights = kept * values
        total = weights.sum(1, keepdim=True)
        return weights @ self.x[columns] / torch.where(total == 0, 1.0, total)

    def _kept(self, matrix: Csr, node: int, ends: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns which entries of the node's row are left without each edge [b, e], their columns and values [e]."""
        first, last = int(matrix.indptr[node]), int(matrix.indptr[node + 1])
        columns = matrix.indices[first:last].long()
        other = torch.where(ends[:, 0] == node, ends[:, 1], torch.where(ends[:, 1] == node, ends[:, 0], -1))
        lost = (columns[None] == other[:, None]) & (ends[:, 0] != ends[:, 1])[:, None]
        return ~lost, columns, matrix.values[first:last].double()

    def _scaled(self, raw: Tensor) -> Graph:
        """Returns columns as the model reads them."""
        n = raw.shape[0]
        nothing = torch.zeros(0)
        alone = Csr(torch.zeros(n + 1, dtype=torch.int64), nothing.to(torch.int32), nothing, n)
        return self.columns.scaled.transform(Graph(alone, raw.float(), feature_names=self.names, trusted=True))
