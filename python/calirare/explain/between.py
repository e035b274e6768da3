"""What lies between the neighbours of a node: entries of A S and A S^2 A S, kept where many nodes ask for the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare_ext import Csr, propagate

KEPT = 2048  # nodes between which the entries are kept
FEW = 100  # nodes between which they are made as fast as they are found
BLOCKS = 6  # of the columns of a symmetric product
DENSE = 1 / 8  # share of entries from which a product with a dense matrix is the faster one


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of A S, and of A S^2 A S where that was asked for, at some nodes.

    Attributes:
        matrices: float64 [1 or 2, k, l].
        rows: those that are meant, int64 [b].
        columns: those that are meant, int64 [r]; None: all.
    """

    matrices: Tensor
    rows: Tensor
    columns: Tensor | None

    def at(self, some: Tensor) -> Tensor:
        """Returns some of the rows that are meant (int64 [c]), [1 or 2, c, r]."""
        if self.columns is None:
            return self.matrices[:, self.rows[some]]
        picked = self.matrices.numpy().take(self.rows[some].numpy(), 1)  # in half the time of torch
        return torch.from_numpy(picked.take(self.columns.numpy(), 2))


class Between:
    """A S, and of two hops A S^2 A S, between some nodes.

    Args:
        matrix: A, symmetric, float64 [n, n].
        scale: the diagonal of S, float64 [n].
        hops: 1 or 2.
    """

    def __init__(self, matrix: Csr, scale: Tensor, hops: int) -> None:
        self.matrix, self.scale, self.hops = matrix, scale, hops
        self._forget()

    def _forget(self) -> None:
        self.nodes = torch.empty(0, dtype=torch.int64)
        self.known = torch.empty(2, 0, 0, dtype=torch.float64)

    def rows(self, nodes: Tensor, places: Tensor) -> Rows:
        """Returns the entries between nodes (ascending, int64 [r]) at some of them (their places, int64 [b])."""
        if self.hops == 2 and FEW <= nodes.numel() <= KEPT and self._knows(nodes):
            order = torch.argsort(self.nodes)
            at = order[torch.searchsorted(self.nodes[order], nodes)]
            return Rows(self.known, at[places], at)
        made = _Around(self.matrix, nodes).columns(places, self.scale if self.hops == 2 else None)
        return Rows(torch.stack([each.T * self.scale[nodes] for each in made]), torch.arange(len(places)), None)

    def _knows(self, nodes: Tensor) -> bool:
        """Returns whether entries between nodes are known, after those that were not are made."""
        if not self._without(nodes).numel():
            return True
        every = torch.cat([self.nodes, self._without(nodes)])
        if self.nodes.numel() and (len(every) - self.nodes.numel()) * len(every) <= nodes.numel() ** 2:  # little work
            wide = _Around(self.matrix, every).field  # with what lies around them, which the next nodes may ask for
            if self._learn(wide if len(wide) <= min(KEPT, 2 * len(every)) else nodes):
                return True
        self._forget()
        return self._learn(nodes)

    def _without(self, nodes: Tensor) -> Tensor:
        """Returns nodes but those that are known."""
        return nodes[~torch.isin(nodes, self.nodes)]

    def _learn(self, nodes: Tensor) -> bool:
        """Makes the entries of nodes beside those that are known; False where few are not 0, or they are too many."""
        known, new = self.nodes.numel(), self._without(nodes)
        every = torch.cat([self.nodes, new])
        if len(every) > KEPT:
            return False
        around, scale = _Around(self.matrix, every), self.scale[every]
        if around.dense is None:
            return False
        if known:
            more = around.between(slice(known, None), self.scale)
            left = torch.cat([self.known[1], more[:, :known].T * scale[known:]], 1)
            shared = torch.cat([left, more * scale])
        else:
            shared = around.shared(self.scale) * scale
        self.nodes, self.known = every, torch.stack([around.dense[:, around.places] * scale, shared])
        return True


class _Around:
    """Some nodes, and what lies between them.

    Args:
        matrix: A, [n, n].
        nodes: int64 [r].
    """

    def __init__(self, matrix: Csr, nodes: Tensor) -> None:
        self.nodes, rows = nodes, matrix.select_rows(nodes)
        self.field, columns = _numbered(rows.indices.long(), matrix.n_cols)  # of all that these nodes read
        self.rows = Csr.unchecked(rows.indptr, columns.to(torch.int32), rows.values, self.field.numel())
        self.places = torch.searchsorted(self.field, nodes)

    @cached_property
    def dense(self) -> Tensor | None:
        """A at these nodes and all that they read, float64 [r, f]; None where few entries of it are not 0."""
        few = self.rows.nnz < DENSE * self.rows.n_rows * self.rows.n_cols
        return None if few else self.rows.to_dense()

    def columns(self, places: Tensor, scale: Tensor | None) -> list[Tensor]:
        """Returns columns of A and of A S^2 A at these nodes, float64 [r, b]; of the second none without a scale."""
        dense = self.dense
        some = (self.rows.select_rows(places).to_dense() if dense is None else dense[places]).T
        direct = some[self.places]
        if scale is None:
            return [direct]
        some = some * scale[self.field][:, None] ** 2
        return [direct, propagate(self.rows, some.contiguous()) if dense is None else dense @ some]

    def between(self, rows: slice, scale: Tensor) -> Tensor:
        """Returns some rows of A S^2 A between these nodes, whose A is dense, float64 [.., r]."""
        assert self.dense is not None
        return (self.dense[rows] * scale[self.field] ** 2) @ self.dense.T

    def shared(self, scale: Tensor) -> Tensor:
        """Returns A S^2 A at these nodes, float64 [r, r]: symmetric, so blocks above the diagonal are a mirror."""
        assert self.dense is not None
        scaled, step = self.dense * scale[self.field], max(1, -(-len(self.dense) // BLOCKS))
        out = scaled.new_empty(len(scaled), len(scaled))
        for first in range(0, len(scaled), step):
            last = first + step
            block = scaled[first:] @ scaled[first:last].T
            out[first:, first:last], out[first:last, last:] = block, block[step:].T
        return out


def _numbered(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns the distinct ones of values in [0, n), ascending, and the place of each value among them."""
    if values.numel() * 8 < n:
        return torch.unique(values, return_inverse=True)
    there = torch.zeros(n, dtype=torch.bool)
    there[values] = True
    place = there.cumsum(0) - 1
    return there.nonzero().flatten(), place[values]
