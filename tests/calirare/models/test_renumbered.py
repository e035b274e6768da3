"""Nodes in another order have the columns they had, to the last bit, and what detectors of columns say of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from calirare.models import HopColumns, MlpTraining, TreesTraining
from calirare_ext import Csr, propagate, row_sums
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

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
