"""Training that stops by the validation loss: the base network of CaGCN's authors."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph, propagation
from calirare.models import GCN, GcnFit, GcnTraining

PATIENCE = 100
MAX_EPOCHS = 2000
HIDDEN = 64


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
    targets = graph.y[validation]
    field = propagation(graph, settings.hops, settings.order).field(validation, settings.n_layers)
    best_loss, best_epoch = float("inf"), 0
    best: dict[str, Tensor] = {}

    @torch.no_grad()
    def stop(epoch: int, trained: GcnFit) -> bool:
        nonlocal best_loss, best_epoch, best
        loss = float(F.cross_entropy(trained.model(field), targets))
        if loss < best_loss:
            best_loss, best_epoch = loss, epoch
            best = {name: value.clone() for name, value in trained.model.state_dict().items()}
        return epoch - best_epoch >= PATIENCE

    settings = replace(settings, hidden=HIDDEN, epochs=MAX_EPOCHS)
    equal = torch.ones(nodes.numel())
    model = settings.fit(graph, nodes, sample_weights=equal, every=1, at_checkpoint=stop).model
    model.load_state_dict(best)
    return model
