from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.models import GcnTraining, converge, fit, minimise
from calirare.models.convergence import Adam, lbfgs
from calirare.models.crossfit import loo_loss
from tests.calirare.leave_one_out.cases import trained
from tests.helpers.graphs import random_graph
from tests.helpers.tolerance import assert_within


@pytest.mark.slow
def test_one_layer_is_convex_and_ends_where_adam_goes() -> None:
    fitted, graph = trained(4, 1)
    assert fitted.gradient_norm() <= 1e-8
    settings = GcnTraining(epochs=1500, weight_decay=5e-3, n_layers=1, learning_rate=0.02)
    by_adam = fit(graph, fitted.nodes, settings).as_dtype(graph, torch.float64)
    gap = (by_adam.linearisation.logits - fitted.linearisation.logits).abs().max()
    assert float(gap) < 1e-3


def test_a_converged_network_is_left_alone() -> None:
    fitted, graph = trained(n_layers=1)
    again, end = converge(fitted, graph, tolerance=1e-7)
    assert end.steps == 0
    for before, after in zip(fitted.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(before, after)


def test_weight_zero_is_leaving_the_node_out() -> None:
    fitted, graph = trained(n_layers=1)
    kept = torch.arange(1, fitted.nodes.numel())
    weights = fitted.sample_weights.clone()
    weights[0] = 0.0
    one = fitted.copy(sample_weights=weights)
    minimise(one, tolerance=1e-9)
    cut, _ = GcnTraining(n_layers=1).fit_to_convergence(graph, fitted.nodes[kept], tolerance=1.0, max_steps=1)
    cut.model.load_state_dict(fitted.model.state_dict())
    shrink = (fitted.nodes.numel() - 1) / fitted.nodes.numel()  # the mean is over m, not m - 1
    cut = dataclasses.replace(
        cut, sample_weights=fitted.sample_weights[kept] * shrink, weight_decay=fitted.weight_decay
    )
    minimise(cut, tolerance=1e-9)
    gap = torch.stack(
        [(a - b).abs().max() for a, b in zip(one.model.parameters(), cut.model.parameters(), strict=True)]
    )
    assert float(gap.max().detach()) < 1e-6


def test_kinks_do_not_stop_it() -> None:
    # |x - 1| + 2 |y + 3| + x^2 / 10: the minimum (1, -3) lies on both kinks.
    def objective(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        shift = x - torch.tensor([1.0, -3.0], dtype=x.dtype)
        slope = torch.tensor([1.0, 2.0], dtype=x.dtype)
        value = (slope * shift.abs()).sum() + x[0] ** 2 / 10
        gradient = slope * shift.sign()
        gradient[0] += x[0] / 5
        return float(value), gradient

    start = torch.tensor([7.3, 5.1], dtype=torch.float64)
    found, end = lbfgs(objective, lambda _: lambda v: v, start, 1e-8, 500)
    assert float((found - torch.tensor([1.0, -3.0])).norm()) < 1e-5
    assert not end.converged


def test_unlabelled_nodes_are_refused() -> None:
    graph = random_graph(60, 2)
    graph.y[5] = -1  # type: ignore[index]
    with pytest.raises(ValueError, match="nodes must be labelled"):
        GcnTraining().fit_to_convergence(graph, torch.tensor([4, 5]))


STEPS, RATE, DECAY = 50, 0.05, 0.1


@pytest.mark.parametrize("fused", [False, True])
def test_takes_torchs_steps(fused):
    torch.manual_seed(0)
    start = [torch.randn(7, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)]
    ours = [x.clone() for x in start]
    theirs = [x.clone().requires_grad_() for x in start]
    mine = Adam(ours, learning_rate=RATE, weight_decay=DECAY, fused=fused)
    wanted = torch.optim.Adam(theirs, lr=RATE, weight_decay=DECAY)
    for k in range(STEPS):
        gradients = [torch.sin(x * (k + 1)) for x in theirs]
        for x, gradient in zip(theirs, gradients, strict=True):
            x.grad = gradient.detach()
        wanted.step()
        mine.step([torch.sin(x * (k + 1)) for x in ours])
    for x, y, before in zip(ours, [p.detach() for p in theirs], start, strict=True):
        assert float((y - before).abs().min()) > 0  # every parameter moved
        # Each step rounds a few numbers of the size of the parameters; sin(k x) passes errors on k-fold.
        assert_within(x, y, torch.finfo(torch.float64).eps * STEPS**3 * (1 + before.abs()))


LABELS = torch.tensor([0, 0, 0, 1])


def test_the_loss_is_that_of_the_target_population() -> None:
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, -1.0]]).double()
    losses = -torch.log_softmax(logits, 1)[torch.arange(4), LABELS]
    every_class_alike = (float(losses[:3].mean()) + float(losses[3])) / 2
    assert loo_loss(logits, LABELS) == pytest.approx(every_class_alike, rel=1e-12)
    assert loo_loss(logits, LABELS, "population") == pytest.approx(float(losses.mean()), rel=1e-12)
