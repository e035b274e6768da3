"""The authors' recipe, as their published code behaves: fine-tuning on the validation labels.

Their regulariser is a constant of the optimiser (it has no gradient), so lambda only scales the loss. What is left is
kept here with its three quirks: the loss applies softmax to probabilities, the calibration labels are trained on, and
dropout stays on when probabilities are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.nn import GCN
from calirare.propagation import propagation
from calirare.training import TrainingSettings, class_weights, fit


@dataclass(frozen=True)
class OfficialSettings:
    """What the recipe leaves to choose.

    Attributes:
        eice_weight: lambda of Eq. 14; scales the gradient by 1 - lambda.
        epochs: steps of fine-tuning.
        double_softmax: feed probabilities to the cross-entropy.
        dropout_at_prediction: read probabilities with dropout on, one draw.
    """

    eice_weight: float = 0.1
    epochs: int = 200
    double_softmax: bool = True
    dropout_at_prediction: bool = True


def official_probabilities(
    graph: Graph,
    train: Tensor,
    val: Tensor,
    training: TrainingSettings,
    settings: OfficialSettings | None = None,
) -> Tensor:
    """Trains on `train`, fine-tunes on `val`, and returns every node's probabilities.

    Args:
        graph: the graph with labels.
        train: training nodes, int64.
        val: validation nodes, int64.
        training: how the network is trained; learning rate and weight decay also hold for the fine-tuning.
        settings: the recipe; None: as published.

    Returns:
        Probabilities [n, k].
    """
    settings = settings or OfficialSettings()
    model = fit(graph, train, training).model
    fine_tune(model, graph, val, training, settings)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(training.seed + 1)
        model.train(settings.dropout_at_prediction)
        return torch.softmax(model(graph), 1)


def fine_tune(model: GCN, graph: Graph, nodes: Tensor, training: TrainingSettings, settings: OfficialSettings) -> None:
    """Fine-tunes the network in place on labelled nodes.

    Args:
        model: the network.
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        training: learning rate, weight decay and seed.
        settings: the recipe.
    """
    assert graph.y is not None
    targets = graph.y[nodes]
    weights = class_weights(targets, graph.n_classes)[targets].to(model.weights[0])
    field = propagation(graph).field(nodes, model.n_layers)
    rate, decay = training.learning_rate, training.weight_decay
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed + 1)
        model.train()
        for _ in range(settings.epochs):
            optimiser.zero_grad()
            out = model(field)
            fed = torch.softmax(out, 1) if settings.double_softmax else out
            losses = F.cross_entropy(fed, targets, reduction="none")
            ((1 - settings.eice_weight) * (weights * losses).mean()).backward()
            optimiser.step()
    model.eval()
