"""Columns that are made for some nodes at a time are those of all nodes, and so is what every detector says of them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare._util import array_files as scratch_module
from calirare.graph import Relation
from calirare.graph import convolution as propagation_module
from calirare.models import (
    GcnTraining,
    HopColumns,
    Mixture,
    MlpTraining,
    TreesTraining,
    class_weights,
    columns,
    fold_network,
    mixture_of,
)
from calirare_ext import Csr, first_layer, inputs, propagate
from tests.helpers.graphs import random_graph
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

LEVEL = 1e-5  # of logits in float32: products of blocks have sums in another order


@pytest.fixture
def small_is_large(monkeypatch):
    """Every graph counts as large: columns by blocks of 50 nodes, what lies between two hops in a file."""
    monkeypatch.setattr(columns, "IN_MEMORY", 0)
    monkeypatch.setattr(columns, "BLOCK", 50)
    monkeypatch.setattr(scratch_module, "IN_MEMORY", 0.0)
    monkeypatch.setattr(propagation_module, "LARGE", 1)


def fits_of(graph) -> dict:
    """A little of every kind of detector, with three folds each."""
    nodes = graph.split.train
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    trees = TreesTraining(rounds=5, folds=3)
    found = {
        "trees": trees.fit(graph, nodes, sample_weights=weights),
        "forest": dataclasses.replace(trees, kind="extra").fit(graph, nodes, sample_weights=weights),
    }
    for name, detector in (("hops", MlpTraining(epochs=15, hidden=4)), ("gcn", GcnTraining(epochs=15, hidden=4))):
        network = detector.fit(graph, nodes, sample_weights=weights)
        found[name] = fold_network(detector, graph, network, 3)
    return found | {"auto": mixture_of(found, weights)}


@pytest.fixture(scope="module")
def whole():
    graph = rare_task()
    return graph, fits_of(graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trees", "forest", "hops", "gcn", "auto"])
def test_trained_and_scored_by_blocks_a_detector_says_the_same(name, whole, request):
    graph, fits = whole
    want, want_folds = fits[name].all_logits_of(graph)
    request.getfixturevalue("small_is_large")
    other = dataclasses.replace(graph)
    trained = fits_of(other)[name]
    got, got_folds = trained.all_logits_of(other)
    for here, there in ((got, want), (got_folds, want_folds), (trained.logits_of(other), want)):
        assert here.shape == there.shape
        assert float((here - there).abs().max()) < LEVEL
    assert float((trained.own_logits - fits[name].own_logits).abs().max()) < LEVEL
    assert float((got[1:] - want[:-1]).abs().max()) > LEVEL, "the bound tells nodes apart"


@pytest.mark.slow
def test_columns_of_all_nodes_are_never_made(whole, small_is_large, monkeypatch):
    def refuse(self):
        raise AssertionError("the columns of all nodes were made")

    monkeypatch.setattr(columns.ColumnRows, "every", refuse)
    graph = dataclasses.replace(whole[0])
    fitted = fits_of(graph)["auto"]
    again = Mixture.from_state(*fitted.state())
    assert_identical(again.logits_of(graph), fitted.logits_of(graph))
    shared = {id(m.fitted.network.columns if m.name == "hops" else m.fitted.columns) for m in again.members[:3]}
    assert len(shared) == 1, "members of a stored mixture read their columns together"


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_rows_of_columns_are_rows_of_all_columns(hops, small_is_large):
    graph = random_graph(120)
    pays = Relation.of("pays", Csr.from_coo(torch.arange(50), torch.arange(60, 110), None, (120, 120)))
    graph = dataclasses.replace(graph, relations=(pays,))
    rows = columns.ColumnRows(graph, hops)
    want, names = rows.every(), rows.names
    assert want.shape[1] == len(names) == len(set(names))
    few, many = torch.tensor([7, 3, 119]), torch.randperm(120, generator=torch.Generator().manual_seed(0))
    for nodes in (few, many, few):  # before what lies between is made, while, and with it
        assert_identical(rows.at(nodes), want[nodes])


def test_a_graph_convolution_scores_all_nodes_without_propagating_a_feature(whole, small_is_large, monkeypatch):
    graph, nodes = dataclasses.replace(whole[0]), whole[0].split.train
    fitted = GcnTraining(epochs=15, hidden=4).fit(graph, nodes)
    want = fitted.logits_of(whole[0])
    widths = list[int]()
    monkeypatch.setattr(inputs, "product_of", lambda a, x, *more: pytest.fail("the product was made"))
    monkeypatch.setattr(first_layer, "propagate", lambda a, x: (widths.append(x.shape[1]), propagate(a, x))[1])
    assert float((fitted.logits_of(graph) - want).abs().max()) < LEVEL
    assert widths == [4]


def test_a_sample_scales_the_columns_of_a_large_graph_and_the_labels_are_in_it(small_is_large, monkeypatch):
    graph = random_graph(200)
    x = graph.x.clone()
    x[:, 0], x[17, 0] = 0.0, 1.0
    graph = dataclasses.replace(graph, x=x)
    whole = HopColumns.fit(graph, 0)
    assert "feature 0" in whole.scaled.feature_names
    monkeypatch.setattr(columns, "SAMPLE", 20)
    assert 17 not in columns._sample(200, 0)
    sampled = HopColumns.fit(graph, 0)
    assert "feature 0" not in sampled.scaled.feature_names
    assert "feature 0" in HopColumns.fit(graph, 0, labelled=torch.tensor([17, 3])).scaled.feature_names
    assert float((sampled.at(graph, torch.arange(200)) - whole.at(graph, torch.arange(200))[:, 1:]).abs().max()) < 2
