"""Attention of a graph (Velickovic et al. 2018, Eq. 1 to 4) as sparse products: nothing is as large as edges by units.

With h_j the mapped features of a node, a head weighs what comes over the edge from j to i by
w_ij = exp(leaky(s h_j + t h_i)), and node i becomes sum_j w_ij h_j / sum_j w_ij. Derivatives of the operations here are
made of these again: there are some of any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare_ext import Csr, propagate

SLOPE = 0.2  # of the scores' leaky rectifier
EDGES_AT_ONCE = 1 << 12  # whose products stay in the cache


@dataclass(frozen=True, eq=False)
class Incoming:
    """The edges into some nodes, those into a node side by side; or where the entries of a sparse matrix are.

    Attributes:
        indptr: where the edges into each node begin, int64 [n + 1].
        sources: where each comes from, int32 [m].
        n_sources: number of nodes they may come from.
    """

    indptr: Tensor
    sources: Tensor
    n_sources: int

    @classmethod
    def of(cls, edges: Tensor, n_targets: int, n_sources: int) -> Self:
        """Returns the edges of edge_index [2, m] and one from each node to itself, no other; targets come first."""
        others, own = edges[:, edges[0] != edges[1]], torch.arange(n_targets, device=edges.device)
        a = Csr.from_coo(torch.cat([others[1], own]), torch.cat([others[0], own]), None, (n_targets, n_sources))
        return cls(a.indptr, a.indices, n_sources)

    def matrix(self, values: Tensor) -> Csr:
        """Returns the matrix [n, n_sources] with a value for each edge, [m]."""
        return Csr.unchecked(self.indptr, self.sources, values.contiguous(), self.n_sources)

    @cached_property
    def targets(self) -> Tensor:
        """Where each edge leads to, int32 [m]."""
        degrees = self.indptr.diff()
        return torch.arange(degrees.numel(), device=degrees.device, dtype=torch.int32).repeat_interleave(degrees)

    @cached_property
    def order(self) -> Tensor:
        """The edges by where they come from, int32 [m]."""
        return torch.argsort(self.sources, stable=True).to(torch.int32)

    @cached_property
    def turned(self) -> Self:
        """The edges the other way round, in that order."""
        counts = torch.bincount(self.sources, minlength=self.n_sources)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return type(self)(indptr, self.targets[self.order], self.indptr.numel() - 1)

    def at_sources(self, x: Tensor) -> Tensor:
        """Returns what x [n_sources, ..] holds where each edge comes from, [m, ..]."""
        return _Read.apply(x, self.sources, Csr.unchecked(self.turned.indptr, self.order, self._ones(x), self._m))

    def at_targets(self, x: Tensor) -> Tensor:
        """Returns what x [n, ..] holds where each edge leads to, [m, ..]."""
        return _Read.apply(x, self.targets, self._by_target(x))

    def summed(self, x: Tensor) -> Tensor:
        """Returns the sum of x [m, c] over the edges into each node, [n, c]."""
        return _Added.apply(x, self.targets, self._by_target(x))

    @property
    def _m(self) -> int:
        return self.sources.numel()

    def _ones(self, like: Tensor) -> Tensor:
        return torch.ones(self._m, dtype=like.dtype, device=like.device)

    def _by_target(self, like: Tensor) -> Csr:
        every = torch.arange(self._m, dtype=torch.int32, device=like.device)
        return Csr.unchecked(self.indptr, every, self._ones(like), self._m)


def attention(edges: Incoming, h: Tensor, to_source: Tensor, to_target: Tensor, kept: Tensor | None = None) -> Tensor:
    """Returns what heads make of mapped features.

    Args:
        edges: m of them, to the first n of the nodes they come from.
        h: [n_sources, heads, units].
        to_source: s of each head, [heads, units].
        to_target: t, [heads, units].
        kept: what the weight of each edge is multiplied with (dropout), [m, heads]; None: 1.

    Returns:
        [n, heads, units].
    """
    n = edges.indptr.numel() - 1
    of_source, of_target = (h * to_source).sum(-1), (h[:n] * to_target).sum(-1)
    scores = F.leaky_relu(edges.at_sources(of_source) + edges.at_targets(of_target), SLOPE)
    with torch.no_grad():  # a constant of each node, which its sum of weights takes out again
        highest = torch.segment_reduce(scores, "max", offsets=edges.indptr, axis=0)
    weights = torch.exp(scores - highest.index_select(0, edges.targets))
    sums = weighted_sums(edges, weights if kept is None else weights * kept, h)
    return sums / edges.summed(weights)[:, :, None]


def weighted_sums(edges: Incoming, weights: Tensor, h: Tensor) -> Tensor:
    """Returns sum_j w_ij h_j of each node and head, [n, heads, units].

    Args:
        edges: m of them.
        weights: w, [m, heads].
        h: [n_sources, heads, units].
    """
    return _WeightedSums.apply(weights, h, edges)


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, h: Tensor, edges: Incoming) -> Tensor:
        ctx.save_for_backward(weights, h)
        ctx.edges = edges
        heads = zip(weights.unbind(1), h.unbind(1), strict=True)
        return torch.stack([propagate(edges.matrix(w), x.contiguous()) for w, x in heads], 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weights, h = ctx.saved_tensors
        by_weights, by_h, _ = ctx.needs_input_grad
        edges = ctx.edges
        return (
            _PairProducts.apply(grads[0], h, edges) if by_weights else None,
            weighted_sums(edges.turned, weights.index_select(0, edges.order), grads[0]) if by_h else None,
            None,
        )


class _PairProducts(torch.autograd.Function):
    """<g_i, h_j> of each edge from j to i and each head, [m, heads]; g is [n, heads, units], h [n_sources, ..]."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, h: Tensor, edges: Incoming) -> Tensor:
        ctx.save_for_backward(g, h)
        ctx.edges = edges
        heads, units = h.shape[1:]
        g, h = g.flatten(1), h.flatten(1)
        each = torch.eye(heads, dtype=h.dtype, device=h.device).repeat_interleave(units, 0)  # adds up a head's units
        room = h.new_empty(2, EDGES_AT_ONCE, heads * units)
        out, at = h.new_empty(edges.sources.numel(), heads), 0
        for i, j in zip(edges.targets.split(EDGES_AT_ONCE), edges.sources.split(EDGES_AT_ONCE), strict=True):
            one, other = room[:, : i.numel()]
            torch.index_select(g, 0, i, out=one)
            torch.index_select(h, 0, j, out=other)
            torch.mm(one.mul_(other), each, out=out[at : at + i.numel()])
            at += i.numel()
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        g, h = ctx.saved_tensors
        edges, weights = ctx.edges, grads[0]
        back = weighted_sums(edges.turned, weights.index_select(0, edges.order), g)
        return weighted_sums(edges, weights, h), back, None


class _Read(torch.autograd.Function):
    """x at some places; `adder` adds up what has the same place, in an order that never changes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, adder: Csr) -> Tensor:
        ctx.parts = places, adder
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Added.apply(grads[0], *ctx.parts), None, None


class _Added(torch.autograd.Function):
    """The sum of x over what has the same place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, adder: Csr) -> Tensor:
        ctx.parts = places, adder
        return propagate(adder, x.contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Read.apply(grads[0], *ctx.parts), None, None
