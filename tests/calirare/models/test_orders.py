"""A_hat (X W), (A_hat X) W and the space of the rows: the cheaper is taken, and every answer is the same."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from calirare.graph import Graph, propagation
from calirare.graph.convolution import FactoredPropagation, cheapest
from calirare.leave_one_out import ALO, OwnLogits, leave_one_out
from calirare.models import (
    GcnFit,
    GcnTraining,
    HopColumns,
    MlpTraining,
    fold_converged,
    fold_network,
    of_network,
    row_space,
    unflatten,
)
from calirare.models.row_space import RowSpace
from calirare_ext import Csr, Factored, as_dense, multiply_adds, propagate
from tests.helpers.graphs import random_graph
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

NODES = torch.arange(0, 120, 3)


def words(n_classes: int = 2, share: float = 0.03, n_words: int = 300) -> Graph:
    generator = torch.Generator().manual_seed(1)
    x = (torch.rand(150, n_words, generator=generator) < share) * torch.rand(150, n_words, generator=generator)
    return random_graph(150, n_classes, seed=3, x=Csr.from_dense(x))


def in_both_orders(graph: Graph, n_layers: int = 2, hops: int = 1) -> tuple[GcnFit, GcnFit]:
    """The same random network, float64, in factors and multiplied out."""
    fits = []
    for order in ("auto", "propagated"):
        training = GcnTraining(order=order, n_layers=n_layers, hops=hops, hidden=5)
        model = training.network(graph.n_features, graph.n_classes).double().eval()
        fits.append(of_network(model, graph, NODES, 5e-3))
    return fits[0], fits[1]


def close(found: Tensor, want: Tensor, what: str) -> None:
    """A_hat X multiplied out is rounded to float32, once for each of a row's few terms; all else is float64."""
    scale = 10 * want.abs().max().expand_as(want).double()
    assert_within(found, want.double(), sum_bound(want.double(), 20, scale, out=torch.float32), what)


@pytest.mark.slow
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize(("n_layers", "n_classes"), [(1, 2), (2, 2), (2, 4), (3, 3)])
def test_every_answer_is_that_of_the_other_order(n_layers: int, n_classes: int, hops: int) -> None:
    graph = words(n_classes)
    ours, other = in_both_orders(graph, n_layers, hops)
    assert hops > 1 or n_layers == 1 or isinstance(ours.field.features, Factored)
    assert not isinstance(other.field.features, Factored)
    close(ours.logits_of(graph), other.logits_of(graph), "logits")
    loss, gradient = ours.objective(ours.theta)
    expected, other_gradient = other.objective(other.theta)
    close(torch.tensor([loss]), torch.tensor([expected]), "loss")
    close(gradient, other_gradient, "gradient")
    close(ours.linearisation.kernel, other.linearisation.kernel, "kernel")
    close(ours.linearisation.jacobian, other.linearisation.jacobian, "Jacobian")
    close(OwnLogits(ours.linearisation)(0.05), OwnLogits(other.linearisation)(0.05), "own logits")
    for method in (ALO(damping=0.05), ALO(damping=0.05, form="jacobian"), ALO(damping=0.05, form="primal")):
        found, want = leave_one_out(ours, graph, method), leave_one_out(other, graph, method)
        close(found.change, want.change, f"leave-one-out by {method}")


def test_training_in_both_orders_ends_at_the_same_network() -> None:
    graph = words()
    ours = GcnTraining(epochs=30, hidden=5, dropout=0.0).fit(graph, NODES)
    other = GcnTraining(epochs=30, hidden=5, dropout=0.0, order="propagated").fit(graph, NODES)
    assert isinstance(ours.field.features, Factored)
    assert ours.losses[0] != ours.losses[-1]
    apart = max(abs(a - b) for a, b in zip(ours.losses, other.losses, strict=True))
    assert apart < 1e-4 * ours.losses[0]


def test_the_cheapest_form_is_taken() -> None:
    a = propagation(words()).a_hat
    few, filled = words(share=0.03), words(share=0.9)
    wide = words(share=0.004, n_words=400)
    product = Factored(a, few.x)
    assert isinstance(cheapest(product), Factored)
    assert multiply_adds(product) < as_dense(product).count_nonzero() < multiply_adds(Factored(a, filled.x))
    assert isinstance(cheapest(Factored(a, filled.x)), torch.Tensor)
    # Few rows of a product of few words: A_hat's own entries outweigh what is saved.
    row = Factored(a.select_rows(torch.tensor([0])), Csr.from_dense(torch.eye(150, 400)[torch.zeros(150).long()]))
    assert isinstance(cheapest(row), Csr)
    dense = as_dense(wide.x)
    assert_identical(cheapest(Factored(a, dense)), propagate(a, dense))


def test_order_propagated_is_the_matrix_as_it_was() -> None:
    graph = words()
    kept = propagation(graph, 1, "propagated")
    assert not isinstance(kept, FactoredPropagation)
    assert kept is propagation(graph, 1, "propagated")
    assert kept is not propagation(graph)
    assert kept.a_hat is propagation(graph).a_hat
    want = as_dense(kept.inputs)
    assert_identical(as_dense(propagation(graph).inputs), want)
    assert_identical(as_dense(kept.field(NODES, 1).features), want[NODES])
    with pytest.raises(ValueError, match="propagation: order must be one of auto, propagated, got 'best'"):
        propagation(graph, 1, "best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="GcnTraining: order must be one of auto, propagated, got 'best'"):
        GcnTraining(order="best")  # type: ignore[arg-type]


def test_a_fit_tells_its_factors_and_comes_back() -> None:
    ours, _ = in_both_orders(words())
    tensors, facts = ours.state()
    back = GcnFit.from_state(tensors, facts)
    assert back.model.order == "auto"
    assert isinstance(back.field.features, Factored)
    assert_identical(back.logits_at_labels(), ours.logits_at_labels())
    assert_identical(back.linearise().kernel, ours.linearise().kernel)


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


def test_rows_of_a_product_are_taken_from_the_whole_where_they_are_many() -> None:
    kept = propagation(words())
    assert getattr(kept.field(NODES[:2], 2).features, "whole", None) is None, "few rows do not make all of them"
    features = kept.field(NODES, 2).features
    assert isinstance(features, Factored)
    assert features.whole is not None
    assert_identical(as_dense(features), as_dense(dataclasses.replace(features, whole=None)), "A X at the rows")
