"""Nodes that are left open because the interval of their P(rare) holds the threshold."""

from __future__ import annotations

import pytest
import torch

import calirare
from calirare import InputError
from calirare.calibration import probability_interval
from calirare.datasets import synthetic_rare
from calirare.graph import share_split
from calirare.run import Settings
from calirare.run.probabilities import Undecided, realised_error, undecided_nodes
from tests.helpers.command import rough_runs


@pytest.fixture(scope="module")
def outcome():
    graph = synthetic_rare(800, seed=1, share=0.1, n_features=4, separation=1.5)
    y = torch.where(torch.arange(800) % 4 == 0, graph.y, -1)
    graph = calirare.Graph(graph.adjacency, graph.x, y, split=share_split(y))
    with rough_runs():
        return calirare.train(graph, model="trees", folds=3, abstain=0.9)


def test_nodes_are_left_open_where_the_interval_holds_the_threshold(outcome):
    said, table = outcome.for_tables(), outcome.to_frame()
    low, high = probability_interval(outcome.calibrators["population"], outcome.logits.double(), 0.9)
    between = (low < 0.5) & (high >= 0.5)
    assert 0 < int(between.sum()) < 200
    assert torch.equal(said.abstain, between)
    assert table["abstain"].tolist() == between.long().tolist()
    assert table.columns.tolist().index("abstain") == table.columns.tolist().index("threshold") + 1
    more = undecided_nodes(outcome.calibrators["population"], outcome.logits, 0.5, 0.99)
    assert int(more.sum()) > int(between.sum())
    assert bool(more[between].all())


def test_the_summary_says_how_many_and_what_to_expect_of_the_others(outcome):
    with rough_runs():
        decision = outcome.metrics["decision"]
    left, p = decision["undecided"], outcome.for_tables().rare
    open_ = outcome.graph.unlabelled
    decided = open_[~outcome.for_tables().abstain[open_]]
    wrong = torch.minimum(p[decided], 1 - p[decided])
    assert left["nodes"] == len(open_)
    assert left["abstained"] == len(open_) - len(decided)
    assert left["error"] == pytest.approx(float(wrong.mean()), rel=1e-6)
    assert left["error"] < left["error_everyone"]
    assert f"left open: {left['abstained']}" in outcome.summary()
    assert "of the others decided wrongly" in outcome.summary(verbose=True)
    test, said = outcome.graph.split.test, outcome.for_tables()
    wrong = said.alert[test] != (outcome.graph.y[test] == 1)
    assert decision["test"]["undecided"]["abstained"] == int(said.abstain[test].sum())
    assert decision["test"]["undecided"]["error_everyone"] == pytest.approx(float(wrong.double().mean()))


def test_another_graph_has_the_same_column_and_a_line(outcome):
    scored = outcome.score(outcome.graph)
    assert scored.table["abstain"].sum() == scored.undecided.abstained > 0
    assert "left open:" in scored.summary()
    assert scored.to_mapping()["undecided"]["coverage"] == 0.9


def test_what_is_left_open_is_not_counted_among_the_others():
    p, y = torch.tensor([0.9, 0.6, 0.4, 0.1]), torch.tensor([1, 0, 1, 0])
    left = torch.tensor([False, True, True, False])
    assert realised_error(p, y, left, 0.5) == {"abstained": 2, "error": 0.0, "error_everyone": 0.5}
    said = Undecided.of(p, left, 0.5, 0.9)
    assert said.error == pytest.approx(0.1)
    assert said.error_everyone == pytest.approx(0.25)
    assert Undecided.of(p, left | True, 0.5, 0.9).error is None


def test_without_it_no_node_is_left_open_and_no_column_is_there(outcome):
    plain = calirare.run.Probabilities.of(outcome.logits, outcome.calibrators, "population")
    assert plain.abstain is None
    with pytest.raises(InputError, match=r"setting abstain must be in \(0, 1\), got 1"):
        Settings.of(abstain=1.0)
    with pytest.raises(InputError, match=r"\(abstain\) need method jackknife and map prior"):
        Settings.of(abstain=0.9, map="platt")
