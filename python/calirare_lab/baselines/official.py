"""The authors' published code as it behaves: how it trains the network, fine-tunes it and reads its probabilities.

Their regulariser is a constant of the optimiser (it has no gradient), so lambda only scales the loss. What is left is
kept here with its three quirks: the loss applies softmax to probabilities, the calibration labels are trained on, and
dropout stays on when probabilities are read.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.models import GCN, GcnTraining, of_network
from calirare_lab.baselines.losses import label_smoothing_loss, optimise, train_with_loss

# What their program trains with; width, dropout and weight decay are those of the paper.
OFFICIAL_TRAINING = GcnTraining(epochs=2000, learning_rate=1e-3, order="propagated")


@dataclass(frozen=True)
class OfficialSettings:
    """What the recipe leaves to choose.

    Attributes:
        eice_weight: lambda of Eq. 14, in [0, 1]; scales the gradient by 1 - lambda.
        epochs: steps of fine-tuning, >= 0.
        double_softmax: feed probabilities to the cross-entropy.
        dropout_at_prediction: read probabilities with dropout on, one draw.
        rare_weight: weight of a rare node against another, > 0, a number that their program is given and that holds for
            training and fine-tuning; None: inverse to the class shares of the labels at hand.
        smoothing: of the targets, in [0, 1), see `label_smoothing_loss`.

    Raises:
        ValueError: a number is outside its range.
    """

    eice_weight: float = 0.1
    epochs: int = 200
    double_softmax: bool = True
    dropout_at_prediction: bool = True
    rare_weight: float | None = None
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        ranges = {
            "eice_weight must be in [0, 1]": 0 <= self.eice_weight <= 1,
            "epochs must be >= 0": self.epochs >= 0,
            "rare_weight must be finite and > 0": self.rare_weight is None or 0 < self.rare_weight < math.inf,
            "smoothing must be in [0, 1)": 0 <= self.smoothing < 1,
        }
        for what, met in ranges.items():
            if not met:
                raise ValueError(f"OfficialSettings: {what}, got {getattr(self, what.split()[0])}")

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Returns the loss of training and fine-tuning: of logits [m, k], targets [m] and sample weights [m]."""
        if self.rare_weight is not None:
            weights = torch.where(targets == 1, self.rare_weight, 1.0).to(logits)
            weights = weights / weights.mean()
        fed = torch.softmax(logits, 1) if self.double_softmax else logits
        return label_smoothing_loss(fed, targets, weights, self.smoothing)


def train_official(
    graph: Graph,
    nodes: Tensor,
    training: GcnTraining = OFFICIAL_TRAINING,
    settings: OfficialSettings | None = None,
) -> GCN:
    """Trains the network that the recipe starts from.

    Args:
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        training: how to train.
        settings: the recipe; None: as published.

    Returns:
        The network in evaluation mode.
    """
    return train_with_loss(graph, nodes, training, (settings or OfficialSettings()).loss)


def official_probabilities(
    model: GCN,
    graph: Graph,
    val: Tensor,
    training: GcnTraining = OFFICIAL_TRAINING,
    settings: OfficialSettings | None = None,
) -> Tensor:
    """Fine-tunes a copy of the network on `val` and returns every node's probabilities.

    Args:
        model: from `train_official`; it is not changed.
        graph: the graph with labels.
        val: validation nodes, int64.
        training: learning rate, weight decay and seed of the fine-tuning.
        settings: the recipe; None: as published.

    Returns:
        Probabilities [n, k].
    """
    settings, tuned = settings or OfficialSettings(), deepcopy(model)
    fine_tune(tuned, graph, val, training, settings)
    return read_official(tuned, graph, training.seed, dropout=settings.dropout_at_prediction)


def read_official(model: GCN, graph: Graph, seed: int, *, dropout: bool = True) -> Tensor:
    """Returns every node's probabilities from one draw of the dropout of hidden units, which their code leaves on.

    Args:
        model: a trained network; it is left in evaluation mode.
        graph: the graph.
        seed: of the draw.
        dropout: False: the network's own probabilities.

    Returns:
        Probabilities [n, k].
    """
    device = model.weights[0].device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
        torch.manual_seed(seed + 1)
        model.train(dropout)
        try:
            return torch.softmax(model(graph), 1)
        finally:
            model.eval()


def fine_tune(model: GCN, graph: Graph, nodes: Tensor, training: GcnTraining, settings: OfficialSettings) -> None:
    """Fine-tunes the network in place on labelled nodes.

    Args:
        model: the network.
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        training: learning rate, weight decay and seed.
        settings: the recipe.
    """
    at = of_network(model, graph, nodes, training.weight_decay)
    share, run = 1 - settings.eice_weight, replace(training, epochs=settings.epochs, seed=training.seed + 1)
    optimise(model, run, lambda: share * settings.loss(model(at.field), at.targets, at.sample_weights))
