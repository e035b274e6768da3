"""Training: Adam, and L-BFGS to a stationary point, which leave-one-out formulas assume and epochs do not give."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from calirare.curvature import GgnInverse, OneLayerPreconditioner, is_one_layer
from calirare.graph import Graph
from calirare.models.fitted import FittedNetwork
from calirare_ext import adam_step_

FIRST_REFRESH, WARM_REFRESH = 15, 150  # steps until a new Gauss-Newton matrix
FittedT = TypeVar("FittedT", bound=FittedNetwork)


def minimise(
    fitted: FittedNetwork,
    *,
    tolerance: float = 1e-6,
    max_steps: int = 3000,
    warm: bool = False,
    first_inverse: GgnInverse | None = None,
) -> Convergence:
    """Moves a network's parameters, in place, to a stationary point of loss + weight_decay / 2 |theta|^2.

    L-BFGS with a weak Wolfe line search and the inverse Gauss-Newton matrix (of one layer one of all classes alike) as
    its first guess, without dropout. The
    minimum of a ReLU network often lies on kinks, where a strong Wolfe search fails at once and the weak one goes on
    (Lewis & Overton 2013, "Nonsmooth optimization via quasi-Newton methods"); the gradient's norm then need not reach
    the tolerance, and the search ends when the loss stands still. A node of weight 0 is left out, with the others'
    share of the loss unchanged.

    Args:
        fitted: the network and its labels; its parameters are the start and become the result.
        tolerance: on the gradient's norm, > 0. Below 1e-5 it wants float64.
        max_steps: L-BFGS steps in all.
        warm: the start is near the minimum already, as after one label was left out.
        first_inverse: Gauss-Newton inverse from close by, which serves the first steps; None: that of the start.

    Returns:
        How it ended.
    """
    fitted.model.eval()

    known = [] if first_inverse is None else [first_inverse]

    def preconditioner(theta: Tensor) -> Product:
        if known:
            near = known.pop()
            return lambda v: near(v[None])[0]
        here = fitted.linearised_at(theta)
        if is_one_layer(here):
            return OneLayerPreconditioner(here, fitted.weight_decay)
        inverse = GgnInverse(here, fitted.weight_decay)
        return lambda v: inverse(v[None])[0]

    life = WARM_REFRESH if warm else FIRST_REFRESH
    theta, result = lbfgs(fitted.objective, preconditioner, fitted.theta, tolerance, max_steps, life)
    fitted.move_to(theta)
    return result


def converge(
    fitted: FittedT,
    graph: Graph | None = None,
    *,
    tolerance: float = 1e-6,
    max_steps: int = 3000,
) -> tuple[FittedT, Convergence]:
    """Returns a copy of a trained network in float64, trained on without dropout until its gradient vanishes.

    Args:
        fitted: the start; left as it is.
        graph: the graph it was trained on; a `ModuleFit` needs none.
        tolerance: on the gradient's norm.
        max_steps: see `minimise`.

    Returns:
        The network at a stationary point, and how it got there.
    """
    out = fitted.as_dtype(graph, torch.float64)
    return out, minimise(out, tolerance=tolerance, max_steps=max_steps)


# L-BFGS for piecewise smooth functions, such as the loss of a ReLU network with its kinks.
#
# With s and y the moves of the point and of its gradient in past steps, the two-loop recursion applies the inverse
# Hessian that is closest to a first guess among those with H y = s for all of them (Nocedal & Wright 2006, sec. 7.2).
# A step is as long as gives enough descent and a slope that has risen: the weak Wolfe conditions, which bisection meets
# even across kinks, where the strong ones need not be met at all (Lewis & Overton 2013).
HISTORY = 60  # curvature pairs; at kinks few are not enough
GROWTH = 3  # of the steps that each new preconditioner serves
ARMIJO, CURVATURE = 1e-4, 0.9  # constants of the line search (Nocedal & Wright 2006, section 3.1)
LOSS_ROUNDING = 1e-15  # share of the loss below which a rise is rounding: there the slope alone judges the descent
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
    """Returns a point with enough descent and a slope that has risen, or None (Lewis & Overton 2013, algorithm 2.6).

    Next to a minimum the loss is the same to rounding, and the slope alone judges: the approximate Wolfe conditions
    (Hager & Zhang 2005, "A new conjugate gradient method with guaranteed descent", section 3).
    """
    slope = float(gradient @ direction)
    if slope >= 0:
        return None
    low, high, length = 0.0, float("inf"), 1.0
    for _ in range(TRIALS):
        trial = x + length * direction
        value, there = objective(trial)
        along = float(there @ direction)
        flat = value <= loss + LOSS_ROUNDING * abs(loss) and along <= (2 * ARMIJO - 1) * slope
        if not (value <= loss + ARMIJO * length * slope or flat):
            high = length
        elif along < CURVATURE * slope:
            low = length
        else:
            return trial, value, there
        length = (low + high) / 2 if high < float("inf") else 2 * low
    return None


# Adam with an L2 penalty (Kingma & Ba 2015).
#
# torch's own imports torch's compiler at its first step, 1.3 s of a job that takes ten.
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Takes the steps torch.optim.Adam takes with the same learning rate and weight decay, to rounding.

    Args:
        parameters: changed in place.
        learning_rate: step length, > 0.
        weight_decay: mu; mu theta is added to each gradient.
        fused: on the CPU in one pass over memory; else operation by operation, every bit as published numbers were
            made.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, learning_rate: float, weight_decay: float, fused: bool = False
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.fused = fused and all(p.device.type == "cpu" for p in self.parameters)
        self._first = [torch.zeros_like(p) for p in self.parameters]
        self._second = [torch.zeros_like(p) for p in self.parameters]
        self._steps = 0

    def step(self, gradients: Iterable[Tensor]) -> None:
        """Moves every parameter against its gradient."""
        self._steps += 1
        length = self.learning_rate / (1 - BETA1**self._steps)
        scale = (1 - BETA2**self._steps) ** 0.5
        rates = (self.weight_decay, BETA1, BETA2, length, scale, EPSILON)
        for p, gradient, m, v in zip(self.parameters, gradients, self._first, self._second, strict=True):
            if self.fused:
                adam_step_(p, gradient, m, v, *rates)
                continue
            with torch.no_grad():
                g = gradient.add(p, alpha=self.weight_decay)
                m.lerp_(g, 1 - BETA1)
                v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                p.addcdiv_(m, v.sqrt().div_(scale).add_(EPSILON), value=-length)
