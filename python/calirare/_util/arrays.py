"""Numbers from numpy, torch or nested lists, brought into one checked form.

`function` is the caller and `name` its argument, for the messages: TypeError for a wrong kind or dtype,
ValueError for a wrong shape or range. `device` is where the result shall live.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

Array: TypeAlias = np.ndarray | torch.Tensor | Sequence[Any]


AnyArray = TypeVar("AnyArray", np.ndarray, torch.Tensor)


ROUNDING = 1e-6  # how far beyond 0 and 1 a probability may lie: that of a weighted mean of float32 numbers, say


MOST = 10**7  # bins, draws or points: more are a slip, and would take all memory


# Sums of weights that leave room for their squares, and for products with scores and other sums, in float64.
_WEIGHT_SUMS = (1e-100, 1e100)


EQUAL = 1e-12  # of their size: numbers that differ by less are equal but for rounding


def differ(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Returns whether numbers along an axis differ by more than rounding, which varies between processors."""
    apart: np.ndarray = np.ptp(values, axis=axis) > EQUAL * np.abs(values).max(axis)
    return apart


def equal_to(p: Any) -> Any:
    """Returns by how much another P(rare) may differ from p, in [0, 1], and count as equal.

    Rounding differs between rows and between processors; the odds of equal ones agree to nine digits.
    """
    return p * (1e-9 * (1 - p) + 1e-15)


def to_tensor(function: str, name: str, values: Array, device: torch.device | None = None) -> torch.Tensor:
    """Returns a tensor that shares memory with `values` where it can; refuses masked values and what is no number."""
    if not isinstance(values, torch.Tensor):
        if np.ma.is_masked(values):
            raise ValueError(f"{function}: {name} must not be masked, got a mask: leave these samples out instead")
        array = np.asarray(values)
        if array.dtype.kind not in "buif":
            raise TypeError(
                f"{function}: {name} must hold real numbers, got dtype {array.dtype}: number the classes where these "
                "are names (y == 'fraud'), or take .astype(float)"
            )
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no longdouble
            array = array.astype(np.float64)
        if not array.flags.writeable or any(s < 0 for s in array.strides) or not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
        values = torch.from_numpy(array)
    return values if device is None else values.to(device)


def as_scores(function: str, name: str, values: Array, *, ndim: tuple[int, ...] = (1,)) -> torch.Tensor:
    """Returns numbers in [0, 1] as float32 or float64, not empty; lists and numpy integers become float64.

    `ndim` names the numbers of dimensions that are accepted.
    """
    is_torch = isinstance(values, torch.Tensor)
    scores = to_tensor(function, name, values)
    if not scores.is_floating_point() and not is_torch:
        scores = scores.double()
    if scores.dtype not in (torch.float32, torch.float64):
        got = str(scores.dtype).removeprefix("torch.")
        raise TypeError(f"{function}: {name} must be float32 or float64, got {got}: widen it, as with .astype or .to")
    if scores.ndim not in ndim:
        shapes = " or ".join(f"{d}-dimensional" for d in ndim)
        raise ValueError(f"{function}: {name} must be {shapes}, got shape {tuple(scores.shape)}")
    if scores.numel() == 0:
        raise ValueError(f"{function}: {name} must not be empty, got shape {tuple(scores.shape)}")
    low, high = (float(bound) for bound in torch.aminmax(scores.detach()))
    if math.isnan(low):
        missing = torch.isnan(scores.detach())
        first = missing.nonzero()[0].tolist()
        raise ValueError(
            f"{function}: {name} must lie in [0, 1], got {int(missing.sum()):,} that are no number, the first at "
            f"{first[0] if len(first) == 1 else tuple(first)}: leave these samples out, labels too"
        )
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ValueError(
            f"{function}: {name} must lie in [0, 1], got values from {low:.9g} to {high:.9g}: of logits take the "
            "sigmoid or softmax, percent divide by 100"
        )
    return scores if low >= 0 and high <= 1 else scores.clamp(0, 1)


def as_integers(function: str, name: str, values: Array, device: torch.device, limit: int | None) -> torch.Tensor:
    """Returns labels as int64 of the same shape; floats without a fraction are whole numbers too.

    They must lie in 0..limit-1, or only not be negative where `limit` is None.
    """
    labels = to_tensor(function, name, values, device)
    if labels.is_floating_point():
        whole = (labels == labels.round()) & (labels.abs() < 2**63)
        if not bool(whole.all()):
            raise TypeError(f"{function}: {name} must be integers, got {float(labels[~whole][0]):g}")
    labels = labels.long()
    if labels.numel():
        low, high = (int(bound) for bound in torch.aminmax(labels))
        if low < 0 or (limit is not None and high >= limit):
            expected = "not be negative" if limit is None else f"lie in 0..{limit - 1}"
            raise ValueError(
                f"{function}: {name} must {expected}, got values from {low} to {high}: number the classes from 0"
            )
    return labels


def all_finite(x: torch.Tensor) -> bool:
    """Returns whether no number is infinite or NaN.

    A sum is finite only where all of its terms are; where it is not, as of terms too large for it, each is looked at.
    """
    return math.isfinite(float(x.detach().sum())) or bool(torch.isfinite(x).all())


def as_weights(function: str, weights: Array | None, n: int, device: torch.device) -> torch.Tensor | None:
    """Returns sample weights [n] >= 0 as float64, made countable; None stays None."""
    if weights is None:
        return None
    tensor = to_tensor(function, "weights", weights, device).double()
    if tensor.shape != (n,):
        raise ValueError(f"{function}: weights must have shape ({n},), got {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()) or bool((tensor < 0).any()) or not bool(tensor.any()):
        raise ValueError(
            f"{function}: weights must be finite, not negative and not all zero, got {tensor.tolist()[:5]}"
        )
    return countable_weights(tensor)


def countable_weights(weights: AnyArray) -> AnyArray:
    """Returns weights [n] >= 0, not all zero, as they are, or divided by the largest where their sum has no square."""
    low, high = _WEIGHT_SUMS
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    return weights if low <= total <= high else weights / weights.max()


def check_order(function: str, y_true: torch.Tensor, p: torch.Tensor) -> None:
    """Refuses labels and probabilities in each other's place, where their kinds show it.

    That is fractions for `y_true`, floats for it and integers for `p`, or a table for it and a column for `p`.
    """
    hint = "the order is (y_true, p), labels before probabilities"
    if y_true.is_floating_point():
        between = (y_true > 0) & (y_true < 1)
        if bool(between.any()):
            raise TypeError(f"{function}: y_true must be integers, got {float(y_true[between][0]):g}: {hint}")
        if not p.is_floating_point():
            raise TypeError(f"{function}: p must be floating point where y_true is, got {p.dtype}: {hint}")
    if y_true.ndim > max(p.ndim, 1):
        shapes = f"{tuple(y_true.shape)} for p of shape {tuple(p.shape)}"
        raise ValueError(f"{function}: y_true must have shape {tuple(p.shape)}, got {shapes}: {hint}")


def check_count(function: str, name: str, value: int, *, least: int = 1) -> None:
    """Refuses what is not a whole number from `least` to `MOST`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{function}: {name} must be an integer, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{function}: {name} must be at least {least}, got {value}")
    if value > MOST:
        raise ValueError(f"{function}: {name} must be at most {MOST:,}, got {value:,}")


LONGEST = 160  # characters of a field: a graph has its own line


def brief(value: Any) -> str:
    """Returns one line for a dataclass: each field by `describe`; assign it to `__repr__`."""
    fields = (f for f in dataclasses.fields(value) if f.repr)
    return f"{type(value).__name__}({', '.join(f'{f.name}={describe(getattr(value, f.name))}' for f in fields)})"


def describe(value: Any) -> str:
    """Returns type and shape of an array, the repr of what has a short one, and otherwise the name of its class."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, torch.nn.Module):  # its repr would walk the network
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= LONGEST and "\n" not in text else f"{type(value).__name__}(...)"
