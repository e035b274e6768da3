"""What metrics.json says of a run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import calirare
from calirare import metrics as measures
from calirare.run.report import evaluated_logits, evaluated_nodes, judge_of, report
from tests.helpers.command import rough_report as calibration_report
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.usefixtures("rough")
NONE = torch.zeros(0, dtype=torch.int64)


@pytest.fixture(scope="module")
def outcome():
    return calirare.train(rare_task(), preset="paper", epochs=30, folds=2)


def test_the_test_nodes_report(outcome):
    metrics = report(outcome)
    test = outcome.graph.split.test
    y = outcome.graph.y[test]
    assert (metrics["judged_on"], metrics["n_judged"], metrics["n_judged_rare"]) == ("test", 100, int((y == 1).sum()))
    assert metrics["report"]["raw"] == calibration_report(y, outcome.probabilities(None)[test])
    for target in ("balanced", "population"):
        assert metrics["report"][target] == calibration_report(y, outcome.probabilities(target)[test])
    assert set(metrics["eice"]) == {"raw", "balanced", "population"}
    assert metrics["eice"]["raw"] == pytest.approx(outcome.jackknife.eice, rel=1e-6, abs=0)
    assert metrics["eice"]["population"] < 1e-3 < metrics["eice"]["raw"], "that map is the estimate"
    assert metrics["quality"]["verdict"] in ("trust", "caution", "do not trust")
    assert metrics["quality"]["loo_nll"] > metrics["quality"]["in_sample_nll"]


def test_coverage_counts_labels_within_the_intervals(outcome):
    told = report(outcome)["interval_coverage"]
    test = outcome.graph.split.test
    y, low, high = (x[test].numpy() for x in (outcome.graph.y, outcome.jackknife.lower, outcome.jackknife.upper))
    held = (low <= y) & (y <= high)
    assert told["wanted"] == 0.9
    for name, chosen in (("all", y >= 0), ("rare", y == 1), ("rest", y == 0)):
        assert told[name] == pytest.approx(float(np.mean(held[chosen])), rel=1e-6, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["none", "only the rest"])
def test_without_rare_test_nodes_the_labels_judge_by_leave_one_out(kept):
    graph = rare_task()
    test = graph.split.test
    test = NONE if kept == "none" else test[graph.y[test] == 0]
    outcome = calirare.train(
        graph.with_split(dataclasses.replace(graph.split, test=test)), preset="paper", epochs=12, folds=0
    )
    judged_on, nodes = evaluated_nodes(outcome)
    assert judged_on == "leave-one-out"
    assert torch.equal(nodes, outcome.fit.nodes)
    logits = evaluated_logits(outcome, judged_on, nodes)
    assert torch.equal(logits, outcome.jackknife.own_loo_logits)
    metrics = report(outcome)
    assert metrics["n_judged"] == 150
    assert metrics["report"]["raw"] == calibration_report(graph.y[nodes], torch.softmax(logits, 1))
    told = [note for note in metrics["notes"] if "so out-of-fold predictions" in note]
    assert len(told) == (kept == "only the rest"), "without any test node it is no surprise"
    assert all(f"none of the {test.numel()} test nodes is of class 1" in note for note in told)


@pytest.mark.slow
def test_intervals_of_labels_that_trained_are_judged_without_them():
    graph = rare_task()
    none = graph.split.test[:0]
    labels = dataclasses.replace(graph.split, test=none)
    outcome = calirare.train(graph.with_split(labels), model="hops", epochs=60, folds=2)
    nodes, low, high = outcome.fit.nodes, outcome.jackknife.lower, outcome.jackknife.upper
    y, own = outcome.fit.targets, outcome.jackknife.own_loo_logits
    moved = outcome.mapped_logits(own, "balanced")[:, 1] - outcome.probabilities("balanced")[nodes, 1]
    assert float(moved[y == 1].mean()) < 0, "without its label a rare node looks less rare"
    held = (low[nodes] + moved <= y) & (y <= high[nodes] + moved)
    seen = (low[nodes] <= y) & (y <= high[nodes])
    told = report(outcome)
    assert told["judged_on"] == "leave-one-out"
    assert told["interval_coverage"]["all"] == pytest.approx(float(held.double().mean()), abs=0.01)
    assert told["interval_coverage"]["rare"] <= float(seen[y == 1].double().mean())
    assert told["interval_coverage"]["all"] < float(seen.double().mean())


def test_unlabelled_test_nodes_do_not_report():
    graph = rare_task()
    y = graph.y.clone()
    y[graph.split.test[:30]] = -1
    # A split may not hold unlabelled nodes, so they leave it.
    split = dataclasses.replace(graph.split, test=graph.split.test[30:])
    other = calirare.Graph(graph.adjacency, graph.x, y, split=split)
    assert report(calirare.train(other, preset="paper", epochs=5, folds=0))["n_judged"] == 70


def test_detection_and_p_rare_are_judged_on_the_test_nodes(outcome):
    metrics = report(outcome)
    test = outcome.graph.split.test
    y = outcome.graph.y[test]
    assert set(metrics["detection"]) == {"raw", "population"}, "the scores that rank"
    assert set(metrics["p_rare"]) == {"raw", "balanced", "population"}
    for side in metrics["p_rare"]:
        p = outcome.probabilities(None if side == "raw" else side)[test]
        said = metrics["p_rare"][side]
        assert (said["judged_on"], said["n"], said["n_rare"]) == ("test", 100, int((y == 1).sum()))
        assert said["mean_p_over_share"] == pytest.approx(float(p[:, 1].mean() / y.double().mean()), rel=1e-6)
        assert said["ece"] == pytest.approx(float(measures.equal_mass_ece(y, p[:, 1])), rel=1e-6)
        if side in metrics["detection"]:
            found = metrics["detection"][side]
            assert (found["judged_on"], found["n"]) == ("test", 100)
            assert found["auprc"] == pytest.approx(float(measures.auprc(y, p)), rel=1e-6)
            assert found["auprc_lower"] < found["auprc"] < found["auprc_upper"]


@pytest.mark.slow
def test_without_test_nodes_p_rare_is_judged_by_maps_that_did_not_see_the_node():
    graph = rare_task()
    outcome = calirare.train(
        graph.with_split(dataclasses.replace(graph.split, test=NONE)), preset="paper", epochs=12, folds=0
    )
    data = judge_of(outcome)
    val = torch.isin(outcome.fit.nodes, graph.split.val)
    assert data.on == "leave-one-out"
    assert torch.equal(data.nodes, outcome.fit.nodes[val]), "they represent the population; the training nodes do not"
    own = outcome.jackknife.own_loo_logits[val].float()
    seen = outcome.calibrators["population"].transform(own)[:, 1]
    share = float((data.labels == 1).double().mean())
    assert float(seen.mean()) == pytest.approx(share, rel=1e-3), "right by construction: the map was fitted on them"
    honest = data.p["population"][:, 1]
    assert 1e-3 < float((honest - seen).abs().max()) < 0.3
    assert float(measures.nll(data.labels, honest)) > float(measures.nll(data.labels, seen))
    metrics = report(outcome)
    assert metrics["p_rare"]["population"]["n"] == metrics["detection"]["raw"]["n"] == int(val.sum())
    assert metrics["n_judged"] == 150
    assert f"P(rare) and detection: {int(val.sum())} leave-one-out nodes" in outcome.summary(verbose=True)
    assert f"leave-one-out on {int(val.sum())} of them" in outcome.summary()
