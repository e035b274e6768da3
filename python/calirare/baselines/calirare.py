"""Algorithm 2 of the paper with a regulariser that has a gradient.

The authors' code computes EICE once, as a constant. Here the leave-one-out changes of the logits are refreshed every
few epochs and held fixed in between; the network's own logits stay live in f(v; theta_-i), in the residuals and in the
confidence, so that L_EICE has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.leave_one_out.alo import LooChange, alo, logit_differences
from calirare.training import TrainingSettings, cross_entropy, fit
from calirare_ext import record


@dataclass(frozen=True)
class CaliRareSettings:
    """Settings of Algorithm 2; the paper's values where it states them.

    Attributes:
        eice_weight: lambda (Eq. 14; section 4.2: 0.1).
        coverage: alpha (section 4.2: 0.9).
        epochs: epochs with the regulariser, after the network has been trained without it.
        refresh: epochs between two computations of the leave-one-out changes.

    Raises:
        ValueError: a setting is out of range.
    """

    eice_weight: float = 0.1
    coverage: float = 0.9
    epochs: int = 200
    refresh: int = 20

    def __post_init__(self) -> None:
        """Checks ranges."""
        for name in ("eice_weight", "coverage"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"CaliRareSettings: {name} must be in (0, 1), got {getattr(self, name)}")
        for name in ("epochs", "refresh"):
            if getattr(self, name) < 1:
                raise ValueError(f"CaliRareSettings: {name} must be at least 1, got {getattr(self, name)}")


def calirare_logits(graph: Graph, nodes: Tensor, training: TrainingSettings, settings: CaliRareSettings) -> Tensor:
    """Trains with (1 - lambda) L_CE + lambda L_EICE (Eq. 14) and returns every node's logits.

    Args:
        graph: a graph of two classes with labels.
        nodes: labelled nodes, int64 [m]; L_EICE averages over them (Eq. 13).
        training: how the network is trained first, and with what learning rate and weight decay afterwards.
        settings: the regulariser.

    Returns:
        Logits [n, 2], without dropout.

    Raises:
        ValueError: the graph has more than two classes.
    """
    if graph.n_classes != 2:
        raise ValueError(f"calirare_logits: graph must have 2 classes, got {graph.n_classes}")
    start = fit(graph, nodes, training)
    model, field, weights = start.model, start.field, start.sample_weights
    rate, decay = training.learning_rate, training.weight_decay
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    change: LooChange | None = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed + 1)
        for epoch in range(settings.epochs):
            if epoch % settings.refresh == 0:
                model.eval()
                with torch.no_grad():
                    change = alo(record(field, model.layers(), start.targets, weights), field, decay)
            assert change is not None
            model.train()
            optimiser.zero_grad()
            logits = model(field)
            term = eice_term(logits, start.targets, change.change.squeeze(1), change.own.squeeze(1), settings.coverage)
            loss = (1 - settings.eice_weight) * cross_entropy(logits, start.targets, weights)
            (loss + settings.eice_weight * term).backward()
            optimiser.step()
    model.eval()
    return model.logits(graph)


def eice_term(logits: Tensor, targets: Tensor, change: Tensor, own: Tensor, coverage: float) -> Tensor:
    """Returns L_EICE (Eq. 13) with its gradient at the labelled nodes themselves.

    Args:
        logits: of the labelled nodes, [m, 2].
        targets: int64 [m].
        change: how node v's logit difference moves without node i, [m, m], a constant.
        own: its diagonal: how node i's moves without itself, [m], a constant.
        coverage: alpha in (0, 1).

    Returns:
        mean_v |uncer(v) - conf(v)|, differentiable in the logits through f, the residuals and the confidence.
    """
    z = logit_differences(logits).squeeze(1)
    f = torch.sigmoid(z[:, None] + change)
    residual = (targets.to(f.dtype) - torch.sigmoid(z + own)).abs()
    lower = torch.quantile(f - residual, (1 - coverage) / 2, dim=1)
    upper = torch.quantile(f + residual, 1 - (1 - coverage) / 2, dim=1)
    middle = (lower + upper) / 2
    uncertainty = torch.where(z > 0, middle, 1 - middle)
    return (uncertainty - torch.sigmoid(z.abs())).abs().mean()
