"""L-BFGS for many problems of one size at once, each with its own line search: a batch moves as one product.

`training.lbfgs`, which retraining judges by, is another implementation on purpose: the judge shares no code with
what it judges.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calirare.training import ARMIJO, CURVATURE

TRIALS = 8  # of one line search: after as many a point with enough descent is taken, whatever its slope
LAST_TRIALS = 40  # of one that has found no descent yet, as a start close to a kink may not at first
Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Product = Callable[[Tensor], Tensor]


def take_steps(objective: Objective, precondition: Product, x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Returns where a number of L-BFGS steps lead, for each of b piecewise smooth functions.

    Each step solves the secant conditions H y = s of the steps before by the two-loop recursion, from a first guess;
    the pairs of all functions are rows of the same tensors, with 1 / s.y = 0 where one has none, so that the recursion
    of all b is one sequence of products. The steps of `training.lbfgs` (Nocedal & Wright 2006, algorithm 7.5, with the
    weak Wolfe line search of Lewis & Overton 2013, algorithm 2.6), but the first preconditioner serves to the end. A
    function whose search finds no descent forgets its past; when it has none, it stays where it is.

    Args:
        objective: (points [c, p], which of the b functions they belong to, int64 [c]) -> values [c], gradients [c, p].
        precondition: approximate inverse Hessian of each, symmetric positive definite: [b, p] -> [b, p].
        x: starts, [b, p].
        steps: how many.

    Returns:
        The points [b, p] and the norms of their gradients [b].
    """
    value, gradient = objective(x, torch.arange(x.shape[0], device=x.device))
    past: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y, 1 / s.y of each function; 0 where there is no pair
    for _ in range(steps):
        direction = _direction(gradient, past, precondition)
        there, value, turned, moved = _weak_wolfe(objective, x, value, gradient, direction)
        if not past and not bool(moved.any()):
            break
        s, y = there - x, turned - gradient
        curvature = _dot(s, y)
        inverse = torch.where(curvature > 0, 1 / curvature, 0.0)
        past = [(old_s, old_y, torch.where(moved, old, 0.0)) for old_s, old_y, old in past] + [(s, y, inverse)]
        x, gradient = there, turned
    return x, gradient.norm(dim=1)


def _direction(gradient: Tensor, past: list[tuple[Tensor, Tensor, Tensor]], precondition: Product) -> Tensor:
    """Returns the L-BFGS directions by the two-loop recursion (Nocedal & Wright 2006, algorithm 7.4)."""
    q, alphas = gradient.clone(), []
    for s, y, inverse in reversed(past):
        alphas.append(inverse * _dot(s, q))
        q.addcmul_(y, alphas[-1][:, None], value=-1)
    q = precondition(q)
    for (s, y, inverse), alpha in zip(past, reversed(alphas), strict=True):
        q.addcmul_(s, (alpha - inverse * _dot(y, q))[:, None])
    return q.neg_()


def _weak_wolfe(
    objective: Objective, x: Tensor, value: Tensor, gradient: Tensor, direction: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns points with enough descent, their values and gradients, and which functions moved (bool [b])."""
    slope = _dot(gradient, direction)
    low, high, length = torch.zeros_like(slope), torch.full_like(slope, float("inf")), torch.ones_like(slope)
    best_x, best_value, best_gradient = x.clone(), value.clone(), gradient.clone()
    open_ = (slope < 0).nonzero().flatten()
    for trials in range(LAST_TRIALS):
        if trials >= TRIALS:
            open_ = open_[low[open_] == 0]
        if not open_.numel():
            break
        trial = torch.addcmul(x[open_], length[open_, None], direction[open_])
        found, there = objective(trial, open_)
        descends = found <= value[open_] + ARMIJO * length[open_] * slope[open_]
        flat = _dot(there, direction[open_]) >= CURVATURE * slope[open_]
        kept = open_[descends]  # a point with enough descent is kept even where the slope has not risen enough
        best_x[kept], best_value[kept], best_gradient[kept] = trial[descends], found[descends], there[descends]
        low[kept] = length[kept]
        over = open_[~descends]
        high[over] = length[over]
        open_ = open_[~(descends & flat)]
        bounded = high[open_] < float("inf")
        length[open_] = torch.where(bounded, (low[open_] + high[open_]) / 2, 2 * low[open_])
    return best_x, best_value, best_gradient, low > 0


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Returns <a_i, b_i> of each row: [b, p] and [b, p] to [b]."""
    return torch.linalg.vecdot(a, b)
