"""What every measure does first: bring labels and probabilities into one checked form.

`function` is the measure and `name` its argument, for the messages: TypeError where a dtype is wrong or the two are
exchanged, ValueError where a shape or range is wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

import torch

from calirare._util.arrays import Array, as_integers, as_scores, as_weights, check_count, check_order, to_tensor
from calirare._util.errors import shown

Scalar: TypeAlias = float | torch.Tensor
Metric: TypeAlias = Callable[..., Scalar]


def read(function: str, y_true: Array, p: Array, weights: Array | None = None) -> Predictions:
    """Returns the checked input of a measure.

    `y_true` is [n] in 0..C-1; `p` is [n] = P(class 1), or [n, C] with rows that sum to one; `weights` is [n] >= 0 or
    None.
    """
    labels, scores = _in_order(function, y_true, p, (1, 2))
    kind: Kind = "multiclass" if scores.ndim == 2 else "binary"
    _check_shape(function, labels, (scores.shape[0],))
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
    """Refuses class probabilities [n, C] of one class, or rows with a sum off by more than `ROW_SUM_SLACK`."""
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


Kind = Literal["binary", "multiclass"]

# Softmax rows in float32 sum to one within a few 1e-7; a table rounded to three digits still holds probabilities.
ROW_SUM_SLACK = 1e-2


@dataclass(frozen=True)
class Predictions:
    """Checked input of a measure.

    Attributes:
        kind: "binary" (probabilities were [n]) or "multiclass" ([n, C], rows sum to one).
        probabilities: float32/float64, [n] if binary, otherwise [n, C].
        labels: int64 [n].
        weights: float64 [n], or None if every sample counts the same.
        is_torch: whether the caller gave tensors, and so gets one back.
    """

    kind: Kind
    probabilities: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor | None
    is_torch: bool

    @property
    def n_classes(self) -> int:
        """C; two if binary."""
        return 2 if self.kind == "binary" else self.probabilities.shape[1]

    def on_cpu(self) -> Predictions:
        """The same without derivatives on the CPU, where the device does not change a digit of the sums."""
        weights = None if self.weights is None else self.weights.cpu()
        return Predictions(self.kind, self.probabilities.detach().cpu(), self.labels.cpu(), weights, self.is_torch)

    def result(self, value: torch.Tensor) -> float | torch.Tensor:
        """Gives `value` back as the caller's kind: a tensor of the probabilities' dtype and device, or a float."""
        return value.to(self.probabilities) if self.is_torch else float(value)

    def class_probabilities(self) -> torch.Tensor:
        """[n, C], with the column of class 0 written out if binary."""
        if self.kind != "binary":
            return self.probabilities
        return torch.stack((1 - self.probabilities, self.probabilities), 1)

    def one_hot(self) -> torch.Tensor:
        """Which class each sample has, bool [n, C]."""
        return self.labels[:, None] == torch.arange(self.n_classes, device=self.labels.device)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Weighted mean of `values`, float64 [n]."""
        return values.mean() if self.weights is None else self.weights / self.weights.sum() @ values


def predicted_classes(data: Predictions) -> torch.Tensor:
    """Returns the most probable class, of equals the first: int64 [n]."""
    p = data.probabilities.detach()
    return p.argmax(1) if data.kind == "multiclass" else (p > 0.5).long()


def confidence_and_correct(data: Predictions) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the probability of the predicted class, differentiable, and whether it is the true one, both [n]."""
    p = data.probabilities
    if data.kind == "binary":
        positive = p.detach() > 0.5
        return torch.where(positive, p, 1 - p), positive == data.labels.bool()
    confidence, prediction = p.max(1)
    return confidence, prediction == data.labels


def _check_class(function: str, data: Predictions, cls: int, name: str = "cls") -> None:
    try:
        operator.index(cls)
    except TypeError:
        raise TypeError(f"{function}: {name} must be an integer, got {shown(cls)}") from None
    if not 0 <= cls < data.n_classes:
        raise ValueError(f"{function}: {name} must lie in 0..{data.n_classes - 1}, got {cls}")


def present_classes(data: Predictions) -> list[int]:
    """Returns the classes with at least one sample of positive weight, ascending."""
    labels = data.labels if data.weights is None else data.labels[data.weights > 0]
    return [int(c) for c in torch.unique(labels)]


def class_members(function: str, data: Predictions, cls: int, name: str = "cls") -> torch.Tensor:
    """Returns which samples have true class `cls`, bool [n] with at least one True.

    TypeError where `cls` is no integer, ValueError where there is no such class, or no sample of positive weight of it.
    """
    _check_class(function, data, cls, name)
    members = data.labels == cls
    counted = members if data.weights is None else members & (data.weights > 0)
    if not bool(counted.any()):
        raise ValueError(f"{function}: y_true must contain class {cls}, got none of it among {len(members)} samples")
    return members


def check_resampling(function: str, n_draws: int, level: float) -> None:
    """Refuses a number of draws that is none, and a level outside (0, 1)."""
    check_count(function, "n_draws", n_draws)
    if not 0 < level < 1:
        raise ValueError(f"{function}: level must lie in (0, 1), got {level}")
