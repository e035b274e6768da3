"""The jackknife+ interval of a real-valued target."""

from __future__ import annotations

import math

from torch import Tensor


def jackknife_plus(loo_scores: Tensor, residuals: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
    """Returns the jackknife+ interval of a real-valued target at each node (Barber et al. 2021, Eq. 1.4).

    With exact leave-one-out models of exchangeable nodes the target of a new node lies inside with probability at least
    2 coverage - 1, and in practice about coverage; CV+ has the same form with the models of groups. On a graph with
    fixed nodes, exchangeability means that the labelled nodes are a random sample of all.

    Args:
        loo_scores: f(v; theta_-i), [n, m].
        residuals: |y_i - f(i; theta_-i)|, [m].
        coverage: 1 - alpha, in (0, 1).

    Returns:
        Lower and upper ends, [n]; infinite where m is too small for the coverage.

    Raises:
        ValueError: the coverage is out of range.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be in (0, 1), got {coverage}")
    m = residuals.numel()
    rank = math.ceil(coverage * (m + 1) - 1e-9)  # the 1e-9 undoes rounding of products such as .9 * 10
    if rank > m:
        infinite = loo_scores.new_full((loo_scores.shape[0],), float("inf"))
        return -infinite, infinite
    upper = (loo_scores + residuals).kthvalue(rank, 1).values
    lower = -(residuals - loo_scores).kthvalue(rank, 1).values
    return lower, upper
