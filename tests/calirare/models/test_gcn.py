"""The network is PyTorch Geometric's GCNConv stack, and nothing of it leaks."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from calirare.graph.graph import Graph
from calirare.models import GCN
from calirare_ext import Csr, gcn_forward, gcn_norm, propagate, receptive_field
from tests.helpers.graphs import random_graph, small_graph
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound


def weighted(graph: Graph) -> Graph:
    """Returns the graph with symmetric weights."""
    a = graph.adjacency
    u, v = a.rows(), a.indices.long()
    values = 0.5 + ((u + v) * (u * v + 1) % 7).to(torch.float32)
    return Graph(type(a)(a.indptr, a.indices, values, a.n_cols), graph.x, graph.y, name="weighted")


def pyg_logits(graph: Graph, model: GCN, activity: bool = False) -> torch.Tensor:
    """Runs GCNConv layers with the model's weights in float64; with `activity` on absolute values throughout."""
    from torch_geometric.nn import GCNConv

    edges = torch.stack([graph.adjacency.rows(), graph.adjacency.indices.long()])
    weights = graph.adjacency.values.double()
    h = graph.x.double().abs() if activity else graph.x.double()
    for i, (weight, bias) in enumerate(model.layers()):
        layer = GCNConv(*weight.shape).double()
        with torch.no_grad():
            layer.lin.weight.copy_((weight.abs() if activity else weight).T)
            layer.bias.copy_(bias.abs() if activity else bias)
            h = layer(F.relu(h) if i else h, edges, weights)
    return h


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("graph", [rare_task(), weighted(random_graph()), small_graph()], ids=lambda g: g.name)
def test_the_network_is_a_stack_of_gcnconv(graph, n_layers, dtype):
    model = GCN(graph.n_features, max(graph.n_classes, 2), hidden=5, n_layers=n_layers)
    model.reset_parameters(torch.Generator().manual_seed(1))
    for bias in model.biases:
        torch.nn.init.normal_(bias, generator=torch.Generator().manual_seed(2))
    model = model.double() if dtype == torch.float64 else model
    a_hat, x = gcn_norm(graph.adjacency.to(dtype)), graph.x.to(dtype)
    got = gcn_forward(
        receptive_field(a_hat, propagate(a_hat, x), torch.arange(graph.n_nodes), n_layers), model.layers()
    )
    degree = int((graph.adjacency.indptr[1:] - graph.adjacency.indptr[:-1]).max())
    # Each layer sums over neighbours and inputs, and normalises and adds a bias.
    terms = n_layers * (degree + 1 + 8) + graph.n_features + (n_layers - 1) * 5
    want = pyg_logits(graph, model)
    bound = sum_bound(want, terms, pyg_logits(graph, model, activity=True), out=dtype)
    assert_within(got, want, bound)
    if dtype == torch.float32:
        assert_within(model.eval()(graph), want, bound)


def test_only_the_wanted_nodes_are_computed():
    graph = rare_task()
    model = GCN(graph.n_features, 2).eval()
    nodes = torch.tensor([7, 3, 250])
    assert_identical(model(graph, nodes), model(graph)[nodes])
    assert_identical(model.logits(graph), model(graph))


def test_logits_leave_the_mode_and_the_gradients_alone():
    graph = rare_task()
    model = GCN(graph.n_features, 2, dropout=0.9)
    model.train()
    assert not model.logits(graph).requires_grad
    assert model.training
    assert_identical(model.logits(graph), model.logits(graph))
    assert not torch.equal(model(graph), model(graph)), "dropout acts while training"
    model.eval()
    model.logits(graph)
    assert not model.training


@pytest.mark.slow
def test_dropout_spares_the_inputs_and_keeps_the_mean():
    graph = rare_task()
    one = GCN(graph.n_features, 2, n_layers=1, dropout=0.9)
    assert_identical(one.train()(graph), one.eval()(graph))
    model = GCN(graph.n_features, 2, dropout=0.5).train()
    torch.manual_seed(0)
    draws = torch.stack([model(graph) for _ in range(400)]).detach()
    error = draws.std(0) / 400**0.5
    assert bool(((draws.mean(0) - model.logits(graph)).abs() <= 5 * error).all()), "five standard errors"


def test_parameters_are_drawn_from_the_generator_alone():
    a, b = GCN(6, 2), GCN(6, 2)
    for model in (a, b):
        model.reset_parameters(torch.Generator().manual_seed(3))
    for one, other in zip(a.parameters(), b.parameters(), strict=True):
        assert_identical(one, other)
    limit = (6 / (6 + 16)) ** 0.5
    assert 0.9 * limit < float(a.weights[0].detach().abs().max()) <= limit, "Glorot uniform"
    assert all(not bias.any() for bias in a.biases)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_features": 0},
        {"n_classes": 1},
        {"hidden": 0},
        {"n_layers": 0},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"dropout": float("nan")},
    ],
)
def test_a_size_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=f"GCN: {next(iter(wrong))} must be "):
        GCN(**{"n_features": 3, "n_classes": 2, **wrong})


def test_another_feature_width_is_refused():
    with pytest.raises(ValueError, match="built for 7 features, graph 'task' has 6"):
        GCN(7, 2)(rare_task())


def test_weights_and_adjacency_are_float32_whatever_torchs_default_is() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert {p.dtype for p in GCN(3).parameters()} == {torch.float32}
        assert Csr.from_coo(torch.tensor([0]), torch.tensor([1]), None, (2, 2)).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
