"""Logits of a network that was trained elsewhere: calibrated by labels that it has not learnt, saved, reported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import torch_geometric.loader

import calirare
from calirare._util.errors import InputError
from calirare.calibration import FORM_SD, PriorPlattCalibrator, effective_shares
from calirare.models import Given, GivenFit
from calirare.page import ReviewSession, Verdicts, html_of
from tests.helpers.command import rough_runs
from tests.helpers.neighbours import every_neighbour
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "mini_batches.py"
WEIGHTS = torch.tensor([0.7, 1.6])


@pytest.fixture(scope="module")
def graph():
    return rare_task()


@pytest.fixture(scope="module")
def logits(graph):
    noise = torch.randn(graph.n_nodes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return noise + torch.nn.functional.one_hot(graph.y, 2)


@pytest.fixture(scope="module")
def folds(graph, logits):
    """Logits of three networks and the fold of each node."""
    noise = torch.randn(3, *logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return logits + 0.3 * noise, torch.arange(graph.n_nodes) % 3


@pytest.fixture(scope="module")
def outcome(graph, logits):
    with rough_runs():
        return calirare.train(graph, given=Given(logits, class_weights=WEIGHTS))


def fit_of(graph, given: Given) -> GivenFit:
    return given.fit(graph, torch.cat([graph.split.train, graph.split.val]))


def test_the_map_is_that_of_the_validation_labels(graph, logits, outcome):
    train, val = graph.split.train, graph.split.val
    shares = effective_shares(graph.y[train], WEIGHTS[graph.y[train]], 2)
    by_hand = PriorPlattCalibrator(trained_shares=shares, form_sd=FORM_SD).fit(logits[val], graph.y[val])
    assert_identical(outcome.probabilities("population"), by_hand.transform(logits), "P")
    assert_identical(outcome.logits, logits, "logits")
    assert outcome.metrics["graph"]["labels_trained_on"] == len(train)
    assert outcome.metrics["model"] == "given"


def test_what_the_network_says_of_labels_it_learnt_calibrates_nothing(graph, logits, outcome):
    learnt = logits.clone()
    learnt[graph.split.train] += 5 * torch.nn.functional.one_hot(graph.y[graph.split.train], 2)
    with rough_runs():
        other = calirare.train(graph, given=Given(learnt, class_weights=WEIGHTS))
    rest = torch.cat([graph.split.val, graph.split.test])
    assert_identical(other.probabilities("population")[rest], outcome.probabilities("population")[rest], "P")
    assert_identical(other.jackknife.lower[rest], outcome.jackknife.lower[rest], "lower ends")
    assert other.decision.threshold == outcome.decision.threshold
    assert not bool(other.audit().flagged[: len(graph.split.train)].any())


def test_intervals_rest_on_the_validation_labels_alone(graph, outcome):
    fit, val = outcome.fit, graph.split.val
    some = torch.isin(fit.nodes, val)
    parts = {name: getattr(fit, name)[some] for name in ("nodes", "targets", "sample_weights", "fold")}
    alone = calirare.jackknife(
        dataclasses.replace(fit, **parts),
        graph,
        calibrator=outcome.calibrators["population"],
        population_map=outcome.calibrators["population"],
    )
    assert_identical(outcome.jackknife.lower, alone.lower, "lower ends")
    assert_identical(outcome.jackknife.upper, alone.upper, "upper ends")


def test_with_folds_every_label_has_the_network_without_it(graph, logits, folds):
    without, fold = folds
    fit = fit_of(graph, Given(logits, without, fold, WEIGHTS))
    for i in range(0, len(fit.nodes), 17):
        node = int(fit.nodes[i])
        assert_identical(fit.own_logits[i], without[node % 3, node], f"node {node}")
    assert_identical(fit.label_logits, logits[fit.nodes], "in sample")
    with rough_runs():
        run = calirare.train(graph, given=Given(logits.numpy(), without.numpy(), fold.numpy(), WEIGHTS.tolist()))
    assert_identical(run.fit.own_logits, fit.own_logits, "of arrays")
    assert run.metrics["graph"]["labels_trained_on"] == len(fit.nodes)
    assert bool((run.jackknife.lower < run.jackknife.upper).all())


@pytest.mark.slow
@pytest.mark.parametrize("crossed", [False, True])
def test_a_saved_run_has_its_report_its_queue_and_its_audit(crossed, graph, logits, folds, tmp_path):
    with rough_runs():
        run = calirare.train(graph, given=Given(logits, *folds) if crossed else Given(logits))
        run.save(tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    known = torch.isfinite(run.fit.own_logits).all(1)
    assert int(known.sum()) == (150 if crossed else 110)
    assert_identical(saved.fit.own_logits[known], run.fit.own_logits[known], "own logits")
    assert_identical(saved.fit.logits, logits, "logits")
    assert saved.to_frame()["p_rare"].tolist() == pytest.approx(run.to_frame()["p_rare"].tolist())
    page = html_of(saved, *saved.graph_if_there(None))
    assert f"{150 if crossed else 40} labels trained the model" in page
    with Verdicts(tmp_path / "a.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        session = ReviewSession(saved, verdicts, lambda: saved.explainer(graph))
        assert [case.node for case in session.cases] == [
            str(node) for node in run.review()[: len(session.cases)].tolist()
        ]
        assert "given to it" in session.page(session.cases[0], "n")
    assert_identical(saved.audit(graph).p_wrong, run.audit().p_wrong, "audit")
    new = saved.scorer.calibrators["population"].transform(logits[:5])
    assert_identical(new, run.probabilities("population")[:5], "of other logits")
    for ask in (lambda: saved.score(graph), lambda: calirare.Scorer.open(tmp_path / "run", graph)):
        with pytest.raises(InputError, match="trained on given logits and has no network to score with"):
            ask()


@pytest.mark.parametrize("name", ["nodes", "fold"])
def test_a_damaged_file_is_noticed_when_it_is_read(name, outcome):
    tensors, facts = outcome.fit.state()
    with pytest.raises(LookupError):
        GivenFit.from_state(tensors | {name: tensors[name] + 1000}, facts)


def test_refuses_what_does_not_fit(graph, logits, folds):
    without, fold = folds
    nan = logits.clone()
    nan[3] = torch.nan
    unsplit = graph.with_split(dataclasses.replace(graph.split, val=graph.split.val[:0]))
    for make, message in (
        (lambda: Given(logits[:, 1]), r"logits must be \[n, k\] of k >= 2 classes, got \[260\]"),
        (lambda: Given(nan), "logits must be finite"),
        (lambda: Given(logits, without), "without and fold must be given together"),
        (
            lambda: Given(logits, without[:, :9], fold),
            r"without must be \[K, 260, 2\] of K >= 2 folds, got \[3, 9",
        ),
        (lambda: Given(logits, without, fold.double()), r"fold must be whole numbers \[260\], got float64 "),
        (
            lambda: Given(logits, class_weights=[1.0, 0.0]),
            r"class_weights must be 2 positive numbers, got \[1.0, 0.0\]",
        ),
        (lambda: fit_of(graph, Given(logits[:9])), r"logits must be \[260, 2\] as graph .* is, got \[9, 2\]"),
        (lambda: fit_of(graph, Given(logits, without, fold + 1)), "fold of nodes .* must be from 0 to 2, got 1 to 3"),
        (lambda: fit_of(unsplit, Given(logits)), "has no validation nodes: put some aside, or give fold and without"),
        (lambda: calirare.train(graph, model="given"), r"model given needs logits: calirare.train\(graph, given="),
        (lambda: calirare.train(graph, given=Given(logits), method="ts"), "model given needs method jackknife"),
    ):
        with pytest.raises(InputError, match=message):
            make()


@pytest.mark.slow
def test_the_example_hands_over_a_network_trained_by_batches(tmp_path, monkeypatch):
    """PyTorch Geometric's loader, network and batches; the search for neighbours is its own in plain torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch_geometric.loader, "NeighborLoader", every_neighbour)
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count("range(20)") == 1
    names: dict = {}
    with rough_runs():
        exec(compile(text.replace("range(20)", "range(6)"), str(EXAMPLE), "exec"), names)  # few epochs say the same
    outcome = names["outcome"]
    whole = names["model"](names["x"], names["edge_index"])
    assert float((whole - outcome.logits).detach().abs().max()) < 1e-4
    for run in (outcome, names["crossed"]):
        found = run.metrics["detection"]["population"]
        assert found["auprc_lower"] > 3 * found["prevalence"]
        assert run.verdict.answer == "calibrated"
    assert outcome.metrics["decision"]["alerts"] == 200
    assert len(calirare.load("sage").to_frame()) == 4000
