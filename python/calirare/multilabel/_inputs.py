"""What every estimator does first: bring scores and labels, numpy or torch, into one checked form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calirare.metrics._inputs import Array as Array
from calirare.metrics._inputs import to_tensor


def as_matrix(function: str, name: str, values: Array) -> Tensor:
    """Returns numbers of any kind as a floating-point matrix, sharing memory where it can.

    Args:
        function: who asks, for the message.
        name: the argument, for the message.
        values: tensor, array or nested list [n, k].

    Returns:
        float32, float64 or bool [n, k] on the device of `values`, detached.

    Raises:
        TypeError: the values are not real numbers.
        ValueError: they are no matrix with at least one row and column, or not finite.
    """
    tensor = to_tensor(function, name, values).detach()
    if not isinstance(values, Tensor):
        tensor = tensor.contiguous()  # sums do not depend on how a table was stored
    if tensor.is_complex():
        raise TypeError(f"{function}: {name} must hold real numbers, got {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.dtype not in (torch.float32, torch.float64, torch.bool):
        tensor = tensor.double()
    if tensor.dim() != 2 or 0 in tensor.shape:
        raise ValueError(
            f"{function}: {name} must be a matrix [rows, labels] that is not empty, got shape {list(tensor.shape)}"
        )
    if tensor.dtype != torch.bool and not all(map(math.isfinite, torch.aminmax(tensor))):
        raise ValueError(f"{function}: {name} must be finite, got NaN or infinity")
    return tensor


def as_scores_and_labels(function: str, scores: Array, labels: Array) -> tuple[Tensor, Tensor]:
    """Returns predicted probabilities and multi-hot labels after checking both.

    Args:
        function: who asks, for the message.
        scores: f(x), [n, k], in [0, 1].
        labels: y, [n, k], each 0 or 1 (bool, integer or float).

    Returns:
        scores float32/float64 [n, k] and labels bool [n, k], both on the device of `scores`.

    Raises:
        ValueError: shapes differ, or a value is out of range; and as `as_matrix`.
    """
    f = as_matrix(function, "scores", scores)
    f = f.double() if f.dtype == torch.bool else f
    y = as_matrix(function, "labels", labels).to(f.device)
    if f.shape != y.shape:
        raise ValueError(f"{function}: labels must have shape {list(f.shape)}, got {list(y.shape)}")
    low, high = (float(v) for v in torch.aminmax(f))
    if low < 0 or high > 1:
        raise ValueError(f"{function}: scores must lie in [0, 1], got values from {low:g} to {high:g}")
    return f, as_hot(function, y)


def as_hot(function: str, labels: Tensor) -> Tensor:
    """Returns labels, each 0 or 1 of any dtype, as bool; a ValueError where one is neither."""
    if labels.dtype == torch.bool:
        return labels
    hot = labels == 1
    known = hot | (labels == 0)
    if not bool(known.all()):
        raise ValueError(f"{function}: labels must be 0 or 1, got {float(labels[~known][0]):g}")
    return hot


def check_norm(function: str, p: float) -> None:
    """Raises a ValueError where the order p of the norm is below 1 or not finite."""
    if not (math.isfinite(p) and p >= 1):
        raise ValueError(f"{function}: p must be a finite number >= 1, got {p}")
