"""A graph convolution of two layers at a node without each of its edges, in closed form.

Before the first layer y = X W_1 is propagated once or twice by P = S A S, S = D^-1/2, and is read at the node v and its
neighbours i. An edge (v, u) moves S at v and u alone: with d = s' - s, t = A S y and C = A S^2 A,

    once:  z_i = (A S y)_i,         z'_i = z_i + A_iv d_v y_v + A_iu d_u y_u
    twice: z_i = (A S^2 A S y)_i,   z'_i = z_i + A_iv p + A_iu q + C_iv d_v y_v + C_iu d_u y_u
           p = s'_v^2 t'_v - s_v^2 (t_v + A_vv d_v y_v + A_vu d_u y_u), q the same with u and v exchanged

for every i but u, which v does not read any more. In v's own row A_uv s'_u y_u or A_uv s'_u^2 t'_u is missing.
So all rows of all edges are a matrix of rank four beside what is known, however many nodes lie two hops away.

Among many neighbours an edge moves little: where no edge can turn any hidden unit of i on or off, which
|C_iu| <= (C_ii C_uu)^1/2 tells, the sum over such i is linear in p, q and d y, and C is never made. The other i are
made one by one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare.explain.removal import Propagator, Rows, numbered_anew, with_neighbours
from calirare_ext import Csr, propagate, turned_times

NUMBERS = 1 << 17  # worked on together: edges times rows times width, in cache
WIDE = 4096  # neighbours whose entries of A and C are made together
FEW = 32  # columns up to which all rows are multiplied, where that is not much more than the node's own
COPIED = 8  # products that an entry of A costs which is copied first
DENSE = 1 / 8  # share of entries from which a product with a dense matrix is the faster one
ROUNDING = 1 + 1e-9  # by which a bound is drawn wider


@dataclass(frozen=True, eq=False)
class Head:
    """What follows the propagations: relu(x + bias) @ weight, propagated once more to the node.

    Attributes:
        bias: float64 [width].
        weight: float64 [width].
    """

    bias: Tensor
    weight: Tensor


class OwnEdges:
    """Log-odds of a node without each of its edges.

    Args:
        propagator: P, the same powers of the degrees on both sides.
        y: what is propagated first, [n, width].
        once: P y.
        hops: how often before the first layer, 1 or 2.
        head: of the network.
    """

    def __init__(self, propagator: Propagator, y: Rows, once: Rows, hops: int, head: Head) -> None:
        self.propagator, self.hops, self.y, self.head = propagator, hops, y, head
        self.scale = propagator.left
        self.once, self.last = once, once if hops == 1 else propagator(once)
        self.size = Rows(y.shape[0], 1, self._size)
        a = propagator.matrix
        self.largest = torch.stack(a.values.aminmax()).abs().max() if a.nnz else a.values.new_zeros(())

    def with_head(self, head: Head) -> OwnEdges:
        """Returns the same of a network with another end, which shares what was made."""
        other = copy.copy(self)
        other.head = head
        return other

    def expect(self, nodes: Tensor) -> None:
        """Makes what edges of these nodes (int64 [n]) read."""
        around = with_neighbours(self.propagator.matrix, nodes)
        for rows in (self.y, self.last, self.size):
            rows.prepare(around)

    def read(self, nodes: Tensor) -> Tensor:
        """Returns A S y of nodes, int64 [..], as [.., width]."""
        return self.once[nodes] / self.scale[nodes, None]

    def known(self, nodes: Tensor) -> Tensor:
        """Returns z of nodes, int64 [k], as [k, width]."""
        return self.last[nodes] / self.scale[nodes, None]

    def _size(self, nodes: Tensor) -> Tensor:
        """Returns C_ii^1/2 of nodes, [k, 1]."""
        rows = self.propagator.matrix.select_rows(nodes)
        squares = (rows.values * self.scale[rows.indices.long()]).square()
        return torch.zeros_like(self.scale[nodes]).index_add_(0, rows.rows(), squares).sqrt()[:, None]

    def effect(self, node: int, others: Tensor) -> Tensor:
        """Returns how the output at a node changes without its edge to each of others (int64 [b]), float64 [b]."""
        row = self.propagator.matrix.select_rows(torch.tensor([node]))
        nodes = torch.unique(torch.cat([row.indices.long(), torch.tensor([node])]))
        around = _Around(self.propagator.matrix, nodes, self.scale, self.hops)
        ends, weights = self.propagator.with_nobody(node, torch.stack([torch.full_like(others, node), others], 1))
        said = self._said(around, ends, weights)
        return said[1:] - said[0]

    def _said(self, around: _Around, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns the output, before the last bias, without each edge (int64 [b, 2], the node first), float64 [b]."""
        moved, nodes, scale = _Moved(self, ends, weights), around.nodes, self.scale[around.nodes]
        places = torch.searchsorted(nodes, torch.cat([ends[:1, 0], ends[:, 1]]))
        here, others = places[:1], places[1:]
        rows = around.columns(here)[:, :, 0]  # A_vi, and C_vi
        own = self.known(ends[0, :1]) - moved.lost
        for row, of_v, of_u in zip(rows, moved.of_v, moved.of_u, strict=True):
            own = own + row[here] * of_v + row[others, None] * of_u
        own = torch.relu(moved.scale_v[:, None] * own + self.head.bias) @ self.head.weight
        read = (rows[0] * scale).index_fill(0, here, 0.0)
        total = self._read(around, moved, rows * scale, read, others)
        return moved.scale_v * (total + rows[0, here] * moved.scale_v * own)

    def _read(self, around: _Around, moved: _Moved, rows: Tensor, read: Tensor, others: Tensor) -> Tensor:
        """Returns what v reads of its neighbours but the one that is gone, [b].

        Args:
            around: v and its neighbours, r of them.
            moved: by each of b edges.
            rows: A_vi s_i and C_vi s_i, [1 or 2, r].
            read: A_vi s_i, 0 at v itself, [r].
            others: place of the neighbour that is gone, int64 [b].
        """
        scale = self.scale[around.nodes]
        start = self.known(around.nodes) * scale[:, None] + self.head.bias  # [r, width]
        size = self.size[around.nodes][:, 0]
        largest = torch.stack([self.largest.expand_as(size), size * size[others].max()])[: len(rows)]
        bound = rows.abs().T @ moved.of_v.abs().amax(1) + (largest * scale).T @ moved.of_u.abs().amax(1)
        turning = (start.abs() <= ROUNDING * bound).any(1)
        slope = (read * ~turning)[:, None] * (start > 0) * self.head.weight
        total = (slope * start).sum() + ((rows @ slope)[:, None] * moved.of_v).sum((0, 2))
        total = total + (around.times(slope * scale[:, None])[:, others] * moved.of_u).sum((0, 2))
        for part in turning.nonzero().flatten().split(WIDE):
            entries = around.columns(part)[:, others] * scale[part]
            total = total + self._turned(start[part], moved, rows[:, part], entries) @ read[part]
        diagonal = torch.stack([self.propagator.loops[around.nodes], size.square()])[: len(rows)] * scale
        gone = start[others] + (rows[:, others, None] * moved.of_v + diagonal[:, others, None] * moved.of_u).sum(0)
        return total - read[others] * (torch.relu(gone) @ self.head.weight)

    def _turned(self, start: Tensor, moved: _Moved, rows: Tensor, entries: Tensor) -> Tensor:
        """Returns what r neighbours say without each edge, [b, r], of their rows [.., r] and entries [.., b, r]."""
        vectors, out = torch.cat([moved.of_v, moved.of_u]).permute(1, 2, 0), list[Tensor]()
        for some in torch.arange(len(vectors)).split(max(1, NUMBERS // max(start.numel(), 1))):
            own = entries[:, some]
            coefficients = torch.cat([rows[:, None].expand_as(own), own]).transpose(0, 1)
            hidden = torch.baddbmm(start.T.expand(len(some), -1, -1), vectors[some], coefficients).relu_()
            out.append(torch.matmul(self.head.weight, hidden))
        return torch.cat(out)


class _Moved:
    """What an edge moves at its two ends, of b edges (v, u), see above.

    Attributes:
        scale_v: s'_v, float64 [b].
        of_v: p, and of two hops d_v y_v, [1 or 2, b, width].
        of_u: q, and d_u y_u.
        lost: what v's own row does not read any more, [b, width].
    """

    def __init__(self, edges: OwnEdges, ends: Tensor, weights: Tensor) -> None:
        gone = edges.propagator.removed(ends, weights)
        s, changed = edges.scale[ends], gone.left
        between, loops, y = gone.weights, edges.propagator.loops[ends], edges.y[ends]
        step = (changed - s)[:, :, None] * y
        self.scale_v = changed[:, 0]
        if edges.hops == 1:
            self.of_v, self.of_u = step[:, 0][None], step[:, 1][None]
            self.lost = between[:, None] * changed[:, 1:] * y[:, 1]
            return
        read = edges.read(ends)
        after = read - between[:, None, None] * (s[:, :, None] * y).flip(1) + loops[:, :, None] * step  # t'
        after = changed[:, :, None] ** 2 * after
        before = read + loops[:, :, None] * step + between[:, None, None] * step.flip(1)
        both = after - s[:, :, None] ** 2 * before
        self.of_v, self.of_u = torch.stack([both, step]).unbind(2)
        self.lost = between[:, None] * after[:, 1]


class _Around:
    """A node with its neighbours, and what lies between them.

    Args:
        matrix: A, symmetric, float64 [n, n].
        nodes: ascending, int64 [r].
        scale: the diagonal of S, float64 [n].
        hops: 2: A S^2 A is asked for too.
    """

    def __init__(self, matrix: Csr, nodes: Tensor, scale: Tensor, hops: int) -> None:
        self.matrix, self.nodes, self.scale, self.hops = matrix, nodes, scale, hops
        self.many = COPIED * int((matrix.indptr[nodes + 1] - matrix.indptr[nodes]).sum()) > matrix.nnz

    @cached_property
    def field(self) -> tuple[Tensor, Csr]:
        """All that these nodes read, ascending, int64 [f], and A at these nodes and those, [r, f]."""
        rows = self.matrix.select_rows(self.nodes)
        field, columns = numbered_anew(rows.indices.long(), self.matrix.n_cols)
        return field, Csr.unchecked(rows.indptr, columns.to(torch.int32), rows.values, field.numel())

    @cached_property
    def dense(self) -> Tensor | None:
        """A of `field`, float64 [r, f]; None where few entries of it are not 0."""
        rows = self.field[1]
        return None if rows.nnz < DENSE * rows.n_rows * rows.n_cols else rows.to_dense()

    def columns(self, places: Tensor) -> Tensor:
        """Returns columns of A, and of A S^2 A, at these nodes, float64 [1 or 2, r, c]."""
        if self.many and places.numel() <= FEW:
            one = torch.zeros(self.nodes.numel(), places.numel(), dtype=torch.float64)
            one[places, torch.arange(places.numel())] = 1
            return self.times(one)
        rows = self.field[1].select_rows(places).to_dense() if self.dense is None else self.dense[places]
        return self._once_and_twice(rows.T)

    def times(self, x: Tensor) -> Tensor:
        """Returns A x, and A S^2 A x, at these nodes of x there [r, width], float64 [1 or 2, r, width]."""
        if not self.many:
            return self._once_and_twice(turned_times(self.field[1], x) if self.dense is None else self.dense.T @ x)
        out = [propagate(self.matrix, x.new_zeros(self.matrix.n_rows, x.shape[1]).index_copy_(0, self.nodes, x))]
        if self.hops == 2:
            out.append(propagate(self.matrix, self.scale.square()[:, None] * out[0]))
        return torch.stack([each[self.nodes] for each in out])

    def _once_and_twice(self, read: Tensor) -> Tensor:
        """Returns A x at these nodes, and A S^2 A x, of A x at all that they read, [f, c]."""
        field, rows = self.field
        here = read[torch.searchsorted(field, self.nodes)]
        if self.hops == 1:
            return here[None]
        sent = self.scale[field].square()[:, None] * read
        return torch.stack([here, propagate(rows, sent.contiguous()) if self.dense is None else self.dense @ sent])
