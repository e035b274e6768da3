"""Networks of PyTorch Geometric through the interface of the GCN, judged by retraining."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.curvature import ModuleLinearisation, NodeField
from calirare.leave_one_out import influence, leave_one_out
from calirare.models import ModuleFit
from calirare_lab.leave_one_out import Retrain
from tests.calirare.leave_one_out.cases import agreement, words_graph
from tests.helpers.tolerance import assert_within

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
    chosen, own, elsewhere, losses = again.samples()[0].tolist(), [], [], []
    others = torch.arange(1, 120, 3)
    for i in chosen:
        without, left = copy.deepcopy(module), weights.clone()
        left[i] = 0.0
        train(without, x, edges, nodes, targets, left)
        there = without(x, edges).detach()
        each = [F.cross_entropy(z[others], graph.y[others], reduction="none") for z in (there, before)]
        losses.append(each[0] - each[1])
        moved = there - before
        moved = moved[:, 1] - moved[:, 0]
        own.append(moved[nodes[i]])
        elsewhere.append(moved)
    assert agreement(found.own[chosen, 0], torch.stack(own))[0] >= 0.99
    assert agreement(found.own[chosen, 0], torch.stack(own))[1] <= 0.15
    assert agreement(found.change[:, 0, chosen], torch.stack(elsewhere, 1))[0] >= 0.98
    assert agreement(again.own[chosen, 0], torch.stack(own))[1] <= 0.01
    assert agreement(again.change[:, 0], torch.stack(elsewhere, 1))[1] <= 0.01
    data = graph.to_data()
    effects = influence(fitted, data, test=others)
    assert agreement(effects.loss[:, chosen].T, torch.stack(losses))[0] >= 0.98
    assert agreement(effects.logits[:, chosen].diff(dim=2)[:, :, 0].T, torch.stack(elsewhere)[:, others])[0] >= 0.98
    first = influence(fitted, data, test=torch.isin(torch.arange(graph.n_nodes), others), top=3)
    order = effects.loss.abs().argsort(1, descending=True)[:, :3]
    assert torch.equal(first.labels, nodes[order])
    assert torch.equal(first.loss, effects.loss.gather(1, order))
    assert torch.equal(first.targets, graph.y[others])


class Wide(nn.Module):
    """Two convolutions; logits that read the whole graph, or one dense layer called twice, where asked."""

    def __init__(self, kind: str, *, whole: bool = False, twice: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = (convolution(kind, d, k).double() for d, k in ((12, 6), (6, 3)))
        self.mixed, self.whole, self.twice = nn.Linear(6, 6).double(), whole, twice

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        hidden = self.mixed(torch.relu(self.first(x, edges)))
        hidden = self.mixed(torch.tanh(hidden)) if self.twice else hidden
        z = self.second(hidden, edges)
        return z + z.mean(0) if self.whole else z


@pytest.mark.parametrize(
    ("kind", "options"),
    [("SAGE", {}), ("GAT", {}), ("GIN", {}), ("SAGE", {"whole": True}), ("GIN", {"twice": True})],
)
def test_rows_of_the_jacobian_are_gradients(kind: str, options: dict[str, bool]) -> None:
    draw = torch.Generator().manual_seed(0)
    x, edges = torch.randn(60, 12, generator=draw).double(), torch.randint(0, 60, (2, 90), generator=draw)
    module, nodes = Wide(kind, **options).eval(), torch.arange(0, 60, 7)
    tape = ModuleLinearisation(module, (x, edges), nodes, torch.zeros_like(nodes), torch.ones(len(nodes)))
    z, wanted = module(x, edges)[nodes], []
    for node in range(len(nodes)):
        for c in (1, 2):
            gradients = torch.autograd.grad(z[node, c] - z[node, 0], list(module.parameters()), retain_graph=True)
            wanted.append(torch.cat([each.flatten() for each in gradients]))
    assert_within(tape.jacobian, torch.stack(wanted), torch.tensor(1e-10, dtype=torch.float64))
    directions = torch.randn(5, tape.n_parameters, generator=draw).double()
    few, many = (tape.change_along(NodeField(nodes), v) for v in (directions.repeat(20, 1), directions[:1]))
    assert_within(few[:, :, :1], many, torch.tensor(1e-9, dtype=torch.float64))
