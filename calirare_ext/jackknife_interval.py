"""Operator 4, jackknife_interval: the interval ends of every node from its leave-one-out scores."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_like, check_range, check_shape


class JackknifeInterval(NamedTuple):
    """Interval ends and the leave-one-out models they come from.

    Attributes:
        lower: [n], C-minus of the paper's Eq. 8.
        upper: [n], C-plus.
        lower_places: int64 [n, 2], the models i of the order statistics around the lower quantile.
        upper_places: int64 [n, 2], the same for the upper one.
    """

    lower: Tensor
    upper: Tensor
    lower_places: Tensor
    upper_places: Tensor


def jackknife_interval(scores: Tensor, residuals: Tensor, q_lower: float, q_upper: float) -> JackknifeInterval:
    """Returns the q_lower quantile of {f(v; theta_-i) - r_i} and the q_upper quantile of {f(v; theta_-i) + r_i}.

    Computes C-minus and C-plus (paper, Eq. 6 and 8; Algorithm 1, line 7) with NumPy's "linear" rule, without
    forming the two [n, m] sample matrices. Differentiable in scores and residuals (the ends are linear in the order
    statistics they come from; equal samples are ranked by i).

    Args:
        scores: f(v; theta_-i), float32 or float64 [n, m], m >= 1.
        residuals: r_i, [m], dtype and device of `scores`.
        q_lower: quantile of the lower end, in [0, 1]. The paper's coverage c means (1 - c) / 2.
        q_upper: quantile of the upper end, in [0, 1]; 1 - (1 - c) / 2.

    Returns:
        The ends and the models they come from. A node with a NaN score has NaN ends.

    Raises:
        TypeError: dtype is not float32 or float64, or the dtypes differ.
        ValueError: shape, range or device is wrong.

    Precision: one rounding of the sample and one of the interpolation.
    Cost: O(n m) time, O(m) scratch per thread.

    Example:
        >>> import torch
        >>> ends = jackknife_interval(torch.tensor([[0.2, 0.4, 0.6]]), torch.tensor([0.1, 0.1, 0.1]), 0.0, 1.0)
        >>> round(float(ends.lower), 4), round(float(ends.upper), 4)
        (0.1, 0.7)
    """
    op = "jackknife_interval"
    check_float(op, "scores", scores)
    check_shape(op, "scores", scores, (None, None))
    if scores.shape[1] == 0:
        raise ValueError(f"{op}: scores must have at least one column, got shape {list(scores.shape)}")
    check_like(op, "residuals", residuals, scores, "scores")
    check_shape(op, "residuals", residuals, (scores.shape[1],))
    check_range(op, "q_lower", q_lower, 0.0, 1.0)
    check_range(op, "q_upper", q_upper, 0.0, 1.0)
    with torch.no_grad():
        matrix = scores.detach() if scores.stride(1) == 1 or scores.shape[1] == 1 else scores.detach().contiguous()
        ends, places = _C.jackknife_interval(matrix, residuals.detach().contiguous(), q_lower, q_upper)
    places = places.long()
    lower, upper = ends[:, 0], ends[:, 1]
    if torch.is_grad_enabled() and (scores.requires_grad or residuals.requires_grad):
        lower = _differentiable(lower, scores, -residuals, places[:, 0], q_lower)
        upper = _differentiable(upper, scores, residuals, places[:, 1], q_upper)
    return JackknifeInterval(lower, upper, places[:, 0], places[:, 1])


def _differentiable(end: Tensor, scores: Tensor, shift: Tensor, places: Tensor, q: float) -> Tensor:
    """Returns `end` with the gradient of (1 - t) sample[low] + t sample[high]; its value stays the kernel's."""
    position = q * (scores.shape[1] - 1)
    t = position - int(position)
    samples = scores.gather(1, places) + shift[places]
    interpolated = (1.0 - t) * samples[:, 0] + t * samples[:, 1]
    return interpolated + (end - interpolated).detach()
