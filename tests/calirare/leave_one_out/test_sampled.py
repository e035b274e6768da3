"""Own changes from the curvature of labels drawn at random, beside dense matrices and the curvature of all labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import calirare
from calirare.leave_one_out import OwnLogits, Replicates, alo_change, leave_one_out
from calirare.leave_one_out import sampled as module
from calirare.leave_one_out.formula import primal_directions
from calirare.leave_one_out.own_logits import own_form
from calirare.leave_one_out.sampled import SampledOwn, chances, samples
from calirare.models import GcnFit, GcnTraining, HopsFit, HopsTraining
from tests.calirare.leave_one_out.cases import dense_jacobian
from tests.helpers.tasks import rare_task

DAMPING, M = 0.02, 150
Network = Callable[[], tuple[Any, calirare.Graph]]


def perceptron(dtype: torch.dtype = torch.float64) -> tuple[HopsFit, calirare.Graph]:
    """150 labels of a perceptron with 4 hidden units, 90 parameters."""
    graph = rare_task()
    assert graph.split is not None
    nodes = torch.cat([graph.split.train, graph.split.val])
    detector = HopsTraining(hidden=4, epochs=60, weight_decay=DAMPING, dropout=0.0)
    return detector.fit(graph, nodes).as_dtype(graph, dtype), graph


def convolution(dtype: torch.dtype = torch.float64) -> tuple[GcnFit, calirare.Graph]:
    """The same labels of a graph convolution with 4 hidden units, whose labels have neighbours."""
    fitted, graph = perceptron(dtype)
    return GcnTraining(hidden=4, epochs=60, weight_decay=DAMPING).fit(graph, fitted.nodes).as_dtype(graph, dtype), graph


KINDS = pytest.mark.parametrize("network", [perceptron, convolution])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curvature is sampled here, by 40 labels, in blocks of 32."""
    sizes = {"MANY_LABELS": 100, "MANY_PARAMETERS": 50, "MANY_BELOW": 20, "DRAWN": 40, "BLOCK": 32, "WATCHED": 30}
    for name, value in (sizes | {"NUMBERS": 1_000}).items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("calirare.leave_one_out.own_logits.DRAWN", 40)
    monkeypatch.setattr("calirare.leave_one_out.own_logits.DRAWN_ROUGHLY", 20)


@KINDS
def test_changes_are_those_of_the_curvature_of_the_labels_drawn(few: None, network: Network) -> None:
    tape = network()[0].linearisation
    found, jacobian = SampledOwn(tape, 40), dense_jacobian(tape)[:, 0]
    curvature, loss = (part.flatten() for part in tape.loss_terms)
    assert torch.allclose(found.chance.sum(), torch.tensor(40.0, dtype=torch.float64))
    drawn = found.draw.left > 0
    assert 20 < int(drawn.sum()) == found.n_drawn < 60
    weight = torch.where(drawn, curvature / found.chance, 0.0)
    want = torch.empty(M, jacobian.shape[1], dtype=torch.float64)
    for i in range(M):
        others = weight.clone()
        others[i] = 0
        hessian = jacobian.T @ (others[:, None] * jacobian) + DAMPING * torch.eye(jacobian.shape[1]).double()
        want[i] = torch.linalg.solve(hessian, jacobian[i]) * loss[i]
    assert torch.allclose(found.directions(DAMPING, torch.arange(M)), want, rtol=1e-6, atol=1e-10)
    own = (jacobian * want).sum(1)
    assert torch.allclose(found(DAMPING)[:, 0], own, rtol=1e-6, atol=1e-10)
    bent = curvature * own / loss
    assert torch.allclose(found.leverage(DAMPING), bent / (1 + bent), rtol=1e-6, atol=1e-10)


@KINDS
def test_they_come_near_those_of_all_labels_and_the_error_says_how_near(network: Network) -> None:
    tape = network()[0].linearisation
    exact = alo_change(tape, tape.field, DAMPING)
    off = []
    for size in (50, 100, M):
        found = SampledOwn(tape, size)
        off.append(float((found(DAMPING) - exact.own).norm() / exact.own.norm()))
        assert off[-1] / 4 <= found.error(DAMPING) <= 4 * off[-1] or off[-1] < 1e-6
    assert off[0] < 0.3
    assert off[1] < 0.1
    assert off[2] < 1e-6  # every label is drawn
    assert torch.allclose(found.leverage(DAMPING), exact.leverage.double(), atol=1e-6)
    directions = found.directions(DAMPING, torch.tensor([3, 140]))
    want = primal_directions(tape, DAMPING, chosen=torch.tensor([3, 140]))[0]
    assert torch.allclose(directions, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [3, 8, 49])
@pytest.mark.parametrize("kind", ["heavy", "alike", "few", "none"])
def test_chances_add_up_to_the_size_in_proportion_up_to_one(size: int, kind: str) -> None:
    shares = torch.rand(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shares = {"heavy": shares**9, "alike": shares * 0 + 2, "few": (shares > 0.9) * shares, "none": shares * 0}[kind]
    found = chances(shares, size)
    assert found.sum() == pytest.approx(size)
    assert float(found.max()) <= 1
    open_ = (found < 1) & (shares > 0)
    if bool(open_.any()):
        ratio = found[open_] / shares[open_]
        assert torch.allclose(ratio, ratio[0].expand_as(ratio))
        assert float(shares[open_].max()) <= float(shares[found == 1].min()) if bool((found == 1).any()) else True
    assert bool((chances(shares, 60) == 1).all())


def test_it_is_for_many_labels_and_parameters_of_a_perceptron(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, graph = perceptron()
    tape = fitted.linearisation
    assert own_form(tape) == "sampled"
    assert own_form(tape, tolerance=0) == "primal"
    assert float(OwnLogits(tape).sampled.chance.sum()) == pytest.approx(40)
    assert float(OwnLogits(tape, tolerance=0.05).sampled.chance.sum()) == pytest.approx(20)
    neighbours = convolution()[0].linearisation
    assert own_form(neighbours) == "sampled"
    monkeypatch.setattr(module, "MANY_BELOW", neighbours.n_parameters)
    assert own_form(neighbours) != "sampled"
    assert not samples(HopsTraining(epochs=2, n_layers=1).fit(graph, fitted.nodes).linearisation)
    monkeypatch.setattr(module, "MANY_LABELS", M)
    assert own_form(tape) == "primal"
    monkeypatch.setattr(module, "MANY_LABELS", 100)
    monkeypatch.setattr(module, "MANY_PARAMETERS", tape.n_parameters)
    assert own_form(tape) == "primal"


def test_some_labels_are_those_of_all(few: None) -> None:
    tape = perceptron()[0].linearisation
    some = torch.arange(M) % 3 == 1
    for tolerance in (0.01, 0):
        own = OwnLogits(tape, tolerance=tolerance)
        assert torch.allclose(own(DAMPING, some), own(DAMPING)[some], rtol=0, atol=1e-12), own.form


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
    said = r"rests on the curvature of \d\d of the 150 labels, drawn at random: relative standard error 0\.\d+"
    assert any(re.search(said, note) for note in outcome.notes)
