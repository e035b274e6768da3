"""What an explanation asks of a detector: its log-odds of the rare class, and what they would be without something."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.calibration import Calibrator


@dataclass(frozen=True, eq=False)
class Shares:
    """What each column adds to the log-odds of some nodes; log-odds = base + sum over the columns.

    Attributes:
        base: log-odds of the node that is compared with, float64 [n].
        names: of the columns, f of them.
        values: float64 [n, f].
    """

    base: Tensor
    names: tuple[str, ...]
    values: Tensor


class Voice(abc.ABC):
    """One detector on one graph, of a rare class and the rest.

    Attributes:
        notes: sentences that say what is held fixed, or is approximate.
    """

    notes: tuple[str, ...] = ()

    @abc.abstractmethod
    def log_odds(self, nodes: Tensor) -> Tensor:
        """Returns log P(rare) / P(rest) of nodes (int64 [n]), uncalibrated, float64 [n]."""

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


def difference(logits: Tensor) -> Tensor:
    """Returns the log-odds of class 1 of logits [n, 2], float64 [n]."""
    return logits[:, 1].double() - logits[:, 0].double()


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
