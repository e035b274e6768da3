"""What every estimator does first: bring scores and labels, numpy or torch, into one checked form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calirare._util.arrays import ROUNDING, Array, check_order, to_tensor


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


def read(function: str, y_true: Array, p: Array) -> tuple[Tensor, Tensor]:
    """Returns multi-hot labels and predicted probabilities after checking both.

    Args:
        function: who asks, for the message.
        y_true: labels y, [n, k], each 0 or 1 (bool, integer or float).
        p: probabilities f(x), [n, k], in [0, 1].

    Returns:
        Labels bool [n, k] and probabilities float32/float64 [n, k], both on the device of `p`.

    Raises:
        TypeError: one of them does not hold real numbers, or they are exchanged.
        ValueError: shapes differ, or a value is out of range.
    """
    f = as_matrix(function, "p", p)
    f = f.double() if f.dtype == torch.bool else f
    y = as_matrix(function, "y_true", y_true).to(f.device)
    check_order(function, y, f)
    if f.shape != y.shape:
        raise ValueError(f"{function}: y_true must have shape {list(f.shape)}, got {list(y.shape)}")
    low, high = (float(v) for v in torch.aminmax(f))
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise ValueError(f"{function}: p must lie in [0, 1], got values from {low:.9g} to {high:.9g}")
    return as_hot(function, y), f if low >= 0 and high <= 1 else f.clamp(0, 1)


def as_hot(function: str, labels: Tensor, name: str = "y_true") -> Tensor:
    """Returns labels, each 0 or 1 of any dtype, as bool; a ValueError that calls them `name` where one is neither."""
    if labels.dtype == torch.bool:
        return labels
    hot = labels == 1
    known = hot | (labels == 0)
    if not bool(known.all()):
        raise ValueError(f"{function}: {name} must be 0 or 1, got {float(labels[~known][0]):g}")
    return hot


def check_norm(function: str, norm: float, name: str = "norm") -> None:
    """Raises a ValueError where the order of the norm, the argument `name`, is below 1 or not finite."""
    if not (math.isfinite(norm) and norm >= 1):
        raise ValueError(f"{function}: {name} must be a finite number >= 1, got {norm}")
