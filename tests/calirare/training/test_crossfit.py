"""Cross-validation: each label held out once, by networks that never saw it."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch

from calirare.models import (
    GcnTraining,
    MlpTraining,
    class_weights,
    cross_fitted_logits,
    fold_of,
    folds_for,
    gcn_training,
)
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

SETTINGS = GcnTraining(epochs=4)
ONE_BY_ONE = GcnTraining(epochs=4, order="propagated")


@pytest.mark.parametrize("n_folds", [2, 7])
def test_folds_are_of_one_size_within_every_class(n_folds):
    targets = torch.tensor([0] * 23 + [1] * 9 + [2] * 2)[torch.randperm(34, generator=torch.Generator().manual_seed(0))]
    fold = fold_of(targets, n_folds, seed=5)
    assert torch.equal(fold, fold_of(targets, n_folds, seed=5))
    assert not torch.equal(fold, fold_of(targets, n_folds, seed=6))
    for members in (targets >= 0, targets == 0, targets == 1, targets == 2):
        sizes = torch.bincount(fold[members], minlength=n_folds)
        assert int(sizes.max() - sizes.min()) <= 1


def test_each_nodes_logits_come_from_a_network_without_its_fold():
    graph = rare_task()
    nodes = graph.split.train
    fold = fold_of(graph.y[nodes], 3, ONE_BY_ONE.seed)
    done = []
    got = cross_fitted_logits(graph, nodes, ONE_BY_ONE, n_folds=3, progress=done.append)
    assert done == [1, 2, 3]
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]]
    for k in range(3):
        kept = fold != k
        trained = ONE_BY_ONE.fit(graph, nodes[kept], sample_weights=weights[kept])
        assert_identical(got[fold == k], trained.model(graph, nodes[fold == k]).detach())


@cache
def one_by_one(detector, n_classes):
    """Logits by folds that were trained one after the other, and those of a network that no label was left out of."""
    graph = rare_task(n_classes=n_classes)
    nodes, plain = graph.split.train, dataclasses.replace(detector, order="propagated")
    return cross_fitted_logits(graph, nodes, plain, n_folds=4), detector.fit(graph, nodes).logits_of(graph, nodes)


@pytest.mark.parametrize(
    ("detector", "n_classes", "together"),
    [
        (GcnTraining(epochs=6, dropout=0.0), 2, 1_000_000),
        (GcnTraining(epochs=6, dropout=0.0, n_layers=1), 3, 1_000_000_000),
        (GcnTraining(epochs=6, dropout=0.0, n_layers=3, hidden=4), 3, 1_000_000),
        (MlpTraining(epochs=6, dropout=0.0, hidden=4), 2, 1_000_000_000),
    ],
    ids=["two layers", "one layer", "three layers", "hop columns"],
)
def test_folds_side_by_side_are_folds_one_by_one(detector, n_classes, together, monkeypatch):
    monkeypatch.setattr(gcn_training, "TOGETHER", together)
    graph = rare_task(n_classes=n_classes)
    nodes, done = graph.split.train, []
    got = cross_fitted_logits(graph, nodes, detector, n_folds=4, progress=done.append)
    assert done == [1, 2, 3, 4]
    want, wrong = one_by_one(detector, n_classes)
    scale = 100 * want.double().abs().max().expand_as(want)
    assert_within(got, want.double(), sum_bound(want.double(), 50, scale, out=torch.float32))
    assert float((wrong - want).abs().max()) > 100 * float((got - want).abs().max())


def test_folds_side_by_side_with_dropout_are_drawn_apart():
    graph = rare_task()
    nodes = graph.split.train
    fold = fold_of(graph.y[nodes], 2, 0)
    weights = torch.ones(nodes.numel())
    parameters, logits = SETTINGS.without_folds(graph, nodes, fold, weights)
    again, _ = SETTINGS.without_folds(graph, nodes, fold, weights)
    assert_identical(parameters, again)
    network = SETTINGS.start(graph, nodes)
    network.move_to(parameters[1])
    assert float((network.label_logits[fold == 1] - logits[fold == 1]).abs().max()) < 1e-5
    plain, _ = dataclasses.replace(SETTINGS, dropout=0.0).without_folds(graph, nodes, fold, weights)
    assert float((plain - parameters).abs().max()) > 1e-3


@pytest.mark.parametrize("detector", [SETTINGS, ONE_BY_ONE], ids=["together", "one by one"])
def test_some_folds_alone_are_left_out(detector):
    graph = rare_task()
    nodes, done = graph.split.train, []
    every = cross_fitted_logits(graph, nodes, detector, n_folds=4)
    some = cross_fitted_logits(graph, nodes, detector, n_folds=4, left_out=2, progress=done.append)
    assert done == [1, 2]
    judged = fold_of(graph.y[nodes], 4, detector.seed) < 2
    assert_within(some[judged], every[judged].double(), torch.full((20, 2), 1e-5, dtype=torch.float64))
    assert bool(some[~judged].isnan().all())
    assert_identical(cross_fitted_logits(graph, nodes, detector, n_folds=4, left_out=9), every)


def test_as_many_folds_are_left_out_as_hold_the_labels_that_are_wanted():
    targets = torch.tensor([0] * 900 + [2] * 100)
    assert folds_for(targets, 5, 200, 0) == 1
    assert folds_for(targets, 5, 201, 0) == 2
    assert folds_for(targets, 5, 0, 20) == 1
    assert folds_for(targets, 5, 200, 41) == 3
    assert folds_for(targets, 5, 1001, 0) == 5
    assert folds_for(targets, 5, 0, 101) == 5
    assert folds_for(targets, 5, 0, 0) == 1


@pytest.mark.parametrize("n_folds", [0, 1, 41])
def test_a_number_of_folds_out_of_range_is_refused(n_folds):
    graph = rare_task()
    with pytest.raises(ValueError, match=rf"n_folds must be in \[2, 40\], got {n_folds}"):
        cross_fitted_logits(graph, graph.split.train, SETTINGS, n_folds=n_folds)


def test_a_graph_without_labels_is_refused():
    graph = rare_task()
    with pytest.raises(ValueError, match="must have labels"):
        cross_fitted_logits(type(graph)(graph.adjacency, graph.x), torch.arange(4), SETTINGS)
