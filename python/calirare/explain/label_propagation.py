"""Spread labels as a model: what reaches a node is a sum over the labels, so each is left out exactly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from calirare.explain.explainable_model import ExplainableModel, Kept, Shares
from calirare.explain.network_shares import made
from calirare.graph import Graph, default_names
from calirare.models import STEPS, LabelPropagationFit, inverse_root, propagation_step, root_of
from calirare_ext import Csr, propagate, row_sums

NEARBY = "known cases nearby"
HELD = (
    "effects of edges on label propagation are approximate: when an edge is removed, the neighbours' propagated "
    "labels are not recomputed"
)
TOGETHER = 32  # nodes from which walks start at once: 128 bytes of each node, which may stay in the cache
ROUNDING = 1e-6  # of what reaches a node: what is left of it below is nothing


class ExplainablePropagation(ExplainableModel):
    """Labels spread over the edges of the training graph, and read by nodes of a graph that shares some of its nodes.

    Args:
        fitted: the labels.
        graph: the graph.
        own: the training graph; None: it is `graph`.
    """

    notes = (HELD,)

    def __init__(self, fitted: LabelPropagationFit, graph: Graph, own: Graph | None = None) -> None:
        self.fitted, self.graph, self.own = fitted, graph, graph if own is None else own
        self._parts = Kept[Tensor]()

    def logits(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.logits`; NaN where no label reaches."""
        return self.fitted.logits_of(self.graph, nodes).double()

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self._after(nodes, -self._of_classes(self._of_labels(nodes)))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        each = self._of_classes(self._of_labels(nodes))
        return self._after(nodes, -torch.stack([each[places].sum(0) for places in sets]))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`."""
        fitted, reached = self.fitted, self._reached_from(nodes, more).T
        out = []
        for label in range(fitted.n_classes):
            weight = fitted.sample_weights[fitted.targets == label].double().mean().nan_to_num(nan=1.0)
            change = reached.new_zeros(*reached.shape, fitted.n_classes)
            change[..., label] = weight * reached
            out.append(self._after(nodes, change))
        return torch.stack(out)

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: label propagation is the only contribution."""
        names = frozenset(self.graph.feature_names or default_names(self.graph.n_features))
        z = self.logits(nodes)
        return Shares(torch.zeros_like(z), (made(NEARBY, names),), z.nan_to_num(nan=0.0)[:, None])

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        fitted, row = self.fitted, self.graph.adjacency.select_rows(torch.tensor([node]))
        sent = fitted.sent_in(self.graph)[:, -fitted.n_classes :]
        total, whole = row.values.double().sum(), row.values.double() @ sent[row.indices.long()].double()
        others = torch.where(ends[:, 0] == node, ends[:, 1], ends[:, 0])
        place = torch.searchsorted(row.indices.long(), others).clamp(max=max(row.nnz - 1, 0))
        here = (ends == node).any(1) & (row.indices[place] == others)
        weight = torch.where(here, row.values[place].double(), 0.0)
        left, degree = whole - weight[:, None] * sent[others].double(), total - weight
        left = torch.where(left > ROUNDING * whole, left, 0.0)
        scale = torch.where(degree > ROUNDING * total, fitted.reach * degree.clamp(min=0).rsqrt(), 0.0)
        return fitted.logits(left * scale[:, None]).double()

    def _after(self, nodes: Tensor, change: Tensor) -> Tensor:
        """Returns the logits of nodes when what reaches them changes by [.., n, k]."""
        whole = self.fitted.reached_in(self.graph, nodes)[:, -1]
        after = whole + change
        return self.fitted.logits(torch.where(after > ROUNDING * whole, after, 0.0)).double()

    def _of_classes(self, parts: Tensor) -> Tensor:
        """Returns each label's part of what reaches nodes, [n, m], in its class's column, [m, n, k]."""
        return parts.T[..., None] * one_hot(self.fitted.targets, self.fitted.n_classes)[:, None]

    def _of_labels(self, nodes: Tensor) -> Tensor:
        """Returns each label's part of what reaches nodes, float64 [n, m]."""
        return self._parts.of(
            nodes, lambda some: self._reached_from(some, self.fitted.nodes) * self.fitted.sample_weights
        )

    def _reached_from(self, nodes: Tensor, sources: Tensor) -> Tensor:
        """Returns sum_t alpha^t (S^t)_vu of nodes v and sources u, float64 [n, s]; S is symmetric: the fewer walk.

        Nodes of another graph than the training graph take their first step over the edges that they have there.
        """
        if self.own is self.graph and sources.numel() < nodes.numel():
            return self._reached_from(sources, nodes).T
        out = torch.zeros(nodes.numel(), sources.numel(), dtype=torch.float64)
        for some in torch.arange(nodes.numel()).split(TOGETHER):
            walks = self._first_step(nodes[some])
            for step in range(1, STEPS + 1):
                out[some] += self.fitted.reach**step * walks[sources].T
                walks = propagate(self._step, walks) if step < STEPS else walks
        return out

    def _first_step(self, nodes: Tensor) -> Tensor:
        """Returns the columns of S for nodes of the graph, float32 [n of the training graph, s]."""
        walks = torch.zeros(self.own.n_nodes, nodes.numel())
        if self.own is self.graph:
            walks[nodes, torch.arange(nodes.numel())] = 1
            return propagate(self._step, walks)
        rows, places = self.graph.adjacency.select_rows(nodes), self.fitted.places_in(self.graph)
        if places is None:
            return walks
        at = torch.from_numpy(places)[rows.indices.long()]
        values = inverse_root(row_sums(rows))[rows.rows()] * rows.values * root_of(self.own)[at.clamp(min=0), 0]
        walks.index_put_((at[at >= 0], rows.rows()[at >= 0]), values[at >= 0].float(), accumulate=True)
        return walks

    @cached_property
    def _step(self) -> Csr:
        """S of the training graph."""
        return propagation_step(self.own)
