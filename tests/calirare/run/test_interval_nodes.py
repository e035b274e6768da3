"""Where some nodes alone get an interval, it is theirs among all, and everything else is said of every node."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
import torch

import calirare
from calirare.graph import convolution as propagation_module
from calirare.leave_one_out import Known, jackknife
from calirare.models import columns
from calirare.run import interval_nodes
from tests.helpers.command import assert_refused, call, rough_runs, succeed
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_alike

LEVEL = 1e-5  # of probabilities: sums in another order
QUICK = {"epochs": 15, "folds": 0, "hidden": 4}


@pytest.fixture(scope="module")
def graph():
    return rare_task()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "trees"])
def test_the_chosen_nodes_have_the_interval_they_have_among_all(graph, model):
    with rough_runs():
        every = calirare.train(graph, model=model, **QUICK)
        some = calirare.train(graph, model=model, interval_nodes="alerts", **QUICK)
        notes = some.metrics["notes"]
    at = some.jackknife.ends_of
    assert at is not None
    assert every.jackknife.ends_of is None
    made = torch.zeros(graph.n_nodes, dtype=torch.bool).index_fill(0, at, True)
    assert bool(made[graph.split.test].all())
    assert bool(made[some.review()[:100]].all())
    for name in ("lower", "upper"):
        here, there = getattr(some.jackknife, name), getattr(every.jackknife, name)
        assert float((here - there)[made].abs().max()) < LEVEL
        assert bool(here[~made].isnan().all())
    for name in ("uncertainty", "confidence", "ice"):
        assert_alike(getattr(some.jackknife, name), getattr(every.jackknife, name))
    assert any("--interval-nodes all" in note for note in notes)


@pytest.fixture(scope="module")
def outcome(graph):
    """A run of trees, whose intervals take each fold's model."""
    with rough_runs():
        return calirare.train(graph, model="trees", **QUICK)


def test_alerts_beyond_the_most_have_none_but_the_likeliest_do(outcome, graph, monkeypatch):
    settings = outcome.settings.but(interval_nodes="alerts")
    monkeypatch.setattr(interval_nodes, "MOST", 3)
    monkeypatch.setattr(interval_nodes, "REVIEWED", 5)
    args = (settings, outcome.fit, graph, outcome.logits, outcome.calibrators, 0.0)
    known = interval_nodes.known_logits(*args)
    p = outcome.for_tables().rare
    assert set(torch.argsort(p, descending=True, stable=True)[:3].tolist()) <= set(known.nodes.tolist())
    assert known.nodes.numel() <= 8
    assert set(outcome.review()[:5].tolist()) <= set(known.nodes.tolist())
    assert interval_nodes.known_logits(*args, judged=torch.tensor([0, 1])).nodes[:2].tolist() == [0, 1]


@pytest.mark.slow
def test_by_blocks_alerts_alone_get_one_unless_all_are_asked_for(graph, monkeypatch):
    monkeypatch.setattr(columns, "IN_MEMORY", 0)
    monkeypatch.setattr(columns, "BLOCK", 64)
    monkeypatch.setattr(propagation_module, "LARGE", 1)
    with rough_runs():
        some = calirare.train(dataclasses.replace(graph), model="hops", **QUICK)
        every = calirare.train(dataclasses.replace(graph), model="hops", interval_nodes="all", **QUICK)
    assert some.jackknife.ends_of is not None
    assert every.jackknife.ends_of is None
    assert bool(every.jackknife.lower.isfinite().all())
    assert some.score(dataclasses.replace(graph), say=lambda note: None).table["lower"].notna().sum() < graph.n_nodes


def test_of_a_large_graph_only_alerts_get_one_where_it_takes_every_folds_model(outcome, graph, monkeypatch):
    def known(settings):
        return interval_nodes.known_logits(settings, outcome.fit, graph, outcome.logits, outcome.calibrators, 0.5)

    assert known(outcome.settings) is None
    monkeypatch.setattr(interval_nodes, "LARGE", graph.n_nodes)
    assert 0 < known(outcome.settings).nodes.numel() < graph.n_nodes
    assert known(outcome.settings.but(interval_nodes="all")) is None


@pytest.mark.slow
def test_of_a_large_graph_alerts_alone_get_one_when_it_is_scored(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(interval_nodes, "LARGE", graph.n_nodes)
    monkeypatch.setattr(interval_nodes, "REVIEWED", 5)
    with rough_runs():
        outcome = calirare.train(graph, model="gcn", **QUICK)
        outcome.save(tmp_path / "run")
    graph.to_npz(tmp_path / "g.npz")
    said = call("predict", "--run", tmp_path / "run", "--graph", tmp_path / "g.npz", "--out", tmp_path / "some.csv")
    assert "nodes have an interval" in said.err
    all_of_them = ("--interval-nodes", "all", "--out", tmp_path / "every.csv")
    succeed("predict", "--run", tmp_path / "run", "--graph", tmp_path / "g.npz", *all_of_them)
    some, every = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("some", "every"))
    made = some["lower"].notna()
    assert 5 <= made.sum() < graph.n_nodes
    assert every["lower"].notna().all()
    assert (some.loc[made, ["lower", "upper"]] - every.loc[made, ["lower", "upper"]]).abs().max().max() < LEVEL
    same = [name for name in every.columns if name not in ("lower", "upper")]
    pd.testing.assert_frame_equal(some[same], every[same], check_dtype=False, atol=1e-6)
    strange = ("--interval-nodes", "some", "--out", tmp_path / "other.csv")
    said = call("predict", "--run", tmp_path / "run", "--graph", tmp_path / "g.npz", *strange)
    assert "interval_nodes must be one of auto, all, alerts, got 'some'" in assert_refused(said)


@pytest.mark.slow
def test_alerts_that_cannot_be_had_alone_are_said_to_be_all(graph):
    with rough_runs():
        outcome = calirare.train(graph, model="gcn", loo="grouped", **QUICK)
    notes = []
    table = outcome.score(graph, say=notes.append, interval_nodes="alerts").table
    assert table["lower"].notna().all()
    assert [note for note in notes if note.startswith("every node gets an interval: method grouped")]


def test_no_node_is_refused(outcome, graph):
    with pytest.raises(ValueError, match="at least one node"):
        jackknife(outcome.fit, graph, known=Known(outcome.logits, torch.empty(0, dtype=torch.int64)))


def test_what_does_not_go_together_is_refused_in_a_sentence(tmp_path):
    arguments = ("train", "--out", tmp_path / "run", "--interval-nodes", "alerts", "--uncertainty", "midpoint")
    assert "take interval_nodes all" in assert_refused(call(*arguments))
