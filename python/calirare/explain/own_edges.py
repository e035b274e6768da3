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

import torch
from torch import Tensor

from calirare.explain.between import Between
from calirare.explain.removal import Propagator

NUMBERS = 1 << 17  # worked on together: edges times rows times width, in cache
WIDE = 4096  # edges whose entries of A and C are made together


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
        self.between = Between(propagator.matrix, self.scale, hops)

    def effect(self, node: int, others: Tensor) -> Tensor:
        """Returns how the output at a node changes without its edge to each of others (int64 [b]), float64 [b]."""
        row = self.propagator.matrix.select_rows(torch.tensor([node]))
        nodes = torch.unique(torch.cat([row.indices.long(), torch.tensor([node])]))
        ends, weights = self.propagator.with_nobody(node, torch.stack([torch.full_like(others, node), others], 1))
        parts = zip(ends.split(WIDE), weights.split(WIDE), strict=True)
        said = torch.cat([self._said(nodes, *part) for part in parts])
        return said[1:] - said[0]

    def _said(self, nodes: Tensor, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns the output, before the last bias, without each edge (int64 [b, 2], the node first), float64 [b].

        Args:
            nodes: v and its neighbours, ascending, int64 [r].
            ends: v and u of each edge.
            weights: of these, [b].
        """
        moved, node, scale = _Moved(self, ends, weights), ends[0, :1], self.scale[nodes]
        places = torch.searchsorted(nodes, torch.cat([node, ends[:, 1]]))
        here, others, rows = places[:1], places[1:], self.between.rows(nodes, places)
        own_rows = rows.at(torch.tensor([0]))  # A_vi s_i, and C_vi s_i
        vectors = [(moved.p, moved.q), (moved.step_v, moved.step_u)][: len(own_rows)]
        own = self.known[node] - moved.lost
        for (of_v, of_u), row in zip(vectors, (own_rows / scale)[:, 0], strict=True):
            own = own + row[here] * of_v + row[others, None] * of_u
        start = (self.known[nodes] * scale[:, None] + self.head.bias).T.contiguous()
        kept = own_rows[0].index_fill(1, here, 0.0)
        both, total = torch.stack([each for pair in vectors for each in pair], 2), list[Tensor]()
        for some in torch.arange(len(ends)).split(max(1, NUMBERS // start.numel())):
            pairs = zip(own_rows, rows.at(some + 1), strict=True)
            coefficients = torch.stack([each for v, u in pairs for each in (v.expand_as(u), u)], 1)
            total.append(self._read(start, kept, both[some], coefficients, others[some]))
        own = torch.relu(moved.scale_v[:, None] * own + self.head.bias) @ self.head.weight
        return moved.scale_v * (torch.cat(total) + own_rows[0, 0, here] / scale[here] * moved.scale_v * own)

    def _read(self, start: Tensor, kept: Tensor, vectors: Tensor, coefficients: Tensor, gone: Tensor) -> Tensor:
        """Returns what v reads of its neighbours but the one that is gone (their places, [b]), [b]."""
        hidden = torch.baddbmm(start.expand(len(gone), -1, -1), vectors, coefficients).relu_()
        each = torch.matmul(self.head.weight, hidden) * kept
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
