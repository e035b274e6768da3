"""Newton's method with backtracking, for calibrators of a few numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calirare._util.torch_state import threads_for

MAX_STEPS = 100

Derivatives = Callable[[Tensor], tuple[Tensor, Tensor]]


def newton_minimum(loss: Callable[[Tensor], Tensor], theta: Tensor, derivatives: Derivatives | None = None) -> Tensor:
    """Returns the minimum [q] of a smooth function of a few numbers, from where it starts, float64 [q].

    Curvatures enter by their absolute value, so that every step goes downhill where the function is not convex.
    Gradient [q] and Hessian [q, q] come from `derivatives`, or by automatic differentiation, which takes ten times as
    long.
    """
    with threads_for(0):
        slopes = torch.autograd.functional
        found = derivatives or (lambda at: (slopes.jacobian(loss, at), slopes.hessian(loss, at)))
        return _newton(loss, theta, found)


def _newton(loss: Callable[[Tensor], Tensor], theta: Tensor, derivatives: Derivatives) -> Tensor:
    value = loss(theta)
    for _ in range(MAX_STEPS):
        gradient, hessian = derivatives(theta)
        values, vectors = torch.linalg.eigh(hessian)
        step = -vectors @ ((vectors.T @ gradient) / values.abs().clamp(min=1e-8))
        if float(gradient.norm()) < 1e-10:
            return theta + step  # so near the minimum a step squares what is left of the error
        length = 1.0
        while length > 1e-12 and not (lower := loss(theta + length * step)) < value:
            length /= 2
        if length <= 1e-12:  # the loss no longer tells better from worse, the gradient still does
            better = derivatives(theta + step)[0].norm() < gradient.norm()
            return theta + step if better else theta
        theta, value = theta + length * step, lower
    return theta
