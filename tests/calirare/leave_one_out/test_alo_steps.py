"""Quasi-Newton steps from `alo`'s models: the batch against single networks, and retraining as the judge."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from calirare.leave_one_out import ALO, alo_change, leave_one_out, steps
from calirare.leave_one_out.steps import take_steps
from calirare.models import GcnTraining, ModuleFit, row_space
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, trained, words_graph


@pytest.mark.slow
def test_steps_find_minima_smooth_and_on_kinks() -> None:
    curvatures = torch.tensor([1.0, 5.0, 30.0], dtype=torch.float64)
    ends = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], dtype=torch.float64)

    def smooth(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        apart = x - ends[rows]
        return 0.5 * (curvatures * apart.square()).sum(1), curvatures * apart

    def kinked(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = smooth(x, rows)
        return value + 4 * (x - 1).abs().sum(1), gradient + 4 * (x - 1).sign()

    def same(v: Tensor) -> Tensor:
        return v.clone()

    start = torch.zeros(2, 3, dtype=torch.float64)
    found, norms = take_steps(smooth, same, start, 30)
    assert torch.allclose(found, ends, atol=1e-6)
    assert float(norms.max()) < 1e-4
    on_kinks, _ = take_steps(kinked, same, start, 60)
    best = torch.where((curvatures * (ends - 1)).abs() <= 4, 1.0, ends - 4 * (ends - 1).sign() / curvatures)
    rows = torch.arange(2)
    assert torch.allclose(kinked(on_kinks, rows)[0], kinked(best, rows)[0], rtol=1e-2)
    stays, _ = take_steps(smooth, same, ends.clone(), 5)
    assert torch.equal(stays, ends)


def test_a_step_too_short_is_lengthened() -> None:
    def objective(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return x.square().sum(1), 2 * x

    found, _ = take_steps(objective, lambda v: 0.02 * v, torch.ones(1, 2, dtype=torch.float64), 1)
    assert float(found.abs().max()) < 0.9  # one step of .02 ends at .96


def test_a_search_that_fails_forgets_the_past() -> None:
    curvature = torch.tensor([[1.0, 10.0]], dtype=torch.float64)
    trials: list[Tensor] = []

    def objective(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        trials.append(x.clone())
        blind = 2 < len(trials) <= 42  # the second search finds nothing at all
        value = 0.5 * (curvature * x.square()).sum(1)
        return value + (1e9 if blind else 0.0), curvature * x

    start = torch.ones(1, 2, dtype=torch.float64)
    take_steps(objective, lambda v: 0.1 * v, start, 3)
    here, first = trials[1], trials[42]
    assert torch.allclose(first, here - 0.1 * curvature * here), "the plain preconditioned direction again"
    assert not torch.allclose(trials[2], first), "with the past it was another one"


def test_starts_whose_loss_is_far_above_the_fits_are_moved_back() -> None:
    problem = steps._Loss(trained()[0])
    size = torch.tensor([0.1, 1.0, 4.0, 1e6], dtype=torch.float64)
    along = torch.zeros(4, problem.theta.numel(), dtype=torch.float64)
    along[:, 3] = size

    def objective(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        return 2 + (points - problem.theta).square().sum(1), points

    found = (problem._not_too_far(along, objective) - problem.theta)[:, 3]
    assert torch.allclose(found, torch.tensor([0.1, 1.0, 1.0, 0.0], dtype=torch.float64))


@pytest.mark.slow
def test_no_step_goes_up() -> None:
    """One function has no descent from where it starts; the other's neighbour must not be held back by it."""

    def objective(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        wrong = torch.where(rows == 0, -1.0, 1.0).to(x)[:, None]  # the first one's gradient points the wrong way
        return x.square().sum(1), wrong * 2 * x

    found, _ = take_steps(objective, lambda v: 0.3 * v, torch.ones(2, 2, dtype=torch.float64), 20)
    assert torch.equal(found[0], torch.ones(2, dtype=torch.float64))
    assert float(found[1].norm()) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "n_layers"), [(2, 2), (3, 2), (2, 3)])
def test_steps_come_nearer_to_retraining(n_classes: int, n_layers: int) -> None:
    fit, graph = trained(n_classes, n_layers)
    truth = retrained(n_classes, n_layers)
    plain = leave_one_out(fit, graph)
    found = leave_one_out(fit, graph, ALO(steps=30), chosen=SOME)
    own, start = (agreement(x.own[SOME], truth.own[SOME]) for x in (found, plain))
    away, start_away = (agreement(x, truth.change) for x in (found.change, plain.change[:, :, SOME]))
    assert own[0] > 0.999
    assert away[0] > 0.98
    assert own[1] < min(0.05, max(start[1], 1e-3))
    assert away[1] < min(0.2, max(start_away[1], 1e-3))
    assert found.diagnostics is not None
    assert (found.diagnostics.method, found.diagnostics.form) == ("alo", "30 steps")
    assert torch.allclose(found.leverage, plain.leverage)


@pytest.mark.slow
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, graph = trained()
    nodes = torch.arange(0, 150, 7)
    settings = ALO(steps=3)
    whole = leave_one_out(fit, graph, settings, nodes=nodes)
    told: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(steps, "BLOCK_BYTES", 1_000_000)
        parts = leave_one_out(fit, graph, settings, nodes=nodes, progress=told.append)
    assert len(told) > 1
    assert told[-1] == fit.nodes.numel()
    assert told == sorted(set(told))
    assert torch.allclose(parts.change, whole.change, rtol=1e-6, atol=1e-9)
    assert torch.allclose(parts.own, whole.own, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("module", [False, True])
def test_steps_of_some_labels_are_some_columns(module: bool) -> None:
    fit, graph = trained()
    one = (
        ModuleFit(fit.model, (graph,), fit.nodes, fit.targets, fit.sample_weights, fit.weight_decay) if module else fit
    )
    nodes, chosen = torch.arange(0, 150, 9), torch.tensor([31, 4])
    where = None if module else graph
    every = leave_one_out(one, where, ALO(steps=2), nodes=nodes)
    told: list[int] = []
    some = leave_one_out(one, where, ALO(steps=2), nodes=nodes, chosen=chosen, progress=told.append)
    assert told[-1] == 2
    assert torch.allclose(some.change, every.change[:, :, chosen], rtol=1e-6, atol=1e-9)
    assert torch.allclose(some.own[chosen], every.own[chosen], rtol=1e-6, atol=1e-9)
    assert int(torch.isfinite(some.own).sum()) == 2
    places, models = some.samples()
    assert (places.tolist(), models.tolist()) == ([4, 31], [1, 0])
    drawn = leave_one_out(one, where, ALO(steps=2, n_models=3), nodes=nodes)
    assert drawn.change.shape[2] == 3
    with pytest.raises(ValueError, match="chosen must come with a method that leaves out one label after the other"):
        leave_one_out(one, where, nodes=nodes, chosen=chosen)


@pytest.mark.slow
def test_the_space_of_the_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, nodes = words_graph(2), torch.arange(0, 150, 7)
    settings = GcnTraining(hidden=4, weight_decay=5e-3, dropout=0.0)
    fit, _ = settings.fit_to_convergence(graph, torch.arange(0, 120, 20), tolerance=1e-8, max_steps=400)
    plain = leave_one_out(fit, graph, ALO(steps=3), nodes=nodes)
    monkeypatch.setattr(row_space, "WIDE", 100)
    assert steps._Loss(fit).theta.numel() < fit.theta.numel()
    reduced = leave_one_out(fit, graph, ALO(steps=3), nodes=nodes)
    assert torch.allclose(reduced.own, plain.own, rtol=1e-4, atol=1e-6)
    assert torch.allclose(reduced.change, plain.change, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_steps_of_another_module_are_those_of_the_gcn() -> None:
    fit, graph = trained()
    assert graph.y is not None
    module = ModuleFit(fit.model, (graph,), fit.nodes, fit.targets, fit.sample_weights, fit.weight_decay)
    nodes = torch.arange(0, 150, 11)
    told: list[int] = []
    truth = retrained()
    found = leave_one_out(module, method=ALO(steps=8), nodes=nodes, chosen=SOME, progress=told.append)
    start = alo_change(fit.linearisation, fit.evaluation_field(graph, nodes), fit.weight_decay)
    assert told == list(range(1, 8))
    assert agreement(found.own[SOME], truth.own[SOME])[1] < 0.05
    nearer, before = (agreement(x, truth.change[nodes])[1] for x in (found.change, start.change[:, :, SOME]))
    assert nearer < before


def test_steps_must_have_a_weight_decay() -> None:
    fit, graph = trained()
    without = dataclasses.replace(fit, weight_decay=0.0)
    with pytest.raises(ValueError, match="steps must have a positive weight decay"):
        leave_one_out(without, graph, ALO(steps=2, damping=1e-3))
