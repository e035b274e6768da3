"""Hop columns: own features beside the neighbours' means, scaled by what one graph holds."""

from __future__ import annotations

import dataclasses
import gc
import re

import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu

from calirare.features import FeatureMap
from calirare.graph import Graph, Relation
from calirare.models import HopColumns, MlpTraining, TreesTraining, column_screen
from calirare.models.column_screen import screened
from calirare.models.columns import _KEPT, _raw
from calirare_ext import Csr, propagate, row_sums
from tests.calirare.models.test_trees import grown_on
from tests.helpers.graphs import random_graph
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


def path_of_three(**changes) -> Graph:
    """0 - 1 - 2, and 3 alone."""
    a = Csr.from_coo(torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 2, 1]), None, (4, 4))
    return Graph(a, torch.tensor([[1.0], [2.0], [5.0], [7.0]]), **changes)


def test_columns_of_a_path_are_those_worked_out_by_hand():
    raw = _raw(path_of_three(feature_names=("amount",)), 2)
    assert raw.feature_names == ("amount", "neighbours' amount", "2 hops' amount", "log degree")
    log2, log3 = np.log([2, 3]).astype(np.float32).tolist()
    want = [[1, 2, 3, log2], [2, 3, 2, log3], [5, 2, 3, log2], [7, 0, 0, 0]]
    assert_identical(raw.x, torch.tensor(want))


def test_weights_of_edges_weigh_the_neighbours():
    a = Csr.from_coo(torch.tensor([0, 1, 0, 2]), torch.tensor([1, 0, 2, 0]), torch.tensor([3.0, 3.0, 1.0, 1.0]), (3, 3))
    raw = _raw(Graph(a, torch.tensor([[0.0], [4.0], [8.0]])), 1)
    assert float(raw.x[0, 1]) == 5.0


def test_relations_are_read_each_way():
    pays = Relation.of("pays", Csr.from_coo(torch.tensor([0, 0]), torch.tensor([1, 2]), None, (4, 4)))
    raw = _raw(path_of_three(feature_names=("amount",), relations=(pays,)), 1)
    assert raw.feature_names[3:] == (
        "pays to amount",
        "log degree, pays to",
        "pays from amount",
        "log degree, pays from",
    )
    log2, log3 = np.log([2, 3]).astype(np.float32).tolist()
    assert_identical(raw.x[:, 3:], torch.tensor([[3.5, log3, 0, 0], [0, 0, 1, log2], [0, 0, 1, log2], [0, 0, 0, 0]]))


def test_scaling_is_that_of_the_graph_it_was_fitted_on():
    graph = random_graph(n_nodes=200)
    columns = HopColumns.fit(graph)
    other = dataclasses.replace(graph, x=graph.x + 3.0, trusted=True)
    fitted = FeatureMap.fit(_raw(graph, 2), "auto")
    assert_identical(columns.of(other).x, fitted.transform(_raw(other, 2)).x)
    assert not torch.equal(columns.of(graph).x, columns.of(other).x)


def many_words() -> Graph:
    words = torch.from_numpy(np.random.default_rng(0).poisson(0.05, (150, 300)).astype(np.float32))
    rows, cols = words.nonzero(as_tuple=True)
    graph = random_graph(n_nodes=150)
    return dataclasses.replace(graph, x=Csr.from_coo(rows, cols, words[rows, cols], (150, 300)))


def test_columns_of_another_reach_take_the_same_directions():
    sparse = many_words()
    far = HopColumns.fit(sparse, 2)
    near = HopColumns.fit(sparse, 0, like=far)
    assert near.own is far.own
    assert_identical(near.of(sparse).x, HopColumns.fit(sparse, 0).of(sparse).x)


@pytest.mark.parametrize("hops", [0, 2])
def test_a_state_gives_the_same_columns_again(hops):
    graph = random_graph()
    columns = HopColumns.fit(graph, hops)
    again = HopColumns.from_state(*columns.state())
    assert_identical(again.of(graph).x, columns.of(graph).x)


def test_columns_are_made_once_and_go_with_their_graph():
    graph = random_graph()
    columns = HopColumns.fit(graph)
    assert columns.of(graph) is columns.of(graph)
    before = len(_KEPT)
    del graph
    gc.collect()
    assert len(_KEPT) < before


ORDER = torch.from_numpy(np.random.default_rng(0).permutation(260))
LEVEL = 1e-5  # of logits in float32, whose products have rows in another order


@pytest.fixture(scope="module")
def graph():
    """Crowded, so that sums have many terms; a skewed feature, whose means become ranks; many equal means."""
    graph = rare_task()
    dense = torch.rand(260, 260, generator=torch.Generator().manual_seed(1)) < 0.15
    upper = torch.triu(dense, 1).float()
    x = graph.x.clone()
    x[:, 0], x[:, 1] = torch.exp(2 * x[:, 0]), (x[:, 1] > 0) * 0.1
    return dataclasses.replace(graph, adjacency=Csr.from_dense(upper + upper.T), x=x)


def renumbered(graph):
    """Returns the graph whose node i is node ORDER[i] of another."""
    a, place = graph.adjacency, torch.argsort(ORDER)
    moved = Csr.from_coo(place[a.rows()], place[a.indices.long()], a.values, a.shape)
    return dataclasses.replace(graph, adjacency=moved, x=graph.x[ORDER], y=graph.y[ORDER], split=None)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_columns_are_the_same_to_the_last_bit(graph, hops):
    columns = HopColumns.fit(graph, hops)
    assert_identical(columns.of(renumbered(graph)).x, columns.of(graph).x[ORDER])


def test_sums_in_single_precision_would_not_be(graph, monkeypatch):
    def single(a, x):
        return propagate(a, x) / row_sums(a).float()[:, None]

    monkeypatch.setattr("calirare.models.columns.neighbour_means", single)
    fresh = dataclasses.replace(graph)
    columns = HopColumns.fit(fresh, 2)
    assert not torch.equal(columns.of(renumbered(fresh)).x, columns.of(fresh).x[ORDER])


@pytest.mark.parametrize("kind", ["boosting", "extra"])
def test_trees_say_the_same(graph, kind):
    fitted = TreesTraining(rounds=5, folds=2, kind=kind).fit(graph, graph.split.train)
    assert_identical(fitted.logits_of(renumbered(graph)), fitted.logits_of(graph)[ORDER])


def test_a_network_on_columns_says_the_same(graph):
    fitted = MlpTraining(epochs=15, hidden=4).fit(graph, graph.split.train)
    moved, said = fitted.logits_of(renumbered(graph)), fitted.logits_of(graph)
    assert float((moved - said[ORDER]).abs().max()) < LEVEL
    assert float((moved - said).abs().max()) > LEVEL, "the bound tells nodes apart"


RNG = np.random.default_rng


def wide(monkeypatch: pytest.MonkeyPatch, above: int, kept: int) -> None:
    monkeypatch.setattr(column_screen, "WIDE", above)
    monkeypatch.setattr(column_screen, "KEPT", kept)


def table(seed: int = 0, m: int = 60, d: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = RNG(seed)
    targets = (rng.random(m) < 0.3).astype(np.int64)
    columns = rng.normal(size=(m, d)).astype(np.float32)
    columns[:, 7] += 2 * targets
    columns[:, 3] = np.exp(5 * (columns[:, 3] - 2 * targets))  # by rank as telling as the other, by its mean not
    return columns, targets


def test_columns_are_kept_by_wilcoxons_statistic(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, above=20, kept=5)
    monkeypatch.setattr(column_screen, "BLOCK", 700)  # eleven columns at a time
    columns, targets = table()
    (kept,) = screened(columns, targets, [np.arange(60)])
    p = [mannwhitneyu(c[targets == 1], c[targets == 0], method="asymptotic").pvalue for c in columns.T]
    assert kept is not None
    assert set(np.flatnonzero(kept)) == set(np.argsort(p)[:5])
    assert {3, 7} <= set(np.flatnonzero(kept))


def test_of_many_classes_each_has_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, above=20, kept=3)
    rng = RNG(1)
    targets = np.repeat([0, 1, 2], 20)
    columns = rng.normal(size=(60, 40)).astype(np.float32)
    for c, column in enumerate((5, 11, 30)):
        columns[:, column] += 3 * (targets == c)
    (kept,) = screened(columns, targets, [np.arange(60)])
    assert kept is not None
    assert np.flatnonzero(kept).tolist() == [5, 11, 30]


@pytest.mark.parametrize("kind", ["boosting", "extra"])
def test_trees_split_kept_columns_alone(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    wide(monkeypatch, above=20, kept=4)
    columns, targets = table()
    model = grown_on(TreesTraining(kind=kind, rounds=8, patience=0), columns, targets, 2)  # type: ignore[arg-type]
    kept = screened(columns, targets, [np.arange(60), *(np.flatnonzero(model.fold != f) for f in range(5))])
    for ensemble, own in zip((model.all_labels, *model.without), kept, strict=True):
        assert own is not None
        found = [re.findall(r"split_feature=([\d ]+)", text) for text in [ensemble.text]]
        split = {int(i) for each in found for part in each for i in part.split()}
        assert split
        assert split <= set(np.flatnonzero(own))


def test_a_label_does_not_choose_the_columns_of_its_own_logit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, above=20, kept=4)
    columns, targets = table()
    fold = np.arange(60) % 5
    training = TreesTraining(rounds=6, patience=0)
    before = grown_on(training, columns, targets, 2, fold=fold).own_logits[10]
    other = targets.copy()
    other[fold == fold[10]] = 1 - other[fold == fold[10]]
    after = grown_on(training, columns, other, 2, fold=fold).own_logits[10]
    np.testing.assert_array_equal(before, after)
