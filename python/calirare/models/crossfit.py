"""Losses, and held-out logits of every label by cross-validation: the honest rival of the jackknife, and its check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration import Target, target_weights
from calirare.graph import Graph, newest_first
from calirare.models.fitted import Detector


def labels_at(graph: Graph, nodes: Tensor, where: str = "fit: nodes") -> Tensor:
    """Returns the classes of some nodes, int64 [m].

    Raises:
        ValueError: one has no label.
    """
    if graph.y is None or bool((graph.y[nodes] < 0).any()):
        raise ValueError(f"{where} must be labelled, but one of graph {graph.name!r} has no label")
    return graph.y[nodes]


def fold_of(targets: Tensor, n_folds: int, seed: int) -> Tensor:
    """Returns a fold in [0, n_folds) for each label, classes spread evenly, int64 [m]."""
    generator = np.random.default_rng(seed)
    fold = torch.zeros(targets.numel(), dtype=torch.int64)
    offset = 0
    for k in range(int(targets.max()) + 1):
        members = (targets.cpu() == k).nonzero().flatten()
        order = torch.from_numpy(generator.permutation(members.numel()))
        fold[members[order]] = (torch.arange(members.numel()) + offset) % n_folds
        offset += members.numel()
    return fold.to(targets.device)


def time_folds(graph: Graph, nodes: Tensor, n_folds: int, seed: int) -> Tensor:
    """Returns a fold in [0, n_folds) for each labelled node, int64 [m]: spans of time where nodes have a time.

    The first fold holds the newest labels, so that its models have seen the past only. A class that one fold holds all
    of is spread over the folds, as all are where there is no time.
    """
    assert graph.y is not None
    targets = graph.y[nodes]
    if graph.time is None:
        return fold_of(targets, n_folds, seed)
    order = newest_first(graph.time[nodes]).to(targets.device)
    fold = torch.empty_like(targets)
    fold[order] = torch.arange(len(order), device=fold.device) * n_folds // len(order)
    spread = fold_of(targets, n_folds, seed)
    for k in torch.unique(targets).tolist():
        if len(torch.unique(fold[targets == k])) == 1:
            fold[targets == k] = spread[targets == k]
    return fold


def folds_for(targets: Tensor, n_folds: int, labels: int, of_each_class: int) -> int:
    """Returns how many of the folds hold so many labels, and so many of each class; all where there are too few.

    Args:
        targets: classes of the labels, int64 [m].
        n_folds: number of folds.
        labels: wanted.
        of_each_class: wanted of every class that there is.
    """
    counts = torch.bincount(targets)
    rarest = int(counts[counts > 0].min())
    return min(n_folds, max(-(-labels * n_folds // targets.numel()), -(-of_each_class * n_folds // rarest), 1))


def cross_fitted_logits(
    graph: Graph,
    nodes: Tensor,
    detector: Detector,
    *,
    n_folds: int = 5,
    left_out: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Returns each labelled node's logits from a network trained without its fold.

    A detector with `folds_together` trains several folds side by side: five networks for some three trainings.

    Args:
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        detector: how each network is trained; its seed draws the folds.
        n_folds: number of folds, 2 to m.
        left_out: how many of them a network is trained without, the first ones: the newest by time, else random
            draws; None: all.
        progress: called with the number of folds done after each.

    Returns:
        Logits [m, k]; NaN for the labels of folds that were not left out.

    Raises:
        ValueError: the number of folds is out of range, or the graph has no labels.
    """
    if graph.y is None:
        raise ValueError(f"cross_fitted_logits: graph {graph.name!r} must have labels")
    if not 2 <= n_folds <= nodes.numel():
        raise ValueError(f"cross_fitted_logits: n_folds must be in [2, {nodes.numel()}], got {n_folds}")
    targets = graph.y[nodes]
    fold = time_folds(graph, nodes, n_folds, detector.seed)
    n_folds = n_folds if left_out is None else min(left_out, n_folds)
    fold = torch.where(fold < n_folds, fold, -1)
    # The class weights of all labels: leaving a fold out must not change what the loss means.
    weights = class_weights(targets, graph.n_classes)[targets]
    if n_folds > 1 and getattr(detector, "folds_together", False):
        networks: Any = detector
        return networks.without_folds(graph, nodes, fold, weights, progress=progress)[1]
    out = torch.full((nodes.numel(), graph.n_classes), torch.nan, device=graph.device)
    for k in range(n_folds):
        held, kept = fold == k, fold != k
        trained = detector.fit(graph, nodes[kept], sample_weights=weights[kept])
        out[held] = trained.logits_of(graph, nodes[held])
        if progress is not None:
            progress(k + 1)
    return out


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of logits [m, k], targets [m], sample weights [m]


def class_weights(targets: Tensor, n_classes: int) -> Tensor:
    """Returns the weight of each class, inverse to its share (paper, section 4.2), mean 1 over the samples: [k].

    A class without a sample gets weight 0.
    """
    counts = torch.bincount(targets, minlength=n_classes).double()
    present = counts > 0
    weights = torch.zeros_like(counts)
    weights[present] = targets.numel() / (int(present.sum()) * counts[present])
    return weights


def cross_entropy(logits: Tensor, targets: Tensor, sample_weights: Tensor) -> Tensor:
    """Returns sum_i w_i l_i / m (paper, Eq. 12, cost-sensitive)."""
    return (sample_weights * F.cross_entropy(logits, targets, reduction="none")).mean()


def loo_loss(logits: Tensor, labels: Tensor, target: Target = "balanced") -> float:
    """Returns the mean negative log-likelihood of leave-one-out logits for a target population.

    Of the network's own logits, before any map: the map comes after and would hide what it mends.

    Args:
        logits: of labelled nodes that represent the population, each under the model without its own label
            (`leave_one_out.own_logits.OwnLogits`), [n, k].
        labels: int64 [n].
        target: the population, see `calibration.target_weights`.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    return float((target_weights(labels, logits.shape[1], target) * losses).mean())
