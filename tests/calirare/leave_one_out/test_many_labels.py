"""More labels than parameters, and more than a quantile needs: the p x p forms, and models drawn at random."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

import calirare
from calirare._util.errors import InputError
from calirare.curvature import dual_system, ggn, gram, gram_form, linearise
from calirare.leave_one_out import ALO, OwnLogits, alo_change, leave_one_out, left_out, loo_coefficients
from calirare.leave_one_out import alo as alo_module
from calirare.leave_one_out.alo import models_for, quantile_error
from calirare.leave_one_out.formula import choose_form
from calirare.leave_one_out.method import drawn
from calirare.models import FoldedNetwork, GcnFit, GcnTraining, fit, fold_network
from tests.calirare.leave_one_out.cases import linearised_network
from tests.helpers.graphs import random_graph
from tests.helpers.problems import NETWORKS
from tests.helpers.tolerance import assert_within, sum_bound


def draw_at_most(monkeypatch: pytest.MonkeyPatch, n_models: int) -> None:
    monkeypatch.setattr(alo_module, "MOST_MODELS", n_models)


def many_labels(n_classes: int = 2, dtype: torch.dtype = torch.float64) -> tuple[GcnFit, calirare.Graph]:
    """140 labels, fewer parameters."""

    graph = random_graph(200, n_classes, seed=1, x=torch.randn(200, 6, generator=torch.Generator().manual_seed(2)))
    settings = GcnTraining(hidden=4, epochs=60, weight_decay=5e-3)
    return fit(graph, torch.arange(140), settings).as_dtype(graph, dtype), graph


@pytest.mark.parametrize("n_classes", [2, 3])
def test_own_logits_by_the_spectrum_are_those_by_the_kernel(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, _ = many_labels(n_classes)
    tape = trained.linearisation
    assert choose_form(tape) == "primal"
    by_kernel = OwnLogits(tape, tape.kernel)
    for block in (ggn.BLOCK_NUMBERS, 50):
        monkeypatch.setattr(ggn, "BLOCK_NUMBERS", block)
        by_spectrum = OwnLogits(tape)
        assert by_spectrum.form == "primal"
        assert by_kernel.form == "dual"
        for damping in (1e-4, 5e-3, 0.3):
            assert torch.allclose(by_spectrum(damping), by_kernel(damping), rtol=1e-7, atol=1e-9)


def test_own_logits_that_would_not_fit_are_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = many_labels()[0].linearisation
    monkeypatch.setattr("calirare._util.memory.free_bytes", lambda device: 1000)
    for name in ("jacobian", "kernel"):
        monkeypatch.setattr(type(tape), name, property(lambda self: pytest.fail("made before it was checked")))
    with pytest.raises(InputError, match=r"GB are needed .* take fewer labels, or a narrower network"):
        OwnLogits(tape)


def test_left_out_models_drawn_are_some_of_all() -> None:
    trained, _ = many_labels()
    tape, chosen = trained.linearisation, torch.tensor([5, 77, 139])
    for form in ("primal", "dual"):
        every, some = left_out(tape, 0.02, form=form), left_out(tape, 0.02, form=form, chosen=chosen)
        assert some.directions.n_models == 3
        assert torch.allclose(some.shift, every.shift[chosen])
        assert torch.allclose(some.own, every.own)
    with pytest.raises(ValueError, match="form must be auto, dual or primal, got 'gramm'"):
        left_out(tape, 0.02, form="gramm")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_some_of_many_labels_are_some_columns(n_classes: int) -> None:
    trained, graph = many_labels(n_classes)
    found = leave_one_out(trained, graph, ALO(n_models=9, seed=4))
    every = leave_one_out(trained, graph, ALO(form="jacobian"))
    chosen = drawn(140, 9, 4)
    assert torch.allclose(found.change, every.change[:, :, chosen], rtol=1e-6, atol=1e-9)
    assert torch.allclose(found.own, every.own, rtol=1e-6, atol=1e-9)
    assert found.diagnostics is not None
    assert found.diagnostics.form == "primal"
    assert found.diagnostics.sampling_error == quantile_error(9, 140)
    dual = linearised_network("three classes")
    chosen = torch.tensor([0, 2])
    tape = dual.tape
    few, all_ = (alo_change(tape, dual.field, 0.05, chosen=each) for each in (chosen, None))
    assert torch.allclose(few.change, all_.change[:, :, chosen])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_intervals_rest_on_as_many_models_as_a_quantile_needs(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, graph = many_labels(n_classes, torch.float32)
    every = calirare.jackknife(trained, graph)
    assert "drawn at random" not in every.note
    draw_at_most(monkeypatch, 60)
    found = calirare.jackknife(trained, graph)
    assert "intervals rest on 60 of the 140 leave-one-out models" in found.note
    assert found.method == "alo"
    assert found.residuals.numel() == 60
    assert torch.allclose(found.uncertainty, every.uncertainty, atol=1e-5)
    assert torch.allclose(found.own_loo_logits, every.own_loo_logits, atol=1e-4)
    assert float((found.upper - every.upper).abs().mean()) < 0.1
    wanted = leave_one_out(trained, graph, ALO(n_models=60))
    unfused = calirare.jackknife(trained, graph, result=wanted)
    assert torch.allclose(found.lower, unfused.lower, atol=1e-4)
    assert torch.allclose(found.upper, unfused.upper, atol=1e-4)
    asked = calirare.jackknife(trained, graph, ALO(n_models=140))
    assert torch.allclose(asked.lower, every.lower)
    fewer = calirare.jackknife(trained, graph, ALO(n_models=20))
    assert fewer.residuals.numel() == 20


def test_intervals_of_more_nodes_rest_on_fewer_models(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [models_for(n) for n in (0, 1000, 100_000, 200_000, 10**9)] == [4000, 4000, 4000, 2000, 1000]
    trained, graph = many_labels(dtype=torch.float32)
    draw_at_most(monkeypatch, 60)
    monkeypatch.setattr(alo_module, "FEWEST_MODELS", 15)
    monkeypatch.setattr(alo_module, "MOST_CHANGES", 200 * 30)
    found = calirare.jackknife(trained, graph)
    assert "intervals rest on 30 of the 140 leave-one-out models" in found.note
    assert found.residuals.numel() == 30
    assert f"within {quantile_error(30, 140):.2f} of nominal" in found.note
    half = calirare.jackknife(trained, graph, nodes=torch.arange(100))
    assert half.residuals.numel() == 60
    draw_at_most(monkeypatch, 140)  # no more labels than that: all are left out, however many nodes there are
    assert calirare.jackknife(trained, graph).residuals.numel() == 140
    asked = calirare.jackknife(trained, graph, ALO(n_models=50))
    assert asked.residuals.numel() == 50


def test_folds_answer_for_all_labels_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, graph = many_labels(dtype=torch.float32)
    folded = fold_network(GcnTraining(hidden=4, epochs=5), graph, trained, 3)
    draw_at_most(monkeypatch, 60)
    found = calirare.jackknife(folded, graph)
    assert found.residuals.numel() == 140
    assert "drawn at random" not in found.note


@pytest.mark.slow
def test_the_main_job_takes_folds_where_the_closed_form_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = calirare.load_dataset("digits")
    monkeypatch.setattr("calirare.leave_one_out.own_logits.DENSE_OF_TWO", 30)
    outcome = calirare.train(graph, model="gcn", epochs=30, folds=3)
    assert isinstance(outcome.fit, FoldedNetwork)
    assert any("too many for the closed form of leave-one-out" in note for note in outcome.notes)
    fold, own = outcome.fit.fold, outcome.fit.own_logits
    assert outcome.jackknife.own_loo_logits.shape == own.shape
    assert torch.allclose(outcome.jackknife.own_loo_logits.diff(dim=1).double(), own.diff(dim=1), atol=1e-4)
    some = outcome.fit.all_logits_of(outcome.mapped, outcome.fit.nodes)[1]
    assert torch.allclose(some[fold, torch.arange(len(fold))].double(), own, atol=1e-4)
    assert len(outcome.explain(top=1)) == 1
    closed = calirare.train(graph, model="gcn", epochs=30, folds=0)
    assert not isinstance(closed.fit, FoldedNetwork)
    monkeypatch.setattr("calirare.leave_one_out.own_logits.DENSE", 30)
    classes = calirare.load_dataset("digits", task="classes", label_rate=5)
    found = calirare.train(classes, task="classes", model="gcn", epochs=30, folds=3)
    assert any("by one of 3 networks, trained without its fold" in note for note in found.notes)


def by_general_inverse(linearised, kernel: Tensor, damping: float, corrected: bool) -> tuple[Tensor, Tensor]:
    """alpha and leverages from (damping I + D K)^-1, as it stands in `formula`'s first lines."""
    curvature, error = linearised.loss_terms
    m, k = error.shape
    inverse = torch.linalg.inv(dual_system(curvature, kernel, damping)).view(m, k, m, k)
    columns, leverages = [], []
    for i in range(m):
        block = damping * inverse[i, :, i]
        scaled = torch.linalg.solve(block, error[i]) if corrected else error[i]
        columns.append(inverse.view(m * k, m, k)[:, i] @ scaled)
        leverages.append(1 - block.diagonal().mean())
    return torch.stack(columns, 1), torch.stack(leverages)


def condition(linearised, kernel: Tensor, damping: float) -> float:
    curvature, _ = linearised.loss_terms
    return float(torch.linalg.cond(dual_system(curvature, kernel, damping)))


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("damping", [1e-4, 0.05, 3.0])
@pytest.mark.parametrize("corrected", [True, False])
def test_coefficients_are_those_of_the_general_inverse(name: str, damping: float, corrected: bool) -> None:
    tape = linearised_network(name).tape
    want, leverage = by_general_inverse(tape, tape.kernel, damping, corrected)
    found, got = loo_coefficients(tape, tape.kernel, damping, leverage_corrected=corrected)
    n = tape.kernel.shape[0]
    scale = condition(tape, tape.kernel, damping) ** 2 * want.abs().max().expand_as(want)
    assert_within(found, want, sum_bound(want, 4 * n, scale, out=torch.float64), "coefficients")
    one = condition(tape, tape.kernel, damping) * torch.ones_like(leverage)
    assert_within(got, leverage, sum_bound(leverage, 4 * n, one, out=torch.float64), "leverage")


@pytest.mark.parametrize("logit", [0.0, 3.0, 30.0, 500.0])
@pytest.mark.parametrize("name", ["two layers", "three layers, four classes", "sparse inputs"])
def test_roots_of_the_loss_are_roots(name: str, logit: float) -> None:
    """Also of labels the network is sure of, rightly and wrongly."""
    tape = linearised_network(name).tape
    sure = torch.zeros_like(tape.logits)
    sure[torch.arange(tape.n_nodes), torch.arange(tape.n_nodes).flip(0) % tape.n_classes] = logit
    moved = dataclasses.replace(tape, logits=tape.logits + sure)
    curvature, error = moved.loss_terms
    roots, whitened = moved.loss_roots
    assert bool(torch.isfinite(whitened).all())
    k = tape.n_classes
    weight = (tape.sample_weights / tape.n_nodes)[:, None]
    square = sum_bound(curvature, 8 * k, weight[:, :, None].expand_as(curvature).clone(), out=torch.float64)
    assert_within(roots @ roots.mT, curvature, square, "C C^T")
    product = (roots @ whitened[:, :, None]).squeeze(2)
    assert_within(product, error, sum_bound(error, 8 * k, weight.expand_as(error).clone(), out=torch.float64), "C c")
    assert bool((roots.triu(1) == 0).all())


def test_a_wrong_root_is_noticed() -> None:
    tape = linearised_network("three classes").tape
    roots, error = tape.loss_roots
    want, _ = by_general_inverse(tape, tape.kernel, 0.05, True)
    for wrong in ((roots.mT, error), (roots, -error), (2 * roots, error)):
        spoilt = dataclasses.replace(tape)
        spoilt.__dict__["loss_roots"] = wrong
        found, _ = loo_coefficients(spoilt, tape.kernel, 0.05)
        assert float((found - want).norm()) > 0.01 * float(want.norm())


@pytest.mark.parametrize("kept", [0, 300, 128_000_000])
@pytest.mark.parametrize("name", [name for name, spec in NETWORKS.items() if spec.n_layers == 2 and spec.n_classes > 2])
def test_the_kernel_by_hidden_units_is_j_jt(name: str, kept: int, monkeypatch) -> None:
    """However many units are taken together, whether or not the products of the inputs are kept."""
    monkeypatch.setattr(gram_form, "KEPT_BYTES", kept)
    monkeypatch.setattr(gram_form, "BLOCK_NUMBERS", 40)
    problem = linearised_network(name)
    field = dataclasses.replace(problem.field)
    tape = linearise(field, problem.layers, problem.targets, problem.sample_weights)
    rows = tape.jacobian
    for _ in range(2):  # the second time from what is kept
        found = gram(tape, tape.field).reshape(rows.shape[0], rows.shape[0])
        want, size = rows @ rows.T, rows.abs() @ rows.abs().T
        assert_within(found, want, sum_bound(want, 20 * rows.shape[1], size, out=torch.float64), "kernel")
    assert ("products" in field._cache) == (8 * field.rows[0].numel() ** 2 <= kept)
