"""What an explanation asks of a detector: what it says of nodes, and what it would say without something.

Of two classes that is their log-odds, one number for each node. Of k > 2 classes it is their logits up to a constant of
each node: what is [.., n] below is [.., n, k] then (`said`).
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
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Shares:
    """What each column adds to the log-odds of some nodes; log-odds = base + sum over the columns.

    Attributes:
        base: log-odds of the node that is compared with, float64 [n]; of k > 2 classes their logits, [n, k].
        names: of the columns, f of them.
        values: float64 [n, f]; of more classes [n, f, k].
    """

    base: Tensor
    names: tuple[str, ...]
    values: Tensor


class Kept(Generic[Made]):
    """What was made of the last few sets of nodes, which several questions about the same nodes ask for."""

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
    """One detector on one graph, of a rare class and the rest, or of more classes.

    Attributes:
        notes: sentences that say what is held fixed, or is approximate.
    """

    notes: tuple[str, ...] = ()

    @property
    def expensive(self) -> bool:
        """Whether each node that is asked about without a label costs a system of equations."""
        return False

    @abc.abstractmethod
    def log_odds(self, nodes: Tensor) -> Tensor:
        """Returns log P(rare) / P(rest) of nodes (int64 [n]), uncalibrated, float64 [n]; or logits [n, k]."""

    def prepare(self, nodes: Tensor) -> None:
        """Is told which nodes (int64 [n]) will be asked about, a few at a time, so that it may prepare for all."""
        del nodes

    @abc.abstractmethod
    def without_each_label(self, nodes: Tensor) -> Tensor:
        """Returns the log-odds of nodes without each of the m labels, float64 [m, n]."""

    @abc.abstractmethod
    def shares(self, nodes: Tensor) -> Shares | None:
        """Returns what each column adds to the log-odds of nodes; None where that is not known exactly."""

    @abc.abstractmethod
    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """Returns the log-odds of a node without each of b edges (int64 [b, 2], no self loops), float64 [b]."""

    @abc.abstractmethod
    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """Returns the log-odds of nodes without each of s sets of labels (their places, int64), float64 [s, n]."""

    @abc.abstractmethod
    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """Returns the log-odds of nodes if one of c nodes without a label (`more`) had one, float64 [2, c, n].

        The first half is of labels of the rest, the second of rare ones; a label weighs what those of its class do.
        """

    def with_labels(self, nodes: Tensor, more: Tensor, y: Tensor) -> Tensor:
        """Returns the log-odds of nodes if c nodes without a label all had one, y int64 [c], float64 [n].

        Where a detector does not know better, what each label alone would change is added up.
        """
        base, each = self.log_odds(nodes), self.with_each_label(nodes, more)
        return base + (each[y, torch.arange(len(y))] - base).sum(0)


def difference(logits: Tensor) -> Tensor:
    """Returns the log-odds of class 1 of logits [n, 2], float64 [n]."""
    return logits[:, 1].double() - logits[:, 0].double()


def said(logits: Tensor) -> Tensor:
    """Returns what a model says by logits [.., k], float64: log-odds [..] of two classes, of more the logits."""
    return logits.double() if logits.shape[-1] > 2 else logits[..., 1].double() - logits[..., 0].double()


def two_columns(log_odds: Tensor) -> Tensor:
    """Returns log-odds [..] as logits 0 and z of two classes, [.., 2]."""
    return torch.stack([torch.zeros_like(log_odds), log_odds], -1)


def probability(log_odds: Tensor, mapping: Calibrator | None) -> Tensor:
    """Returns P(rare) of uncalibrated log-odds [..] under a calibration map; None: there is no map. float64 [..]."""
    if mapping is None:
        return torch.sigmoid(log_odds.double())
    flat = two_columns(log_odds.double().flatten())
    return mapping.transform(flat)[:, 1].reshape(log_odds.shape)


def log_odds_of(p: Tensor) -> Tensor:
    """Returns the log-odds of probabilities, float64; of 0 and 1 those of the nearest numbers that are neither."""
    limits = torch.finfo(torch.float64)
    inside = p.double().clamp(limits.tiny, 1 - limits.eps / 2)
    return inside.log() - torch.log1p(-inside)
