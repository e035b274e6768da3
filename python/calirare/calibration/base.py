"""What every calibrator is: fitted on logits and labels, then logits in, probabilities out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Self

import torch
from torch import Tensor

from calirare.errors import InputError

Target = Literal["balanced", "population"] | float
TARGETS: tuple[Target, ...] = ("balanced", "population")
EXPONENTS = {"balanced": 1.0, "population": 0.0}


class Calibrator(ABC):
    """A map from logits [n, k] to calibrated probabilities [n, k], fitted on labelled logits."""

    @abstractmethod
    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits the map on logits [n, k] and labels int64 [n], each label in [0, k); returns self."""

    @abstractmethod
    def transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k] in the dtype of the logits."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Returns the fitted map as plain numbers, lists and strings, for a run's files."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the calibrator that `state` was taken from."""


def check_logits(op: str, logits: Tensor, labels: Tensor | None = None) -> None:
    """Checks logits [n, k >= 2] and labels int64 [n] in [0, k).

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, or a logit is not finite.
        InputError: there is no label to fit on.
    """
    if not logits.is_floating_point():
        raise TypeError(f"{op}: logits must be floating point, got {str(logits.dtype).removeprefix('torch.')}")
    if logits.dim() != 2 or logits.shape[1] < 2:
        raise ValueError(f"{op}: logits must have shape [n, k] with k >= 2, got {list(logits.shape)}")
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(f"{op}: logits must be finite, row {int((~torch.isfinite(logits)).nonzero()[0, 0])} is not")
    if labels is None:
        return
    if labels.dtype != torch.int64:
        raise TypeError(f"{op}: labels must be int64, got {str(labels.dtype).removeprefix('torch.')}")
    if labels.shape != (logits.shape[0],):
        raise ValueError(f"{op}: labels must have shape [{logits.shape[0]}], got {list(labels.shape)}")
    if labels.numel() == 0:
        raise InputError(f"{op}: there is no labelled node to fit on; give at least one")
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise ValueError(
            f"{op}: labels must be in [0, {logits.shape[1]}), got {int(labels.min())} to {int(labels.max())}"
        )


def target_weights(labels: Tensor, n_classes: int, target: Target) -> Tensor:
    """Returns each label's weight, proportional to (share of its class)^-t, float64 [n], mean 1.

    Args:
        labels: int64 [n].
        n_classes: k.
        target: "balanced" (t = 1) gives every class that occurs the same total (the population that cost-sensitive
            training and Macro-ACE judge); "population" (t = 0) gives every node the same weight; a number t in [0, 1]
            lies in between.

    Returns:
        Weights.

    Raises:
        ValueError: the target is unknown or out of range.
    """
    balance = EXPONENTS.get(target) if isinstance(target, str) else target
    if balance is None or not 0 <= balance <= 1:
        raise ValueError(f"target must be one of {', '.join(EXPONENTS)}, or a number in [0, 1], got {target!r}")
    counts = torch.bincount(labels, minlength=n_classes).double()
    weights = (labels.numel() / counts[labels]) ** balance
    return weights / weights.mean()
