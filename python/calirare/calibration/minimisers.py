"""Minimisers: Newton's method with backtracking for maps of a few numbers, L-BFGS for those of many."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.threads import threads_for

MAX_STEPS = 100
MAX_SLOPE_STEPS = 5_000
FLAT = 1e-5  # slope in those units, whose square is about what the loss could still gain; rounding leaves less

Derivatives = Callable[[Tensor], tuple[Tensor, Tensor]]
Slope = Callable[[Tensor], tuple[Tensor, Tensor]]


def newton_minimum(loss: Callable[[Tensor], Tensor], theta: Tensor, derivatives: Derivatives | None = None) -> Tensor:
    """Returns the minimum [q] of a smooth function of a few numbers, from where it starts, float64 [q].

    Curvatures enter by their absolute value, so that every step goes downhill where the function is not convex.
    Gradient [q] and Hessian [q, q] come from `derivatives`, or by automatic differentiation, which takes ten times as
    long.
    """
    with threads_for(0):
        return _newton(loss, theta, derivatives or (lambda at: _differentiated(loss, at)))


def quasi_newton_minimum(slope: Slope, theta: Tensor, curvature: Tensor) -> Tensor:
    """Returns the minimum of a smooth convex function of many numbers, for which a Hessian would be too large.

    Args:
        slope: returns value and gradient [q].
        theta: where to start, float64 [q].
        curvature: of each number by itself, about, > 0, [q]: steps are taken in units of its root.

    Returns:
        The minimum, [q].

    Raises:
        NotConvergedError: the method stops where the function is not flat.
    """
    from scipy.optimize import minimize

    unit = curvature.clamp(min=1e-12).rsqrt()

    def map_of(at: np.ndarray) -> Tensor:
        return unit * torch.tensor(at, dtype=theta.dtype, device=theta.device)

    def of_array(at: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slope(map_of(at))
        return float(value), (unit * gradient).cpu().numpy()

    limits = {"maxiter": MAX_SLOPE_STEPS, "maxfun": 10**6, "maxcor": 30, "maxls": 100, "ftol": 1e-16, "gtol": 1e-10}
    end = minimize(of_array, (theta / unit).cpu().numpy(), jac=True, method="L-BFGS-B", options=limits)
    steepest = float(np.abs(end.jac).max())
    if not steepest < FLAT:
        raise NotConvergedError(
            f"quasi_newton_minimum: the slope must fall below {FLAT:g}, got {steepest:g} after {end.nit} steps: "
            "clip logits far beyond the others, or take a larger prior"
        )
    return map_of(end.x)


def _differentiated(loss: Callable[[Tensor], Tensor], theta: Tensor) -> tuple[Tensor, Tensor]:
    gradient = torch.autograd.functional.jacobian(loss, theta)
    return gradient, torch.autograd.functional.hessian(loss, theta)


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
