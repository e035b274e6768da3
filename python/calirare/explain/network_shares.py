"""What each feature adds to the log-odds of a network, exactly: integrated gradients in closed form.

Along the straight path from average features to those of the graph, what enters a hidden unit moves on a straight line
too, so that the integral of its gradient is a difference of two ReLUs:

    phi = (relu(a_1) - relu(a_0)) / (a_1 - a_0),  a_0 and a_1 at the path's ends

(Sundararajan et al. 2017, whose completeness it has: shares and start add up to the log-odds, with one hidden layer
without any quadrature). The features of all nodes move together; what a node's own add is told apart from what those of
its neighbourhood add. Where features are sparse words the path begins at no word at all.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from calirare.explain.voice import Shares
from calirare.graph import Graph, numbered, propagated_features
from calirare.models import GcnFit
from calirare_ext import Csr, as_dense, propagate

EVEN = 1e-9  # a step of a hidden unit that counts as none: its gradient is taken in place of the difference
NEIGHBOURHOOD = "its neighbourhood's "  # before the name of a feature
IN_GRAPH = " in the graph"  # behind a name of ours that a column of the user's has too


def made(name: str, own: Collection[str]) -> str:
    """Returns the name of a column that we make, told apart from the user's `own` where one of them is called so."""
    while name in own:
        name += IN_GRAPH
    return name


def closed_form_shares(fitted: GcnFit) -> bool:
    """Returns whether a network has so few layers that the shares are exact."""
    return fitted.model.n_layers <= 2


def network_shares(fitted: GcnFit, view: Graph, nodes: Tensor) -> Shares:
    """Returns what each feature adds to the log-odds of nodes: their own, then those of their neighbourhoods.

    Args:
        fitted: a network of one or two layers and two classes.
        view: the graph with the features that the network reads, see `HopColumns.of`.
        nodes: int64 [n].
    """
    layers = [(weight.detach().double(), bias.detach().double()) for weight, bias in fitted.model.layers()]
    field = fitted.model.propagation(view).field(nodes, fitted.model.n_layers)
    seen, start = as_dense(field.features).double(), _average(view)
    reach = _repeated(fitted, view, torch.ones(view.n_nodes, 1, dtype=torch.float64))[field.rows[0]]  # A^K 1
    block = _above(fitted, field.blocks, nodes)
    weight, bias, top, offset = _as_two_layers(layers)
    before, after = reach @ (start @ weight)[None] + bias, seen @ weight + bias
    slope = _slope(before, after, len(layers) == 1) * top
    base = block @ (_hidden(before, len(layers) == 1) @ top) + offset
    total = block @ ((seen - reach * start) * (slope @ weight.T))
    indicator = torch.zeros(view.n_nodes, nodes.numel(), dtype=torch.float64)
    indicator[nodes, torch.arange(nodes.numel())] = 1
    back = _repeated(fitted, view, indicator)[field.rows[0]].T  # of each node in what the rows see, [n, r]
    x = propagated_features(view, 1)
    rows = as_dense(x.select_rows(nodes)) if isinstance(x, Csr) else x[nodes]
    own = (rows.double() - start) * ((block * back) @ slope @ weight.T)
    names = view.feature_names or numbered(view.n_features)
    if not fitted.model.hops:
        return Shares(base, names, own)
    return Shares(
        base, names + tuple(made(NEIGHBOURHOOD + name, names) for name in names), torch.cat([own, total - own], 1)
    )


def _average(view: Graph) -> Tensor:
    """Returns where the path begins: the mean of each feature, or no word at all; float64 [d]."""
    x = propagated_features(view, 1)
    if isinstance(x, Csr):
        return torch.zeros(x.n_cols, dtype=torch.float64)
    return x.double().mean(0)


def _repeated(fitted: GcnFit, view: Graph, x: Tensor) -> Tensor:
    """Returns A_hat^hops x, float64."""
    a_hat = fitted.model.propagation(view).a_hat.to(torch.float64)
    for _ in range(fitted.model.hops):
        x = propagate(a_hat, x)
    return x


def _above(fitted: GcnFit, blocks: tuple[Csr, ...], nodes: Tensor) -> Tensor:
    """Returns how the nodes read the rows of the first layer, float64 [n, r]."""
    return blocks[0].to_dense().double() if blocks else torch.eye(nodes.numel(), dtype=torch.float64)


def _as_two_layers(layers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns W_1, b_1, and above w [h] and b of class 1 less 0; of one layer a unit that is always on."""
    contrast, offset = layers[-1][0][:, 1] - layers[-1][0][:, 0], layers[-1][1][1] - layers[-1][1][0]
    if len(layers) == 1:
        return contrast[:, None], contrast.new_zeros(1), contrast.new_ones(1), offset
    return layers[0][0], layers[0][1], contrast, offset


def _hidden(z: Tensor, linear: bool) -> Tensor:
    return z if linear else torch.relu(z)


def _slope(before: Tensor, after: Tensor, linear: bool) -> Tensor:
    """Returns the mean slope of each hidden unit between two inputs, [r, h]."""
    if linear:
        return torch.ones_like(after)
    step = after - before
    even = step.abs() < EVEN
    mean = (torch.relu(after) - torch.relu(before)) / step.masked_fill(even, 1.0)
    return torch.where(even, (after > 0).double(), mean)
