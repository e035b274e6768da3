"""The leave-one-out models of a detector that was trained without each fold of its labels: CV+ (Barber et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.curvature import logit_differences
from calirare.graph import Graph
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.training import FoldFitted

NAME = "cross-fitting"


def from_folds(fitted: FoldFitted, graph: Graph | None, nodes: Tensor | None = None) -> tuple[Tensor, LooResult]:
    """Returns what leaving out each label's fold does to the logits: label i's model is the one without its fold.

    The interval of CV+ with these models keeps the jackknife+'s promise up to a term in 1 / K (Barber et al. 2021,
    "Predictive inference with the jackknife+", Theorem 4).

    Args:
        fitted: the detector with its folds.
        graph: the graph.
        nodes: the nodes v, int64 [n]; None: all.

    Returns:
        Logits [n, k], and changes with one model per fold; leverages are unknown, there is no damping.
    """
    labels = fitted.label_logits
    logits, by_folds = fitted.all_logits_of(graph, nodes)
    start = logit_differences(logits)
    without = torch.stack([logit_differences(z) for z in by_folds], 2)  # [n, k - 1, K]
    own = logit_differences(fitted.own_logits) - logit_differences(labels).double()
    unknown = torch.full((labels.shape[0],), torch.nan, dtype=torch.float64, device=labels.device)
    facts = Diagnostics(NAME, "folds", 0.0)
    n = logits.shape[0]
    return logits, LooResult(
        (without - start[:, :, None]).to(labels.dtype),
        own.to(labels.dtype),
        unknown,
        0.0,
        torch.where(torch.isfinite(own).all(1), fitted.fold, -1),  # -1: a label that every model has learnt
        facts,
        torch.arange(n, device=logits.device) if nodes is None else nodes,
    )
