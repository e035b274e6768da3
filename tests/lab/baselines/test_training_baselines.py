"""Losses, mixup and the authors' recipe against formulas worked out another way."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

from calirare.datasets import synthetic_rare
from calirare.graph import Graph, normalize_features, propagation
from calirare.models import GCN, GcnFit, GcnTraining, class_weights, cross_entropy, fit
from calirare_lab.baselines import (
    OfficialSettings,
    class_weighted_smoothing_loss,
    early_stopping,
    focal_loss,
    label_smoothing_loss,
    official_probabilities,
    train_cagcn_base,
    train_official,
    train_with_loss,
)
from calirare_lab.baselines.mixup import mixed_logits
from tests.helpers.tolerance import assert_alike

QUICK = GcnTraining(epochs=15, hidden=4, order="propagated")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_rare(300, seed=1, share=0.2, n_features=6)


def test_class_weighted_smoothing_is_torchs() -> None:
    logits, targets = torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 3
    of_class = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    summed = torch.nn.functional.cross_entropy(logits, targets, weight=of_class, label_smoothing=0.2, reduction="sum")
    value = class_weighted_smoothing_loss(logits, targets, of_class[targets], 0.2)
    assert float(value) == pytest.approx(float(summed) / 9, rel=1e-12)
    plain = class_weighted_smoothing_loss(logits, targets, of_class[targets], 0.0)
    assert float(plain) == pytest.approx(
        float(label_smoothing_loss(logits, targets, of_class[targets], 0.0)), rel=1e-12
    )


def test_focal_loss_by_hand_and_without_focus() -> None:
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]], dtype=torch.float64)
    targets, weights = torch.tensor([1, 0]), torch.tensor([1.0, 3.0]).double()
    expected = (-((1 / 4) ** 2) * math.log(3 / 4) + 3 * (1 / 2) ** 2 * math.log(2)) / 2
    assert float(focal_loss(logits, targets, weights, 2.0)) == pytest.approx(expected, rel=1e-12)
    plain = cross_entropy(logits, targets, weights)
    assert float(focal_loss(logits, targets, weights, 0.0)) == pytest.approx(float(plain), rel=1e-12)


def test_training_with_the_cross_entropy_is_fit(graph: Graph) -> None:
    nodes = torch.arange(60)
    ours = train_with_loss(graph, nodes, QUICK, cross_entropy)
    theirs = fit(graph, nodes, QUICK).model
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    smoothed = train_with_loss(graph, nodes, QUICK, label_smoothing_loss)
    assert not torch.equal(smoothed.weights[0], theirs.weights[0])


@pytest.mark.slow
def test_cagcn_base_keeps_the_best_epoch_before_patience_ends(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PATIENCE", 4), ("MAX_EPOCHS", 150), ("HIDDEN", 5)):
        monkeypatch.setattr(early_stopping, name, value)
    nodes, validation = torch.arange(60), torch.arange(60, 160)
    assert graph.y is not None
    losses, weights = [], []

    def watch(epoch: int, trained: GcnFit) -> None:
        logits = trained.model.logits(graph)[validation]
        losses.append(float(torch.nn.functional.cross_entropy(logits, graph.y[validation])))
        weights.append(trained.model.weights[0].detach().clone())

    fast = dataclasses.replace(QUICK, learning_rate=0.1)
    long = dataclasses.replace(fast, hidden=5, epochs=150)
    long.fit(graph, nodes, sample_weights=torch.ones(60), every=1, at_checkpoint=watch)
    end = next(e for e in range(150) if e - losses.index(min(losses[: e + 1])) >= 4)
    assert end < 149, "patience must have ended the training"
    kept = train_cagcn_base(graph, nodes, validation, fast)
    assert torch.equal(kept.weights[0], weights[losses.index(min(losses[: end + 1]))])
    assert not kept.training


def dense_mixup(model: GCN, graph: Graph, nodes: torch.Tensor, partner: torch.Tensor, share: float) -> torch.Tensor:
    """Wang et al.'s two branches node by node, the graph written out as a dense matrix."""
    a = propagation(graph).a_hat.to_dense()
    x = normalize_features(graph).x
    (w1, b1), (w2, b2) = model.layers()
    plain = torch.relu(a @ x @ w1 + b1)
    out = []
    for i, j in zip(nodes.tolist(), nodes[partner].tolist(), strict=True):
        mixed = share * x[i] + (1 - share) * x[j]
        for states, w, b, last in ((x, w1, b1, False), (plain, w2, b2, True)):
            branches = []
            for centre in (i, j):
                replaced = states.clone()
                replaced[centre] = mixed
                branches.append(a[centre] @ replaced)
            mixed = (share * branches[0] + (1 - share) * branches[1]) @ w + b
            mixed = mixed if last else torch.relu(mixed)
        out.append(mixed)
    return torch.stack(out)


@pytest.mark.parametrize("share", [0.3, 1.0])
@torch.no_grad()
def test_mixup_is_two_branches_around_one_centre(graph: Graph, share: float) -> None:
    nodes = torch.tensor([3, 7, 20, 41, 90])
    partner = torch.tensor([4, 2, 1, 0, 3])
    model = GCN(graph.n_features, 2, hidden=4).eval()
    model.reset_parameters(torch.Generator().manual_seed(3))
    field = propagation(graph).field(nodes, 2)
    ours = mixed_logits(model, field, normalize_features(graph).x[nodes], partner, share)
    expected = dense_mixup(model, graph, nodes, partner, share)
    size = float(expected.abs().max())
    assert float((ours - expected).abs().max()) < 1e-5 * size
    plain = model(graph, nodes)
    same = float((ours - plain).abs().max()) < 1e-5 * size
    assert same == (share == 1.0)


def test_the_official_recipe_learns_from_the_validation_labels(graph: Graph) -> None:
    assert graph.y is not None
    train, val = torch.arange(60), torch.arange(60, 160)
    settings = OfficialSettings(epochs=10)
    model = train_official(graph, train, QUICK)
    before = [weight.detach().clone() for weight in model.parameters()]
    first = official_probabilities(model, graph, val, QUICK, settings)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(first, official_probabilities(model, graph, val, QUICK, settings))
    assert float((first.sum(1) - 1).abs().max()) < 1e-6
    flipped = graph.y.clone()
    flipped[val] = 1 - flipped[val]
    moved = official_probabilities(model, dataclasses.replace(graph, y=flipped), val, QUICK, settings)
    assert float((moved - first).abs().max()) > 1e-2
    for change in ({"dropout_at_prediction": False}, {"double_softmax": False}):
        other = official_probabilities(model, graph, val, QUICK, dataclasses.replace(settings, **change))
        assert not torch.equal(other, first)


def test_the_official_network_is_trained_on_probabilities_as_logits(graph: Graph) -> None:
    """Against torch's own loss on the output of a softmax, which is what the published program does."""
    assert graph.y is not None
    nodes = torch.arange(60)
    logits, targets = (
        torch.randn(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        graph.y[nodes],
    )
    of_class = class_weights(targets, 2).double()
    theirs = nn.CrossEntropyLoss(weight=of_class, label_smoothing=0.0)(torch.softmax(logits, 1), targets)
    ours = OfficialSettings().loss(logits, targets, of_class[targets])
    assert float(ours) == pytest.approx(float(theirs), rel=1e-12)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)(torch.softmax(logits, 1), targets)
    smoothed = OfficialSettings(smoothing=0.1).loss(logits, targets, torch.ones(60))
    assert float(smoothed) == pytest.approx(float(smooth), rel=1e-12)
    for double, plain in ((True, torch.softmax(logits, 1)), (False, logits)):
        losses = nn.CrossEntropyLoss(reduction="none")(plain, targets)
        of_node = torch.where(targets == 1, 4.0, 1.0).double()
        value = OfficialSettings(double_softmax=double, rare_weight=4.0).loss(logits, targets, of_class[targets])
        assert float(value) == pytest.approx(float((of_node * losses).sum() / of_node.sum()), rel=1e-12)
    plain = train_official(graph, nodes, QUICK, OfficialSettings(double_softmax=False))
    assert_alike(plain.weights[0], fit(graph, nodes, QUICK).model.weights[0])
    assert not torch.equal(train_official(graph, nodes, QUICK).weights[0], plain.weights[0])
