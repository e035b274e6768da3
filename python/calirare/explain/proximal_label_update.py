"""The gradient of a new label's loss at the minimum of this loss and a quadratic model of the old ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

NEWTON_STEPS, ARRIVED = 100, 1e-12  # and the promised fall of the loss after whose step the search ends
ARMIJO, HALVINGS = 1e-4, 40  # part of the promised fall that a step must keep, and how often it is halved at most


def resting_gradients(differences: Tensor, leverages: Tensor, weights: Tensor, labels: Tensor) -> Tensor:
    """Returns the gradient a (p(z) - e_y) of each label by itself where its loss rests, float64 [b, k - 1].

    The move z - z_0 = K u minimises u^T K u / 2 + a loss(z), which is convex; Newton steps, each as short as it must be
    to lower it. At the minimum u is minus the gradient.

    Args:
        differences: z_0, logits less that of class 0 before the label was there, float64 [b, k - 1].
        leverages: K = J_c H^-1 J_c^T, float64 [b, k - 1, k - 1].
        weights: a of each label's loss, > 0, float64 [b].
        labels: y, int64 [b].
    """
    a, target = weights[:, None], one_hot(labels, differences.shape[1] + 1)[:, 1:].double()

    def moved(u: Tensor) -> Tensor:
        return differences + (leverages @ u[..., None])[..., 0]

    def value(u: Tensor) -> Tensor:
        z = moved(u)
        loss = torch.logsumexp(pad(z, (1, 0)), 1) - (target * z).sum(1)
        return (u * (z - differences)).sum(1) / 2 + weights * loss

    u, open_ = torch.zeros_like(differences), torch.ones(len(differences), dtype=torch.bool)
    for _ in range(NEWTON_STEPS):
        p = pad(moved(u), (1, 0)).softmax(1)[:, 1:]
        off = u + a * (p - target)
        system = a[..., None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None]) @ leverages
        system.diagonal(dim1=1, dim2=2).add_(1.0)
        step = -torch.linalg.solve(system, off)
        slope = (step * (leverages @ off[..., None])[..., 0]).sum(1)
        size, now = torch.ones_like(slope), value(u)
        for _ in range(HALVINGS):
            short = (slope < -ARRIVED) & ~(value(u + size[:, None] * step) <= now + ARMIJO * size * slope)
            if not bool(short.any()):
                break
            size = torch.where(short, size / 2, size)
        u = u + torch.where(open_, size, 0.0)[:, None] * step
        open_ &= slope < -ARRIVED
        if not bool(open_.any()):
            break
    return -u
