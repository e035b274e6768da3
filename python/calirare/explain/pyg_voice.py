"""GAT, GIN and GraphSAGE as a voice: labels in closed form, edges exactly, features by integrated gradients."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from calirare.curvature import NodeField
from calirare.explain.network_labels import CLOSED_FORM
from calirare.explain.network_shares import NEIGHBOURHOOD, made
from calirare.explain.newton_voice import NewtonVoice
from calirare.explain.pyg_labels import LabelledPyg, Surroundings
from calirare.explain.shares import completed
from calirare.explain.tangent_choice import chosen_tangent
from calirare.explain.voice import Kept, Shares, said
from calirare.graph import Graph, numbered
from calirare.models import Near, PygFit, Reach
from calirare_ext import Csr

POINTS = 64  # at which a gradient is taken on the way from the average features
NUMBERS = 4_000_000  # of features that are worked on together
NODES = 1_000  # of more, all are told at once
FIRST_ORDER = (
    "labels of {}: those of its tangent, which follows what Adam does (one damped Newton step from its own minimum); "
    "scaling of features, calibration map and epochs stay as they are"
)
AGAINST = "labels: the tangent of {} moves against its networks trained without each fold, so no label's effect is told"
LAST_LAYER = "labels: with so many labels or parameters the last layer of {} alone is moved by them"
UNTOLD = (
    "labels: do not rely on their effects, as the tangent of {} does not move as its networks trained without each "
    "fold do"
)


class PygVoice(NewtonVoice):
    """A network of PyTorch Geometric's layers on one graph.

    Args:
        fitted: the network with its folds.
        graph: as the network takes it.
    """

    def __init__(self, fitted: PygFit, graph: Graph) -> None:
        self.fitted, self.graph, self.surroundings = fitted, graph, Surroundings(graph)
        chosen = chosen_tangent(LabelledPyg.of(fitted, self.surroundings, CLOSED_FORM), self.surroundings)
        self.labels, self.factor, self.cosine = chosen.labels, chosen.factor, chosen.cosine
        self._said, self._fields = Kept[Tensor](), Kept[NodeField]()
        notes = [FIRST_ORDER.format(fitted.name)]
        notes += [] if chosen.agrees else [(UNTOLD if chosen.factor else AGAINST).format(fitted.name)]
        notes += [] if chosen.labelled.whole else [LAST_LAYER.format(fitted.name)]
        self.notes = tuple(notes)

    def log_odds(self, nodes: Tensor) -> Tensor:
        """See `Voice.log_odds`."""
        return self._said.of(nodes, self._logits)

    def _logits(self, nodes: Tensor) -> Tensor:
        """Returns what is said of nodes."""
        if nodes.numel() > NODES:
            return said(self.fitted.logits_of(self.graph, nodes))
        return said(self._at(self.surroundings.near(self.fitted.network, nodes)))

    def _at(self, near: Near) -> Tensor:
        """Returns logits of what a network reads, float64."""
        with torch.no_grad():
            return near.logits(self.fitted.network).double()

    def _field(self, nodes: Tensor) -> NodeField:
        """See `NewtonVoice`."""
        return self._fields.of(nodes, NodeField)

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `Voice.without_edges`: the network on the graph without each."""
        reach, order = self.surroundings.reach(torch.tensor([node]))
        place = dict(zip(order.tolist(), range(order.numel()), strict=True))
        pairs = [(place.get(a, -1), place.get(b, -1)) for a, b in ends.tolist()]
        each = [self._at(Near(self.fitted.network.prepared(_without(reach, *pair)), FIRST)) for pair in pairs]
        return said(torch.cat(each)) if each else self.log_odds(torch.tensor([node]))[:0]

    def shares(self, nodes: Tensor) -> Shares:
        """See `Voice.shares`: integrated gradients (Sundararajan et al. 2017), features of all nodes move together.

        The integral is taken at `POINTS` points; what is left of its error is given to the larger shares.
        """
        each = [self._shares_of(node) for node in nodes.tolist()]
        base, values = (torch.stack([one[i] for one in each]) for i in (0, 1))
        shares = Shares(base, self.names, values)
        return completed(shares, self.log_odds(nodes))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of a node, and those of its neighbourhood."""
        own = self.graph.feature_names or numbered(self.graph.n_features)
        return own + tuple(made(NEIGHBOURHOOD + name, frozenset(own)) for name in own)

    @cached_property
    def start(self) -> Tensor:
        """Where the path begins: the mean of each feature, float32 [d]; no word at all where they are sparse."""
        x = self.surroundings.x
        if isinstance(self.graph.x, Csr):
            return x.new_zeros(x.shape[1])
        return torch.from_numpy(x.numpy().mean(0, dtype=np.float64)).float()

    def _shares_of(self, node: int) -> tuple[Tensor, Tensor]:
        """Returns what is said of a node where the path begins, [q], and what its columns and others' add, [2 d, q]."""
        network, (reach, _) = self.fitted.network, self.surroundings.reach(torch.tensor([node]))
        start = network.prepared(dataclasses.replace(reach, x=self.start.expand_as(reach.x).contiguous()))
        x = reach.x.clone().requires_grad_()
        with torch.no_grad():
            first = network.mapped(*start)
            base = said(network.after(first, *start))[0]
        with torch.enable_grad():
            last = network.mapped(*network.prepared(dataclasses.replace(reach, x=x)))
        along = self._along(reach, first, last.detach())
        slopes = torch.stack([torch.autograd.grad(last, x, row, retain_graph=True)[0] for row in along])
        moved = slopes.double() * (reach.x - self.start).double()
        values = torch.cat([moved[:, 0], moved[:, 1:].sum(1)], 1)  # the node itself comes first
        return (base, values.T) if base.dim() else (base, values[0])

    def _along(self, reach: Reach, first: Tensor, last: Tensor) -> Tensor:
        """Returns the mean slopes of what is said between two ends of the first linear map, [q, rows, units]."""
        network, total = self.fitted.network, list[Tensor]()
        points = (torch.arange(POINTS) + 0.5) / POINTS
        for some in points.split(max(1, NUMBERS // max(last.numel(), 1))):
            mapped = (first + some[:, None, None] * (last - first)).requires_grad_()
            with torch.enable_grad():
                logits = network.after(_in_order(mapped, reach), *network.prepared(_side_by_side(reach, len(some))))
                out = said(logits).reshape(len(some), -1).sum(0)
            total.append(torch.stack([torch.autograd.grad(z, mapped, retain_graph=True)[0].sum(0) for z in out]))
        return torch.stack(total).sum(0) / POINTS


FIRST = torch.tensor([0])


def _without(reach: Reach, a: int, b: int) -> Reach:
    """Returns what is read without the edge between two of its nodes, by their places."""

    def kept(edges: Tensor) -> Tensor:
        s, t = edges
        return edges[:, ~(((s == a) & (t == b)) | ((s == b) & (t == a)))]

    return Reach(reach.x, kept(reach.first), kept(reach.second), reach.n_middle, reach.n)


def _side_by_side(reach: Reach, copies: int) -> Reach:
    """Returns what is read of several copies of a graph, none of which knows of the others, with one empty column."""
    place = _in_order(torch.arange(copies * reach.x.shape[0]).view(copies, -1), reach).argsort().view(copies, -1)

    def every(edges: Tensor) -> Tensor:
        return place[:, edges].transpose(0, 1).flatten(1)

    x = reach.x.new_zeros(copies * reach.x.shape[0], 1)
    return Reach(x, every(reach.first), every(reach.second), copies * reach.n_middle, copies * reach.n)


def _in_order(x: Tensor, reach: Reach) -> Tensor:
    """Returns rows of copies [c, a, ..] as `Reach` has them: all nodes, then all that are one edge away, and so on."""
    ends = [0, reach.n, reach.n_middle, x.shape[1]]
    return torch.cat([x[:, first:last].flatten(0, 1) for first, last in itertools.pairwise(ends)])
