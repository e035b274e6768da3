"""A linear model of logit differences: its derivatives, its minimum, and its labels left out."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.curvature import NodeField
from calirare.leave_one_out import OwnLogits
from calirare.leave_one_out.tangent import Features, LinearModel
from tests.helpers.tolerance import assert_within

M, DAMPING = 24, 0.01
TIGHT = torch.tensor(1e-9, dtype=torch.float64)
SHAPES = {6: "more labels than parameters", 90: "more parameters than labels"}


def features(n_classes: int, p: int) -> Features:
    draw = torch.Generator().manual_seed(n_classes + p)
    every = torch.randn(40 * (n_classes - 1), p, generator=draw, dtype=torch.float64) / p**0.5

    def rows_at(field: NodeField) -> torch.Tensor:
        return every.view(40, -1, p)[field.nodes].flatten(0, 1)

    targets = torch.randint(n_classes, (M,), generator=draw)
    weights = torch.rand(M, generator=draw) + 0.5
    field = NodeField(torch.arange(M))
    return Features(field, targets, weights, rows_at(field), rows_at)


@pytest.fixture(params=[2, 4])
def n_classes(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=SHAPES.get)
def model(request, n_classes):
    return LinearModel(features(n_classes, request.param))


def loss_of(model: LinearModel, u: torch.Tensor, damping: float = DAMPING) -> torch.Tensor:
    z = (model.jacobian @ u).view(M, -1)
    z = torch.cat([torch.zeros(M, 1), z], 1)
    losses = torch.nn.functional.cross_entropy(z, model.targets, reduction="none")
    return (model.sample_weights * losses).mean() + damping / 2 * u @ u


def parameters(model: LinearModel) -> torch.Tensor:
    """Returns u [p], of whichever coordinates."""
    return model.jacobian.T @ model.coordinates if model.features.dual else model.coordinates


def test_it_begins_at_no_knowledge(model):
    assert not bool(model.logits.any())
    assert model.loss(DAMPING) == pytest.approx(float(loss_of(model, parameters(model))), abs=1e-9)


def test_the_minimum_is_one(model):
    found = model.minimum(DAMPING)
    u = parameters(found).clone().requires_grad_()
    loss = loss_of(model, u)
    (slope,) = torch.autograd.grad(loss, u)
    assert_within(slope, torch.zeros_like(slope), torch.tensor(1e-5, dtype=torch.float64))
    assert found.loss(DAMPING) == pytest.approx(float(loss.detach()), rel=1e-9)
    assert_within(found.differences.flatten(), model.jacobian @ u.detach(), TIGHT)
    assert float(loss.detach()) < model.loss(DAMPING) - 0.01


def test_from_one_minimum_to_the_next_is_the_same_as_from_nothing(model):
    near = model.minimum(10 * DAMPING).minimum(DAMPING)
    assert_within(near.logits, model.minimum(DAMPING).logits, torch.tensor(1e-4, dtype=torch.float64))


def test_steps_that_overshoot_are_halved(n_classes):
    """Labels known by heart with hardly a penalty: the first step from far away makes the loss worse."""
    model = LinearModel(features(n_classes, 90))
    far = LinearModel(model.features, model.minimum(1e-9).coordinates * -3)
    with_hardly_any = far.minimum(1e-4)
    assert_within(with_hardly_any.logits, model.minimum(1e-4).logits, torch.tensor(1e-2, dtype=torch.float64))


def test_derivatives_are_those_of_its_loss(model):
    here = LinearModel(model.features, model.minimum(1.0).coordinates)
    u = parameters(here)
    hessian = torch.func.hessian(lambda at: loss_of(model, at))(u)
    vectors = torch.randn(3, u.numel(), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert_within(here.hvp(vectors, damping=DAMPING), vectors @ hessian, TIGHT)
    seeds = here.jvp(vectors)
    assert_within(seeds.flatten(1), vectors @ model.jacobian.T, TIGHT)
    assert_within(here.vjp(seeds), seeds.flatten(1) @ model.jacobian, TIGHT)
    found = here.solve(vectors, damping=DAMPING, tolerance=1e-10, max_iterations=500, precondition=None)
    assert_within(found.x @ hessian, vectors, torch.tensor(1e-6, dtype=torch.float64))
    others = NodeField(torch.tensor([30, 3]))
    moved = here.change_along(others, vectors, "full")
    assert_within(moved.flatten(0, 1), model.features.rows_at(others) @ vectors.T, TIGHT)


def test_a_label_left_out_in_closed_form_is_the_minimum_without_it(model):
    damping = 0.02
    whole = model.minimum(damping)
    told = OwnLogits(whole)(damping) - whole.logits
    told, truth = told[:, 1:] - told[:, :1], []
    for place in range(M):
        weights = model.features.sample_weights.clone()
        weights[place] = 0
        less = LinearModel(dataclasses.replace(model.features, sample_weights=weights)).minimum(damping)
        truth.append((less.differences - whole.differences)[place])
    found = torch.corrcoef(torch.stack([told.flatten(), torch.stack(truth).flatten()]))[0, 1]
    assert float(found) > 0.995
