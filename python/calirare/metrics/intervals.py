"""Measures of the jackknife's output: expected individual calibration error and coverage of intervals."""

from __future__ import annotations

import torch

from calirare._util.arrays import Array, as_scores, as_weights, to_tensor
from calirare.metrics.inputs import Scalar


def eice(uncertainty: Array, confidence: Array, *, weights: Array | None = None) -> Scalar:
    """Expected individual calibration error: the mean of |uncertainty - confidence| (paper, Eq. 10).

    Args:
        uncertainty: of each node, [n], finite; jackknife intervals may leave [0, 1], and so may their midpoint. Of
            several labels [n, K]: then the mean over labels.
        confidence: probability of the predicted class, of the same shape, in [0, 1].
        weights: sample weights [n] >= 0, or None.

    Returns:
        A float for numpy input, a 0-dim tensor for torch input; differentiable in both.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shapes differ, or a value is out of range or not finite.
    """
    conf = as_scores("eice", "confidence", confidence, ndim=(1, 2))
    unc = to_tensor("eice", "uncertainty", uncertainty, conf.device)
    if unc.shape != conf.shape:
        raise ValueError(f"eice: uncertainty must have shape {tuple(conf.shape)}, got {tuple(unc.shape)}")
    if not bool(torch.isfinite(unc).all()):
        raise ValueError("eice: uncertainty must be finite, got NaN or infinity")
    value = _mean("eice", (unc.double() - conf.double()).abs(), weights)
    return value.to(conf.dtype) if isinstance(confidence, torch.Tensor) else float(value)


def coverage(y_true: Array, lower: Array, upper: Array, *, weights: Array | None = None) -> Scalar:
    """Share of true values inside their closed interval [lower, upper].

    Args:
        y_true: [n], integers or floats.
        lower: [n].
        upper: [n], >= lower.
        weights: sample weights [n] >= 0, or None.

    Returns:
        In [0, 1]: a float for numpy intervals, a 0-dim tensor for torch ones.

    Raises:
        TypeError: not numbers.
        ValueError: shapes differ or are empty, an interval is upside down, or a value is NaN.
    """
    low = to_tensor("coverage", "lower", lower)
    high = to_tensor("coverage", "upper", upper, low.device)
    aim = to_tensor("coverage", "y_true", y_true, low.device)
    if low.ndim != 1 or low.numel() == 0:
        raise ValueError(f"coverage: lower must be [n] with n >= 1, got shape {tuple(low.shape)}")
    for name, values in (("upper", high), ("y_true", aim)):
        if values.shape != low.shape:
            raise ValueError(f"coverage: {name} must have shape {tuple(low.shape)}, got {tuple(values.shape)}")
    if bool(torch.isnan(aim.double()).any()):
        raise ValueError("coverage: y_true must not be NaN")
    if not bool((low <= high).all()):  # also catches NaN
        raise ValueError("coverage: upper must not be below lower, got an interval that is upside down or NaN")
    value = _mean("coverage", ((low <= aim) & (aim <= high)).double(), weights)
    if not isinstance(lower, torch.Tensor):
        return float(value)
    return value.to(low.dtype if low.is_floating_point() else torch.get_default_dtype())


def _mean(function: str, values: torch.Tensor, weights: Array | None) -> torch.Tensor:
    """Weighted mean over samples, then the mean over labels if there are several."""
    w = as_weights(function, weights, len(values), values.device)
    return values.mean() if w is None else (w / w.sum() @ values).mean()
