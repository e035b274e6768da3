"""calirare.train: every method, its fallbacks and what it says of them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import cache

import numpy as np
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.calibration import AffineCalibrator, JackknifeCalibrator
from calirare.graph.convolution import propagation
from calirare.graph.splits import Split
from calirare.leave_one_out import ALO, jackknife
from calirare.models import cross_fitted_logits
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_alike, assert_identical

QUICK = {"preset": "paper", "epochs": 12, "folds": 0}
NONE = torch.zeros(0, dtype=torch.int64)


@cache
def quick():
    """A run on the task as it is."""
    return calirare.train(rare_task(), **QUICK)


def with_parts(graph, **parts):
    return graph.with_split(dataclasses.replace(graph.split, **parts))


def test_the_default_trains_and_calibrates_on_all_labels():
    graph = rare_task()
    outcome = calirare.train(graph, **QUICK)
    assert torch.equal(outcome.fit.nodes, torch.cat([graph.split.train, graph.split.val]))
    assert set(outcome.calibrators) == {"balanced", "population"}
    assert outcome.calibrator is outcome.calibrators["balanced"]
    assert_identical(outcome.logits, outcome.model.logits(graph))
    assert_identical(outcome.probabilities(None), torch.softmax(outcome.logits, 1))
    assert_identical(outcome.probabilities("population"), outcome.calibrators["population"].transform(outcome.logits))
    assert not outcome.model.training
    stages = {"prepare", "train", "predict", "check", "calibrate", "jackknife", "decide", "ranges", "judge"}
    assert set(outcome.seconds) == stages
    assert outcome.agreement is None, "folds=0"
    assert outcome.notes == []


def test_the_map_is_fitted_on_leave_one_out_logits_of_the_validation_nodes():
    graph, outcome = rare_task(), quick()
    own = outcome.jackknife.own_loo_logits[40:].double()
    labels = graph.y[graph.split.val]
    fitted = JackknifeCalibrator(target="balanced").fit(own, labels).state()["map"]
    got = outcome.calibrators["balanced"].state()["map"]
    # The pipeline's leave-one-out logits are float64, the result's float32.
    assert got["scale"] == pytest.approx(fitted["scale"], rel=1e-4, abs=0)
    assert got["bias"][1] == pytest.approx(fitted["bias"][1], rel=1e-3, abs=1e-4)
    in_sample = JackknifeCalibrator(target="balanced").fit(outcome.logits[graph.split.val], labels).state()["map"]
    assert abs(got["scale"] - in_sample["scale"]) > 0.01 * got["scale"], "in-sample logits give another map"


def test_the_check_cross_validates_networks_of_the_same_hops():
    graph = rare_task()
    outcome = calirare.train(graph, preset="paper", epochs=12, folds=3, hops=2)
    further = dataclasses.replace(graph, x=propagation(graph).inputs)
    same = calirare.train(further, preset="paper", epochs=12, folds=3)
    assert outcome.agreement == same.agreement
    assert_identical(outcome.logits, same.logits)


def test_the_jackknife_is_that_of_the_public_function():
    graph = rare_task()
    outcome = calirare.train(graph, calibrate_for="population", coverage=0.8, **QUICK)
    damping = outcome.jackknife.diagnostics["damping"]
    judges = torch.arange(outcome.fit.nodes.numel()) >= graph.split.train.numel()
    map_ = outcome.calibrators["population"]
    again = jackknife(outcome.fit, graph, ALO(damping=damping), coverage=0.8, calibrator=map_, calibration_nodes=judges)
    for name in ("lower", "upper", "uncertainty", "confidence", "ice"):
        assert_alike(getattr(outcome.jackknife, name), getattr(again, name), name)
    assert_alike(outcome.jackknife.confidence, outcome.probabilities(None).max(1).values)
    population = outcome.probabilities("population")
    predicted = outcome.probabilities(None).argmax(1)
    distance = outcome.jackknife.uncertainty - population.gather(1, predicted[:, None]).squeeze(1)
    assert float(distance.abs().max()) < 1e-4, "the same map, fitted on float32 leave-one-out logits"
    assert float(outcome.jackknife.ice.mean()) > 0.01


def test_the_midpoint_is_selectable():
    graph = rare_task()
    outcome = calirare.train(graph, uncertainty="midpoint", **QUICK)
    result = outcome.jackknife
    middle = (result.lower + result.upper) / 2
    predicted = outcome.probabilities("balanced").argmax(1)
    assert_alike(result.uncertainty, torch.where(predicted == 0, 1 - middle, middle))
    assert_alike(result.confidence, outcome.probabilities("balanced").max(1).values)


@pytest.mark.parametrize("method", ["ts", "uncalibrated", "calirare"])
def test_the_other_methods_train_on_the_training_labels(method):
    graph = rare_task()
    outcome = calirare.train(graph, preset="paper", method=method, epochs=60)
    assert torch.equal(outcome.fit.nodes, graph.split.train)
    assert outcome.agreement is None
    assert bool(outcome.calibrators) == (method == "ts")
    if method == "ts":
        val = graph.split.val
        for target, got in outcome.calibrators.items():
            want = AffineCalibrator(with_bias=False, target=target).fit(outcome.logits[val], graph.y[val])
            assert got.state() == want.state()
            assert not any(got.state()["bias"])
    else:
        assert outcome.calibrator is None
        assert_identical(outcome.probabilities("balanced"), outcome.probabilities(None))


@pytest.mark.slow
def test_algorithm_2_differs_from_plain_training_and_says_when_it_does_not():
    graph = rare_task()
    plain = calirare.train(graph, preset="paper", method="uncalibrated", epochs=60)
    eice = calirare.train(graph, preset="paper", method="calirare", epochs=60)
    assert not torch.equal(plain.logits, eice.logits)
    assert eice.notes == []
    short = calirare.train(graph, preset="paper", method="calirare", epochs=50)
    assert short.notes == ["the EICE term counts from epoch 51 on, so 50 epochs trained without it"]


@pytest.mark.parametrize("method", ["ts", "calirare"])
def test_methods_that_need_validation_nodes_refuse_without(method):
    with pytest.raises(InputError, match=f"method {method} needs validation nodes"):
        calirare.train(with_parts(rare_task(), val=NONE), method=method, **QUICK)


def test_without_validation_nodes_the_training_nodes_stand_in_with_a_note():
    outcome = calirare.train(with_parts(rare_task(), val=NONE), **QUICK)
    assert outcome.fit.nodes.numel() == 40
    assert any("no validation nodes: the calibrator was fitted on the training nodes" in note for note in outcome.notes)
    assert any("only 20 calibration nodes of the rarest class" in note for note in outcome.notes)
    assert torch.isfinite(outcome.probabilities("balanced")).all()


def test_few_rare_validation_nodes_fall_back_to_a_temperature_with_a_note():
    graph = rare_task()
    val = graph.split.val
    few = torch.cat([val[graph.y[val] == 0], val[graph.y[val] == 1][:7]])
    outcome = calirare.train(with_parts(graph, val=few), **QUICK)
    assert outcome.notes == [
        "only 7 calibration nodes of the rarest class (25 are needed): temperature scaling with a prior "
        "replaces Platt scaling"
    ]
    assert all(not any(c.state()["map"]["bias"]) for c in outcome.calibrators.values())


def test_the_least_that_can_be_trained_on():
    graph = rare_task()
    one_each = torch.stack([(graph.y == k).nonzero()[0, 0] for k in (0, 1)])
    outcome = calirare.train(graph.with_split(Split(one_each, NONE, NONE)), preset="paper", epochs=5, folds=2)
    assert torch.isfinite(outcome.probabilities("balanced")).all()
    assert torch.isfinite(outcome.jackknife.ice).all()


@pytest.mark.slow
def test_automatic_epochs_keep_the_best_checkpoint(monkeypatch):
    monkeypatch.setattr("calirare.run.left_out.MAX_EPOCHS", 40)
    monkeypatch.setattr("calirare.run.left_out.CHECKPOINT_EVERY", 10)
    graph, done = rare_task(), []
    best = calirare.train(graph, preset="paper", folds=0, report=lambda stage, k, total: done.append((stage, k, total)))
    assert best.epochs in (10, 20, 30, 40)
    assert best.settings.training.epochs == "auto"
    assert done[-1] == ("train", 40, 40)
    given = calirare.train(graph, preset="paper", folds=0, epochs=best.epochs)
    assert_identical(best.logits, given.logits)
    assert best.fit.losses == given.fit.losses
    # The choice is by leave-one-out loss in the target population, on the validation nodes.
    losses = {}
    for epochs in (10, 20, 30, 40):
        outcome = calirare.train(graph, preset="paper", folds=0, epochs=epochs)
        y = graph.y[graph.split.val]
        share = torch.bincount(y).double() / y.numel()
        each = torch.nn.functional.cross_entropy(outcome.jackknife.own_loo_logits[40:].double(), y, reduction="none")
        losses[epochs] = float((each / share[y]).mean())
    assert losses[best.epochs] <= min(losses.values()) * (1 + 1e-6)


@pytest.mark.slow
def test_the_check_compares_with_cross_validation():
    graph = rare_task()
    outcome = calirare.train(graph, preset="paper", epochs=40, folds=3)
    agreement = outcome.agreement
    nodes = outcome.fit.nodes
    held = cross_fitted_logits(graph, nodes, outcome.settings.training.detector(0, 40), n_folds=3)[40:].double()
    y = graph.y[nodes[40:]]
    # Balanced over the validation nodes, which represent the population and which the map is fitted on.
    share = torch.bincount(y).double() / y.numel()
    each = torch.nn.functional.cross_entropy(held, y, reduction="none") / share[y]
    want = float(each.sum() / (1 / share[y]).sum())
    assert agreement.held_out == pytest.approx(want, rel=1e-6, abs=0)
    assert agreement.damping == outcome.jackknife.diagnostics["damping"]


def test_a_check_that_fails_takes_the_cross_validated_logits_and_says_so(monkeypatch):
    import calirare.run.left_out as module

    real = module.choose_damping
    monkeypatch.setattr(
        module,
        "choose_damping",
        lambda *a: dataclasses.replace(real(*a), verdict="do not trust", reason="leave-one-out is off"),
    )
    graph = rare_task()
    outcome = calirare.train(graph, preset="paper", epochs=12, folds=2)
    assert outcome.notes == ["leave-one-out is off: the calibrator was fitted on cross-validated logits instead"]
    held = cross_fitted_logits(graph, outcome.fit.nodes, outcome.settings.training.detector(0, 12), n_folds=2)
    want = JackknifeCalibrator(target="balanced").fit(held[40:], graph.y[graph.split.val])
    assert outcome.calibrator.state() == want.state()


@pytest.fixture
def few_judges(monkeypatch):
    """Two of five folds hold 55 labels, of 150, and 9 of each class."""
    monkeypatch.setattr("calirare.run.left_out.JUDGES", 55)
    monkeypatch.setattr("calirare.run.left_out.OF_EACH_CLASS", 9)


def test_of_many_labels_some_folds_judge_and_the_run_says_so(few_judges):
    done, graph = [], rare_task()
    outcome = calirare.train(graph, preset="paper", epochs=12, report=lambda *step: done.append(step))
    assert [step for step in done if step[0] == "check"] == [("check", 1, 2), ("check", 2, 2)]
    held, error = outcome.held_out, outcome.agreement.standard_error
    judged = torch.isfinite(held).all(1)
    said = f"2 of 5 folds: it compares the losses of {int(judged.sum())} of the 150 labels: standard "
    assert any(f"{said}error {error:.2g}" in note for note in outcome.notes)
    every = calirare.train(graph, preset="paper", epochs=12, folds=5)
    detector = outcome.settings.training.detector(0, 12)
    want = cross_fitted_logits(graph, outcome.fit.nodes, detector, n_folds=5, left_out=2)
    assert_identical(held, want)
    y, chosen = graph.y[outcome.fit.nodes], judged.clone()
    chosen[:40] = False  # drawn per class: they represent no population
    share = torch.bincount(y[40:]).double() / 110
    each = torch.nn.functional.cross_entropy(held[chosen].double(), y[chosen], reduction="none") / share[y[chosen]]
    assert outcome.agreement.held_out == pytest.approx(float(each.sum() / (1 / share[y[chosen]]).sum()), rel=1e-6)
    assert_identical(every.logits, outcome.logits)
    evidence = outcome.audit().summary(200)
    assert f"{int(judged.sum())} of 150 labels are judged by networks trained without their fold" in evidence


def test_a_given_damping_is_taken_as_it_is():
    outcome = calirare.train(rare_task(), preset="paper", loo=ALO(damping=0.02), epochs=12, folds=5)
    assert outcome.jackknife.diagnostics["damping"] == 0.02
    assert outcome.agreement is None


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"method": "ts"}, {"n_layers": 1}])
def test_more_than_two_classes(options):
    graph = rare_task(n_classes=3)
    outcome = calirare.train(graph, task="classes", **{**QUICK, "epochs": 60, **options})
    p = outcome.probabilities("balanced")
    assert p.shape == (260, 3)
    assert float((p.sum(1) - 1).abs().max()) <= 1e-6
    scored = outcome.probabilities(None)[graph.split.test].argmax(1) == graph.y[graph.split.test]
    assert float(scored.double().mean()) > 0.4, "better than the 1/3 of guessing"


@pytest.mark.slow
@pytest.mark.parametrize("saved", [False, True], ids=["outcome", "saved run"])
def test_a_run_that_has_explained_can_be_pickled(saved, tmp_path):
    with rough_runs():
        run = calirare.train(rare_task(), model="hops", epochs=5, folds=0)
    if saved:
        run.save(tmp_path / "r")
        run = calirare.load(tmp_path / "r")
    graph = {"graph": rare_task()} if saved else {}
    want = run.explain([0], **graph)[0]
    again = pickle.loads(pickle.dumps(run))
    found = again.explain([0], **graph)[0]
    assert_alike(torch.tensor(found.p), torch.tensor(want.p))
    assert [edge.name for edge in found.edges] == [edge.name for edge in want.edges]


def test_the_same_call_gives_the_same_numbers_and_leaves_the_random_state():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 (the global state is what is watched)
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    a = calirare.train(rare_task(), preset="paper", epochs=8, folds=2)
    assert torch.equal(torch.random.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    torch.manual_seed(6)
    b = calirare.train(rare_task(), preset="paper", epochs=8, folds=2)
    assert_identical(a.logits, b.logits)
    assert_identical(a.jackknife.ice, b.jackknife.ice)
    assert a.calibrator.state() == b.calibrator.state()


def test_what_was_trained_can_be_copied_and_saved(tmp_path):
    graph = rare_task()
    outcome = calirare.train(graph, preset="paper", epochs=5, folds=0)
    torch.save(outcome, tmp_path / "trained.pt")
    for other in (torch.load(tmp_path / "trained.pt", weights_only=False), copy.deepcopy(outcome)):
        assert_identical(other.model.logits(other.graph), outcome.logits)
        assert other.fit.gradient_norm() == outcome.fit.gradient_norm()
        assert other.calibrator.state() == outcome.calibrator.state()
