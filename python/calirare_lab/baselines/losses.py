"""Training losses that calibrate on the way: label smoothing and the focal loss, cost-sensitive like all others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.models import GCN, GcnTraining, Loss

SMOOTHING = 0.1  # Szegedy et al. 2016
WEIGHTED_SMOOTHING = 0.05  # the paper gives no strength; chosen for the control row to come near its recalls
GAMMA = 2.0  # Lin et al. 2017; Mukhoti et al. 2020 use 3


def label_smoothing_loss(logits: Tensor, targets: Tensor, weights: Tensor, smoothing: float = SMOOTHING) -> Tensor:
    """Returns the weighted cross-entropy with targets (1 - s) onehot + s / k (Szegedy et al. 2016).

    Args:
        logits: [m, k].
        targets: int64 [m].
        weights: sample weights [m].
        smoothing: s in [0, 1).

    Returns:
        sum_i w_i l_i / m.
    """
    return (weights * F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)).mean()


def class_weighted_smoothing_loss(
    logits: Tensor, targets: Tensor, weights: Tensor, smoothing: float = WEIGHTED_SMOOTHING
) -> Tensor:
    """Returns label smoothing as torch's cross_entropy(weight=, label_smoothing=) has it: a class's share weighs w_c.

    The share s / k of the rare class at a majority node then costs the rare class's weight, which pulls every node
    towards the rare class. `label_smoothing_loss` weighs a node's loss by its own class alone.

    Args:
        logits: [m, k].
        targets: int64 [m].
        weights: sample weights [m], the same for all nodes of a class.
        smoothing: s in [0, 1).

    Returns:
        sum_i sum_c w_c q_ic (-ln p_ic) / m with q = (1 - s) onehot + s / k.
    """
    k = logits.shape[1]
    of_class = weights.new_zeros(k).index_put_((targets,), weights)
    wanted = (1 - smoothing) * F.one_hot(targets, k).to(logits) + smoothing / k
    return -(wanted * of_class * F.log_softmax(logits, 1)).sum(1).mean()


def focal_loss(logits: Tensor, targets: Tensor, weights: Tensor, gamma: float = GAMMA) -> Tensor:
    """Returns the weighted focal loss, -(1 - p_y)^gamma ln p_y (Lin et al. 2017).

    Args:
        logits: [m, k].
        targets: int64 [m].
        weights: sample weights [m].
        gamma: focus, >= 0; 0 is the cross-entropy.

    Returns:
        sum_i w_i l_i / m.

    Raises:
        ValueError: gamma is negative.
    """
    if not gamma >= 0:
        raise ValueError(f"focal_loss: gamma must be at least 0, got {gamma}")
    losses = F.cross_entropy(logits, targets, reduction="none")
    # Below the floor the power's derivative would be infinite for gamma < 1 and the product with a loss of 0 a NaN.
    miss = (1 - torch.exp(-losses)).clamp(min=torch.finfo(losses.dtype).tiny ** 0.5)
    return (weights * miss**gamma * losses).mean()


def train_with_loss(graph: Graph, nodes: Tensor, settings: GcnTraining, loss: Loss) -> GCN:
    """Trains the graph convolution with another loss; otherwise as `GcnTraining.fit` does.

    Args:
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        settings: how to train.
        loss: of logits [m, k], targets [m] and class weights [m].

    Returns:
        The network in evaluation mode.

    Raises:
        ValueError: a node has no label.
    """
    start = settings.start(graph, nodes)
    return optimise(start.model, settings, lambda: loss(start.model(start.field), start.targets, start.sample_weights))


def optimise(model: GCN, settings: GcnTraining, loss: Callable[[], Tensor]) -> GCN:
    """Runs Adam on a loss of the network's parameters.

    Args:
        model: the network.
        settings: epochs, learning rate, weight decay and the seed of the dropout.
        loss: called once per epoch.

    Returns:
        The network in evaluation mode.
    """
    rate, decay = settings.learning_rate, settings.weight_decay
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    device = model.weights[0].device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        model.train()
        for _ in range(settings.epochs):
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
    return model.eval()
