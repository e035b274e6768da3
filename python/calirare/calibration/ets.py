"""Ensemble temperature scaling (Zhang, Kailkhura & Han 2020)."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from calirare.calibration.affine import AffineCalibrator
from calirare.calibration.base import Calibrator, Target, check_logits, target_weights

MAX_STEPS = 2000
STEP_LIMIT = 1e-9  # largest change of a weight at which the mixture counts as found


class EnsembleTemperatureCalibrator(Calibrator):
    """Mixes the tempered, the uncalibrated and the uniform probabilities.

    p = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / k, weights >= 0 with sum 1. The temperature is fitted first; the
    weights then by expectation maximisation, which climbs to the one maximum of a likelihood concave in them.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        tempered: the fitted temperature scaling; None before fitting.
        shares: w_1, w_2, w_3, float64 [3]; None before fitting.
    """

    def __init__(self, *, target: Target = "population") -> None:
        self.target: Target = target
        self.tempered: AffineCalibrator | None = None
        self.shares: Tensor | None = None

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.shares is None or self.tempered is None else self.tempered.n_classes

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits temperature and weights on logits [n, k] and labels int64 [n]."""
        check_logits("EnsembleTemperatureCalibrator", logits, labels)
        z = logits.detach().double()
        self.tempered = AffineCalibrator(with_bias=False, target=self.target).fit(z, labels)
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
        self.shares = shares.flatten()
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """Returns the mixture, [n, k]."""
        check_logits("EnsembleTemperatureCalibrator", logits)
        self.check_classes(logits)
        assert self.shares is not None
        parts = self._parts(logits.detach().double())
        return torch.einsum("j,jnk->nk", self.shares.to(parts), parts).to(logits)

    def state(self) -> dict[str, Any]:
        """Returns temperature, weights and settings."""
        tempered = None if self.tempered is None else self.tempered.state()
        shares = None if self.shares is None else self.shares.tolist()
        return {"target": self.target, "tempered": tempered, "shares": shares}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the calibrator that `state` was taken from."""
        out = cls(target=state["target"])
        if state["tempered"] is not None:
            out.tempered = AffineCalibrator.from_state(state["tempered"])
            out.shares = torch.tensor(state["shares"], dtype=torch.float64)
        return out

    def _parts(self, z: Tensor) -> Tensor:
        """Returns the three probabilities, [3, n, k]."""
        assert self.tempered is not None
        uniform = torch.full_like(z, 1 / z.shape[1])
        return torch.stack([self.tempered.transform(z), torch.softmax(z, 1), uniform])
