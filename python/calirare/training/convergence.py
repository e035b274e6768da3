"""Training to a stationary point: what leave-one-out formulas assume and a fixed number of epochs does not give."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from calirare.curvature import OneLayerPreconditioner, inverse_ggn, is_one_layer
from calirare.graph import Graph
from calirare.training.fitted import FittedNetwork
from calirare.training.lbfgs import Convergence, Product, lbfgs

FIRST_REFRESH, WARM_REFRESH = 15, 150  # steps until a new Gauss-Newton matrix
FittedT = TypeVar("FittedT", bound=FittedNetwork)


def minimise(
    fitted: FittedNetwork, *, tolerance: float = 1e-6, max_steps: int = 3000, warm: bool = False
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

    Returns:
        How it ended.
    """
    fitted.model.eval()

    def preconditioner(theta: Tensor) -> Product:
        here = fitted.linearised_at(theta)
        if is_one_layer(here):
            return OneLayerPreconditioner(here, fitted.weight_decay)
        inverse = inverse_ggn(here, fitted.weight_decay)
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
    dtype: torch.dtype = torch.float64,
) -> tuple[FittedT, Convergence]:
    """Returns a copy of a trained network, trained on without dropout until its gradient vanishes.

    Args:
        fitted: the start; left as it is.
        graph: the graph it was trained on; a `ModuleFit` needs none.
        tolerance: on the gradient's norm.
        max_steps: see `minimise`.
        dtype: floating-point type of the copy.

    Returns:
        The network at a stationary point, and how it got there.
    """
    out = fitted.as_dtype(graph, dtype)
    return out, minimise(out, tolerance=tolerance, max_steps=max_steps)
