"""Operator 4, jackknife_interval: the interval ends of every node from its leave-one-out scores."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    forming the two [n, m] sample matrices. Differentiable in scores and residuals, in reverse and forward mode (the
    ends are linear in the order statistics they come from; equal samples are ranked by i, -0 before +0). Infinite
    samples count as numbers: an end is NaN only between two opposite infinities.

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
    ends, places = _Ends.apply(scores, residuals, q_lower, q_upper)
    return JackknifeInterval(ends[:, 0], ends[:, 1], places[:, 0], places[:, 1])


class _Ends(torch.autograd.Function):
    """Both ends [n, 2] and their places [n, 2, 2] as an autograd function, linear in its gradient."""

    @staticmethod
    def forward(scores: Tensor, residuals: Tensor, q_lower: float, q_upper: float) -> tuple[Tensor, Tensor]:
        rows_are_contiguous = scores.shape[1] == 1 or scores.stride(1) == 1
        matrix = scores if rows_are_contiguous else scores.contiguous()
        ends, places = _C.jackknife_interval(matrix, residuals.contiguous(), q_lower, q_upper)
        return ends, places.long()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float, float], output: tuple[Tensor, Tensor]) -> None:
        scores, _, *quantiles = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])
        ctx.m = scores.shape[1]
        ctx.shares = [_shares(ctx.m, q) for q in quantiles]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (places,) = ctx.saved_tensors
        parts = grads[0][:, :, None] * grads[0].new_tensor(ctx.shares)  # [n, side, low or high]
        scores = grads[0].new_zeros(places.shape[0], ctx.m)
        for side in (0, 1):  # one after the other: the sum has a fixed order where both ends meet in one sample
            scores = scores.scatter_add(1, places[:, side], parts[:, side])
        signed = torch.stack([-parts[:, 0], parts[:, 1]], 1)
        if signed.is_cuda:  # where the order of an index_add is not fixed
            each = [grads[0].new_zeros(scores.shape).scatter_add(1, places[:, s], signed[:, s]) for s in (0, 1)]
            return scores, (each[0] + each[1]).sum(0), None, None
        return scores, grads[0].new_zeros(ctx.m).index_add(0, places.flatten(), signed.flatten()), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        ends = []
        for side, sign in ((0, -1.0), (1, 1.0)):
            low, high = (
                tangents[0].gather(1, places[:, side, which : which + 1])[:, 0]
                + sign * tangents[1][places[:, side, which]]
                for which in (0, 1)
            )
            ends.append(ctx.shares[side][0] * low + ctx.shares[side][1] * high)
        return torch.stack(ends, 1), None


def _shares(m: int, q: float) -> tuple[float, float]:
    """Returns how much the order statistics below and above the q quantile of m samples contribute."""
    position = q * (m - 1)
    above = position - int(position)
    return 1.0 - above, above
