"""The verdict of a run: the strongest evidence decides, causes are named, the words are the same everywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import calirare
from calirare.run.verdict import Circumstances, Evidence, Verdict, verdict_of, verdict_of_classes
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

N, RATE = 4000, 0.1


def nodes(n=N, seed=0, spread=1.5):
    """Returns calibrated probabilities and labels drawn from them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(np.log(RATE / (1 - RATE)) - 1, spread, n)
    p = 1 / (1 + np.exp(-z))
    return (rng.random(n) < p).astype(int), p


def of(y, p, known=None, source="test nodes"):
    return verdict_of(Evidence.of(source, y, p), known or Circumstances())


def test_calibrated_probabilities_are_called_so_with_their_numbers():
    y, p = nodes()
    found = of(y, p)
    assert (found.answer, found.cause, found.why) == ("calibrated", None, "")
    assert found.sentence == f"calibrated: predicted / observed = {p.sum() / y.sum():.2f} on 4,000 test nodes"
    assert found.counts
    assert found.level == "ok"


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_ratio_that_is_not_1_is_not_calibrated_whatever_the_labels_say(factor):
    y, p = nodes()
    found = of(y, (factor * p).clip(0, 1))
    assert found.answer == "not calibrated"
    assert "on 4,000 test nodes" in found.sentence
    assert not found.counts
    assert found.level == "do not trust"


def test_a_calibration_error_above_its_expected_value_is_not_calibrated():
    y, p = nodes()
    logit = np.log(p / (1 - p))
    z = 2.5 * logit
    while (1 / (1 + np.exp(-z))).mean() < y.mean():  # right on average, too extreme
        z += 0.02
    found = of(y, 1 / (1 + np.exp(-z)))
    assert found.answer == "not calibrated"
    assert found.sentence.startswith("not calibrated: calibration error 0.")
    assert not found.evidence.off


def test_a_ranking_at_chance_is_said_to_be_one_though_the_mean_is_right():
    rng = np.random.default_rng(1)
    y = (rng.random(N) < RATE).astype(int)
    found = of(y, rng.uniform(0, 2 * y.mean(), N))
    assert found.answer == "no better than random"
    assert found.sentence.endswith(f"(random: {y.mean():.3f}) on 4,000 test nodes")
    assert not found.counts


def test_a_difference_that_is_certain_but_small_is_no_fault():
    y, p = nodes(400_000)
    assert of(y, 0.96 * p).answer == "calibrated"


def test_few_rare_nodes_cannot_show_more():
    y, p = nodes(120, seed=3)
    found = of(y, p)
    assert (found.answer, found.cause) == ("not known", None)
    assert found.sentence.endswith(f"{y.sum()} rare nodes are too few to judge")
    later = of(y, p, Circumstances(rare=450, labels=1000, later=True))
    assert (later.answer, later.cause, later.counts) == ("not known", "time", False)
    assert "base rate is 45.00% among the labels" in later.why
    assert of(y, p, Circumstances(rare=int(y.sum()), labels=len(y), later=True)).cause is None


def test_no_rare_node_at_all_is_evidence_too():
    found = of(np.zeros(300, dtype=int), np.full(300, 0.3))
    assert found.answer == "not calibrated"
    assert "predicted 90, observed none on 300 test nodes" in found.sentence


WRONG = nodes()[0], nodes()[1] / 2


@pytest.mark.parametrize(
    ("known", "cause", "shows"),
    [
        (Circumstances(leak="the column 'closed' gives the labels away", later=True), "leakage", "'closed'"),
        (Circumstances(later=True, rare=50, labels=1000), "time", "later than the labels that calibrate"),
        (Circumstances(no_sample="labels are clustered"), "labels", "clustered"),
        (Circumstances(rare=20, labels=1000), "labels", "The base rate is 2.00% among the labels"),
        (Circumstances(rare=400, labels=1000), "model", "More labels may help"),  # which would predict too much
        (Circumstances(rare=int(WRONG[0].sum()), labels=N), "model", "More labels may help"),
    ],
)
def test_causes_are_told_apart_and_each_has_a_remedy(known, cause, shows):
    found = of(*WRONG, known)
    assert (found.answer, found.cause) == ("not calibrated", cause)
    assert shows in found.why


def test_without_test_nodes_a_doubt_about_the_labels_leaves_it_open():
    y, p = nodes()
    doubt = Circumstances(no_sample="labels are clustered")
    assert of(y, p, doubt, "out-of-fold predictions").sentence == "not known: labels are clustered"
    assert of(y, p, doubt).answer == "calibrated"  # test nodes know better


def test_a_given_base_rate_is_not_contradicted_by_labels_that_need_be_no_sample():
    given = Circumstances(assumed="the base rate is the given one, 0.02")
    assert of(*WRONG, given).answer == "not known"
    assert of(*nodes(), given).answer == "calibrated"
    assert verdict_of(None, given).sentence == "not known: the base rate is the given one, 0.02"


def test_a_verdict_is_stored_and_read():
    found = of(*WRONG)
    assert Verdict.from_mapping(found.to_mapping()) == found
    with pytest.raises(ValueError, match="answer must be one of"):
        Verdict("trust", "")


def test_without_an_observed_node_a_verdict_is_stored_too():
    found = of(np.zeros(300, dtype=int), np.full(300, 0.3))
    stored = json.loads(json.dumps(found.to_mapping(), allow_nan=False))
    assert Verdict.from_mapping(stored) == found


def test_labels_of_the_past_are_named_as_such_where_nodes_without_a_label_are_later():
    known = Circumstances(no_sample="labels have other dates", later=True)
    assert of(*nodes(), known, "out-of-fold predictions").cause == "time"


PLAIN = Circumstances()


def classes(power, known=PLAIN):
    rng = np.random.default_rng(0)
    p = rng.dirichlet((1, 2, 6), 3000)
    y = torch.from_numpy((p.cumsum(1) < rng.random((3000, 1))).sum(1).clip(max=2))
    q = torch.from_numpy(p) ** power
    return verdict_of_classes("test nodes", y, q / q.sum(1, keepdim=True), ("a", "b", "c"), known)


def test_every_class_counts_where_none_is_rare():
    assert classes(1).answer == "calibrated"
    assert classes(3).answer == "not calibrated"
    assert classes(1, Circumstances(no_sample="clustered", drawn=True)).sentence == "not known: clustered"
    assert classes(1, Circumstances(leak="a column leaks")).cause == "leakage"
    y = torch.arange(3000) % 3
    p = torch.full((3000, 3), 1 / 3, dtype=torch.float64)
    assert verdict_of_classes("test nodes", y, p, ("a", "b", "c"), Circumstances()).answer == "no better than random"


@pytest.mark.slow
def test_terminal_metrics_and_outcome_have_the_same_words():
    with rough_runs():
        outcome = calirare.train(rare_task(1500), model="trees")
    shown = outcome.verdict.sentence[1:]
    assert outcome.verdict.evidence.source == "test nodes"
    assert outcome.metrics["verdict"]["sentence"][1:] == shown
    assert shown.split(":")[0] in outcome.summary()


@pytest.mark.slow
@pytest.mark.parametrize("split", ["share", "all"])
def test_the_verdict_has_the_numbers_that_are_printed_of_p_rare(split):
    task = rare_task(900)
    y = torch.where(torch.arange(900) % 3 == 0, task.y, -1)
    graph = calirare.Graph(task.adjacency, task.x, y, class_names=("0", "1"))
    with rough_runs():
        outcome = calirare.train(graph, model="trees", split=split)
    shown, evidence = outcome.metrics["p_rare"]["population"], outcome.verdict.evidence
    assert (evidence.nodes, evidence.rare) == (shown["n"], shown["n_rare"])
    assert evidence.ratio == pytest.approx(shown["mean_p_over_share"], rel=1e-6)
    assert evidence.low == pytest.approx(shown["mean_p_over_share_lower"], rel=1e-6)


def test_a_later_period_of_another_base_rate_is_laid_to_time():
    task = rare_task(2000)
    rng = np.random.default_rng(0)
    time = torch.from_numpy(rng.random(2000))
    y = task.y.clone()
    gone = (time > 0.75) & (y == 1) & torch.from_numpy(rng.random(2000) < 0.85)
    y[gone] = 0
    graph = calirare.Graph(task.adjacency, task.x, y, class_names=("0", "1"), time=time)
    with rough_runs():
        outcome = calirare.train(graph, model="trees")
    assert outcome.graph.split.name == "time(test=0.25)"
    assert (outcome.verdict.answer, outcome.verdict.cause) == ("not calibrated", "time")
    assert outcome.decision.expected is None
    assert "no counts are promised" in outcome.summary()
    periods = outcome.metrics["periods"]
    assert sum(row["nodes"] for row in periods) == 2000
    assert [row["to"] for row in periods] == sorted(row["to"] for row in periods)
    assert periods[-1]["ratio"] > 2 > periods[0]["ratio"]


@pytest.mark.slow
def test_counts_of_later_nodes_are_promised_only_by_calibrated_probabilities():
    task = rare_task(600)
    when = torch.from_numpy(np.random.default_rng(0).random(600))
    y = torch.where(when < 0.1, task.y, -1)
    promised = []
    for time in (when, None):
        graph = calirare.Graph(task.adjacency, task.x, y, class_names=("0", "1"), time=time)
        with rough_runs():
            outcome = calirare.train(graph, model="trees", split="all")
        assert (outcome.verdict.answer, outcome.verdict.cause) == ("not known", None)
        promised.append(outcome.decision.expected is not None)
    assert promised == [False, True]
