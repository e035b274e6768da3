"""The network is PyTorch Geometric's GCNConv stack, and is trained as it; nothing of it leaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from calirare.graph.graph import Graph
from calirare.models import GCN, GcnTraining, class_weights, fit
from calirare_ext import Csr, gcn_forward, gcn_norm, receptive_field
from tests.calirare.leave_one_out.cases import penalised_loss
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
    got = gcn_forward(receptive_field(a_hat, x, torch.arange(graph.n_nodes), n_layers), model.layers())
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


PLAIN = GcnTraining(epochs=30, dropout=0.0)
# Float32 rounding grows along the steps; a wrong step (a lost neighbour, a lost weight) is off by 1e-2 at once.
CURVE = 2e-4


def pyg_curve(graph, nodes, settings, sample_weights):
    """Trains GCNConv layers on the whole graph in float64 and returns the losses."""
    from torch_geometric.nn import GCNConv

    from calirare.models import GCN

    start = GCN(graph.n_features, graph.n_classes, hidden=settings.hidden, n_layers=settings.n_layers)
    start.reset_parameters(torch.Generator().manual_seed(settings.seed))
    layers = torch.nn.ModuleList(GCNConv(*weight.shape) for weight, _ in start.layers()).double()
    for layer, (weight, bias) in zip(layers, start.layers(), strict=True):
        layer.lin.weight.data.copy_(weight.detach().T)
        layer.bias.data.copy_(bias.detach())
    edges = torch.stack([graph.adjacency.rows(), graph.adjacency.indices.long()])
    optimiser = torch.optim.Adam(layers.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    losses = []
    for _ in range(settings.epochs):
        optimiser.zero_grad()
        h = graph.x.double()
        for i, layer in enumerate(layers):
            h = layer(F.relu(h) if i else h, edges)
        loss = (sample_weights.double() * F.cross_entropy(h[nodes], graph.y[nodes], reduction="none")).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_the_loss_curve_is_that_of_gcnconv_on_the_whole_graph(n_layers):
    graph = rare_task()
    nodes = graph.split.train[:9]
    settings = GcnTraining(epochs=30, dropout=0.0, n_layers=n_layers)
    trained = fit(graph, nodes, settings)
    assert trained.field.inputs.shape[0] <= graph.n_nodes
    want = pyg_curve(graph, nodes, settings, class_weights(graph.y[nodes], 2)[graph.y[nodes]])
    assert np.abs(np.subtract(trained.losses, want)).max() <= CURVE
    assert want[0] - want[-1] > 100 * CURVE, "there is a curve"


def test_class_weights_give_every_class_the_same_say():
    targets = torch.tensor([0, 0, 0, 1, 2, 2])
    weights = class_weights(targets, 4)
    assert weights.tolist() == [6 / 9, 6 / 3, 6 / 6, 0.0]
    assert weights[targets].mean() == 1.0
    assert class_weights(torch.tensor([1, 1]), 2).tolist() == [0.0, 1.0]


def test_the_same_settings_give_the_same_network_and_another_seed_another():
    graph, settings = rare_task(), GcnTraining(epochs=5)
    a, b = (fit(graph, graph.split.train, settings) for _ in range(2))
    for one, other in zip(a.model.parameters(), b.model.parameters(), strict=True):
        assert_identical(one, other)
    assert a.losses == b.losses
    c = fit(graph, graph.split.train, GcnTraining(epochs=5, seed=1))
    assert c.losses != a.losses


def test_training_neither_reads_nor_moves_the_global_random_numbers():
    graph, settings = rare_task(), GcnTraining(epochs=3)
    torch.manual_seed(123)
    before = torch.random.get_rng_state()
    one = fit(graph, graph.split.train, settings)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(456)
    assert fit(graph, graph.split.train, settings).losses == one.losses


def test_looking_at_checkpoints_changes_nothing():
    graph, settings = rare_task(), GcnTraining(epochs=6)
    seen, steps = [], []

    def look(epoch, so_far):
        seen.append((epoch, so_far.model.training, so_far.linearisation.logits.shape, len(so_far.losses)))

    looked = settings.fit(graph, graph.split.train, every=2, at_checkpoint=look, progress=steps.append)
    assert seen == [(2, False, (40, 2), 2), (4, False, (40, 2), 4), (6, False, (40, 2), 6)]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert looked.losses == fit(graph, graph.split.train, settings).losses
    assert not looked.model.training


def test_a_checkpoint_may_end_training():
    graph = rare_task()
    stopped = GcnTraining(epochs=9).fit(graph, graph.split.train, every=2, at_checkpoint=lambda epoch, _: epoch == 4)
    assert len(stopped.losses) == 4
    assert stopped.losses == fit(graph, graph.split.train, GcnTraining(epochs=4)).losses


def test_the_gradient_norm_falls_to_nothing_at_the_minimum():
    graph = rare_task()
    settings = GcnTraining(epochs=1, dropout=0.0, n_layers=1, weight_decay=0.1, learning_rate=0.1)
    early = fit(graph, graph.split.train, settings)
    late = fit(graph, graph.split.train, GcnTraining(**{**vars(settings), "epochs": 400}))
    assert late.gradient_norm() < 1e-4 * early.gradient_norm()
    loss = penalised_loss(early.model, early.field, early.targets, early.sample_weights, 0.1)
    gradients = torch.autograd.grad(loss, list(early.model.parameters()))
    assert early.gradient_norm() == pytest.approx(
        float(sum(g.square().sum() for g in gradients).sqrt()), rel=1e-6, abs=0
    )


def test_a_node_without_a_label_is_refused():
    graph = rare_task()
    y = graph.y.clone()
    y[3] = -1
    with pytest.raises(ValueError, match="fit: nodes must be labelled"):
        fit(type(graph)(graph.adjacency, graph.x, y), torch.tensor([1, 3]), PLAIN)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"hidden": 0},
        {"n_layers": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"weight_decay": 0.0},
        {"weight_decay": -1.0},
        {"dropout": 1.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=f"GcnTraining: {next(iter(wrong))} must be "):
        GcnTraining(**wrong)
