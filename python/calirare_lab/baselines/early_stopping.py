"""Training that stops by validation nodes: the base networks of CaGCN's and of GATS' authors."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph, propagation
from calirare.models import GCN, GcnFit, GcnTraining

PATIENCE = 100
MAX_EPOCHS = 2000
HIDDEN = 64


class StoppingRule(Protocol):
    """Which epoch is kept, and when training ends."""

    @property
    def epoch(self) -> int:
        """The epoch that is kept, from 1; 0 before the first."""
        ...

    def improves(self, epoch: int, logits: Tensor, targets: Tensor) -> bool:
        """Returns whether an epoch is the one to keep, by its logits of the validation nodes [v, k]."""
        ...

    def over(self, epoch: int) -> bool:
        """Returns whether training ends after an epoch."""
        ...


class LowestLoss:
    """Keeps the lowest cross-entropy and ends 100 epochs after it."""

    def __init__(self) -> None:
        self.loss, self.epoch = float("inf"), 0

    def improves(self, epoch: int, logits: Tensor, targets: Tensor) -> bool:
        """See `StoppingRule.improves`."""
        loss = float(F.cross_entropy(logits, targets))
        better = loss < self.loss
        if better:
            self.loss, self.epoch = loss, epoch
        return better

    def over(self, epoch: int) -> bool:
        """See `StoppingRule.over`."""
        return epoch - self.epoch >= PATIENCE


class LossAndAccuracy:
    """Keeps the last epoch whose loss and accuracy are both no worse than any before; ends when neither is for 100."""

    def __init__(self) -> None:
        self.loss, self.accuracy = float("inf"), 0.0
        self.epoch = self.last = 0

    def improves(self, epoch: int, logits: Tensor, targets: Tensor) -> bool:
        """See `StoppingRule.improves`."""
        loss = float(F.cross_entropy(logits, targets))
        accuracy = float((logits.argmax(1) == targets).double().mean())
        lower, higher = loss <= self.loss, accuracy >= self.accuracy
        self.loss, self.accuracy = min(loss, self.loss), max(accuracy, self.accuracy)
        if lower or higher:
            self.last = epoch
        if lower and higher:
            self.epoch = epoch
        return lower and higher

    def over(self, epoch: int) -> bool:
        """See `StoppingRule.over`."""
        return epoch - self.last >= PATIENCE


def train_cagcn_base(graph: Graph, nodes: Tensor, validation: Tensor, settings: GcnTraining) -> GCN:
    """Trains the network that CaGCN's published code calibrates: wide, without class weights, stopped early.

    Each node's loss counts the same whatever its class. Of up to 2,000 epochs the one with the lowest validation
    cross-entropy is kept, and training ends 100 epochs after it.

    Args:
        graph: the graph with labels.
        nodes: labelled nodes to train on, int64 [m].
        validation: labelled nodes to stop by, int64 [v].
        settings: seed, learning rate, weight decay and dropout; width and number of epochs are replaced by those of
            CaGCN's code.

    Returns:
        The network of the best epoch, in evaluation mode.

    Raises:
        ValueError: a node has no label.
    """
    if graph.y is None or bool((graph.y[validation] < 0).any()):
        raise ValueError(f"train_cagcn_base: validation nodes must be labelled; one of {graph.name!r} has no label")
    settings = replace(settings, hidden=HIDDEN, epochs=MAX_EPOCHS)
    return train_stopped(graph, nodes, validation, settings, LowestLoss())[0].model


def train_stopped(
    graph: Graph, nodes: Tensor, validation: Tensor, settings: GcnTraining, rule: StoppingRule
) -> tuple[GcnFit, int]:
    """Trains a graph convolution whose epochs a rule chooses by validation nodes; every label counts alike.

    Args:
        graph: the graph with labels.
        nodes: labelled nodes to train on, int64 [m].
        validation: labelled nodes to stop by, int64 [v].
        settings: of the training; its epochs are the most that are taken.
        rule: a fresh one.

    Returns:
        The network of the epoch that is kept, in evaluation mode, and that epoch.
    """
    assert graph.y is not None
    targets = graph.y[validation]
    field = propagation(graph, settings.hops, settings.order).field(validation, settings.n_layers)
    best: dict[str, Tensor] = {}

    @torch.no_grad()
    def stop(epoch: int, trained: GcnFit) -> bool:
        nonlocal best
        if rule.improves(epoch, trained.model(field), targets):
            best = {name: value.clone() for name, value in trained.model.state_dict().items()}
        return rule.over(epoch)

    equal = torch.ones(nodes.numel())
    fitted = settings.fit(graph, nodes, sample_weights=equal, every=1, at_checkpoint=stop)
    fitted.model.load_state_dict(best)
    return replace(fitted, losses=fitted.losses[: rule.epoch]), rule.epoch
