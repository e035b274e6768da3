"""A graph convolution of two layers at a node without each of its edges, in closed form.

Before the first layer y = X W_1 is propagated once or twice by P = S A S, S = D^-1/2, and is read at the node v and its
neighbours i. An edge (v, u) moves S at v and u alone: with d = s' - s, t = A S y and C = A S^2 A,

    once:  z_i = (A S y)_i,         z'_i = z_i + A_iv d_v y_v + A_iu d_u y_u
    twice: z_i = (A S^2 A S y)_i,   z'_i = z_i + A_iv p + A_iu q + C_iv d_v y_v + C_iu d_u y_u
           p = s'_v^2 t'_v - s_v^2 (t_v + A_vv d_v y_v + A_vu d_u y_u), q the same with u and v exchanged

for every i but u, which v does not read any more. In v's own row A_uv s'_u y_u or A_uv s'_u^2 t'_u is missing.
So all rows of all edges are a matrix of rank four beside what is known, however many nodes lie two hops away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare.explain.removal import Propagator
from calirare_ext import Csr, propagate

NUMBERS = 1 << 19  # worked on together: edges times rows times width, in cache
WIDE = 4096  # edges whose entries of A and C are made together
BLOCKS = 6  # of the columns of a symmetric product
DENSE = 1 / 8  # share of entries from which a product with a dense matrix is the faster one


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
        y: what is propagated first, float64 [n, width].
        once: P y.
        hops: how often before the first layer, 1 or 2.
        head: of the network.
    """

    def __init__(self, propagator: Propagator, y: Tensor, once: Tensor, hops: int, head: Head) -> None:
        self.propagator, self.hops, self.y, self.head = propagator, hops, y, head
        self.scale = propagator.left
        self.read = once / self.scale[:, None]  # A S y
        self.known = self.read if hops == 1 else propagator(once) / self.scale[:, None]

    def effect(self, node: int, others: Tensor) -> Tensor:
        """Returns how the output at a node changes without its edge to each of others (int64 [b]), float64 [b]."""
        row = self.propagator.matrix.select_rows(torch.tensor([node]))
        around = _Around(self.propagator.matrix, torch.unique(torch.cat([row.indices.long(), torch.tensor([node])])))
        step = max(1, NUMBERS // (around.nodes.numel() * self.y.shape[1]))
        wide = max(step, WIDE)
        ends, weights = self.propagator.with_nobody(node, torch.stack([torch.full_like(others, node), others], 1))
        parts = zip(ends.split(wide), weights.split(wide), strict=True)
        said = torch.cat([self._said(around, *part, step) for part in parts])
        return said[1:] - said[0]

    def _said(self, around: _Around, ends: Tensor, weights: Tensor, step: int) -> Tensor:
        """Returns the output, before the last bias, without each edge (int64 [b, 2], the node first), float64 [b]."""
        moved, others, node = _Moved(self, ends, weights), ends[:, 1], ends[0, :1]
        places = torch.searchsorted(around.nodes, torch.cat([node, others]))
        direct, shared = around.columns(places, self.scale if self.hops == 2 else None)
        scale, here = self.scale[around.nodes], int(places[0])
        terms = [(direct[:, :1].T, moved.p), (direct[:, 1:].T, moved.q)]
        if shared is not None:
            terms += [(shared[:, :1].T, moved.step_v), (shared[:, 1:].T, moved.step_u)]
        weights = direct[:, 0] * scale  # of v's row: A_vi s_i
        kept = weights.index_fill(0, places[:1], 0.0)
        own = self.known[node] + sum(amount[:, here, None] * vector for amount, vector in terms) - moved.lost
        coefficients = torch.stack([(amount * scale).expand(len(others), -1) for amount, _ in terms], 2)
        vectors = torch.stack([vector for _, vector in terms], 1)
        start = self.known[around.nodes] * scale[:, None] + self.head.bias
        parts = zip(coefficients.split(step), vectors.split(step), places[1:].split(step), strict=True)
        total = torch.cat([self._read(start, kept, *part) for part in parts])
        own = torch.relu(moved.scale_v[:, None] * own + self.head.bias) @ self.head.weight
        return moved.scale_v * (total + weights[here] / scale[here] * moved.scale_v * own)

    def _read(self, start: Tensor, kept: Tensor, coefficients: Tensor, vectors: Tensor, gone: Tensor) -> Tensor:
        """Returns what v reads of its neighbours but the one that is gone (their places, [b]), [b]."""
        hidden = torch.baddbmm(start.expand(len(gone), -1, -1), coefficients, vectors).relu_()
        each = (hidden @ self.head.weight) * kept
        return each.sum(1) - each.gather(1, gone[:, None])[:, 0]


class _Moved:
    """What an edge moves at its two ends, of b edges (v, u): vectors are [b, width], see above."""

    def __init__(self, edges: OwnEdges, ends: Tensor, weights: Tensor) -> None:
        gone = edges.propagator.removed(ends, weights)
        s, changed = edges.scale[ends], gone.left
        between, loops, y, read = gone.weights, edges.propagator.loops[ends], edges.y[ends], edges.read[ends]
        step = (changed - s)[:, :, None] * y
        self.scale_v, self.step_v, self.step_u = changed[:, 0], step[:, 0], step[:, 1]
        if edges.hops == 1:
            self.p, self.q = self.step_v, self.step_u
            self.lost = between[:, None] * changed[:, 1:] * y[:, 1]
            return
        after = read - between[:, None, None] * (s[:, :, None] * y).flip(1) + loops[:, :, None] * step  # t'
        after = changed[:, :, None] ** 2 * after
        before = read + loops[:, :, None] * step + between[:, None, None] * step.flip(1)
        both = after - s[:, :, None] ** 2 * before
        self.p, self.q = both[:, 0], both[:, 1]
        self.lost = between[:, None] * after[:, 1]


class _Around:
    """A node with its neighbours, and what lies between them.

    Args:
        matrix: A, [n, n].
        nodes: ascending, int64 [r].
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

    def columns(self, places: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Returns columns of A and of A S^2 A at these nodes, float64 [r, b]; of the second none without a scale."""
        dense = self.dense
        if scale is not None and dense is not None and len(dense) <= WIDE:
            return dense[places].T[self.places], self._shared(dense, scale)[:, places]
        some = (self.rows.select_rows(places).to_dense() if dense is None else dense[places]).T
        direct = some[self.places]
        if scale is None:
            return direct, None
        some = some * scale[self.field][:, None] ** 2
        return direct, propagate(self.rows, some.contiguous()) if dense is None else dense @ some

    def _shared(self, dense: Tensor, scale: Tensor) -> Tensor:
        """Returns A S^2 A at these nodes, float64 [r, r]: symmetric, so blocks above the diagonal are a mirror."""
        scaled, step = dense * scale[self.field], max(1, -(-len(dense) // BLOCKS))
        out = dense.new_empty(len(dense), len(dense))
        for first in range(0, len(dense), step):
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
