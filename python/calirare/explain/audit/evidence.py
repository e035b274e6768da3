"""What a run's detector says of every label by models that have not seen it at all."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.models import FoldedNetwork, Mixture, mixture_of
from calirare.training import FoldFitted


def unseen_logits(fitted: FoldFitted, graph: Graph) -> Tensor:
    """Returns the logits of each label by the models without its fold, [m, k].

    Leave-one-out in closed form is not enough here: it is a step away from a network that has seen the label, and where
    labels are wrong, a network that learnt them by heart is not left behind by one step. What remains is a trace of the
    label itself, which hides just those that are wrong. The folds' networks have none. Members of a mixture get the
    weights that they earn by these logits.

    Args:
        fitted: a detector with its folds.
        graph: the run's own, as its detector takes it.
    """
    if isinstance(fitted, Mixture):
        members = {m.name: _unseen(m.fitted, graph) for m in fitted.members}
        return mixture_of(members, fitted.sample_weights).own_logits
    return _unseen(fitted, graph).own_logits


def _unseen(fitted: FoldFitted, graph: Graph) -> FoldFitted:
    """Returns a network whose own logits are those of its folds; other detectors have no others."""
    if not isinstance(fitted, FoldedNetwork):
        return fitted
    said = fitted.logits_without_folds(fitted.evaluation_field(graph, fitted.nodes))
    own = said[fitted.fold, torch.arange(len(fitted.fold), device=said.device)]
    return dataclasses.replace(fitted, own_logits=own.double())
