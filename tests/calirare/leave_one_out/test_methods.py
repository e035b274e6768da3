from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import propagation
from calirare.leave_one_out import (
    ALO,
    METHODS,
    Influence,
    Retrain,
    alo_change,
    leave_one_out,
    quality,
    sampled_leverages,
)
from calirare.leave_one_out.alo import grouped, quantile_error
from calirare.leave_one_out.retrain import retrain
from calirare.models import GCN, fit_of
from calirare_ext import ReceptiveField
from tests.calirare.leave_one_out.cases import close, dense_jacobian, linearised_network, retrained_logits, trained
from tests.helpers.tolerance import assert_alike


@pytest.mark.parametrize("name", ["two layers", "three classes", "three layers, four classes", "one layer"])
def test_groups_of_one_are_leave_one_out(name: str) -> None:
    problem = linearised_network(name)
    one = grouped(problem.tape, problem.field, 0.05, torch.arange(problem.tape.n_nodes))
    plain = alo_change(problem.tape, problem.field, 0.05)
    assert close(one.change, plain.change)
    assert close(one.own, plain.own)
    assert close(one.leverage, plain.leverage)


def test_a_group_is_left_out_together() -> None:

    problem = linearised_network("three classes")
    jacobian = dense_jacobian(problem.tape)
    curvature, error = problem.tape.loss_terms
    groups = torch.tensor([0, 1, 0, 1, 1])
    found = grouped(problem.tape, problem.field, 0.05, groups)
    for g in (0, 1):
        kept = (groups != g).nonzero().flatten()
        left = (groups == g).nonzero().flatten()
        matrix = torch.einsum("iap,iab,ibq->pq", jacobian[kept], curvature[kept], jacobian[kept])
        matrix = matrix + 0.05 * torch.eye(jacobian.shape[2], dtype=torch.float64)
        delta = torch.linalg.solve(matrix, torch.einsum("iap,ia->p", jacobian[left], error[left]))
        moved = jacobian @ delta
        assert close(found.change[:, :, g], moved)
        assert close(found.own[left], moved[left])
    with pytest.raises(ValueError, match="groups must name groups"):
        grouped(problem.tape, problem.field, 0.05, torch.tensor([0, 2, 0, 2, 2]))


def test_quantile_error_holds_in_simulation() -> None:
    m, s, rounds = 400, 60, 400
    generator = torch.Generator().manual_seed(0)
    values = torch.sort(torch.randn(m, generator=generator)).values
    bound = quantile_error(s, m)
    worst = []
    for _ in range(rounds):
        drawn = torch.sort(values[torch.randperm(m, generator=generator)[:s]]).values
        share = torch.searchsorted(drawn, values, right=True) / s
        worst.append(float((share - torch.arange(1, m + 1) / m).abs().max()))
    missed = sum(w > bound for w in worst) / rounds
    assert missed <= 0.05
    assert sum(w > bound / 2 for w in worst) / rounds > 0.2  # not a bound that anything meets
    assert quantile_error(m, m) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two layers", "three classes", "three layers, four classes"])
def test_sampled_leverages_near_the_exact_ones(name: str) -> None:
    problem = linearised_network(name)
    exact = alo_change(problem.tape, problem.field, 0.05).leverage
    assert float((sampled_leverages(problem.tape, 0.05, samples=20_000) - exact).abs().max()) < 0.02
    few = [sampled_leverages(problem.tape, 0.05, samples=400, seed=seed) for seed in range(6)]
    assert all(0 <= float(each.min()) <= float(each.max()) < 1 for each in few)
    assert float((torch.stack(few).mean(0) - exact).abs().max()) < 0.05


def test_retraining_is_independent_of_jobs_and_takes_up_where_it_ended(tmp_path: Path) -> None:
    fit, graph = trained(2, 1)
    everywhere = propagation(graph).to(torch.float64).field(torch.tensor([1, 100]), 1)
    chosen = torch.tensor([0, 7, 12])
    found = retrain(fit, everywhere, chosen, folder=tmp_path)
    for i in chosen.tolist():
        after = retrained_logits(fit, i, 1e-9)[i]
        before = fit.linearisation.logits[i]
        assert float(found.own[i]) == pytest.approx(float(after[1] - after[0] - before[1] + before[0]), rel=1e-4)
    assert bool(found.own[1].isnan().all())
    assert found.samples()[0].tolist() == [0, 7, 12]
    (tmp_path / "without_7.npz").unlink()
    stamps = {name: (tmp_path / name).stat().st_mtime_ns for name in ("without_0.npz", "without_12.npz")}
    told: list[int] = []
    again = retrain(fit, everywhere, chosen, folder=tmp_path, progress=told.append)
    assert told == [2, 3]  # two were there
    assert torch.equal(again.change, found.change)
    assert all((tmp_path / name).stat().st_mtime_ns == stamp for name, stamp in stamps.items())
    other, other_graph = trained(4, 1)
    field = propagation(other_graph).to(torch.float64).field(torch.tensor([1, 100]), 1)
    with pytest.raises(InputError, match="another network"):
        retrain(other, field, chosen, folder=tmp_path)


def test_retraining_knows_another_weight_decay_and_another_graph(tmp_path: Path) -> None:
    fit, graph = trained(2, 1)
    where, chosen = torch.tensor([1, 100]), torch.tensor([3])
    field = propagation(graph).to(torch.float64).field(where, 1)
    retrain(fit, field, chosen, folder=tmp_path)
    moved = ReceptiveField(field.rows, 2 * field.inputs, field.blocks)  # type: ignore[operator]
    other_labelled = ReceptiveField(fit.field.rows, 2 * fit.field.inputs, ())  # type: ignore[operator]
    for other, there in (
        (dataclasses.replace(fit, weight_decay=2 * fit.weight_decay), field),
        (fit, moved),
        (dataclasses.replace(fit, field=other_labelled), field),
    ):
        with pytest.raises(InputError, match="another network, graph or weight decay"):
            retrain(other, there, chosen, folder=tmp_path)
    with pytest.raises(InputError, match="another network"):
        retrain(fit, field, chosen, folder=tmp_path, max_steps=5)
    (tmp_path / "without_3.npz").write_bytes(b"PK no longer")
    with pytest.raises(InputError, match=r"without_3\.npz must be a retraining, but is damaged .*: delete it"):
        retrain(fit, field, chosen, folder=tmp_path)


def test_retraining_says_where_it_did_not_converge_and_that_it_has_no_damping() -> None:
    fit, graph = trained(2, 1)
    field = propagation(graph).to(torch.float64).field(torch.tensor([1]), 1)
    done = retrain(fit, field, torch.tensor([0, 7])).diagnostics
    stopped = retrain(fit, field, torch.tensor([0, 7]), tolerance=1e-14, max_steps=1).diagnostics
    assert done is not None
    assert stopped is not None
    assert (done.unconverged, stopped.unconverged) == (0.0, 1.0)
    settings = Retrain(n_models=1)
    facts = leave_one_out(fit, graph, dataclasses.replace(settings, damping=1.0), nodes=torch.tensor([1])).diagnostics
    assert facts is not None
    assert facts.damping == fit.weight_decay
    assert "no damping" in facts.damping_reason
    with pytest.raises(ValueError, match="weight decay must be positive"):
        retrain(dataclasses.replace(fit, weight_decay=0.0), field, torch.tensor([0]))


def test_training_on_is_not_taken_for_the_effect_of_a_label() -> None:
    # Label 3 weighs nothing: leaving it out changes nothing, however far the network is from its minimum.
    fit, graph = trained(2, 1)
    model = copy.deepcopy(fit.model)  # others read the original
    with torch.no_grad():
        model.weights[0].add_(0.3)
    weights = fit.sample_weights.index_fill(0, torch.tensor([3]), 0.0)
    stopped = dataclasses.replace(fit, model=model, sample_weights=weights)
    field = propagation(graph).to(torch.float64).field(torch.tensor([1, 100]), 1)
    found = retrain(stopped, field, torch.tensor([3, 7]), max_steps=5)
    assert float(found.change[:, :, 0].abs().max()) == 0.0
    assert float(found.own[3].abs().max()) == 0.0
    assert float(found.own[7].abs().min()) > 1e-3


@pytest.mark.slow
def test_retraining_in_two_processes() -> None:
    fit, graph = trained(2, 1)
    everywhere = propagation(graph).to(torch.float64).field(torch.tensor([1]), 1)
    chosen = torch.tensor([0, 7])
    assert_alike(retrain(fit, everywhere, chosen, jobs=2).change, retrain(fit, everywhere, chosen).change)


@pytest.mark.parametrize("method", ["alo", "influence", "newton", "retrain", "grouped"])
def test_every_method_behind_one_function(method: str) -> None:
    fit, graph = trained(2, 1)
    options = {"n_models": 3} if method in ("alo", "retrain") else {"n_groups": 4} if method == "grouped" else {}
    found = leave_one_out(fit, graph, METHODS[method](**options), nodes=torch.tensor([3, 4]))
    facts = found.diagnostics
    assert facts is not None
    assert facts.method == method
    assert facts.damping == found.damping > 0
    assert facts.seconds > 0
    assert facts.estimated_bytes > 0
    places, models = found.samples()
    assert places.numel() == models.numel()
    assert int(models.max()) == found.change.shape[2] - 1
    assert found.change.shape[:2] == (2, 1)


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    fit, graph = trained(2, 2)
    settings = Influence(solver="cg", memory_limit=201_000_000)
    with pytest.raises(InputError, match=r"GB are needed and 0.20 GB are allowed: take method='alo'"):
        leave_one_out(fit, graph, settings)
    leave_one_out(fit, graph, ALO(memory_limit=201_000_000))  # the remedy fits


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        ("influence", {"convention": "mine"}, "convention must be one of"),
        ("influence", {"solver": "magic"}, "solver must be one of"),
        ("newton", {"tolerance": 0.0}, "tolerance must be positive"),
        ("alo", {"form": "odd"}, "form must be one of"),
        ("alo", {"steps": -1}, "steps must be at least 0"),
        ("alo", {"damping": -1.0}, "damping must be positive"),
        ("grouped", {"n_groups": 1}, "n_groups must be at least 2"),
        ("retrain", {"n_models": 0}, "n_models must be at least 1"),
    ],
)
def test_options_out_of_range(method: str, option: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{method}: {message}"):
        METHODS[method](**option)


@pytest.mark.parametrize(
    ("chosen", "message"), [([-1], "be in"), ([10_000], "be in"), ([1, 1], "be distinct"), ([], "name at least one")]
)
def test_labels_to_leave_out_must_be_there(chosen: list[int], message: str) -> None:
    fit, graph = trained()
    places = torch.tensor(chosen, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"leave_one_out: chosen must {message}"):
        leave_one_out(fit, graph, ALO(steps=2), chosen=places)


def test_a_check_compares_losses_of_the_same_labels() -> None:
    fit, graph = trained()
    found = leave_one_out(fit, graph, ALO(steps=2, n_models=5))
    some = torch.isfinite(found.own).all(1)
    assert int(some.sum()) == 5
    tape = fit.linearisation
    expected = torch.nn.functional.cross_entropy(tape.logits[some].double(), tape.targets[some])
    assert quality(fit, found).in_sample_nll == pytest.approx(float(expected))


def test_a_gcn_that_is_none_is_refused() -> None:
    fit, graph = trained()

    class Doubled(GCN):
        def forward(self, *arguments):
            return 2 * super().forward(*arguments)

    with pytest.raises(ValueError, match="got a Doubled that is derived or has frozen parameters"):
        fit_of(Doubled(graph.n_features).double(), graph, fit.nodes)
    frozen = copy.deepcopy(fit.model)
    frozen.biases[0].requires_grad_(False)
    with pytest.raises(ValueError, match="got a GCN that is derived or has frozen parameters"):
        fit_of(frozen, graph, fit.nodes)
