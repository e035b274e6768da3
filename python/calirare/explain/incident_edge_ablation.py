"""A graph convolution of two layers at a node without each of its edges, in closed form.

Before the first layer y = X W_1 is propagated once or twice by P = S A S, S = D^-1/2, and is read at the node v and its
neighbours i. An edge (v, u) moves S at v and u only: with d = s' - s, t = A S y and C = A S^2 A,

    once:  z_i = (A S y)_i,         z'_i = z_i + A_iv d_v y_v + A_iu d_u y_u
    twice: z_i = (A S^2 A S y)_i,   z'_i = z_i + A_iv p + A_iu q + C_iv d_v y_v + C_iu d_u y_u
           p = s'_v^2 t'_v - s_v^2 (t_v + A_vv d_v y_v + A_vu d_u y_u), q the same with u and v exchanged

for every i but u; v's own row lacks A_uv s'_u y_u or A_uv s'_u^2 t'_u. What goes through v itself,
C_iu = s_v^2 A_iv A_vu + C'_iu, joins p. As long as no hidden unit is turned on or off the sum over all i is linear in
p, q and d y; units that may turn are looked for by bounds (|C'_iu| <= (C_ii C_uu)^1/2) and recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare.explain.removal import Propagator, Rows, renumbered
from calirare.graph import scipy_of_csr
from calirare_ext import Csr, propagate, turned_times

NUMBERS = 1 << 17  # worked on together, in cache
ENTRIES = 1 << 20  # of A and C made together
LOUDEST, MORE = 16, 4  # edges that move most, which have a bound of their own, and how many times as many are next
ROUNDING = 1 + 1e-9  # by which a bound is drawn wider
Entries = tuple[Tensor, Tensor, Tensor]  # neighbours and edges, int64 [k], and s_i times A and C' there, [1 or 2, k]


class IncidentEdgeAblation:
    """Outputs of a node without each of its edges: relu(x + bias) @ weight, propagated once more to the node.

    Args:
        propagator: P, the same powers of the degrees on both sides.
        y: what is propagated first, [n, width].
        once: P y.
        hops: how often before the first layer, 1 or 2.
        bias: float64 [width].
        weight: float64 [width, q].
    """

    def __init__(self, propagator: Propagator, y: Rows, once: Rows, hops: int, bias: Tensor, weight: Tensor) -> None:
        self.propagator, self.hops, self.y, self.bias, self.weight = propagator, hops, y, bias, weight
        self.scale = propagator.left
        self.once, self.last = once, once if hops == 1 else propagator(once)
        a = propagator.matrix
        self.largest = torch.stack(a.values.aminmax()).abs().max() if a.nnz else a.values.new_zeros(())

    def read(self, nodes: Tensor) -> Tensor:
        """Returns A S y of nodes, int64 [..], as [.., width]."""
        return self.once[nodes] / self.scale[nodes, None]

    def known(self, nodes: Tensor) -> Tensor:
        """Returns z of nodes, int64 [k], as [k, width]."""
        return self.last[nodes] / self.scale[nodes, None]

    def effect(self, node: int, others: Tensor) -> Tensor:
        """Returns how the outputs at a node change without its edge to each of others (int64 [b]), float64 [b, q]."""
        row = self.propagator.matrix.select_rows(torch.tensor([node]))
        nodes = torch.unique(torch.cat([row.indices.long(), torch.tensor([node])]))
        around = _Around(self.propagator.matrix, node, nodes, self.scale, self.hops)
        ends, weights = self.propagator.with_none_removed(node, torch.stack([torch.full_like(others, node), others], 1))
        outputs = self._outputs(around, ends, weights)
        return outputs[1:] - outputs[0]

    def _outputs(self, around: _Around, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns the outputs, before the last bias, without each edge (int64 [b, 2], the node first), [b, q]."""
        moved, nodes, scale = _Moved(self, ends, weights), around.nodes, self.scale[around.nodes]
        places = torch.searchsorted(nodes, torch.cat([ends[:1, 0], ends[:, 1]]))
        here, others = places[:1], places[1:]
        rows = around.columns(here)[:, :, 0]  # A_vi, and C_vi
        if self.hops == 2:
            rows[1] += scale[here] ** 2 * rows[0, here] * rows[0]  # by the loop of v
        own = self.known(ends[0, :1]) - moved.lost
        for row, of_v, of_u in zip(rows, moved.of_v, moved.of_u, strict=True):
            own = own + row[here] * of_v + row[others, None] * of_u
        own = torch.relu(moved.scale_v[:, None] * own + self.bias) @ self.weight
        read = (rows[0] * scale).index_fill(0, here, 0.0)
        total = self._read(around, moved, rows * scale, read, others)
        return moved.scale_v[:, None] * (total + (rows[0, here] * moved.scale_v)[:, None] * own)

    def _read(self, around: _Around, moved: _Moved, rows: Tensor, read: Tensor, others: Tensor) -> Tensor:
        """Returns what v reads of its neighbours but the one that is gone, [b, q]."""
        scale, size = around.scale, around.squares.sqrt()
        start = self.known(around.nodes) * scale[:, None] + self.bias  # [r, width]
        weight = read[:, None, None] * self.weight  # [r, width, q]
        slope, of_v = weight * (start > 0)[:, :, None], moved.of_v
        if len(of_v) == 2:  # what d_u y_u does through v all of v's neighbours read as they read p
            of_v = torch.stack([of_v[0] + moved.passed[:, None] * moved.of_u[1], of_v[1]])
        total = torch.einsum("rw,rwq->q", start, slope) + torch.einsum("hr,rwq,hbw->bq", rows, slope, of_v)
        passed = around.times((slope * scale[:, None, None]).flatten(1)).unflatten(2, slope.shape[1:])
        total = total + torch.einsum("hbwq,hbw->bq", passed[:, others], moved.of_u)
        # At least what i reads of q, and of d_u y_u:
        reads = torch.stack([self.largest * scale, size * scale])[: len(rows)]
        loud = torch.stack([moved.of_u[0], *(size[others, None] * each for each in moved.of_u[1:])]).abs().amax(1)
        bound = ROUNDING * (rows.abs().T @ of_v.abs().amax(1) + reads.T @ loud)
        doubtful = ((start.abs() <= bound) & (weight != 0).any(2)).any(1).nonzero().flatten()
        if doubtful.numel():
            total = total + self._turned_by_ends(start, weight, rows, of_v)
            entries = around.entries(doubtful, others)
            total = total + self._turned_by_entries(start, weight, rows, of_v, moved.of_u, entries)
        diagonal = torch.stack([self.propagator.loops[around.nodes], around.squares])[: len(rows)] * scale
        gone = start[others] + (rows[:, others, None] * moved.of_v + diagonal[:, others, None] * moved.of_u).sum(0)
        return total - read[others, None] * (torch.relu(gone) @ self.weight)

    def _turned_by_ends(self, start: Tensor, weight: Tensor, rows: Tensor, of_v: Tensor) -> Tensor:
        """Returns what units that v's part turns add to the linear sum, [b, q]."""
        out = of_v.new_zeros(of_v.shape[1], weight.shape[2])
        order, first, number = of_v.abs().amax((0, 2)).argsort(descending=True), 0, LOUDEST
        while first < len(order):
            some, first, number = order[first : first + number], first + number, number * MORE
            moves = of_v[:, some]
            near = start.abs() <= ROUNDING * (rows.abs().T @ moves.abs().amax(1))
            i, unit = (near & (weight != 0).any(2)).nonzero(as_tuple=True)
            for part in torch.arange(len(i)).split(max(1, NUMBERS // len(some))):
                node, h = i[part], unit[part]
                inputs = start[node, h] + (rows[:, None, node] * moves[:, :, h]).sum(0)
                out[some] += _turned(inputs, start[node, h]) @ weight[node, h]
        return out

    def _turned_by_entries(
        self, start: Tensor, weight: Tensor, rows: Tensor, of_v: Tensor, of_u: Tensor, entries: Iterator[Entries]
    ) -> Tensor:
        """Returns what units that u's part turns add to `_turned_by_ends`, [b, q]."""
        out = of_v.new_zeros(of_v.shape[1], weight.shape[2])
        size = torch.cat([of_v, of_u]).abs().amax((0, 1))  # of a unit's moves
        unit = torch.where(size > 0, size, 1.0)
        near = torch.where((weight != 0).any(2) & (size > 0), start.abs() / unit, torch.inf).amin(1)
        reach_v, reach_u = ((each.abs() / unit).amax(2) for each in (of_v, of_u))
        for i, edge, values in entries:
            reach = (rows[:, i].abs() * reach_v[:, edge] + values.abs() * reach_u[:, edge]).sum(0)
            for part in (near[i] <= ROUNDING * reach).nonzero().flatten().split(max(1, NUMBERS // weight[0].numel())):
                node, some = i[part], edge[part]
                before = start[node]
                by_v = before + (rows[:, node, None] * of_v[:, some]).sum(0)
                inputs = by_v + (values[:, part, None] * of_u[:, some]).sum(0)
                more = _turned(inputs, before) - _turned(by_v, before)
                out.index_add_(0, some, torch.einsum("ew,ewq->eq", more, weight[node]))
        return out


def _turned(inputs: Tensor, start: Tensor) -> Tensor:
    """Returns relu(x) of what units get now without what it is by the line that holds at the start."""
    return torch.relu(torch.where(start > 0, -inputs, inputs))


class _Moved:
    """What an edge moves at its two ends, of b edges (v, u), see above."""

    def __init__(self, edges: IncidentEdgeAblation, ends: Tensor, weights: Tensor) -> None:
        gone = edges.propagator.removed(ends, weights)
        s, changed = edges.scale[ends], gone.left
        between, loops, y = gone.weights, edges.propagator.loops[ends], edges.y[ends]
        step = (changed - s)[:, :, None] * y
        self.scale_v, self.passed = changed[:, 0], s[:, 0] ** 2 * between
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
    """A node with its neighbours, and what lies between them: A and C' = A S'^2 A, where S' is S and 0 at the node."""

    def __init__(self, matrix: Csr, node: int, nodes: Tensor, scale: Tensor, hops: int) -> None:
        read = matrix.select_rows(nodes)
        field, columns = renumbered(read.indices.long(), matrix.n_cols)  # all that these nodes read, f of them
        self.nodes, self.hops, self.scale = nodes, hops, scale[nodes]
        self.here, self.passing = torch.searchsorted(field, nodes), scale[field].square()
        self.rows = Csr.unchecked(read.indptr, columns.to(torch.int32), read.values, field.numel())  # A, [r, f]
        each = read.values.square() * self.passing[columns]
        self.squares = torch.zeros_like(self.scale).index_add_(0, read.rows(), each)  # C_ii
        self.passing[field == node] = 0.0

    def columns(self, places: Tensor) -> Tensor:
        """Returns columns of A, and of C', at these nodes, float64 [1 or 2, r, c]."""
        return self._once_and_twice(self.rows.select_rows(places).to_dense().T)

    def times(self, x: Tensor) -> Tensor:
        """Returns A x, and C' x, at these nodes of x there [r, width], float64 [1 or 2, r, width]."""
        return self._once_and_twice(turned_times(self.rows, x))

    def _once_and_twice(self, read: Tensor) -> Tensor:
        """Returns A x at these nodes, and C' x, of A x at all that they read, [f, c]."""
        if self.hops == 1:
            return read[self.here][None]
        return torch.stack([read[self.here], propagate(self.rows, (self.passing[:, None] * read).contiguous())])

    def entries(self, places: Tensor, others: Tensor) -> Iterator[Entries]:
        """Yields entries of A, and of C', that are not 0, at some of these nodes and others (int64 [k] and [b])."""
        all_rows = scipy_of_csr(self.rows)
        rows = all_rows[places.numpy()]
        direct = rows[:, self.here[others].numpy()].tocsr()
        if self.hops == 1:
            yield self._listed(direct.tocoo(), places, ("real",))
            return
        sent = rows.multiply(self.passing.numpy()).tocsr()
        sent.eliminate_zeros()
        ends = all_rows[others.numpy()].T.tocsr()  # of the field to each of the others
        work = torch.from_numpy((sent != 0) @ np.diff(ends.indptr).astype(np.float64))
        sizes = torch.unique_consecutive((work.cumsum(0) / ENTRIES).long(), return_counts=True)[1].tolist()
        first = 0
        for part in places.split(sizes):
            some = slice(first, first + len(part))
            first += len(part)
            yield self._listed((1j * (sent[some] @ ends) + direct[some]).tocoo(), part, ("real", "imag"))

    def _listed(self, found: Any, places: Tensor, parts: tuple[str, ...]) -> Entries:
        """Returns the entries of a matrix of scipy whose rows stand for these places."""
        row, edge = (torch.from_numpy(each.astype(np.int64)) for each in found.coords)
        values = torch.stack([torch.from_numpy(np.ascontiguousarray(getattr(found.data, each))) for each in parts])
        return places[row], edge, values * self.scale[places[row]]
