"""A graph of which some nodes carry edges alone: nothing is told, counted or written of them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.calibration import expected_count
from calirare.features import FeatureMap
from calirare.graph import Column, Graph, GraphOnDisk, with_sampled_negatives
from calirare.graph.labelled import NO_PART
from calirare.models import streams_of
from calirare.run import Labels, Loaded, Streamed, update, write_scores
from calirare.run.deciding import counting_coverage
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.usefixtures("rough")


def beside(task: Graph, share: float = 0.3) -> Graph:
    """The task with some of its nodes without a label not scored."""
    y = task.y.clone()
    y[task.split.test] = -1
    draw = torch.rand(task.n_nodes, generator=torch.Generator().manual_seed(1)) < share
    original = torch.where(y < 0, y, task.original_y)
    split = dataclasses.replace(task.split, test=task.split.test[:0])
    return dataclasses.replace(task, y=y, original_y=original, split=split, scored=~(draw & (y < 0)))


@pytest.fixture(scope="module")
def outcome() -> calirare.Outcome:
    return calirare.train(beside(rare_task()), model="hops", folds=2, epochs=40)


@pytest.mark.parametrize(
    ("scored", "error", "message"),
    [
        (torch.ones(260), TypeError, "scored must be a bool tensor"),
        (torch.ones(3, dtype=torch.bool), InputError, "scored must have one entry per node"),
        (torch.zeros(260, dtype=torch.bool), InputError, "there must be a target node, got none"),
        (
            torch.arange(260) > 100,
            InputError,
            "every node with a label must be a target node, but node '[0-9]+' has one",
        ),
    ],
)
def test_what_cannot_be_is_refused(scored, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(rare_task(), scored=scored)


def test_tables_hold_scored_nodes_alone(outcome, tmp_path):
    graph, table = outcome.graph, outcome.to_frame()
    assert table["node"].tolist() == graph.scored_nodes.tolist()
    assert np.array_equal(table["p_rare"].to_numpy(), outcome.for_tables().rare[graph.scored].numpy())
    outcome.save(tmp_path / "run")
    written = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert written["node"].tolist() == table["node"].tolist()
    assert set(pd.read_csv(tmp_path / "run" / "review.csv")["node"]) <= set(graph.unlabelled.tolist())
    assert outcome.metrics["graph"]["scored_nodes"] == len(table)


def test_decisions_are_on_scored_nodes(outcome):
    graph, decision = outcome.graph, outcome.decision
    p = outcome.probabilities("population")[:, 1][graph.unlabelled]
    assert (decision.nodes, decision.on) == (graph.unlabelled.numel(), "unlabelled")
    assert decision.alerts == int((p >= decision.threshold).sum())
    assert not set(outcome.review().tolist()) - set(graph.unlabelled.tolist())
    assert not set(outcome.next_labels(5).nodes.tolist()) - set(graph.unlabelled.tolist())


def test_another_graph_is_told_of_as_far_as_it_is_scored(outcome):
    later = beside(rare_task(seed=1))
    said = outcome.score(later, say=lambda note: None)
    every = outcome.score(dataclasses.replace(later, scored=None), say=lambda note: None)
    assert said.table["node"].tolist() == later.scored_nodes.tolist()
    kept = every.table[later.scored.numpy()].reset_index(drop=True)
    pd.testing.assert_frame_equal(said.table, kept)  # what is told of them does not change
    assert said.nodes == len(said.table)
    assert math.isclose(said.mean, said.table["p_rare"].mean())
    assert said.alerts == said.table["alert"].sum()
    z = outcome.fit.logits_of(calirare.run.Scorer.of(outcome).prepared(later))[later.scored]
    fitted = outcome.calibrators["population"]
    assert said.expected == expected_count(fitted, z, counting_coverage(fitted))


@pytest.mark.parametrize("by_blocks", [False, True])
def test_scores_alone_are_the_same(outcome, tmp_path, by_blocks):
    later = dataclasses.replace(beside(rare_task(seed=1)), y=None, original_y=None, split=None, class_names=())
    later = dataclasses.replace(later, original_class_names=(), minority=None)
    scorer = calirare.run.Scorer.of(outcome)
    want = scorer.score(later, say=lambda note: None)
    source = Loaded(scorer, later, lambda note: None)
    if by_blocks:
        later.to_folder(tmp_path / "later")
        on_disk = GraphOnDisk.open(tmp_path / "later")
        source = Streamed(scorer, on_disk, streams_of(scorer.fit, scorer.features))
    said = write_scores(source, tmp_path / "p.parquet")
    table = pd.read_parquet(tmp_path / "p.parquet")
    assert table["node"].tolist() == later.scored_nodes.tolist()
    assert np.abs(table["p_rare"] - want.table["p_rare"]).max() < 1e-5
    assert (said.nodes, said.alerts) == (want.nodes, want.alerts)
    assert math.isclose(said.expected.expected, want.expected.expected, rel_tol=1e-4)


def test_drift_looks_at_scored_nodes_alone(outcome):
    later = beside(rare_task(seed=1), share=0.9)
    x = later.x.clone()
    x[~later.scored] += 100
    columns = [finding for finding in _findings(outcome, dataclasses.replace(later, x=x)) if finding.part == "column"]
    assert columns
    assert all(finding.verdict == "ok" for finding in columns)
    moved = dataclasses.replace(later, x=x, scored=None)
    assert any(finding.verdict != "ok" for finding in _findings(outcome, moved) if finding.part == "column")


def _findings(outcome, graph):
    return outcome.score(graph, say=lambda note: None).drift.findings


def test_numbers_are_mapped_by_what_scored_nodes_have():
    task = beside(rare_task())
    x = task.x[:, :3].clone()
    x[~task.scored, :2] = torch.tensor([1e6, torch.nan])  # far off, and missing
    x[task.scored, 2] = torch.nan  # of the others alone
    names = ("amount", "age", "margin")
    graph = dataclasses.replace(task, x=x, columns=tuple(map(Column, names)), feature_names=names)
    mapped = FeatureMap.fit(graph).transform(graph)
    own = dict(zip(mapped.feature_names, mapped.x[graph.scored].T, strict=True))
    for name in ("amount", "age"):
        assert abs(float(own[name].mean())) < 0.1
        assert 0.8 < float(own[name].std()) < 1.2
    assert set(mapped.feature_names) == {"amount", "age", "margin", "margin missing"}
    alone = FeatureMap.fit(dataclasses.replace(graph, scored=None)).transform(graph)
    amount = alone.x[graph.scored, alone.feature_names.index("amount")]
    assert abs(float(amount.mean())) > 0.1  # else nothing is told apart
    assert "age missing" in alone.feature_names


def test_nodes_are_drawn_from_scored_ones():
    task = beside(rare_task(), share=0.9)
    known = torch.where(task.y == 1, 1, -1)
    split = dataclasses.replace(task.split, train=(known == 1).nonzero().flatten(), val=task.split.val[:0])
    graph = with_sampled_negatives(dataclasses.replace(task, y=known, original_y=None, split=split, minority=None), 0)
    assert bool(graph.scored[graph.split.train].all())
    assert graph.split.train.numel() == int(task.scored.sum())


def test_an_edge_to_a_node_that_is_not_scored_tells_of_the_labels_behind_it(outcome):
    graph = outcome.graph
    adjacency = graph.adjacency.to_dense() > 0
    node = next(i for i in graph.unlabelled.tolist() if bool((adjacency[i] & ~graph.scored).any()))
    told = outcome.explain(torch.tensor([node])).each[0].edges
    assert {edge.node for edge in told} == set(adjacency[node].nonzero().flatten().tolist())
    for edge in told:
        behind = adjacency[edge.node].clone()
        behind[node] = False
        n, n_rare = int((behind & (graph.y >= 0)).sum()), int((behind & (graph.y == 1)).sum())
        want = f"{n_rare} of {n} rare" if n else "no label"
        assert edge.beyond == ("" if graph.scored[edge.node] else want)
        assert (edge.p_rare is None) == (not graph.scored[edge.node])


def test_an_update_tells_of_scored_nodes_alone(outcome, tmp_path):
    """Devices were counted as alerts that appeared, and stood first among the nodes that moved most."""
    outcome.save(tmp_path / "run")
    graph, saved = outcome.graph, calirare.load(tmp_path / "run")
    fresh = graph.unlabelled[:8].cpu()
    changed = Labels(fresh, torch.arange(8) % 2, torch.full((8,), NO_PART))
    found = update(saved, graph, changed)
    before, after = outcome.to_frame()["alert"], found.outcome.to_frame()["alert"]
    alerts = found.to_mapping()["alerts"]
    assert (alerts["before"], alerts["after"]) == (int(before.sum()), int(after.sum()))
    assert alerts["appeared"] == int(((after == 1) & (before == 0)).sum())
    assert {int(node) for node in found.to_frame()["node"]} <= set(graph.scored_nodes.tolist())


def test_why_is_not_told_of_what_is_not_told(outcome):
    beside_ = int((~outcome.graph.scored).nonzero()[0])
    with pytest.raises(InputError, match=f"node '{beside_}' is an auxiliary node, which has no P"):
        outcome.explain([beside_])
