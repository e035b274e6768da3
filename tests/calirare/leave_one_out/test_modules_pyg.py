"""Networks of PyTorch Geometric through the interface of the GCN, judged by retraining."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.leave_one_out import Retrain, leave_one_out
from calirare.models import ModuleFit
from tests.calirare.leave_one_out.cases import agreement, words_graph

MU = 1e-2


def convolution(kind: str, d: int, k: int) -> nn.Module:
    import torch_geometric.nn as pyg

    makers = {"GAT": pyg.GATConv, "GIN": lambda d, k: pyg.GINConv(nn.Linear(d, k)), "SAGE": pyg.SAGEConv}
    return makers[kind](d, k)


class OneLayer(nn.Module):
    """One convolution: a smooth loss, so that retraining ends in one place."""

    def __init__(self, kind: str, d: int, k: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = convolution(kind, d, k).double()

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.layer(x, edges)


def train(module: nn.Module, x: Tensor, edges: Tensor, nodes: Tensor, targets: Tensor, weights: Tensor) -> None:
    optimiser = torch.optim.LBFGS(
        module.parameters(), max_iter=400, tolerance_grad=1e-9, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        losses = weights * F.cross_entropy(module(x, edges)[nodes], targets, reduction="none")
        penalty = sum((p.square().sum() for p in module.parameters()), torch.zeros(()))
        loss = losses.mean() + MU / 2 * penalty
        loss.backward()
        return loss

    optimiser.step(closure)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GAT", "SAGE"])
def test_pyg_layers_agree_with_retraining(kind: str) -> None:
    graph = words_graph(2)
    assert graph.y is not None
    x = graph.x.double() / 10  # type: ignore[union-attr]
    edges = torch.stack([graph.adjacency.rows(), graph.adjacency.indices.long()])
    nodes = torch.arange(0, 120, 3)
    targets, weights = graph.y[nodes], torch.ones(40, dtype=torch.float64)
    module = OneLayer(kind, x.shape[1], 2).eval()
    train(module, x, edges, nodes, targets, weights)
    fitted = ModuleFit(module, (x, edges), nodes, targets, weights, MU)
    found = leave_one_out(fitted)
    again = leave_one_out(fitted, method=Retrain(n_models=4, seed=1))
    before = module(x, edges).detach()
    chosen, own, elsewhere = again.samples()[0].tolist(), [], []
    for i in chosen:
        without, left = copy.deepcopy(module), weights.clone()
        left[i] = 0.0
        train(without, x, edges, nodes, targets, left)
        moved = without(x, edges).detach() - before
        moved = moved[:, 1] - moved[:, 0]
        own.append(moved[nodes[i]])
        elsewhere.append(moved)
    assert agreement(found.own[chosen, 0], torch.stack(own))[0] >= 0.99
    assert agreement(found.own[chosen, 0], torch.stack(own))[1] <= 0.15
    assert agreement(found.change[:, 0, chosen], torch.stack(elsewhere, 1))[0] >= 0.98
    assert agreement(again.own[chosen, 0], torch.stack(own))[1] <= 0.01
    assert agreement(again.change[:, 0], torch.stack(elsewhere, 1))[1] <= 0.01
