"""Confident learning: how many labels of each class are of another, counted (Northcutt, Jiang and Chuang 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def confident_joint(p: Tensor, given: Tensor) -> Tensor:
    """Returns the estimated number of labels by given and true class, float64 [k, k]; rows sum to the given classes'.

    A label given as i counts as truly j where p_j is the largest of those probabilities that reach their class's
    threshold, the mean of p_j over the labels given as j (their Eq. 1 and 2); each row is scaled to the number of its
    labels (Eq. 3). Where classes overlap the count takes unusual cases for wrong labels.

    Args:
        p: probability of each class without the label, [m, k].
        given: class of each label, int64 [m].
    """
    k, p = p.shape[1], p.double()
    member = torch.nn.functional.one_hot(given, k).double()
    number = member.sum(0)
    threshold = (member * p).sum(0) / number.clamp(min=1)
    # A class without a label has no threshold, and nothing is counted as of it.
    reached = torch.where((p >= threshold) & (number > 0), p, -torch.inf)
    best, counted = reached.argmax(1), (reached > -torch.inf).any(1)
    joint = p.new_zeros(k, k)
    joint.index_put_((given[counted], best[counted]), p.new_ones(int(counted.sum())), accumulate=True)
    rows = joint.sum(1, keepdim=True)
    joint = torch.where(rows > 0, joint, torch.eye(k, dtype=p.dtype, device=p.device))
    return joint / joint.sum(1, keepdim=True) * number[:, None]
