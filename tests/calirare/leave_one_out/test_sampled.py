"""Own changes from the curvature of labels drawn at random, beside dense matrices and the curvature of all labels."""

from __future__ import annotations

import pytest
import torch

import calirare
from calirare.leave_one_out import OwnLogits, Replicates, alo_change, leave_one_out
from calirare.leave_one_out import sampled as module
from calirare.leave_one_out.own_logits import own_form
from calirare.leave_one_out.sampled import SampledOwn, samples
from calirare.models import GcnTraining, HopsFit, HopsTraining
from tests.calirare.leave_one_out.cases import dense_jacobian
from tests.helpers.tasks import rare_task

DAMPING, M = 0.02, 150


def perceptron(dtype: torch.dtype = torch.float64) -> tuple[HopsFit, calirare.Graph]:
    """150 labels of a perceptron with 4 hidden units, 90 parameters."""
    graph = rare_task()
    assert graph.split is not None
    nodes = torch.cat([graph.split.train, graph.split.val])
    detector = HopsTraining(hidden=4, epochs=60, weight_decay=DAMPING, dropout=0.0)
    return detector.fit(graph, nodes).as_dtype(graph, dtype), graph


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curvature is sampled here, by 40 labels, in blocks of 32."""
    for name, value in (("MANY_LABELS", 100), ("MANY_PARAMETERS", 50), ("DRAWN", 40), ("BLOCK", 32), ("WATCHED", 30)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("calirare.leave_one_out.own_logits.DRAWN", 40)
    monkeypatch.setattr("calirare.leave_one_out.own_logits.DRAWN_ROUGHLY", 20)


def test_changes_are_those_of_the_curvature_of_the_labels_drawn(few: None) -> None:
    tape = perceptron()[0].linearisation
    found, jacobian = SampledOwn(tape, 40), dense_jacobian(tape)[:, 0]
    curvature, loss = (part.flatten() for part in tape.loss_terms)
    first, second = found.first, found.second
    assert not torch.isin(first, second).any()
    want = torch.empty(M, jacobian.shape[1], dtype=torch.float64)
    for draw, judged in ((first, torch.ones(M, dtype=torch.bool)), (second, torch.isin(torch.arange(M), first))):
        drawn = jacobian[draw]
        hessian = M / 40 * drawn.T @ (curvature[draw, None] * drawn) + DAMPING * torch.eye(drawn.shape[1])
        want[judged] = torch.linalg.solve(hessian, jacobian[judged].T).T * loss[judged, None]
    assert torch.allclose(found.directions(DAMPING, torch.arange(M)), want, rtol=1e-6, atol=1e-10)
    own = (jacobian * want).sum(1)
    assert torch.allclose(found(DAMPING)[:, 0], own, rtol=1e-6, atol=1e-10)
    bent = curvature * own / loss
    assert torch.allclose(found.leverage(DAMPING), bent / (1 + bent), rtol=1e-6, atol=1e-10)


def test_they_come_near_those_of_all_labels_and_the_error_says_how_near() -> None:
    tape = perceptron()[0].linearisation
    exact = alo_change(tape, tape.field, DAMPING).own.double()[:, 0]
    for size in (30, 75):
        found = SampledOwn(tape, size)
        off = float((found(DAMPING)[:, 0] - exact).norm() / exact.norm())
        assert off < 0.5
        if size == 30:
            assert off / 4 < found.error(DAMPING) < 4 * off
    assert SampledOwn(tape, 1000).first.numel() == M // 2


def test_it_is_for_many_labels_and_parameters_of_a_perceptron(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, graph = perceptron()
    tape = fitted.linearisation
    assert own_form(tape) == "sampled"
    assert own_form(tape, tolerance=0) == "primal"
    assert OwnLogits(tape).sampled.first.numel() == 40
    assert OwnLogits(tape, tolerance=0.05).sampled.first.numel() == 20
    assert not samples(GcnTraining(epochs=2).fit(graph, fitted.nodes).linearisation)  # a label has neighbours
    assert not samples(HopsTraining(epochs=2, n_layers=1).fit(graph, fitted.nodes).linearisation)
    monkeypatch.setattr(module, "MANY_LABELS", M)
    assert own_form(tape) == "primal"
    monkeypatch.setattr(module, "MANY_LABELS", 100)
    monkeypatch.setattr(module, "MANY_PARAMETERS", tape.n_parameters)
    assert own_form(tape) == "primal"


def test_models_drawn_rest_on_it_too(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, graph = perceptron(torch.float32)
    found = calirare.jackknife(fitted, graph, Replicates(n_models=60))
    assert found.facts.form == "sampled"
    wanted = leave_one_out(fitted, graph, Replicates(n_models=60))
    assert wanted.diagnostics is not None
    assert wanted.diagnostics.form == "sampled"
    unfused = calirare.jackknife(fitted, graph, result=wanted)
    assert torch.allclose(found.lower, unfused.lower, atol=1e-4)
    assert torch.allclose(found.upper, unfused.upper, atol=1e-4)
    monkeypatch.setattr(module, "MANY_LABELS", M)
    every = calirare.jackknife(fitted, graph, Replicates(n_models=60))
    assert every.facts.form == "primal"
    assert 0 < float((found.upper - every.upper).abs().mean()) < 0.05


def test_the_main_job_says_what_was_drawn(few: None) -> None:
    outcome = calirare.train(rare_task(), model="hops", epochs=20, folds=2)
    said = "rests on the curvature of 40 of the 150 labels, drawn at random: relative standard error 0."
    assert any(said in note for note in outcome.notes)
