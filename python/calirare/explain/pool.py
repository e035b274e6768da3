"""A detector with neighbour pooling: see `calirare.models.NeighbourPool`.

What is left out changes the detector's logits of the node and of all nodes up to three edges away, and without an edge
their means too. All of these are recomputed. Where more than `REACH` nodes lie so near, or `PAIRS` of such a node and
an edge, the logits of the farthest are held, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from calirare.explain.explainable_model import ExplainableModel, Shares
from calirare.explain.network_shares import made
from calirare.explain.removal import Propagator
from calirare.explain.shares import added
from calirare.graph import Graph
from calirare.models import NeighbourPool, aggregate_neighbours
from calirare_ext import Csr, propagate

REACH, PAIRS = 1_000, 30_000  # nodes nearby whose logits are recomputed, and these for each edge
FEW = 32  # nodes nearby where asking the detector is expensive
NEAR = 100  # nodes nearby whose label effects cost about what their preparation does
TOGETHER = 64  # of these at once
NUMBERS = 10_000_000  # labels times classes times nodes nearby, or edges times these, worked on together
SAID = "classes predicted for its neighbours"
FARTHER = "classes predicted for nodes {} edges away"
HELD = (
    "for a node with very many nodes within 3 edges, predictions of the farthest stay fixed when something is left out"
)


class ExplainablePool(ExplainableModel):
    """A detector of more than two classes and its logits of the nodes nearby.

    Args:
        pool: the detector with the weights of nodes nearby.
        model: the detector on the graph.
        graph: as the detector takes it.
    """

    def __init__(self, pool: NeighbourPool, model: ExplainableModel, graph: Graph) -> None:
        self.pool, self.model, self.graph = pool, model, graph
        self.notes = model.notes
        degree = graph.adjacency.nnz / max(graph.n_nodes, 1)
        near = min(REACH, graph.n_nodes, 1 + degree + degree**2 + degree**3)  # of a usual node
        self.label_work = model.label_work * max(near / NEAR, 1.0)
        self.degree = graph.adjacency.indptr.diff().double()  # neighbours, whatever their edges weigh
        self.mean = Propagator(graph.adjacency, -1.0, 0.0)

    @cached_property
    def _every(self) -> Tensor:
        """The base detector's logits of every node, float64 [n, k]."""
        return self.pool.base.logits_of(self.graph).double()

    @cached_property
    def _p(self) -> Tensor:
        """The same as probabilities."""
        return self._every.softmax(1)

    @cached_property
    def _pooled(self) -> Tensor:
        """The logits of every node, float64 [n, k]."""
        return self.pool.pooled(self.graph, self._every)

    @property
    def label_notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `ExplainableModel`."""
        return self.model.label_notes

    @property
    def hops(self) -> int:
        """Up to how far away nodes count."""
        return len(self.pool.weights) - 1

    def logits(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.logits`."""
        return self._pooled[nodes]

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self._without(nodes, self.model.without_each_label)

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        return self._without(nodes, lambda some: self.model.without_labels(some, sets))

    def _without(self, nodes: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the logits of nodes when the base detector has other `logits` of nodes, [s, n, k]."""
        own, before = logits(nodes).log_softmax(-1), self._every[nodes].log_softmax(-1)
        walks = [self._walks(node, FEW if self.model.expensive else REACH) for node in nodes.tolist()]
        field = torch.unique(torch.cat([near for near, _, _ in walks]))
        weights = self._every.new_zeros(self.hops, nodes.numel(), field.numel())
        for row, (near, shares, _) in enumerate(walks):
            weights[:, row, torch.searchsorted(field, near)] = shares
        moved = torch.zeros(self.hops, *own.shape, dtype=torch.float64)  # of the means, [T, s, n, k]
        step = min(max(1, NUMBERS // own[:, 0].numel()), TOGETHER) if own.numel() else TOGETHER
        for places in torch.arange(field.numel()).split(step) if field.numel() else ():
            change = logits(field[places]).softmax(-1) - self._every[field[places]].softmax(-1)
            moved += torch.einsum("tnu,suk->tsnk", weights[:, :, places], change)
        means = torch.stack([rest for _, _, rest in walks], 1)[:, None]  # [T, 1, n, k]
        out = self._pooled[nodes] + self.pool.weights[0] * (own - before)
        for weight, mean, change in zip(self.pool.weights[1:], means, moved, strict=True):
            out = out + weight * (self._evidence(mean + change, nodes) - self._evidence(mean, nodes))
        return out

    def _evidence(self, mean: Tensor, nodes: Tensor) -> Tensor:
        """Returns e_t of means [.., n, k] at nodes."""
        degree = self.degree[nodes].expand(mean.shape[:-1])
        return aggregate_neighbours(mean.flatten(0, -2), degree.flatten(), self.pool.shares).view(mean.shape)

    def _walks(self, node: int, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns nodes nearby, int64 [u], their parts in M^t at a node, [T, u], and M^t p there, [T, k]."""
        at, share, steps, means = torch.tensor([node]), torch.ones(1, dtype=torch.float64), [], []
        for _ in range(self.hops):
            rows = self.graph.adjacency.select_rows(at)
            values = self.mean.left[at][rows.rows()] * rows.values.double() * share[rows.rows()]
            at, place = torch.unique(rows.indices.long(), return_inverse=True)
            share = torch.zeros(at.numel(), dtype=torch.float64).index_add_(0, place, values)
            means.append(share @ self._p[at])
            steps.append((at, share))
        near = torch.unique(torch.cat([own for own, _ in steps]))
        while near.numel() > most:
            steps.pop()
            near = torch.unique(torch.cat([at[:0], *(own for own, _ in steps)]))
            self.notes = tuple(dict.fromkeys((*self.notes, HELD)))
        parts = torch.zeros(self.hops, near.numel(), dtype=torch.float64)
        for t, (own, share) in enumerate(steps):
            parts[t, torch.searchsorted(near, own)] = share
        return near, parts, torch.stack(means)

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        here, near = torch.tensor([node]), self._walks(node, min(REACH, PAIRS // max(len(ends), 1)))[0]
        own = self.model.without_edges(node, ends).log_softmax(-1)
        gone = self.mean.with_none_removed(node, ends)
        self.model.logits(near)  # all at once: each of them is needed next
        each = [self.model.without_edges(other, ends) for other in near.tolist()]
        p = torch.stack(each, 1).softmax(-1) if each else self._p.new_zeros(len(ends), 0, self._p.shape[1])
        p = torch.cat([self._p[near][None], p])  # with all edges and without each, [1 + b, u, k]
        means = self._means(node, near, p, *gone)  # [T, 1 + b, k]
        kept = self.graph.adjacency.select_rows(here).indices.long()
        other = torch.where(ends[:, 0] == node, ends[:, 1], torch.where(ends[:, 1] == node, ends[:, 0], -1))
        lost = torch.isin(other, kept).double()
        degree = self.degree[node] - torch.cat([lost.new_zeros(1), lost])
        out = self._pooled[node] + self.pool.weights[0] * (own - self._every[node].log_softmax(-1))
        for weight, mean in zip(self.pool.weights[1:], means, strict=True):
            pooled = aggregate_neighbours(mean, degree, self.pool.shares)
            out = out + weight * (pooled[1:] - pooled[0])
        return out

    def _means(self, node: int, near: Tensor, p: Tensor, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns M^t p at a node without each edge, [T, e, k]; what lies farther than `near` is held."""
        field, known = torch.tensor([node]), self.graph.adjacency
        for _ in range(self.hops):
            field = torch.unique(torch.cat([field, known.select_rows(field).indices.long()]))
        rows = known.select_rows(field)
        place = torch.searchsorted(field, rows.indices.long()).clamp(max=field.numel() - 1)
        inside = field[place] == rows.indices
        index = torch.stack([rows.rows()[inside], place[inside]])
        sums = torch.zeros(field.numel() + 1, dtype=torch.int64)
        sums[1:] = torch.bincount(index[0], minlength=field.numel()).cumsum(0)
        among = Csr.unchecked(sums, index[1].to(torch.int32), rows.values[inside].double(), field.numel())
        moved, at = p - p[:1], torch.searchsorted(field, near)
        parts = list[Tensor]()
        for some in torch.arange(len(ends)).split(max(1, NUMBERS // field.numel())):
            walks = self._walks_without(node, field, among, ends[some], weights[some])
            parts.append(walks @ self._p[field] + torch.einsum("teu,euk->tek", walks[:, :, at], moved[some]))
        return torch.cat(parts, 1)

    def _walks_without(self, node: int, field: Tensor, among: Csr, ends: Tensor, weights: Tensor) -> Tensor:
        """Returns the row of M^t at a node without each edge, [T, e, f]."""
        gone, each = self.mean.removed(ends, weights), torch.arange(len(ends))
        place = torch.searchsorted(field, ends).clamp(max=field.numel() - 1)
        there = (field[place] == ends).all(1)  # else no walk comes to either end before it stops
        scale, (a, b) = self.mean.left[field].repeat(len(ends), 1), place[there].T
        scale[each[there], a], scale[each[there], b] = gone.left[there].T
        at, walks = torch.zeros_like(scale), list[Tensor]()
        at[:, torch.searchsorted(field, torch.tensor([node]))] = 1
        for _ in range(self.hops):
            sent = at * scale
            at = propagate(among, sent.T.contiguous()).T.contiguous()
            at[each[there], a] -= weights[there] * sent[each[there], b]
            at[each[there], b] -= torch.where(a == b, 0.0, weights[there]) * sent[each[there], a]
            walks.append(at)
        return torch.stack(walks)

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: of the detector's word on the node itself, and one for nodes at each distance.

        Without a word these say nothing, e_t = 0, which is where their shares begin.
        """
        own = self.model.shares(nodes)
        if own is None:
            return None
        weights, shares, taken = self.pool.weights, self.pool.shares, frozenset(own.names)
        mine = Shares(shares + weights[0] * (own.base - shares), own.names, weights[0] * own.values)
        walks = [self._walks(node, REACH) for node in nodes.tolist()]
        means = torch.stack([rest for _, _, rest in walks], 1)  # [T, n, k]
        values = torch.stack([w * self._evidence(mean, nodes) for w, mean in zip(weights[1:], means, strict=True)], 1)
        names = tuple(made(name, taken) for name in (SAID, *(FARTHER.format(t) for t in range(2, self.hops + 1))))
        together = added([mine, Shares(torch.zeros_like(mine.base), names, values)])
        off = self._pooled[nodes] - together.base - together.values.sum(1)  # a constant of the node
        return Shares(together.base + off.mean(1, keepdim=True), together.names, together.values)

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`; logits of the nodes nearby are held."""
        change = self.model.with_each_label(nodes, more).log_softmax(-1) - self._every[nodes].log_softmax(-1)
        return self._pooled[nodes] + self.pool.weights[0] * change
