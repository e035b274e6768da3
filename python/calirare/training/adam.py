"""Adam with an L2 penalty (Kingma & Ba 2015).

torch's own imports torch's compiler at its first step, 1.3 s of a job that takes ten.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Takes the steps torch.optim.Adam takes with the same learning rate and weight decay, to rounding.

    Args:
        parameters: changed in place.
        learning_rate: step length, > 0.
        weight_decay: mu; mu theta is added to each gradient.
    """

    def __init__(self, parameters: Iterable[Tensor], *, learning_rate: float, weight_decay: float) -> None:
        self.parameters = list(parameters)
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self._first = [torch.zeros_like(p) for p in self.parameters]
        self._second = [torch.zeros_like(p) for p in self.parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Iterable[Tensor]) -> None:
        """Moves every parameter against its gradient."""
        self._steps += 1
        length = self.learning_rate / (1 - BETA1**self._steps)
        scale = (1 - BETA2**self._steps) ** 0.5
        for p, gradient, m, v in zip(self.parameters, gradients, self._first, self._second, strict=True):
            g = gradient.add(p, alpha=self.weight_decay)
            m.lerp_(g, 1 - BETA1)
            v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            p.addcdiv_(m, v.sqrt().div_(scale).add_(EPSILON), value=-length)
