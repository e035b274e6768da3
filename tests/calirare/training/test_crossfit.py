"""Cross-validation: each label held out once, by networks that never saw it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare.models import GcnTraining
from calirare.training import class_weights, cross_fitted_logits, fold_of
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

SETTINGS = GcnTraining(epochs=4)


@pytest.mark.parametrize("n_folds", [2, 3, 7])
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
    fold = fold_of(graph.y[nodes], 3, SETTINGS.seed)
    done = []
    got = cross_fitted_logits(graph, nodes, SETTINGS, n_folds=3, progress=done.append)
    assert done == [1, 2, 3]
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]]
    for k in range(3):
        kept = fold != k
        trained = SETTINGS.fit(graph, nodes[kept], sample_weights=weights[kept])
        assert_identical(got[fold == k], trained.model(graph, nodes[fold == k]).detach())


def test_a_label_has_no_say_in_its_own_logits(monkeypatch):
    graph = rare_task()
    nodes = graph.split.train
    fold = fold_of(graph.y[nodes], 4, 0)
    # Two nodes of one fold change classes, so that folds and class weights stay.
    a = int(((graph.y[nodes] == 0) & (fold == 1)).nonzero()[0])
    b = int(((graph.y[nodes] == 1) & (fold == 1)).nonzero()[0])
    y = graph.y.clone()
    y[nodes[a]], y[nodes[b]] = 1, 0
    other = type(graph)(graph.adjacency, graph.x, y)
    monkeypatch.setattr("calirare.training.crossfit.fold_of", lambda targets, n_folds, seed: fold)
    before = cross_fitted_logits(graph, nodes, SETTINGS, n_folds=4)
    after = cross_fitted_logits(other, nodes, SETTINGS, n_folds=4)
    assert_identical(before[fold == 1], after[fold == 1])
    assert not torch.equal(before[fold != 1], after[fold != 1])


@pytest.mark.parametrize("n_folds", [0, 1, 41])
def test_a_number_of_folds_out_of_range_is_refused(n_folds):
    graph = rare_task()
    with pytest.raises(ValueError, match=rf"n_folds must be in \[2, 40\], got {n_folds}"):
        cross_fitted_logits(graph, graph.split.train, SETTINGS, n_folds=n_folds)


def test_a_graph_without_labels_is_refused():
    graph = rare_task()
    with pytest.raises(ValueError, match="must have labels"):
        cross_fitted_logits(type(graph)(graph.adjacency, graph.x), torch.arange(4), SETTINGS)


def test_one_fold_per_label_is_leave_one_out():
    graph = rare_task()
    nodes = graph.split.train[np.r_[0:3, 37:40]]
    got = cross_fitted_logits(graph, nodes, SETTINGS, n_folds=6)
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]]
    for i in range(6):
        kept = torch.arange(6) != i
        trained = SETTINGS.fit(graph, nodes[kept], sample_weights=weights[kept])
        assert_identical(got[i : i + 1], trained.model(graph, nodes[i : i + 1]).detach())
