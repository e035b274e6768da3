"""Prediction sets with a coverage guarantee from leave-one-out models: jackknife+ and its class-conditional kin."""

from __future__ import annotations

import math

import torch
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
    _check(coverage)
    m = residuals.numel()
    rank = math.ceil(coverage * (m + 1) - 1e-9)  # the 1e-9 undoes rounding of products such as .9 * 10
    if rank > m:
        infinite = loo_scores.new_full((loo_scores.shape[0],), float("inf"))
        return -infinite, infinite
    upper = (loo_scores + residuals).kthvalue(rank, 1).values
    lower = -(residuals - loo_scores).kthvalue(rank, 1).values
    return lower, upper


def class_sets(
    loo_probabilities: Tensor, own_probabilities: Tensor, targets: Tensor, coverage: float, *, per_class: bool = True
) -> Tensor:
    """Returns which classes each node may have: cross-conformal sets, with the guarantee for every class by itself.

    A class c is in v's set unless the score 1 - P_-i(c | v) is above the score 1 - P_-i(c | i) of too many labelled
    nodes i (of class c alone, if per class): sum_i 1[s_v > s_i] < coverage (m_c + 1). For exchangeable nodes the true
    class is inside with probability at least 2 coverage - 1 (Romano, Sesia & Candes 2020, theorem 3, by the argument of
    jackknife+), within each class if per class. A class with few labels is always in.

    Args:
        loo_probabilities: class probabilities of node v in the model without i, [n, k, m].
        own_probabilities: those of the labelled nodes without themselves, [m, k].
        targets: int64 [m].
        coverage: in (0, 1).
        per_class: calibrate within each class (Mondrian), for rare classes.

    Returns:
        bool [n, k].

    Raises:
        ValueError: the coverage is out of range.
    """
    _check(coverage)
    n, k, _ = loo_probabilities.shape
    out = torch.zeros(n, k, dtype=torch.bool, device=targets.device)
    known = 1 - own_probabilities.gather(1, targets[:, None]).squeeze(1)
    for c in range(k):
        chosen = (targets == c) if per_class else torch.ones_like(targets, dtype=torch.bool)
        scores = 1 - loo_probabilities[:, c, chosen]
        above = (scores > known[chosen]).sum(1)
        out[:, c] = above < coverage * (int(chosen.sum()) + 1) - 1e-9
    return out


def _check(coverage: float) -> None:
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be in (0, 1), got {coverage}")
