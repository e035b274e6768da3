"""Which tangent stands for a network of PyTorch Geometric's layers: the one that moves as its folds do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.curvature import NodeField, with_class_zero
from calirare.explain.class_labels import ClassLabels
from calirare.explain.network import labels_of
from calirare.explain.network_labels import NetworkLabels
from calirare.explain.pyg_labels import LabelledPyg, Surroundings
from calirare.explain.tangent import LinearModel
from calirare.models import PygFit

DAMPINGS = tuple(10.0**power for power in range(1, -7, -1))  # J_i J_i^T is 1 on average
BESIDE = 10**0.5  # the best one times and over this are looked at too
USUAL = 1e-3  # of labels and parameters too many to look
LOOKED_AT = 2_000  # labels times classes but one, or parameters if they are fewer, up to which all are looked at
OTHERS = 120  # logits of nodes without a label that moves are compared of
ROUNDING = 1e-5  # of the logits of a float32 network: moves that are smaller are rounding and count as none
AGREES = 0.7  # mean cosine of the moves from which the tangent is relied on


@dataclass(frozen=True, eq=False)
class ChosenTangent:
    """A tangent with how well it moves as the networks without each fold do.

    Attributes:
        labelled: the network at the minimum of the tangent.
        labels: its labels.
        factor: that the tangent's moves are stretched by.
        cosine: of its moves and the networks', mean of that of labels without themselves and of other nodes.
    """

    labelled: LabelledPyg
    labels: NetworkLabels | ClassLabels
    factor: float
    cosine: float

    @property
    def damping(self) -> float:
        """The penalty mu."""
        return self.labels.damping

    @property
    def agrees(self) -> bool:
        """Whether the tangent may be relied on."""
        return self.cosine >= AGREES


class FoldMoves:
    """How networks without each fold of the labels differ from the one with all: at the fold, and at other nodes.

    Args:
        fitted: the networks.
        surroundings: of the graph.
    """

    def __init__(self, fitted: PygFit, surroundings: Surroundings) -> None:
        self.fold, self.weights = fitted.fold, fitted.sample_weights.double()
        self.places = [(self.fold == k).nonzero().flatten() for k in range(int(self.fold.max()) + 1)]
        self.own = _moves(fitted.own_logits, fitted.in_sample)
        self.others = NodeField(_others(fitted, surroundings.adjacency.n_rows))
        with torch.no_grad():
            said = [
                surroundings.near(each, self.others.nodes).logits(each).double()
                for each in (fitted.network, *fitted.without)
            ]
        self.at_others = _moves(torch.stack(said[1:]), said[0])

    def beside(self, at: LabelledPyg, damping: float) -> ChosenTangent:
        """Returns a tangent at its minimum, beside them."""
        labels = labels_of(at, damping)
        dual = at.linearisation.features.dual
        own, others = self._by_labels(at, labels) if dual else self._by_parameters(at.linearisation, damping)
        weight = self.weights[:, None].sqrt()
        pairs = [(weight * _centred(own), weight * self.own)]
        if self.others.nodes.numel():
            pairs.append((_centred(others), self.at_others))
        found = [_beside(ours.flatten(), theirs.flatten()) for ours, theirs in pairs]
        factor, cosine = (sum(each[i] for each in found) / len(found) for i in (0, 1))
        return ChosenTangent(at, labels, max(factor, 0.0), cosine)

    def _by_labels(self, at: LabelledPyg, labels: NetworkLabels | ClassLabels) -> tuple[Tensor, Tensor]:
        """Returns how each label moves without its fold, [m, k], and other nodes without each fold, [K, n, k]."""
        own = _logits(labels.change_without(at.field, self.places))
        others = _logits(labels.change_without(self.others, self.places))
        return own[self.fold, torch.arange(self.fold.numel())], others

    def _by_parameters(self, model: LinearModel, damping: float) -> tuple[Tensor, Tensor]:
        """Returns the same, of fewer parameters than labels."""
        width, rows = self.own.shape[1] - 1, model.features.rows_at(self.others).double()
        own, others = torch.empty_like(self.own), list[Tensor]()
        for places in self.places:
            moved, theirs = model.moved_without(places, damping)
            own[places] = with_class_zero((theirs @ moved).view(-1, width))
            others.append(with_class_zero((rows @ moved).view(-1, width)))
        return own, torch.stack(others)


def chosen_tangent(labelled: LabelledPyg, surroundings: Surroundings) -> ChosenTangent:
    """Returns the tangent whose moves without each fold of labels have the largest cosine with the networks'.

    Of every decade, as there may be two heights; then beside the highest.
    """
    moves = FoldMoves(labelled.fitted, surroundings)
    if labelled.linearisation.features.start.numel() > LOOKED_AT:
        return moves.beside(labelled.at_minimum(USUAL), USUAL)
    found, at = list[ChosenTangent](), labelled
    for damping in DAMPINGS:
        at = at.at_minimum(damping)
        found.append(moves.beside(at, damping))
    best = _best(found)
    near = [best.damping * BESIDE, best.damping / BESIDE]
    return _best([best, *(moves.beside(best.labelled.at_minimum(damping), damping) for damping in near)])


def _best(found: list[ChosenTangent]) -> ChosenTangent:
    return max(found, key=lambda each: each.cosine)


def _others(fitted: PygFit, n: int) -> Tensor:
    """Returns some nodes without a label, drawn at random, int64."""
    drawn = torch.randperm(n, generator=torch.Generator().manual_seed(fitted.training.seed))
    free = drawn[~torch.isin(drawn, fitted.nodes)]
    return free[: max(1, OTHERS // (fitted.n_classes - 1))]


def _beside(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """Returns what ours are to be stretched by to be theirs, by least squares, and the cosine; 0 if nothing moves."""
    both, own, other = (float(a @ b) for a, b in ((ours, theirs), (ours, ours), (theirs, theirs)))
    return (both / own, both / math.sqrt(own * other)) if own > 0 and other > 0 else (0.0, 0.0)


def _moves(after: Tensor, before: Tensor) -> Tensor:
    """Returns how logits [.., k] of `before` differ after a change, centred; all 0 where rounding alone is left."""
    moves, size = _centred(after - before), float(before.norm()) * math.sqrt(after.numel() / max(before.numel(), 1))
    return moves if float(moves.norm()) > ROUNDING * size else torch.zeros_like(moves)


def _logits(changes: Tensor) -> Tensor:
    """Returns changes of log-odds [s, n] as those of two logits, [s, n, 2]; of more logits as they are."""
    return changes if changes.dim() == 3 else torch.stack([torch.zeros_like(changes), changes], 2)


def _centred(logits: Tensor) -> Tensor:
    """Returns logits [.., k] whose mean is 0, as a softmax takes them."""
    return logits - logits.mean(-1, keepdim=True)
