"""A network with one more network per fold of its labels, each trained without that fold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from calirare._util.steps import report_step
from calirare.graph import Graph
from calirare.models.columns import HopColumns
from calirare.models.crossfit import time_folds
from calirare.models.fitted import Wrapper
from calirare.models.gcn_fit import GcnFit, unflatten
from calirare.models.gcn_training import GcnTraining
from calirare.models.row_space import RowSpace
from calirare_ext import gcn_forward

TOLERANCE, MAX_STEPS = 1e-4, 100  # of a fold's network, in the network's own precision


@dataclass(frozen=True, eq=False)
class FoldedNetwork(Wrapper):
    """A network on all labels, and networks of the same kind without each fold.

    Attributes:
        network: on all labels.
        theta: parameters of the network without each fold, [K, p]; they read what `network` reads.
        fold: of each label, int64 [m].
        own_logits: each label's logits by the network without its fold, float64 [m, k].
    """

    network: GcnFit
    theta: Tensor
    fold: Tensor
    own_logits: Tensor

    @property
    def inner(self) -> GcnFit:
        """See `Wrapper.inner`."""
        return self.network

    def reading(self, columns: HopColumns) -> Self:
        """See `Fitted.reading`."""
        return replace(self, network=self.network.reading(columns))

    def judged_by_folds(self, graph: Graph) -> Self:
        """See `FoldFitted.judged_by_folds`."""
        logits = self.all_logits_of(graph, self.nodes)[1]
        own = logits[self.fold, torch.arange(len(self.fold), device=logits.device)]
        return replace(self, own_logits=own.double())

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`."""
        return self.network.parts_of(graph, nodes)

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate_part`."""
        field, shapes = self.network.scoring_field(graph, nodes), self.network.shapes
        own = self.network.logits_at(field)
        if not folds:
            return (own,)
        return own, torch.stack([gcn_forward(field, unflatten(each, shapes)) for each in self.theta])

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.network.label_logits


def train_folds(
    detector: GcnTraining, graph: Graph, nodes: Tensor, sample_weights: Tensor, n_folds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Trains a network without each fold of the labels, side by side; returns what `FoldedNetwork` takes after one.

    Args:
        detector: how to train.
        graph: the graph with labels.
        nodes: distinct labelled nodes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        n_folds: K >= 2, at most as many as labels.
    """
    fold = time_folds(graph, nodes, n_folds, detector.seed)
    report_step("folds", 0, n_folds)
    theta, own = detector.without_folds(
        graph, nodes, fold, sample_weights, progress=lambda done: report_step("folds", done, n_folds)
    )
    return theta, fold, own.double()


def fold_network(detector: GcnTraining, graph: Graph, network: GcnFit, n_folds: int) -> FoldedNetwork:
    """Returns a trained network with one more per fold, trained side by side; own logits are those of the folds.

    Args:
        detector: what trained the network.
        graph: the graph.
        network: on all labels.
        n_folds: K >= 2, at most as many as labels.
    """
    return FoldedNetwork(network, *train_folds(detector, graph, network.nodes, network.sample_weights, n_folds))


def fold_converged(detector: GcnTraining, graph: Graph, network: GcnFit, n_folds: int) -> FoldedNetwork:
    """Returns the same of a network at its minimum, each fold's network brought to its own from there.

    Args:
        detector: see `fold_network`.
        graph: the graph.
        network: on all labels, converged.
        n_folds: K.
    """
    fold, theta = time_folds(graph, network.nodes, n_folds, detector.seed), list[Tensor]()
    own = torch.empty(*network.label_logits.shape, dtype=torch.float64, device=graph.device)
    space = RowSpace.of(network)
    for k in range(n_folds):
        part = _converged_without(network, space, fold == k)
        theta.append(part.wide.theta)
        own[fold == k] = part.fitted.label_logits[fold == k].double()
    return FoldedNetwork(network, torch.stack(theta), fold, own)


def held_out_fold(detector: GcnTraining, graph: Graph, network: GcnFit, n_folds: int) -> tuple[Tensor, Tensor]:
    """Returns which labels are in the first of K folds, bool [m], and their logits without it, float64 [m', k].

    Args:
        detector: see `fold_network`.
        graph: the graph.
        network: on all labels, converged.
        n_folds: K.
    """
    held = time_folds(graph, network.nodes, n_folds, detector.seed) == 0
    part = _converged_without(network, RowSpace.of(network), held)
    return held, part.fitted.label_logits[held].double()


def _converged_without(network: GcnFit, space: RowSpace, held: Tensor) -> RowSpace:
    """Returns a network brought from its minimum to the one without some labels, bool [m]."""
    kept = (~held).to(network.sample_weights)
    part = space.copy(network.sample_weights * kept * (kept.numel() / kept.sum()))
    part.minimise(TOLERANCE, MAX_STEPS)
    return part
