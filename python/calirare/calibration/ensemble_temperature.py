"""Ensemble temperature scaling (Zhang, Kailkhura & Han 2020)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from calirare.calibration.affine import AffineCalibrator
from calirare.calibration.base import Calibrator, Target, float64, target_weights

MAX_STEPS = 2000
STEP_LIMIT = 1e-9  # largest change of a weight at which the mixture counts as found


class EnsembleTemperatureCalibrator(Calibrator):
    """Mixes the tempered, the uncalibrated and the uniform probabilities.

    p = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / k, weights >= 0 with sum 1. The temperature is fitted first; the
    weights then by expectation maximisation, which climbs to the one maximum of a likelihood concave in them.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        tempered_: the fitted temperature scaling; None before fitting.
        shares_: w_1, w_2, w_3, float64 [3]; None before fitting.
    """

    fitted: ClassVar = {"tempered": AffineCalibrator.from_state, "shares": float64}
    tempered_: AffineCalibrator | None = None
    shares_: Tensor | None = None

    def __init__(self, *, target: Target = "population") -> None:
        self.target: Target = target

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.shares_ is None or self.tempered_ is None else self.tempered_.n_classes

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        z = logits.detach().double()
        self.tempered_ = AffineCalibrator(with_bias=False, target=self.target).fit(z, labels)
        sample_weights = target_weights(labels, z.shape[1], self.target)
        likelihood = self._parts(z).gather(2, labels[None, :, None].expand(3, -1, 1)).squeeze(2)  # [3, n]
        shares = torch.full((3, 1), 1 / 3, dtype=torch.float64, device=z.device)
        for _ in range(MAX_STEPS):
            posterior = shares * likelihood
            updated = (sample_weights * posterior / posterior.sum(0)).mean(1, keepdim=True)
            updated /= updated.sum()
            moved = float((updated - shares).abs().max())
            shares = updated
            if moved < STEP_LIMIT:
                break
        self.shares_ = shares.flatten()

    def _transform(self, logits: Tensor) -> Tensor:
        assert self.shares_ is not None
        parts = self._parts(logits.detach().double())
        return torch.einsum("j,jnk->nk", self.shares_.to(parts), parts).to(logits)

    def _parts(self, z: Tensor) -> Tensor:
        """Returns the three probabilities, [3, n, k]."""
        assert self.tempered_ is not None
        uniform = torch.full_like(z, 1 / z.shape[1])
        return torch.stack([self.tempered_.transform(z), torch.softmax(z, 1), uniform])
