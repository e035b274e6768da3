"""Hop columns: own features beside the neighbours' means, scaled by what one graph holds."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest
import torch

from calirare.features import FeatureMap
from calirare.graph import Graph, Relation
from calirare.models import HopColumns
from calirare.models.columns import _KEPT, _raw
from calirare_ext import Csr
from tests.helpers.graphs import random_graph
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
