"""A_hat X, computed once per graph."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest
import torch

from calirare.graph import convolution as module
from calirare.graph.convolution import LazyPropagation, propagation
from calirare_ext import Csr
from tests.helpers.graphs import small_adjacency, small_graph
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound


def dense_a_hat(graph) -> torch.Tensor:
    a = graph.adjacency.to_dense().double() + torch.eye(graph.n_nodes, dtype=torch.float64)
    root = a.sum(1).rsqrt()
    return root[:, None] * a * root[None, :]


def sparse_features(graph) -> Csr:
    x = torch.where(graph.x > 1.0, graph.x, torch.zeros_like(graph.x))
    return Csr.from_dense(x)


@pytest.mark.parametrize("kind", ["dense", "sparse", "nearly empty"])
def test_inputs_are_a_hat_x(kind):
    graph = rare_task()
    if kind != "dense":
        x = sparse_features(graph) if kind == "sparse" else Csr.from_dense((graph.x > 2.9) * graph.x)
        graph = type(graph)(graph.adjacency, x, graph.y)
    made = propagation(graph)
    assert isinstance(made.inputs, Csr) == (kind == "nearly empty"), "sparse only as long as that is faster"
    x = (graph.x.to_dense() if isinstance(graph.x, Csr) else graph.x).double()
    want = dense_a_hat(graph) @ x
    got = made.inputs.to_dense() if isinstance(made.inputs, Csr) else made.inputs
    degree = int((graph.adjacency.indptr[1:] - graph.adjacency.indptr[:-1]).max())
    assert_within(got, want, sum_bound(want, degree + 9, dense_a_hat(graph) @ x.abs(), out=torch.float32))
    assert (made.n_nodes, made.n_features) == (260, 6)


def test_weights_count():
    graph = small_graph(adjacency=small_adjacency([1, 1, 2, 2, 3, 3, 4, 4]))
    got = propagation(graph).a_hat.to_dense()
    want = dense_a_hat(graph)
    assert_within(got, want, sum_bound(want, 12, want.abs(), out=torch.float32))
    assert float(want[1, 3]) == pytest.approx(4 / np.sqrt(8 * 8), rel=1e-12, abs=0)


@pytest.mark.parametrize("kind", ["dense", "sparse", "large"])
def test_two_hops_are_a_hat_squared_x(kind, monkeypatch):
    graph = small_graph(feature_normalisation="row")
    dense = graph.x
    if kind == "sparse":
        graph = dataclasses.replace(graph, x=Csr.from_dense(dense))
    if kind == "large":
        monkeypatch.setattr(module, "LARGE", 1)
    made = propagation(graph, 2)
    assert isinstance(made, LazyPropagation) == (kind == "large")
    a_hat = dense_a_hat(graph)
    rows = dense.double() / dense.double().sum(1, keepdim=True)
    want = a_hat @ a_hat @ rows
    some = torch.tensor([3, 0])
    for found, expected in ((made.field(some, 1).inputs, want[some]), (made.inputs, want)):
        got = found.to_dense() if isinstance(found, Csr) else found
        assert_within(got, expected, sum_bound(expected, 40, expected.abs(), out=torch.float32))
    assert propagation(graph, 2) is made
    assert made.a_hat is propagation(graph).a_hat
    with pytest.raises(ValueError, match="propagation: hops must be at least 0, got -1"):
        propagation(graph, -1)


def test_features_are_scaled_as_the_graph_wants():
    graph = small_graph(feature_normalisation="row")
    rows = graph.x.double() / graph.x.double().sum(1, keepdim=True)
    want = dense_a_hat(graph) @ rows
    assert_within(propagation(graph).inputs, want, sum_bound(want, 15, dense_a_hat(graph) @ rows, out=torch.float32))


def test_it_is_computed_once_and_goes_with_its_graph(monkeypatch):
    graph = small_graph()
    made = propagation(graph)
    monkeypatch.setattr(module, "gcn_norm", lambda a: pytest.fail("computed again"))
    assert propagation(graph) is made
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
    assert made not in module._KEPT.values()


def test_another_type_holds_the_same_numbers():
    made = propagation(rare_task())
    assert_identical(made.to(torch.float64).inputs, made.inputs.double())
    assert made.to(torch.float64).a_hat.dtype == torch.float64
