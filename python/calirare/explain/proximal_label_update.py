"""How hard labels that are new pull, once their own losses have come to rest."""

from __future__ import annotations

import torch
from torch import Tensor

NEWTON_STEPS, ARRIVED = 100, 1e-12  # of labels that come together, and the fall of their loss that ends them
ARMIJO, SHORTEST = 1e-4, 1e-9  # part of the promised fall that a step must keep, and the least part of a step
HALVINGS = 80  # to where a label's own loss comes to rest: to the last digit from 1e8 away


def pulled(log_odds: Tensor, leverage: Tensor, weight: float, label: int) -> Tensor:
    """Returns the gradient a (sigma(z) - y) of a label's own loss where it has come to rest, float64 [c].

    z + k a (sigma(z) - y) = z_c rises with z: its root is between the two ends, and halved down to. (Newton's steps go
    to and fro for long where k a is in the thousands, as of a node that is like no label.)

    Args:
        log_odds: z_c, before the label was there, float64 [c].
        leverage: k = J_c H^-1 J_c^T >= 0, float64 [c].
        weight: a of the label's loss, > 0.
        label: y, 0 or 1.
    """
    stiff = weight * leverage
    ends = torch.stack([log_odds, log_odds + stiff * (2 * label - 1)])
    low, high = ends.min(0).values, ends.max(0).values
    for _ in range(HALVINGS):
        z = (low + high) / 2
        below = z + stiff * (torch.sigmoid(z) - label) < log_odds
        low, high = torch.where(below, z, low), torch.where(below, high, z)
    z = (low + high) / 2
    # Of a root far from 0 the probability is all of it: what the equation says is told to more digits.
    return (
        torch.where(stiff > 0, (log_odds - z) / torch.where(stiff > 0, stiff, 1.0), torch.sigmoid(z) - label) * weight
    )


def pulled_together(log_odds: Tensor, leverages: Tensor, weights: Tensor, labels: Tensor) -> Tensor:
    """Returns the gradients a_c (sigma(z_c) - y_c) of labels where they have all come to rest, float64 [c].

    The moves z - z_0 = K u minimise u^T K u / 2 + sum_c a_c loss(z_c), which is convex; Newton steps, each as short as
    it must be to lower it.

    Args:
        log_odds: z_0, before the labels were there, float64 [c].
        leverages: K = J_c H^-1 J_c^T, float64 [c, c].
        weights: a of each label's loss, > 0, float64 [c].
        labels: y, int64 [c].
    """
    y, sign = labels.double(), 1 - 2.0 * labels

    def value(u: Tensor) -> Tensor:
        moved = leverages @ u
        return u @ moved / 2 + (weights * torch.nn.functional.softplus(sign * (log_odds + moved))).sum()

    u = torch.zeros_like(log_odds)
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(log_odds + leverages @ u)
        off, curvature = u + weights * (p - y), weights * p * (1 - p)
        step = -torch.linalg.solve(torch.eye(len(u)).to(u) + curvature[:, None] * leverages, off)
        slope = float((leverages @ off) @ step)
        if slope > -ARRIVED:
            break
        size, now = 1.0, value(u)
        while size > SHORTEST and not bool(value(u + size * step) <= now + ARMIJO * size * slope):
            size /= 2
        u = u + size * step
    return -u
