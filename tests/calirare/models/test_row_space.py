"""Networks on far more columns than labels are trained in the space that the labels' rows span."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.models import GcnTraining, HopColumns, MlpTraining, fold_converged, fold_network, row_space, unflatten
from calirare.models.row_space import RowSpace
from calirare_ext import as_dense
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_within, sum_bound

D = 300  # columns of a node, more than there are labels


def wide_task():
    graph = rare_task()
    x = torch.randn(graph.n_nodes, D, generator=torch.Generator().manual_seed(1))
    x[:, :6] += graph.x
    return dataclasses.replace(graph, x=x)


def detectors(**settings):
    graph = wide_task()
    columns = HopColumns.fit(graph, 2, 0, graph.split.train)
    return [(MlpTraining(columns=columns, **settings), graph), (GcnTraining(**settings), graph)]


def narrow(monkeypatch):
    monkeypatch.setattr(row_space, "WIDE", 100)


def double(detector, graph):
    return detector.start(graph, graph.split.train).as_dtype(graph, torch.float64)


def test_many_rows_are_left_as_they_are(monkeypatch):
    narrow(monkeypatch)
    detector, graph = detectors()[0]
    start = detector.start(graph, graph.split.train)
    monkeypatch.setattr(row_space, "MOST_ROWS", graph.split.train.numel())
    assert RowSpace.of(start).root is not None
    monkeypatch.setattr(row_space, "MOST_ROWS", graph.split.train.numel() - 1)
    assert RowSpace.of(start).fitted is start


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_loss_and_gradient_in_the_space_are_those_of_the_wide_network(which, n_layers, monkeypatch):
    narrow(monkeypatch)
    detector, graph = detectors(n_layers=n_layers, hidden=5)[which]
    space = RowSpace.of(double(detector, graph))
    assert space.fitted.model.n_features == space.wide.field.features.shape[0] < space.wide.model.n_features
    theta = space.fitted.theta + 0.1 * torch.randn(space.fitted.theta.shape, generator=torch.Generator().manual_seed(2))
    lifted = space.lifted(theta)
    (inner, slope), (loss, gradient) = space.fitted.objective(theta), space.wide.objective(lifted)
    t = 4 * space.wide.model.n_features

    def same(found, wanted):
        scale = torch.linalg.cond(as_dense(space.wide.field.features)) * wanted.abs().max().expand_as(wanted)
        assert_within(found, wanted, sum_bound(wanted, t, scale, out=torch.float64))

    same(torch.tensor([inner]).double(), torch.tensor([loss]).double())
    same(lifted.square().sum()[None], theta.square().sum()[None])
    same(space.lifted(slope), gradient)


@pytest.mark.parametrize("which", [0, 1])
def test_the_minimum_of_a_linear_model_is_that_of_the_wide_one(which, monkeypatch):
    detector, graph = detectors(n_layers=1, weight_decay=0.01)[which]
    wide, _ = detector.fit_to_convergence(graph, graph.split.train, tolerance=1e-8)
    folds = fold_converged(detector, graph, wide, 4)
    narrow(monkeypatch)
    found, ended = detector.fit_to_convergence(graph, graph.split.train, tolerance=1e-8)
    assert ended.converged
    # Of a function that is strongly convex with mu the minimum is no further off than |gradient| / mu.
    away = (found.gradient_norm() + wide.gradient_norm()) / detector.weight_decay
    assert float((found.theta - wide.theta).norm()) <= away
    again = fold_converged(detector, graph, wide, 4)
    bound = 2 * 1e-4 / detector.weight_decay * as_dense(wide.field.features).norm(dim=1).max()
    assert float((again.own_logits - folds.own_logits).abs().max()) <= float(bound)
    z = again.all_logits_of(graph, graph.split.train)[1]
    assert_within_logits(z, again)


def assert_within_logits(z, folded):
    """Checks that each label's own logits are those of the network without its fold."""
    own = z[folded.fold, torch.arange(folded.fold.numel())].double()
    x = as_dense(folded.network.field.features).double()
    layers = [unflatten(theta.double(), folded.network.shapes) for theta in folded.theta]
    largest = max(each[0][0].norm(dim=0).max() for each in layers)
    later = max(1 + each[-1][0].norm() for each in layers)
    absolute = (x.norm(dim=1).max() * (1 + largest) * later).expand_as(own)
    acc = torch.float32 if folded.network.theta.dtype == torch.float32 else torch.float64
    assert_within(own, folded.own_logits, sum_bound(folded.own_logits, 2 * x.shape[1], absolute, out=acc))


@pytest.mark.parametrize("which", [0, 1])
def test_networks_trained_in_the_space_say_the_same_as_wide_ones(which, monkeypatch):
    narrow(monkeypatch)
    detector, graph = detectors(epochs=30, hidden=5)[which]
    fitted = detector.fit(graph, graph.split.train)
    assert fitted.model.n_features == (901 if which == 0 else 300)
    assert fitted.losses[-1] < fitted.losses[0] / 2
    folded = fold_network(detector, graph, fitted, 4)
    assert_within_logits(folded.all_logits_of(graph, graph.split.train)[1], folded)
    w = fitted.model.weights[0].detach().double()
    x = as_dense(fitted.field.features).double()
    outside = w - x.T @ torch.linalg.lstsq(x.T, w).solution
    assert float(outside.norm() / w.norm()) < 1e-4  # nothing in W_1 that no label has


def test_rows_that_are_alike_span_less(monkeypatch):
    narrow(monkeypatch)
    graph = wide_task()
    x = graph.x.clone()
    x[graph.split.train[1:20]] = x[graph.split.train[0]].clone()
    graph = dataclasses.replace(graph, x=x)
    columns = HopColumns.fit(graph, 0, 0, graph.split.train)
    detector = MlpTraining(columns=columns, epochs=20, hidden=5)
    space = RowSpace.of(double(detector, graph))
    gram = as_dense(space.fitted.field.features)
    assert int(torch.linalg.matrix_rank(gram)) == graph.split.train.numel() - 19
    assert bool(detector.fit(graph, graph.split.train).theta.isfinite().all())
