"""Matrix and vector scaling (Guo et al. 2017): softmax(W z + b)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration.affine import SCALE_PRIOR, scale_prior
from calirare.calibration.base import (
    Calibrator,
    Target,
    check_prior,
    float64,
    softmax_after,
    standard_of,
    target_weights,
)
from calirare.calibration.minimisers import newton_minimum, quasi_newton_minimum

FEW = 60  # free numbers up to which Newton's method fits; above, L-BFGS does: a Hessian takes their square in memory


class LinearCalibrator(Calibrator):
    """Maps z to softmax(W z + b), W a full or a diagonal matrix.

    With few labels a full matrix overfits: the paper's Table 2 shows it. The prior pulls W to the identity and b to 0;
    it also chooses among the many (W, b) that give the same probabilities.

    Args:
        diagonal: vector scaling; otherwise matrix scaling.
        target: population the probabilities shall be right for, see `target_weights`.
        prior: weight of |W - I|^2 + |b|^2 / n beside the mean loss of n labels: b sets the mean probabilities. None:
            .001, of |W - I|^2 1 / n where that is less.

    Attributes:
        weight_: fitted W, float64 [k, k]; None before fitting.
        bias_: fitted b, float64 [k]; None before fitting.

    Raises:
        ValueError: the prior is negative or not finite.
    """

    fitted: ClassVar = {"weight": float64, "bias": float64}
    weight_: Tensor | None = None
    bias_: Tensor | None = None

    def __init__(self, *, diagonal: bool, target: Target = "population", prior: float | None = None) -> None:
        self.diagonal = diagonal
        self.target: Target = target
        self.prior = prior
        self.check_settings()

    def check_settings(self) -> None:
        """Checks the prior."""
        check_prior("LinearCalibrator", self.prior or 0.0)

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.bias_ is None else len(self.bias_)

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fits W and b in float64, see `FEW`."""
        level, unit = standard_of(logits)
        z, k = (logits.detach().double() - level) / unit, logits.shape[1]
        weights = target_weights(labels, k, self.target)
        size = k if self.diagonal else k * k
        start = torch.zeros(size + k, dtype=torch.float64, device=z.device)
        prior = torch.full_like(start, scale_prior(self.prior, len(z)))
        prior[size:] = float(SCALE_PRIOR if self.prior is None else self.prior) / max(len(z), 1)

        def loss(theta: Tensor) -> Tensor:
            weight, bias = self._split(theta, k)
            value = (weights * F.cross_entropy(z @ weight.T + bias, labels, reduction="none")).mean()
            return value + prior @ theta.square()

        if len(start) <= FEW:
            theta = newton_minimum(loss, start)
        else:
            share = (weights / len(z))[:, None]
            curvature = self._moments(_variance(z, share), z.square()) + 2 * prior
            theta = quasi_newton_minimum(lambda at: self._slope(at, z, labels, share, prior), start, curvature)
        weight, bias = self._split(theta, k)
        self.weight_ = weight / unit
        self.bias_ = bias - self.weight_ @ level

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns W z + b, [n, k], in the dtype of the logits."""
        self.check_classes(logits)
        assert self.weight_ is not None
        assert self.bias_ is not None
        return logits @ self.weight_.T.to(logits) + self.bias_.to(logits)

    def _transform(self, logits: Tensor) -> Tensor:
        return softmax_after(self.calibrated_logits, logits)

    def _slope(self, theta: Tensor, z: Tensor, labels: Tensor, share: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the loss and its gradient, [q]; `share` [n, 1] is the weight of each row in the mean."""
        weight, bias = self._split(theta, z.shape[1])
        mapped = z * weight.diagonal() if self.diagonal else z @ weight.T
        log_p, at = torch.log_softmax(mapped + bias, 1), labels[:, None]
        away = (log_p.exp() * share).scatter_add(1, at, -share)
        value = prior @ theta.square() - (share * log_p.gather(1, at)).sum()
        return value, self._moments(away, z) + 2 * prior * theta

    def _moments(self, rows: Tensor, z: Tensor) -> Tensor:
        """Returns sum_i rows_ij z_ic, of a diagonal matrix for c = j only, and sum_i rows_ij: one for each number."""
        of_weight = (rows * z).sum(0) if self.diagonal else (rows.T @ z).flatten()
        return torch.cat([of_weight, rows.sum(0)])

    def _split(self, theta: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Returns W and b of the free numbers, which are 0 for the identity."""
        free = torch.diag(theta[:-k]) if self.diagonal else theta[:-k].view(k, k)
        return torch.eye(k, dtype=theta.dtype, device=theta.device) + free, theta[-k:]


def vector_scaling(target: Target = "population") -> LinearCalibrator:
    """Returns vector scaling, one scale and one bias per class, to be fitted."""
    return LinearCalibrator(diagonal=True, target=target)


def matrix_scaling(target: Target = "population") -> LinearCalibrator:
    """Returns matrix scaling, to be fitted."""
    return LinearCalibrator(diagonal=False, target=target)


def _variance(z: Tensor, share: Tensor) -> Tensor:
    """Returns share p (1 - p) of the softmax, [n, k]: with it z^2 sums up to the curvature of each number by itself."""
    p = torch.softmax(z, 1)
    return share * p * (1 - p)
