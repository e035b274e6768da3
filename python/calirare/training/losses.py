"""The cost-sensitive loss (paper, Eq. 12 and section 4.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of logits [m, k], targets [m], sample weights [m]


def class_weights(targets: Tensor, n_classes: int) -> Tensor:
    """Returns the weight of each class, inverse to its share (paper, section 4.2), mean 1 over the samples: [k].

    A class without a sample gets weight 0.
    """
    counts = torch.bincount(targets, minlength=n_classes).double()
    present = counts > 0
    weights = torch.zeros_like(counts)
    weights[present] = targets.numel() / (int(present.sum()) * counts[present])
    return weights


def cross_entropy(logits: Tensor, targets: Tensor, sample_weights: Tensor) -> Tensor:
    """Returns sum_i w_i l_i / m (paper, Eq. 12, cost-sensitive)."""
    return (sample_weights * F.cross_entropy(logits, targets, reduction="none")).mean()
