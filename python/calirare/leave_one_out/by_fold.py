"""Logits of nodes by models without each fold of the labels, for any detector."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.curvature import logit_differences, with_class_zero
from calirare.graph import Graph
from calirare.leave_one_out.alo import Grouped
from calirare.leave_one_out.leaving_out import leave_one_out
from calirare.models import Fitted

FOLDS = 5  # of a network in closed form


def logits_by_fold(fitted: Fitted, graph: Graph | None, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the logits of nodes, [n, k], and those by models without each fold of the labels, [K, n, k].

    A detector with folds has such models. Those of a single network are one damped Gauss-Newton step away from it.

    Args:
        fitted: the detector.
        graph: the graph as the detector takes it.
        nodes: int64 [n]; None: all.

    Raises:
        TypeError: the detector has neither folds nor a closed form.
        InputError: it would not fit into memory.
    """
    if fitted.folded is not None:
        return fitted.folded.all_logits_of(graph, nodes)
    if fitted.closed_form is None:
        raise TypeError(f"logits_by_fold: a {type(fitted).__name__} has no models without a part of the labels")
    logits = fitted.logits_of(graph, nodes)
    change = leave_one_out(fitted.closed_form, graph, Grouped(n_groups=FOLDS), nodes=nodes).change
    moved = logit_differences(logits)[:, :, None] + change
    return logits, torch.stack([with_class_zero(each) for each in moved.unbind(2)])
