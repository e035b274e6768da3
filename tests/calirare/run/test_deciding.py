"""The decision of a run: its threshold, its alerts in every table, what it expects, and what it refuses."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare import InputError, Settings
from calirare.calibration.decisions import Cost
from calirare.graph import nodes_not_to_review
from calirare.run import ignored_settings
from calirare.run.deciding import CAVEAT, HELD, realised, review_order
from calirare_ext import Csr
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.usefixtures("rough")

QUICK = {"model": "gcn", "epochs": 30, "folds": 0}


@pytest.fixture(scope="module")
def outcome():
    return calirare.train(rare_task(), **QUICK)


def test_by_default_an_alert_is_likelier_rare_than_not(outcome):
    table = outcome.to_frame()
    assert np.array_equal(table["alert"], table["prediction"]), "of the target population"
    assert (table["threshold"] == 0.5).all()
    assert np.abs(table["p_rare"] - outcome.probabilities("population")[:, 1].numpy()).max() < 1e-6
    assert np.abs(table["p_balanced"] - outcome.probabilities("balanced")[:, 1].numpy()).max() < 1e-6
    assert np.abs(table["p_raw"] - outcome.probabilities(None)[:, 1].numpy()).max() < 1e-6
    assert bool((table["p_balanced"] > table["p_rare"]).all()), "the rare class is rare"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        ({"cost_fn": 3, "cost_fp": 1}, lambda p, t: t == 0.25),
        ({"decide": "budget", "budget": 7}, lambda p, t: (p >= t).sum() == 7),
        (
            {"decide": "recall", "min_recall": 0.6},
            lambda p, t: p[p >= t].sum() >= 0.6 * p.sum() > p[p > p[p >= t].min()].sum(),
        ),
    ],
    ids=["cost", "seven alerts", "recall"],
)
def test_a_rule_chooses_among_the_nodes_that_wait_for_a_decision(asked, holds):
    outcome = calirare.train(rare_task(), **QUICK, **asked)
    table, decision = outcome.to_frame(), outcome.decision
    waiting = table[table["split"].isin(["test", "unused"])]
    assert holds(waiting["p_rare"].to_numpy(), decision.threshold)
    assert (decision.nodes, decision.on) == (110, "held-out")
    assert waiting["alert"].sum() == decision.alerts
    assert np.array_equal(table["alert"], (table["p_rare"] >= decision.threshold).astype(int))
    assert decision.expected.hits_by_p == pytest.approx(waiting["p_rare"][waiting["alert"] == 1].sum())
    assert decision.expected.hits.low <= decision.expected.hits.expected <= decision.expected.hits.high
    said = outcome.metrics["decision"]
    assert said["hits_by_p"] == decision.expected.hits_by_p
    assert said["sentence"] in outcome.summary(verbose=True)
    test = table[table["split"] == "test"]
    assert said["test"]["alerts"] == test["alert"].sum()
    assert said["test"]["hits"] == ((test["alert"] == 1) & (test["y"] == 1)).sum()
    assert said["test"]["recall"] == said["test"]["hits"] / (test["y"] == 1).sum()
    assert json.loads(json.dumps(said)) == said


@pytest.mark.slow
def test_another_graph_keeps_the_threshold_but_a_budget_is_chosen_anew(tmp_path):
    other = rare_task(n_nodes=400, seed=1)
    other = dataclasses.replace(other, y=None, split=None, class_names=(), original_y=None, original_class_names=())
    for asked, alerts in (({"decide": "balanced"}, None), ({"decide": "budget", "budget": 9}, 9)):
        outcome = calirare.train(rare_task(), **QUICK, **asked)
        outcome.save(tmp_path / asked["decide"])
        table = calirare.load(tmp_path / asked["decide"]).predict(other)
        assert table.equals(outcome.predict(other)), "the folder holds the decision"
        assert np.array_equal(table["alert"], (table["p_rare"] >= table["threshold"]).astype(int))
        assert (table["threshold"] == outcome.decision.threshold).all() == (alerts is None)
        assert alerts is None or table["alert"].sum() == alerts


@pytest.mark.slow
def test_a_confidence_rests_on_labels_that_represent_the_population():
    outcome = calirare.train(rare_task(), **QUICK, decide="recall", min_recall=0.8, guarantee=0.9)
    assert "with confidence 0.9" in outcome.decision.sentence
    assert outcome.decision.caveat == "", "it asks nothing of the form of the map"
    expected = calirare.train(rare_task(), **QUICK, decide="recall", min_recall=0.8)
    assert expected.decision.caveat == CAVEAT.format(held=HELD[False])
    assert outcome.decision.threshold < expected.decision.threshold, "a proof costs alerts"
    with pytest.raises(InputError, match=r"cannot be proved with confidence 0\.99 by 110 labels"):
        calirare.train(rare_task(), **QUICK, decide="precision", guarantee=0.99)
    share = rare_task().minority_share
    with pytest.raises(InputError, match="a confidence needs labels drawn at random"):
        calirare.train(rare_task(), **QUICK, decide="precision", guarantee=0.9, prevalence=share)


@pytest.mark.parametrize("settings", [{"preset": "paper"}, {"method": "uncalibrated"}], ids=lambda x: next(iter(x)))
def test_maps_without_a_known_uncertainty_have_the_default_alone(settings):
    quick = {"epochs": 12, "model": "gcn"} | settings
    outcome = calirare.train(rare_task(), **quick)
    table, said = outcome.to_frame(), outcome.metrics["decision"]
    assert np.array_equal(table["alert"], (outcome.probabilities("population")[:, 1] >= 0.5).long().numpy())
    assert (said["threshold"], said["hits"]) == (0.5, None)
    assert f"makes {said['alerts']} alerts" in said["sentence"]
    if "method" in settings and settings["method"] == "uncalibrated":
        assert table["p_rare"].equals(table["p_balanced"])
    with pytest.raises(InputError, match=r"\(decide\) need method jackknife and map prior, got m"):
        Settings.of(**quick, decide="balanced")


def test_what_another_rule_takes_is_noted():
    assert ignored_settings(Settings.of(budget=5, min_recall=0.5)) == [
        "budget and min_recall changed nothing with decide cost"
    ]
    assert ignored_settings(Settings.of(decide="recall", min_recall=0.5, guarantee=0.5)) == []
    assert (Settings.of(budget=5).decision.decide, Settings.of(min_recall=0.5).decision.decide) == ("budget", "recall")
    assert Settings.of(budget=5, decide="cost").decision.decide == "cost"
    for wrong, message in (
        ({"cost_fn": 0.0}, "cost of a miss must be positive"),
        ({"budget": 2.5}, "whole number or a share"),
        ({"min_precision": 1.0}, r"precision must be in \(0, 1\)"),
        (
            {"sort_by": "value-of-label", "model": "given"},
            "value-of-label needs model auto, gcn, hops, trees or forest, got 'given'",
        ),
        ({"decide": "luck"}, "decision.decide must be one of balanced, cost, budget, precision, recall"),
    ):
        with pytest.raises(InputError, match=message):
            Settings.of(**wrong)


@pytest.mark.slow
def test_review_begins_with_what_is_asked_for(tmp_path):
    asked = {"cost_fn": 4.0, "cost_fp": 2.0}
    first = calirare.train(rare_task(), **QUICK, **asked)
    table = first.to_frame()
    waiting = table[table["split"].isin(["test", "unused"])]
    by_p = waiting.sort_values("p_rare", ascending=False, kind="stable")["node"].tolist()
    assert first.review().tolist() == by_p
    settings = first.settings.but(sort_by="expected-loss")
    loss = np.where(waiting["alert"] == 1, 2 * (1 - waiting["p_rare"]), 4 * waiting["p_rare"])
    by_loss = waiting["node"].to_numpy()[np.argsort(-loss, kind="stable")].tolist()
    second = dataclasses.replace(first, settings=settings)
    assert second.review().tolist() == by_loss != by_p
    third = dataclasses.replace(first, settings=first.settings.but(sort_by="uncertainty"))
    doubt = first.jackknife.review(first.for_tables().chosen, nodes_not_to_review(first.graph))
    assert torch.equal(third.review(), doubt)
    assert third.review().tolist() not in (by_p, by_loss)
    taught = dataclasses.replace(first, settings=first.settings.but(sort_by="value-of-label")).review().tolist()
    worth = first.next_labels(100, among=first.review()).nodes.tolist()
    assert taught == worth + [node for node in by_p if node not in set(worth)] != by_p
    assert Settings.of(preset="paper").decision.sort_by == "uncertainty"
    with pytest.raises(InputError, match="sort_by amount needs transactions with amounts"):
        calirare.train(rare_task(), **QUICK, sort_by="amount")
    with pytest.raises(InputError, match="cost_fn amount needs transactions with amounts"):
        first.score(rare_task(), deciding=first.settings.but(cost_fn="amount").decision)
    first.write(tmp_path)
    assert pd.read_csv(tmp_path / "review.csv")["node"].tolist() == by_p[:100]
    assert Settings.of(method="ts", sort_by="uncertainty").decision.sort_by == "uncertainty", "an order needs no map"


def test_realised_by_hand():
    p, y = torch.tensor([0.9, 0.5, 0.4, 0.1]), torch.tensor([1, 0, 1, 0])
    found = realised(p, y, 0.5, Cost(miss=9.0))
    assert found == {"nodes": 4, "alerts": 2, "hits": 1, "misses": 1, "precision": 0.5, "recall": 0.5, "cost": 10.0}
    assert realised(p, y, 1.1, Cost())["precision"] is None


@pytest.mark.slow
def test_the_pictures_operating_point_is_the_decision(outcome, tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "calirare.run.outcome.precision_recall_diagram", lambda panels, path, **how: seen.update(how, panels=panels)
    )
    from calirare.run.outcome import _draw_rare

    def deciding_from(threshold):
        decision = dataclasses.replace(outcome.decision, threshold=threshold)
        return dataclasses.replace(outcome, rare=dataclasses.replace(outcome.rare, decision=decision))

    for threshold, none in ((0.25, False), (1.1, True)):
        _draw_rare(deciding_from(threshold), tmp_path)
        assert (seen["threshold"] is None) == none
    p = seen["panels"][0].p
    _draw_rare(deciding_from(float(p[3])), tmp_path)
    assert int((p >= seen["threshold"]).sum()) == int((p >= p[3]).sum()), "a node at the threshold is an alert"
    assert np.array_equal(p, outcome.for_tables().rare[outcome.graph.split.test]), "as precise as the tables"


@pytest.mark.slow
def test_a_tie_at_the_cut_of_a_budget_is_named_by_the_run_and_by_a_score_of_its_graph(tmp_path):
    rng, y = np.random.default_rng(3), rare_task(300).y.numpy()
    kind = np.where(rng.random(300) < 0.6, y, rng.integers(0, 3, 300))  # three kinds of nodes, without an edge
    graph = rare_task(
        300, x=torch.from_numpy(np.eye(3, dtype=np.float32)[kind]), adjacency=Csr.from_dense(torch.zeros(300, 300))
    )
    run = calirare.train(graph, model="trees", folds=2, decide="budget", budget=5)
    decision = run.decision.to_mapping()
    assert decision["alerts"] == 0
    assert decision["tied"]["wanted"] == 5
    assert f"{decision['tied']['nodes']} nodes have the same P(rare)" in decision["sentence"]
    run.save(tmp_path / "run")
    assert f"{decision['tied']['nodes']} nodes have the same P(rare)" in (tmp_path / "run/metrics.json").read_text()
    scored = calirare.load(tmp_path / "run").score(graph)
    assert scored.alerts == 0
    assert "have the same P(rare)" in scored.summary()
    assert scored.to_mapping()["tied"] == scored.tied


def test_nodes_of_one_p_are_looked_at_by_how_likely_they_are_wrong(outcome):
    said = outcome.for_tables()
    tied = dataclasses.replace(said, rare=said.rare.round(decimals=1))
    order = review_order(outcome.settings.decision, outcome.graph, tied, outcome.jackknife)
    right = outcome.jackknife.about(said.chosen)[0]
    for p in torch.unique(tied.rare[order]):
        group = right[order[tied.rare[order] == p]]
        assert bool((group.diff() >= 0).all())
    assert bool((tied.rare[order].diff() <= 0).all())
