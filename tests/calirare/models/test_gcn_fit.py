"""Training on the receptive field is training on the whole graph, deterministic, and quiet about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from calirare.models import GcnTraining, class_weights, fit
from tests.calirare.leave_one_out.cases import penalised_loss
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

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
