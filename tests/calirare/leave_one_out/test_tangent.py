"""The tangent of a network: its derivatives, its minimum, its labels left out, and what Adam does without them."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import calirare
from calirare.curvature import ModuleLinearisation, NodeField
from calirare.datasets import synthetic_rare
from calirare.graph import Graph
from calirare.leave_one_out import (
    ALO,
    LooResult,
    OwnLogits,
    Tangent,
    adam_moments,
    leave_one_out,
)
from calirare.leave_one_out.tangent import Features, TangentModel
from calirare.models import ModuleFit
from calirare_lab.leave_one_out import Influence, agreement_of
from tests.helpers.tolerance import assert_within

M, DAMPING = 24, 0.01
TIGHT = torch.tensor(1e-9, dtype=torch.float64)
SHAPES = {6: "more labels than parameters", 90: "more parameters than labels"}


class Differences(nn.Module):
    """Logits whose differences to class 0 are linear in the parameters."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows, self.theta = rows, nn.Parameter(torch.zeros(rows.shape[2], dtype=torch.float64))

    def forward(self) -> Tensor:
        return F.pad(self.rows @ self.theta, (1, 0))


def model_of(n_classes: int, p: int, weights: Tensor | None = None) -> TangentModel:
    draw = torch.Generator().manual_seed(n_classes + p)
    module = Differences(torch.randn(40, n_classes - 1, p, generator=draw, dtype=torch.float64))
    targets = torch.randint(n_classes, (M,), generator=draw)
    drawn = torch.rand(M, generator=draw) + 0.5
    base = ModuleLinearisation(module, (), torch.arange(M), targets, drawn if weights is None else weights)
    return TangentModel(Features(base, torch.rand(p, generator=draw, dtype=torch.float64) + 0.5))


@pytest.fixture(params=[2, 4])
def n_classes(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=SHAPES.get)
def model(request, n_classes):
    return model_of(n_classes, request.param)


def loss_of(model: TangentModel, u: torch.Tensor, damping: float = DAMPING) -> torch.Tensor:
    z = (model.jacobian @ u).view(M, -1)
    z = torch.cat([torch.zeros(M, 1), z], 1)
    losses = torch.nn.functional.cross_entropy(z, model.targets, reduction="none")
    return (model.sample_weights * losses).mean() + damping / 2 * u @ u


def test_the_minimum_is_one(model):
    found = model.minimum(DAMPING)
    u = found.u.clone().requires_grad_()
    loss = loss_of(model, u)
    (slope,) = torch.autograd.grad(loss, u)
    assert_within(slope, torch.zeros_like(slope), torch.tensor(1e-5, dtype=torch.float64))
    assert found.loss(DAMPING) == pytest.approx(float(loss.detach()), rel=1e-9)
    assert_within(found.differences.flatten(), model.jacobian @ u.detach(), TIGHT)
    assert float(loss.detach()) < model.loss(DAMPING) - 0.01


def test_steps_that_overshoot_are_halved(n_classes):
    """Labels known by heart with hardly a penalty: the first step from far away makes the loss worse."""
    model = model_of(n_classes, 90)
    far = TangentModel(model.features, model.minimum(1e-9).coordinates * -3)
    with_hardly_any = far.minimum(1e-4)
    assert_within(with_hardly_any.logits, model.minimum(1e-4).logits, torch.tensor(1e-2, dtype=torch.float64))


def test_derivatives_are_those_of_its_loss(model):
    here = TangentModel(model.features, model.minimum(1.0).coordinates)
    u = here.u
    vectors = torch.randn(3, u.numel(), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    seeds = here.jvp(vectors)
    assert_within(seeds.flatten(1), vectors @ model.jacobian.T, TIGHT)
    assert_within(here.vjp(seeds), seeds.flatten(1) @ model.jacobian, TIGHT)
    others, scale = NodeField(torch.tensor([30, 3])), here.features.scale
    moved = here.change_along(others, vectors)
    rows = here.features.base.module.rows[others.nodes].flatten(0, 1) * scale
    assert_within(moved.flatten(0, 1), rows @ vectors.T, TIGHT)
    assert float(here.jacobian.square().sum(1).mean()) == pytest.approx(1)


def test_a_label_left_out_in_closed_form_is_the_minimum_without_it(model):
    damping = 0.02
    whole = model.minimum(damping)
    told = OwnLogits(whole)(damping) - whole.logits
    told, truth, at = told[:, 1:] - told[:, :1], [], whole.field
    for place in range(M):
        weights = model.sample_weights * (torch.arange(M) != place)
        left = TangentModel(model.features, whole.coordinates, weights).minimum(damping)
        truth.append(whole.change_along(at, (left.u - whole.u)[None])[place, :, 0])
    found = torch.corrcoef(torch.stack([told.flatten(), torch.stack(truth).flatten()]))[0, 1]
    assert float(found) > 0.995


class Net(nn.Module):
    """Two layers of the neighbours' mean beside the node itself."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.mean, self.own = nn.Linear(d, 8), nn.Linear(d, 8, bias=False)
        self.last, self.own_last = nn.Linear(8, 2), nn.Linear(8, 2, bias=False)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        hidden = torch.relu(self.mean(a @ x) + self.own(x))
        return self.last(a @ hidden) + self.own_last(hidden)


EPOCHS, DECAY, LEFT_OUT = 50, 5e-4, torch.arange(0, 40, 4)


@cache
def task() -> tuple[Graph, Tensor, Tensor]:
    """A graph, its nodes' words, float64 [n, 60], of which some are common, and the mean over neighbours, [n, n]."""
    graph = synthetic_rare(240, seed=0, share=0.25, n_features=12, separation=1.5)
    draw = torch.Generator().manual_seed(0)
    rate = 0.02 + 0.2 * torch.rand(60, generator=draw).pow(4)
    rare = torch.rand(60, generator=draw) < 0.15
    x = torch.rand(240, 60, generator=draw) < rate * (1 + 3 * (graph.y[:, None] == 1) * rare)
    a = (graph.adjacency.to_dense() > 0).double()
    return graph, x.double(), a / a.sum(1, keepdim=True).clamp(min=1)


def trained(weights: Tensor) -> tuple[ModuleFit, torch.optim.Adam]:
    """Returns a network trained by Adam from scratch, far from its minimum, on 40 labels with these weights."""
    graph, x, a = task()
    nodes = torch.arange(0, 240, 6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Net(60).double()
    adam = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=DECAY)
    for _ in range(EPOCHS):
        adam.zero_grad()
        (weights * F.cross_entropy(module(x, a)[nodes], graph.y[nodes], reduction="none")).mean().backward()
        adam.step()
    return ModuleFit(module.eval(), (x, a), nodes, graph.y[nodes], torch.ones(40, dtype=torch.float64), DECAY), adam


@pytest.fixture(scope="module")
def whole():
    return trained(torch.ones(40, dtype=torch.float64))


@pytest.fixture(scope="module")
def truth(whole):
    """How all logit differences change when a label is left out of the training, [10, n]."""
    out = []
    for place in LEFT_OUT:
        weights = torch.ones(40, dtype=torch.float64)
        weights[place] = 0
        out.append((trained(weights)[0].logits() - whole[0].logits()).diff(dim=1)[:, 0])
    return torch.stack(out)


def agreement(found: LooResult, truth: Tensor) -> tuple[float, float]:
    """Returns correlation with the truth, and slope on it, of all changes."""
    correlation, slope, _ = agreement_of(found.change[:, 0, LEFT_OUT].T, truth)
    return correlation, slope


def retrain(nodes: Tensor) -> nn.Module:
    return trained(torch.isin(torch.arange(0, 240, 6), nodes).double() * 40 / len(nodes))[0].model


def test_a_label_of_a_network_stopped_early_does_what_training_from_scratch_shows(whole, truth):
    fitted, adam = whole
    told = {
        "influence": leave_one_out(fitted, method=Influence(solver="ggn")),
        "tangent": leave_one_out(fitted, method=Tangent(second_moments=adam_moments(adam))),
        "estimated": leave_one_out(fitted, method=Tangent()),
        "alo": leave_one_out(fitted, method=ALO()),
    }
    found = {name: agreement(each, truth)[0] for name, each in told.items()}
    assert found["tangent"] > 0.88
    assert found["estimated"] > 0.75
    assert found["influence"] < 0.65
    assert found["tangent"] > found["alo"]
    own = told["tangent"].own[LEFT_OUT, 0]
    assert_within(own, told["tangent"].change[fitted.nodes[LEFT_OUT], 0, LEFT_OUT], TIGHT)


def test_networks_without_folds_choose_penalty_and_size(whole, truth):
    fitted, adam = whole
    plain = Tangent(second_moments=adam_moments(adam))
    chosen = Tangent.chosen(fitted, retrain, plain.second_moments)
    correlation, slope = agreement(leave_one_out(fitted, method=chosen), truth)
    assert chosen.damping in (1e-2, 1e-3, 1e-4)
    assert correlation > 0.88
    assert 0.5 < slope < 1.3
    assert agreement(leave_one_out(fitted, method=plain), truth)[1] < 0.4
    found = calirare.jackknife(fitted, method=chosen)
    assert found.method == "tangent"
    assert bool((found.lower <= found.upper).all())


def test_second_moments_come_by_order_or_by_name_and_are_checked(whole):
    fitted, adam = whole
    moments, names = adam_moments(adam), [name for name, _ in fitted.model.named_parameters()]
    by_name = Tangent(second_moments=dict(zip(reversed(names), reversed(moments), strict=True)))
    assert torch.equal(by_name.paces(fitted), Tangent(second_moments=moments).paces(fitted))
    held = adam.state_dict()["state"][0]
    assert torch.equal(moments[0], held["exp_avg_sq"] / (1 - 0.999**EPOCHS))
    for wrong in (moments[:-1], [-each for each in moments], {names[0]: moments[0]}):
        with pytest.raises(ValueError, match=r"tangent: second_moments must be .* like the parameters"):
            leave_one_out(fitted, method=Tangent(second_moments=wrong))
    with pytest.raises(ValueError, match="factor must be positive"):
        Tangent(factor=0.0)


def test_float32_and_a_given_order_of_nodes_change_nothing_but_rounding(whole):
    fitted, adam = whole
    method, nodes = Tangent(second_moments=adam_moments(adam)), torch.tensor([7, 3, 200])
    every = leave_one_out(fitted, method=method)
    some = leave_one_out(fitted.as_dtype(dtype=torch.float32), method=method, nodes=nodes)
    wanted = every.change[nodes]
    assert float((some.change - wanted).abs().max()) < 1e-3 * float(wanted.abs().max())
    before = copy.deepcopy(fitted.model.state_dict())
    assert all(torch.equal(before[name], value) for name, value in fitted.model.state_dict().items())
