"""A user's own network: labels that it has not seen decide whether its jackknife is trusted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import calirare
from calirare.datasets import synthetic_rare
from calirare.graph import Graph, Split
from calirare.leave_one_out import ALO, leave_one_out, quality
from calirare.leave_one_out.held_out import HeldOut, compared
from calirare.models import ModuleFit, fit_of, pyg_inputs

pytestmark = pytest.mark.slow

CLASSES, MU = 7, 5e-4


class Net(nn.Module):
    """Two layers of PyTorch Geometric."""

    def __init__(self, d: int, k: int, hidden: int = 16) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.first, self.second = SAGEConv(d, hidden), SAGEConv(hidden, k)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x, edges)), edges)


def noisy(val: int = 150, n: int = 300) -> Graph:
    """Returns a graph of seven classes with many columns of noise, of which 70 nodes train."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % CLASSES
    x = torch.randn(n, 60, generator=generator)
    x[torch.arange(n), y] += 3.0
    ends = torch.randint(0, n, (3 * n, 2), generator=generator)
    alike = (y[ends[:, 0]] == y[ends[:, 1]]) | (torch.rand(3 * n, generator=generator) < 0.1)
    ends = ends[alike & (ends[:, 0] != ends[:, 1])].unique(dim=0)
    graph = Graph.from_edges(ends, x, y, name="noisy", symmetrize=True, duplicates="drop")
    return graph.with_split(Split(torch.arange(70), torch.arange(70, 70 + val), torch.arange(70 + val, n)))


def trained(graph: Graph, nodes: Tensor, epochs: int = 150, decay: float = MU) -> Net:
    """Returns a network that has learnt its labels by heart."""
    torch.manual_seed(0)
    module, (x, edges) = Net(graph.n_features, graph.n_classes), pyg_inputs(graph)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02, weight_decay=decay)
    for _ in range(epochs):
        optimiser.zero_grad()
        F.cross_entropy(module(x, edges)[nodes], graph.y[nodes]).backward()
        optimiser.step()
    return module.eval()


def test_evidence_comes_without_an_option_and_print_shows_it_first():
    graph, judge = noisy(), noisy(val=0)
    model = trained(graph, graph.split.train)
    found = calirare.jackknife(model, graph)
    reliable, calibrated, *_ = repr(found).splitlines()
    assert reliable.startswith("Leave-one-out can be relied on in part: its changes correlate")
    assert calibrated.startswith("The network is not calibrated: mean P of being right 0.7")
    assert "150 validation labels (ratio 1.5" in calibrated
    assert "too high" in calibrated
    assert found.account.in_sample_nll < 0.05
    assert found.account.loo_nll == pytest.approx(found.choice.agreement.held_out, rel=0.05)
    assert found.account.n_validation == 150
    # the same from data of PyTorch Geometric, with a mask or numbers of nodes, and from a fit without data
    data = graph.to_data()
    jackknife = calirare.jackknife
    again = [jackknife(model, data, labels=labels) for labels in (None, graph.split.train, data.train_mask)]
    for each in (*again, jackknife(fit_of(model, data))):
        assert (each.account.verdict, each.calibration) == (found.account.verdict, found.calibration)
        assert each.eice == pytest.approx(found.eice)
    alone = calirare.jackknife(model, judge)
    assert alone.account.verdict == found.account.verdict
    assert alone.calibration[0] == "do not trust"
    assert "70 training labels left out" in alone.calibration[1]


def test_what_does_not_describe_the_training_is_not_relied_on():
    graph = noisy()
    model = trained(graph, graph.split.train)
    with pytest.warns(UserWarning, match="leave-one-out cannot be relied on: leave-one-out loss"):
        found = calirare.jackknife(model, graph, ALO(damping=1e-6))
    assert repr(found).startswith("Leave-one-out cannot be relied on: leave-one-out loss")
    weighted = fit_of(model, graph, class_weight=[1, 1, 1, 1, 1, 1, 3.0])
    assert float(weighted.sample_weights.mean()) == pytest.approx(1)
    assert float(weighted.sample_weights.max()) == pytest.approx(3 * float(weighted.sample_weights.min()))
    assert bool((fit_of(model, graph).sample_weights == 1).all())
    with pytest.raises(ValueError, match=r"class_weight must be 7 finite numbers >= 0, got \[2\]"):
        fit_of(model, graph, class_weight=[1.0, 2.0])


def test_a_loss_of_two_hundredths_that_is_eight_tenths_on_unseen_nodes_is_not_trusted():
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(140) % CLASSES
    sure = 4.5 * F.one_hot(targets, CLASSES).double() + 0.1 * torch.randn(140, CLASSES, generator=generator)
    unsure = 2.5 * F.one_hot(targets, CLASSES).double() + torch.randn(140, CLASSES, generator=generator)
    held = HeldOut(torch.arange(140), unsure, targets)
    said = compared(sure, targets, held)
    assert said.loo_nll < 0.1
    assert said.held_out_nll > 0.6
    assert said.verdict[0] == "do not trust"
    assert "140 validation labels" in said.verdict[1]
    same = compared(unsure, targets, held)
    assert same.verdict is None
    few = HeldOut(torch.arange(5), unsure[:5], targets[:5])
    assert compared(unsure, targets, few).verdict[0] == "caution"
    # classes that are held out in other numbers count as among the labels
    often = torch.cat([torch.arange(140), torch.arange(0, 140, CLASSES).repeat(9)])
    other = compared(unsure, targets, HeldOut(often, unsure[often], targets[often]))
    assert other.held_out_nll == pytest.approx(same.held_out_nll)


def smooth() -> tuple[Graph, ModuleFit]:
    """Returns a task and a network that leave-one-out describes: one linear layer, trained to its minimum."""
    graph = synthetic_rare(600, seed=0, share=0.3, n_features=4, separation=1.5)
    nodes = torch.arange(0, 200)
    graph = graph.with_split(Split(nodes, torch.arange(200, 500), torch.arange(500, 600)))
    return graph, linear(graph, nodes)


def linear(graph: Graph, nodes: Tensor, decay: float = 1e-2) -> ModuleFit:
    module = Linear(graph.x.shape[1]).double()
    x, targets = graph.x.double(), graph.y[nodes]
    optimiser = torch.optim.LBFGS(module.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        penalty = sum((p.square().sum() for p in module.parameters()), torch.zeros(()))
        loss = F.cross_entropy(module(x)[nodes], targets) + decay / 2 * penalty
        loss.backward()
        return loss

    optimiser.step(closure)
    weights = torch.ones(len(nodes), dtype=torch.float64)
    return ModuleFit(module.eval(), (x,), nodes, targets, weights, decay)


class Linear(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(d, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_validation_labels_bear_out_a_network_that_is_right():
    graph, fitted = smooth()
    change = leave_one_out(fitted)
    said = quality(fitted, change, graph=graph)
    assert said.verdict == "trust"
    assert said.validation_nll == pytest.approx(said.loo_nll, rel=0.25)
    assert calirare.jackknife(fitted, graph, ALO()).account.verdict == "trust"


def test_without_a_label_that_it_has_not_seen_the_verdict_is_caution_unless_it_is_retrained():
    graph, fitted = smooth()
    change = leave_one_out(fitted)
    alone = quality(fitted, change)
    assert alone.verdict == "caution"
    assert "retrain" in alone.reason

    def retrain(nodes: Tensor) -> nn.Module:
        return linear(graph, nodes).model

    by_us, by_user = calirare.jackknife(fitted), calirare.jackknife(fitted, retrain=retrain)
    assert by_us.account.verdict == by_user.account.verdict
    ours, theirs = by_us.choice.networks, by_user.choice.networks
    assert min(ours.likeness(theirs.own, theirs.change)) > 0.97  # whose loss is a mean over fewer labels
    assert by_us.choice.method.name == "alo", "a minimum needs nothing else"
    assert min(by_us.choice.likeness) > 0.98
    automatic = leave_one_out(fitted, method=ALO(damping="auto"))
    assert automatic.damping == pytest.approx(by_us.choice.method.damping or 0.0, rel=1e-6)
    with pytest.raises(calirare.InputError, match="must return a torch module, got Tensor"):
        calirare.jackknife(fitted, retrain=lambda nodes: nodes)


def test_a_population_other_than_the_labels_is_named():
    graph, _ = smooth()
    y = graph.y[:200]
    few = torch.cat([torch.arange(200)[y == 1], torch.arange(200)[y == 0][:20]]).sort().values
    enriched = linear(graph, few)
    verdict, reason = calirare.jackknife(enriched, graph).calibration
    assert verdict == "do not trust"
    assert "mean P of class 1" in reason
    assert "too high" in reason
    assert "validation labels" in reason
