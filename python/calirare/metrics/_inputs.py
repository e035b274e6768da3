"""What every measure does first: bring numpy or torch input into one checked form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from calirare.metrics._predictions import ROW_SUM_SLACK, Kind, Predictions

Array: TypeAlias = np.ndarray | torch.Tensor | Sequence[Any]
Scalar: TypeAlias = float | torch.Tensor
Metric: TypeAlias = Callable[..., Scalar]

# Sums of weights that leave room for products with scores and other sums in float64.
WEIGHT_SUMS = (1e-300, 1e300)


def to_tensor(function: str, name: str, values: Array, device: torch.device | None = None) -> torch.Tensor:
    """A tensor that shares memory with `values` where it can.

    Args:
        function: who asks, for the message.
        name: the argument, for the message.
        values: tensor, array or nested list.
        device: where the result should live; None keeps it.

    Returns:
        The tensor.

    Raises:
        TypeError: the values are not numbers.
        ValueError: some are masked.
    """
    if not isinstance(values, torch.Tensor):
        if np.ma.is_masked(values):
            raise ValueError(f"{function}: {name} must not be masked, got a mask: leave these samples out instead")
        array = np.asarray(values)
        if array.dtype.kind not in "buif":
            raise TypeError(f"{function}: {name} must hold real numbers, got dtype {array.dtype}")
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no longdouble
            array = array.astype(np.float64)
        if not array.flags.writeable or any(s < 0 for s in array.strides) or not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
        values = torch.from_numpy(array)
    return values if device is None else values.to(device)


def as_scores(function: str, name: str, values: Array, *, ndim: tuple[int, ...] = (1,)) -> torch.Tensor:
    """Numbers in [0, 1] as float32 or float64; lists and integers become float64.

    Args:
        function: who asks, for the message.
        name: the argument, for the message.
        values: the scores.
        ndim: the numbers of dimensions that are accepted.

    Returns:
        The tensor, not empty.

    Raises:
        TypeError: dtype is neither float32, float64 nor (numpy) integer.
        ValueError: shape or range is wrong, or a value is not finite.
    """
    is_torch = isinstance(values, torch.Tensor)
    scores = to_tensor(function, name, values)
    if not scores.is_floating_point() and not is_torch:
        scores = scores.double()
    if scores.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{function}: {name} must be float32 or float64, got {scores.dtype}")
    if scores.ndim not in ndim:
        shapes = " or ".join(f"{d}-dimensional" for d in ndim)
        raise ValueError(f"{function}: {name} must be {shapes}, got shape {tuple(scores.shape)}")
    if scores.numel() == 0:
        raise ValueError(f"{function}: {name} must not be empty, got shape {tuple(scores.shape)}")
    low, high = (float(bound) for bound in torch.aminmax(scores.detach()))
    if not (low >= 0 and high <= 1):  # also catches NaN
        raise ValueError(f"{function}: {name} must lie in [0, 1], got values from {low:g} to {high:g}")
    return scores


def as_integers(function: str, name: str, values: Array, device: torch.device, limit: int | None) -> torch.Tensor:
    """Labels as int64.

    Args:
        function: who asks, for the message.
        name: the argument, for the message.
        values: integers, booleans, or floats without a fraction.
        device: where the result should live.
        limit: labels must be below it; None for no upper limit.

    Returns:
        int64, the shape of `values`.

    Raises:
        TypeError: a value is a fraction, NaN, infinite or beyond int64.
        ValueError: a label is negative or not below `limit`.
    """
    labels = to_tensor(function, name, values, device)
    if labels.is_floating_point():
        whole = (labels == labels.round()) & (labels.abs() < 2**63)
        if not bool(whole.all()):
            raise TypeError(f"{function}: {name} must be integers, got {float(labels[~whole][0]):g}")
        labels = labels.long()
    labels = labels.long()
    if labels.numel():
        low, high = (int(bound) for bound in torch.aminmax(labels))
        if low < 0 or (limit is not None and high >= limit):
            expected = "not be negative" if limit is None else f"lie in 0..{limit - 1}"
            raise ValueError(f"{function}: {name} must {expected}, got values from {low} to {high}")
    return labels


def as_weights(function: str, weights: Array | None, n: int, device: torch.device) -> torch.Tensor | None:
    """Sample weights as float64 [n]; None stays None.

    Args:
        function: who asks, for the message.
        weights: finite, >= 0, with a sum within `WEIGHT_SUMS`.
        n: number of samples.
        device: where the result should live.

    Returns:
        The weights or None.

    Raises:
        ValueError: shape or range is wrong.
    """
    if weights is None:
        return None
    tensor = to_tensor(function, "weights", weights, device).double()
    if tensor.shape != (n,):
        raise ValueError(f"{function}: weights must have shape ({n},), got {tuple(tensor.shape)}")
    total = float(tensor.sum())
    if not bool(torch.isfinite(tensor).all()) or bool((tensor < 0).any()) or total == 0:
        raise ValueError(
            f"{function}: weights must be finite, not negative and not all zero, got {tensor.tolist()[:5]}"
        )
    low, high = WEIGHT_SUMS
    if not low <= total <= high:
        raise ValueError(
            f"{function}: weights must have a sum from {low:g} to {high:g}, got {total:g}: "
            "multiply all by one number, only their ratios count"
        )
    return tensor


def read(function: str, probabilities: Array, labels: Array, weights: Array | None = None) -> Predictions:
    """Checks the input of a measure.

    Args:
        function: who asks, for the messages.
        probabilities: [n] = P(class 1), or [n, C] with rows that sum to one, or [n, K] of independent labels.
        labels: integers [n] in 0..C-1; [n, K] of 0 and 1 says that the task is multi-label.
        weights: None, or [n] >= 0.

    Returns:
        The checked form.

    Raises:
        ValueError: shapes or ranges are wrong.
    """
    p = as_scores(function, "probabilities", probabilities, ndim=(1, 2))
    y = to_tensor(function, "labels", labels, p.device)
    kind: Kind = "multilabel" if y.ndim == 2 else "multiclass" if p.ndim == 2 else "binary"
    expected = tuple(p.shape) if kind == "multilabel" else (p.shape[0],)
    if tuple(y.shape) != expected:
        raise ValueError(f"{function}: labels must have shape {expected}, got {tuple(y.shape)}")
    if kind == "multiclass":
        check_rows(function, p)
    y = as_integers(function, "labels", y, p.device, p.shape[1] if kind == "multiclass" else 2)
    w = as_weights(function, weights, p.shape[0], p.device)
    return Predictions(kind, p, y, w, isinstance(probabilities, torch.Tensor))


def check_rows(function: str, probabilities: torch.Tensor) -> None:
    """Refuses class probabilities [n, C] that do not sum to one.

    Args:
        function: who asks, for the message.
        probabilities: [n, C].

    Raises:
        ValueError: fewer than two classes, or a row's sum is off by more than `ROW_SUM_SLACK`.
    """
    p = probabilities.detach()
    if p.shape[1] < 2:
        raise ValueError(
            f"{function}: probabilities must have at least 2 columns, or be [n] = P(class 1), got {p.shape[1]}"
        )
    low, high = (float(bound) for bound in torch.aminmax(p @ p.new_ones(p.shape[1])))
    off = max(1 - low, high - 1)
    if off > ROW_SUM_SLACK:
        raise ValueError(f"{function}: probabilities must sum to 1 in every row, got a sum that is off by {off:g}")


def check_count(function: str, name: str, value: int, *, least: int = 1) -> None:
    """Refuses what is not a whole number >= `least`.

    Args:
        function: who asks, for the message.
        name: the argument, for the message.
        value: number of bins or draws.
        least: the smallest that is accepted.

    Raises:
        TypeError: not an integer.
        ValueError: below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{function}: {name} must be an integer, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{function}: {name} must be at least {least}, got {value}")


def check_norm(function: str, norm: float) -> None:
    """Refuses a norm below one.

    Args:
        function: who asks, for the message.
        norm: p of the L_p norm; `math.inf` is the maximum.

    Raises:
        ValueError: below 1 or NaN.
    """
    if not norm >= 1:
        raise ValueError(f"{function}: norm must be at least 1, got {norm}")


def read_scores(function: str, scores: Array, outcomes: Array, weights: Array | None = None) -> Predictions:
    """Checks one event's probabilities and outcomes.

    Args:
        function: who asks, for the messages.
        scores: probabilities of the event, [n], in [0, 1].
        outcomes: whether it happened, 0 or 1, [n].
        weights: None, or [n] >= 0.

    Returns:
        The checked form, of kind "binary".

    Raises:
        ValueError: shapes or ranges are wrong.
    """
    s = as_scores(function, "scores", scores)
    y = as_integers(function, "outcomes", to_tensor(function, "outcomes", outcomes), s.device, 2)
    if y.shape != s.shape:
        raise ValueError(f"{function}: outcomes must have shape {tuple(s.shape)}, got {tuple(y.shape)}")
    w = as_weights(function, weights, s.shape[0], s.device)
    return Predictions("binary", s, y, w, isinstance(scores, torch.Tensor))
