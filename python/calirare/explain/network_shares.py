"""What each feature adds to the logits of a network, exactly: integrated gradients (Sundararajan et al. 2017).

From average features, or from no word at all, to those of the graph, the input of a hidden unit moves on a straight
line, so that the integral of its gradient is (relu(a_1) - relu(a_0)) / (a_1 - a_0). The features of all nodes move
together; a node's own and its neighbourhood's are kept apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from calirare.explain.explainable_model import Shares
from calirare.explain.removal import renumbered
from calirare.graph import Graph, default_names, propagated_features, scipy_of_csr
from calirare.models import GcnFit
from calirare_ext import Csr, ReceptiveField, as_dense, propagate

EVEN = 1e-9  # a step of a hidden unit that counts as none: its gradient is taken in place of the difference
NEIGHBOURHOOD = "its neighbourhood's "  # before the name of a feature
IN_GRAPH = " in the graph"  # behind a name of ours that a column of the user's has too


def made(name: str, own: Collection[str]) -> str:
    """Returns the name of a column that we make, distinct from the user's `own` where one of them is called so."""
    while name in own:
        name += IN_GRAPH
    return name


def closed_form_shares(fitted: GcnFit) -> bool:
    """Returns whether a network has so few layers that the shares are exact."""
    return fitted.model.n_layers <= 2


class NetworkShares:
    """What each feature adds to the log-odds of nodes; what is the same for all nodes is made once.

    Args:
        fitted: a network of one or two layers.
        view: the graph with the features that the network reads, see `HopColumns.of`.
    """

    def __init__(self, fitted: GcnFit, view: Graph) -> None:
        self.fitted, self.view = fitted, view
        self.layers = [(weight.detach().double(), bias.detach().double()) for weight, bias in fitted.model.layers()]
        own = view.feature_names or default_names(view.n_features)
        taken = frozenset(own)
        self.names = own + tuple(made(NEIGHBOURHOOD + name, taken) for name in own if fitted.model.hops)

    @cached_property
    def x(self) -> Tensor | Csr:
        """The features that are propagated, [n, d]."""
        return propagated_features(self.view, 1)

    @cached_property
    def start(self) -> Tensor:
        """Where the path begins: the mean of each feature, or no word at all; float64 [d]."""
        if isinstance(self.x, Csr):
            return torch.zeros(self.x.n_cols, dtype=torch.float64)
        return torch.from_numpy(self.x.numpy().mean(0, dtype=np.float64))  # torch converts all of it first

    @cached_property
    def a_hat(self) -> Csr:
        """A_hat, float64."""
        return self.fitted.model.propagation(self.view).a_hat.to(torch.float64)

    @cached_property
    def reach(self) -> Tensor:
        """A_hat^K 1, float64 [n, 1]."""
        out = torch.ones(self.view.n_nodes, 1, dtype=torch.float64)
        for _ in range(self.fitted.model.hops):
            out = propagate(self.a_hat, out)
        return out

    def at(self, field: ReceptiveField) -> Shares:
        """Returns the shares of a field's nodes: of their own features, then of their neighbourhoods'."""
        nodes, linear = field.nodes, len(self.layers) == 1
        seen, reach = as_dense(field.features).double(), self.reach[field.rows[0]]
        # How the nodes read the rows of the first layer, float64 [n, r].
        block = (field.blocks[0].to_dense() if field.blocks else torch.eye(nodes.numel())).double()
        rows = as_dense(self.x.select_rows(nodes)) if isinstance(self.x, Csr) else self.x[nodes]
        own_rows, own_block = rows.double() - self.start, block * self._seen_by(nodes, field.rows[0])
        each = list[tuple[Tensor, Tensor]]()
        for weight, bias, top, offset in _as_two_layers(self.layers):
            before, after = reach @ (self.start @ weight)[None] + bias, seen @ weight + bias
            slope = _slope(before, after, linear) * top
            base = block @ ((before if linear else torch.relu(before)) @ top) + offset
            total = block @ ((seen - reach * self.start) * (slope @ weight.T))
            own = own_rows * (own_block @ slope @ weight.T)
            each.append((base, torch.cat([own, total - own], 1) if self.fitted.model.hops else own))
        base, values = (torch.stack(parts, -1) for parts in zip(*each, strict=True))
        if len(each) == 1:
            base, values = (pad(part, (1, 0)) for part in (base, values))
        return Shares(base, self.names, values)

    def _seen_by(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Returns A_hat^K between nodes and rows, in any order, float64 [n, r]; it is symmetric."""
        here, order = torch.sort(nodes)  # where no edge is followed they are what is looked up
        sent = torch.eye(nodes.numel(), dtype=torch.float64)[order]
        for _ in range(self.fitted.model.hops):
            block = self.a_hat.select_rows(here)
            here, columns = renumbered(block.indices.long(), block.n_cols)
            onward = Csr.unchecked(block.indptr, columns.to(torch.int32), block.values, here.numel())
            sent = torch.from_numpy(scipy_of_csr(onward).T @ sent.numpy())
        if not here.numel():
            return torch.zeros(nodes.numel(), rows.numel(), dtype=torch.float64)
        place = torch.searchsorted(here, rows).clamp(max=here.numel() - 1)
        return torch.where((here[place] == rows)[:, None], sent[place], 0.0).T


def _as_two_layers(layers: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yields W_1, b_1, and above w [h] and b of each class, of two classes of class 1 less class 0."""
    last, offsets = layers[-1]
    if last.shape[1] == 2:
        last, offsets = last[:, 1:] - last[:, :1], offsets[1:] - offsets[:1]
    for contrast, offset in zip(last.T, offsets, strict=True):
        if len(layers) == 1:
            yield contrast[:, None], contrast.new_zeros(1), contrast.new_ones(1), offset
        else:
            yield layers[0][0], layers[0][1], contrast, offset


def _slope(before: Tensor, after: Tensor, linear: bool) -> Tensor:
    """Returns the mean slope of each hidden unit between two inputs, [r, h]."""
    if linear:
        return torch.ones_like(after)
    step = after - before
    even = step.abs() < EVEN
    mean = (torch.relu(after) - torch.relu(before)) / step.masked_fill(even, 1.0)
    return torch.where(even, (after > 0).double(), mean)
