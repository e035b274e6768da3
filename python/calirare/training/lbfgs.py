"""L-BFGS for piecewise smooth functions, such as the loss of a ReLU network with its kinks.

With s and y the moves of the point and of its gradient in past steps, the two-loop recursion applies the inverse
Hessian that is closest to a first guess among those with H y = s for all of them (Nocedal & Wright 2006, section 7.2).
A step is as long as gives enough descent and a slope that has risen: the weak Wolfe conditions, which bisection meets
even across kinks, where the strong ones need not be met at all (Lewis & Overton 2013).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

HISTORY = 60  # curvature pairs; at kinks few are not enough
GROWTH = 3  # of the steps that each new preconditioner serves
ARMIJO, CURVATURE = 1e-4, 0.9  # constants of the line search (Nocedal & Wright 2006, section 3.1)
TRIALS = 40  # evaluations of one line search
WINDOW, RELATIVE_GAIN = 25, 1e-7  # steps over which the loss must fall by this share of itself, or it is a stall


@dataclass(frozen=True)
class Convergence:
    """How a minimisation ended.

    Attributes:
        gradient_norm: |grad| of the penalised loss.
        loss: the penalised loss.
        steps: L-BFGS steps taken.
        converged: the norm is at most the tolerance.
    """

    gradient_norm: float
    loss: float
    steps: int
    converged: bool


Objective = Callable[[Tensor], tuple[float, Tensor]]
Product = Callable[[Tensor], Tensor]


def lbfgs(
    objective: Objective,
    preconditioner: Callable[[Tensor], Product],
    x: Tensor,
    tolerance: float,
    max_steps: int,
    life: int = 15,
) -> tuple[Tensor, Convergence]:
    """Returns the minimum of a piecewise smooth function (Nocedal & Wright 2006, algorithm 7.5).

    Args:
        objective: returns the value and the gradient at a point.
        preconditioner: returns an approximate inverse Hessian at a point, symmetric positive definite.
        x: start, [p].
        tolerance: on the gradient's norm.
        max_steps: steps at most.
        life: steps with the first preconditioner; each later one serves three times as long as the one before.

    Returns:
        The point, and how it ended.
    """
    loss, gradient = objective(x)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=HISTORY)
    losses, age, first = [loss], 0, preconditioner(x)
    while len(losses) <= max_steps:
        norm = float(gradient.norm())
        stalled = len(losses) > WINDOW and losses[-WINDOW] - losses[-1] <= RELATIVE_GAIN * abs(losses[-1])
        if norm <= tolerance or stalled:
            break
        if age >= life:
            pairs.clear()
            age, life, first = 0, life * GROWTH, preconditioner(x)
        found = _weak_wolfe(objective, x, loss, gradient, _quasi_newton(gradient, pairs, first))
        if found is None:
            if not age:
                break
            age = life  # a new look at the curvature, without the past
            continue
        moved, loss, new_gradient = found
        s, y = moved - x, new_gradient - gradient
        if (curvature := float(s @ y)) > 0:
            pairs.append((s, y, 1 / curvature))
        x, gradient, age = moved, new_gradient, age + 1
        losses.append(loss)
    norm = float(gradient.norm())
    return x, Convergence(norm, loss, len(losses) - 1, norm <= tolerance)


def _quasi_newton(gradient: Tensor, pairs: deque[tuple[Tensor, Tensor, float]], first: Product) -> Tensor:
    """Returns the L-BFGS direction by the two-loop recursion (Nocedal & Wright 2006, algorithm 7.4)."""
    q, alphas = gradient.clone(), []
    for s, y, rho in reversed(pairs):
        alphas.append(rho * float(s @ q))
        q.sub_(y, alpha=alphas[-1])
    q = first(q)
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        q.add_(s, alpha=alpha - rho * float(y @ q))
    return q.neg_()


def _weak_wolfe(
    objective: Objective, x: Tensor, loss: float, gradient: Tensor, direction: Tensor
) -> tuple[Tensor, float, Tensor] | None:
    """Returns a point with enough descent and a slope that has risen, or None (Lewis & Overton 2013, algorithm 2.6)."""
    slope = float(gradient @ direction)
    if slope >= 0:
        return None
    low, high, length = 0.0, float("inf"), 1.0
    for _ in range(TRIALS):
        trial = x + length * direction
        value, there = objective(trial)
        if not value <= loss + ARMIJO * length * slope:
            high = length
        elif float(there @ direction) < CURVATURE * slope:
            low = length
        else:
            return trial, value, there
        length = (low + high) / 2 if high < float("inf") else 2 * low
    return None
