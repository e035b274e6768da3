"""The gradients of new labels' losses at the minimum of these losses and a quadratic model of the old ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

NEWTON_STEPS, ARRIVED = 100, 1e-12  # and the promised fall of the loss after whose step the search ends
ARMIJO, HALVINGS = 1e-4, 40  # part of the promised fall that a step must keep, and how often it is halved at most


def resting_gradients(differences: Tensor, leverages: Tensor, weights: Tensor, labels: Tensor) -> Tensor:
    """Returns the gradients a_c (p(z_c) - e_y) of each set of labels where its losses rest, float64 [b, c, k - 1].

    The moves z - z_0 = K u minimise u^T K u / 2 + sum_c a_c loss(z_c), which is convex; Newton steps, each as short as
    it must be to lower it. At the minimum u is minus the gradients.

    Args:
        differences: z_0, logits less that of class 0 before the labels were there, float64 [b, c, k - 1].
        leverages: K = J_c H^-1 J_c^T, float64 [b, c (k - 1), c (k - 1)].
        weights: a of each label's loss, > 0, float64 [b, c].
        labels: y, int64 [b, c].
    """
    shape, a = differences.shape, weights[..., None]
    target = one_hot(labels, shape[-1] + 1)[..., 1:].double()

    def moved(u: Tensor) -> Tensor:
        return differences + (leverages @ u.flatten(1)[..., None]).view(shape)

    def value(u: Tensor) -> Tensor:
        z = moved(u)
        loss = torch.logsumexp(pad(z, (1, 0)), -1) - (target * z).sum(-1)
        return (u * (z - differences)).flatten(1).sum(1) / 2 + (weights * loss).sum(1)

    u, open_ = torch.zeros_like(differences), torch.ones(shape[0], dtype=torch.bool)
    for _ in range(NEWTON_STEPS):
        p = pad(moved(u), (1, 0)).softmax(-1)[..., 1:]
        off = u + a * (p - target)
        bent = a[..., None] * (torch.diag_embed(p) - p[..., :, None] * p[..., None, :])  # [b, c, k - 1, k - 1]
        system = (bent @ leverages.unflatten(1, shape[1:])).flatten(1, 2)
        system.diagonal(dim1=1, dim2=2).add_(1.0)
        step = -torch.linalg.solve(system, off.flatten(1)).view(shape)
        slope = (step.flatten(1) * (leverages @ off.flatten(1)[..., None])[..., 0]).sum(1)
        size, now = torch.ones_like(slope), value(u)
        for _ in range(HALVINGS):
            short = (slope < -ARRIVED) & ~(value(u + size[:, None, None] * step) <= now + ARMIJO * size * slope)
            if not bool(short.any()):
                break
            size = torch.where(short, size / 2, size)
        u = u + torch.where(open_, size, 0.0)[:, None, None] * step
        open_ &= slope < -ARRIVED
        if not bool(open_.any()):
            break
    return -u
