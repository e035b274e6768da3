"""What every measure does first: bring labels and probabilities into one checked form.

`function` is the measure that asks, for the messages: TypeError where a dtype is wrong or the two are exchanged,
ValueError where a shape or range is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import TypeAlias

import torch

from calirare._util.arrays import Array, as_integers, as_scores, as_weights, check_order, to_tensor
from calirare._util.errors import shown
from calirare.metrics.predictions import ROW_SUM_SLACK, Kind, Predictions

Scalar: TypeAlias = float | torch.Tensor
Metric: TypeAlias = Callable[..., Scalar]


def read(function: str, y_true: Array, p: Array, weights: Array | None = None) -> Predictions:
    """Returns the checked input of a measure.

    `y_true` is [n] in 0..C-1, or [n, K] of 0 and 1 for a multi-label task; `p` is [n] = P(class 1), [n, C] with rows
    that sum to one, or [n, K]; `weights` is [n] >= 0 or None.
    """
    labels, scores = _in_order(function, y_true, p, (1, 2))
    kind: Kind = "multilabel" if labels.ndim == 2 else "multiclass" if scores.ndim == 2 else "binary"
    _check_shape(function, labels, tuple(scores.shape) if kind == "multilabel" else (scores.shape[0],))
    if kind == "multiclass":
        check_rows(function, scores)
    y = as_integers(function, "y_true", labels, scores.device, scores.shape[1] if kind == "multiclass" else 2)
    w = as_weights(function, weights, scores.shape[0], scores.device)
    return Predictions(kind, scores, y, w, isinstance(p, torch.Tensor))


def read_event(function: str, y_true: Array, p: Array, weights: Array | None = None) -> Predictions:
    """Returns the checked input of kind "binary": outcomes [n] of 0 and 1 and the event's probabilities [n]."""
    labels, scores = _in_order(function, y_true, p, (1,))
    y = as_integers(function, "y_true", labels, scores.device, 2)
    _check_shape(function, y, tuple(scores.shape))
    w = as_weights(function, weights, scores.shape[0], scores.device)
    return Predictions("binary", scores, y, w, isinstance(p, torch.Tensor))


def _in_order(function: str, y_true: Array, p: Array, ndim: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels as they are and checked probabilities, on the probabilities' device."""
    given = to_tensor(function, "p", p)
    labels = to_tensor(function, "y_true", y_true, given.device)
    check_order(function, labels, given)
    if not isinstance(p, torch.Tensor) and not given.is_floating_point():
        given = given.double()
    return labels, as_scores(function, "p", given, ndim=ndim)


def _check_shape(function: str, y_true: torch.Tensor, expected: tuple[int, ...]) -> None:
    if tuple(y_true.shape) != expected:
        raise ValueError(f"{function}: y_true must have shape {expected}, got {tuple(y_true.shape)}")


def check_rows(function: str, p: torch.Tensor) -> None:
    """Refuses class probabilities [n, C] of one class, or whose rows' sums are off by more than `ROW_SUM_SLACK`."""
    p = p.detach()
    if p.shape[1] < 2:
        raise ValueError(f"{function}: p must have at least 2 columns, or be [n] = P(class 1), got {p.shape[1]}")
    low, high = (float(bound) for bound in torch.aminmax(p @ p.new_ones(p.shape[1])))
    off = max(1 - low, high - 1)
    if off > ROW_SUM_SLACK:
        raise ValueError(f"{function}: p must sum to 1 in every row, got a sum that is off by {off:g}")


def check_norm(function: str, norm: float) -> None:
    """Refuses p < 1 of an L_p norm; `math.inf` is the maximum."""
    if isinstance(norm, bool) or not isinstance(norm, Real):
        raise TypeError(f"{function}: norm must be a number, 2 for the l2 norm, got {shown(norm)}")
    if not norm >= 1:
        raise ValueError(f"{function}: norm must be at least 1, got {norm}")
