"""What an explanation needs of a detector: the logits of nodes, and what they would be without or with something.

Logits are known up to a constant of each node, whatever the number of classes k >= 2.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from calirare.calibration import Calibrator

FEW, SETS = 32, 4  # nodes of a set that is kept, and sets
PAGE = 5  # nodes by which the work of label effects is estimated
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Shares:
    """What each column adds to q numbers of some nodes, such as their logits; numbers = base + sum over the columns.

    Attributes:
        base: numbers of the node that is compared with, float64 [n, q].
        names: of the columns, f of them.
        values: float64 [n, f, q].
    """

    base: Tensor
    names: tuple[str, ...]
    values: Tensor


class Kept(Generic[Made]):
    """What was made of the last few sets of nodes, which several questions about the same nodes need."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], Made] = {}

    def of(self, nodes: Tensor, make: Callable[[Tensor], Made]) -> Made:
        """Returns what `make` makes of nodes (int64 [n]), made once of the same few ones."""
        if nodes.numel() > FEW:
            return make(nodes)
        key = tuple(nodes.tolist())
        if key not in self._made:
            while len(self._made) >= SETS:
                self._made.pop(next(iter(self._made)))
            self._made[key] = make(nodes)
        return self._made[key]


class ExplainableModel(abc.ABC):
    """One detector of k classes on one graph.

    Attributes:
        notes: sentences that say what is held fixed, or is approximate, in effects of edges and features.
        label_notes: the same of effects of labels; what these need is made for it.
        label_work: multiply-adds, roughly, that effects of all labels on `PAGE` nodes take.
        expensive: whether each node costs a system of equations, or a new fit, without a label.
    """

    notes: tuple[str, ...] = ()
    label_notes: tuple[str, ...] = ()
    label_work: float = 0.0
    expensive: bool = False

    @abc.abstractmethod
    def logits(self, nodes: Tensor) -> Tensor:
        """Returns the uncalibrated logits of nodes (int64 [n]), float64 [n, k]; NaN where there are none."""

    @abc.abstractmethod
    def without_each_label(self, nodes: Tensor) -> Tensor:
        """Returns the logits of nodes without each of the m labels, float64 [m, n, k]."""

    @abc.abstractmethod
    def shares(self, nodes: Tensor) -> Shares | None:
        """Returns what each column adds to the logits of nodes; None where that is not known exactly."""

    @abc.abstractmethod
    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """Returns the logits of a node without each of b edges (int64 [b, 2], no self loops), float64 [b, k]."""

    @abc.abstractmethod
    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """Returns the logits of nodes without each of s sets of labels (their places, int64), float64 [s, n, k]."""

    @abc.abstractmethod
    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """Returns the logits of nodes if one of c nodes without a label (`more`) had one, float64 [k, c, n, k].

        The first index is the new label; it weighs what labels of its class weigh on average.
        """


def difference(logits: Tensor) -> Tensor:
    """Returns the log-odds of class 1 of logits [.., 2], float64 [..]."""
    return logits[..., 1].double() - logits[..., 0].double()


def two_columns(log_odds: Tensor) -> Tensor:
    """Returns log-odds [..] as logits 0 and z of two classes, [.., 2]."""
    return torch.stack([torch.zeros_like(log_odds), log_odds], -1)


def probabilities(logits: Tensor, mapping: Calibrator | None) -> Tensor:
    """Returns probabilities [.., k] of logits [.., k] under a calibrator; None: there is none. float64."""
    flat = logits.double().reshape(-1, logits.shape[-1])
    p = flat.softmax(1) if mapping is None or not len(flat) else mapping.transform(flat)
    return p.reshape(logits.shape)


def class_log_odds(p: Tensor, of: int) -> Tensor:
    """Returns log P(class) - log(sum of the others) of probabilities [.., k], finite, float64 [..].

    What is left of 1 is added up of the others: of a class that is next to certain no digit is lost.
    """
    others = torch.cat([p[..., :of], p[..., of + 1 :]], -1).sum(-1)
    tiny = torch.finfo(torch.float64).tiny
    return p[..., of].clamp(min=tiny).log() - others.clamp(min=tiny).log()


def log_odds_of(p: Tensor) -> Tensor:
    """Returns the log-odds of probabilities, float64; of 0 and 1 those of the nearest numbers that are neither."""
    limits = torch.finfo(torch.float64)
    inside = p.double().clamp(limits.tiny, 1 - limits.eps / 2)
    return inside.log() - torch.log1p(-inside)
