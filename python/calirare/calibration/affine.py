"""Temperature scaling and Platt scaling: softmax(scale z + bias), with weights that say for which population."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration.base import Calibrator, Target, check_logits, check_prior, softmax_after, target_weights
from calirare.calibration.newton import minimise

SCALE_PRIOR = 1e-3  # on (log scale)^2 and bias^2: keeps separable logits from an infinite scale, moves nothing else


class AffineCalibrator(Calibrator):
    """Maps z to softmax(scale z + bias) with one scale > 0 and, if asked for, one bias per class (class 0: 0).

    Without biases this is temperature scaling (Guo et al. 2017), temperature = 1 / scale; with them, for two classes,
    Platt scaling (Platt 1999). Fitted by weighted negative log-likelihood.

    Args:
        with_bias: fit the biases.
        target: population the probabilities shall be right for, see `target_weights`.
        prior: weight of (log scale)^2 + |bias|^2 beside the mean loss. With few labels a larger one keeps the map near
            the identity.

    Attributes:
        scale: fitted scale.
        bias: fitted biases, float64 [k]; None before fitting.

    Raises:
        ValueError: the prior is negative or not finite.
    """

    def __init__(self, *, with_bias: bool, target: Target = "balanced", prior: float = SCALE_PRIOR) -> None:
        check_prior(type(self).__name__, prior)
        self.with_bias = with_bias
        self.target: Target = target
        self.prior = prior
        self.scale = 1.0
        self.bias: Tensor | None = None

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.bias is None else len(self.bias)

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits scale and biases on logits [n, k] and labels int64 [n] by Newton's method in float64."""
        check_logits(type(self).__name__, logits, labels)
        z, k = logits.detach().double(), logits.shape[1]
        weights = target_weights(labels, k, self.target)

        def loss(theta: Tensor) -> Tensor:
            bias = torch.cat([theta.new_zeros(1), theta[1:]]) if self.with_bias else theta.new_zeros(k)
            value = (weights * F.cross_entropy(theta[0].exp() * z + bias, labels, reduction="none")).mean()
            return value + self.prior * theta.square().sum()

        def derivatives(theta: Tensor) -> tuple[Tensor, Tensor]:
            """The gradient sum_i phi_i w_i (p_i - y_i) / n, phi_i = d (logits) / d theta, and the Hessian."""
            scaled = theta[0].exp() * z
            bias = torch.cat([theta.new_zeros(1), theta[1:]]) if self.with_bias else theta.new_zeros(k)
            p, share = torch.softmax(scaled + bias, 1), weights / len(z)
            away = share[:, None] * (p - F.one_hot(labels, k))
            slopes = scaled[:, None, :]  # [n, q, k]
            if self.with_bias:
                unit = torch.eye(k, dtype=z.dtype, device=z.device)[1:]
                slopes = torch.cat([slopes, unit.expand(len(z), k - 1, k)], 1)
            gradient = torch.einsum("nqk,nk->q", slopes, away) + 2 * self.prior * theta
            centred = slopes - (slopes * p[:, None, :]).sum(2, keepdim=True)
            hessian = torch.einsum("nqk,nrk,nk->qr", centred, centred, share[:, None] * p)
            hessian[0, 0] += (scaled * away).sum()
            return gradient, hessian + 2 * self.prior * torch.eye(len(theta), dtype=z.dtype, device=z.device)

        start = torch.zeros(k if self.with_bias else 1, dtype=torch.float64, device=z.device)
        theta = minimise(loss, start, derivatives)
        self.scale = float(theta[0].exp())
        self.bias = torch.cat([theta.new_zeros(1), theta[1:]]) if self.with_bias else theta.new_zeros(k)
        return self

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns scale z + bias, [n, k], in the dtype of the logits."""
        self.check_classes(logits)
        assert self.bias is not None
        return self.scale * logits + self.bias.to(logits)

    def transform(self, logits: Tensor) -> Tensor:
        """Returns softmax(scale z + bias), [n, k]."""
        check_logits(type(self).__name__, logits)
        return softmax_after(self.calibrated_logits, logits)

    def state(self) -> dict[str, Any]:
        """Returns scale, biases and settings."""
        bias = None if self.bias is None else self.bias.tolist()
        return {
            "with_bias": self.with_bias,
            "target": self.target,
            "prior": self.prior,
            "scale": self.scale,
            "bias": bias,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the calibrator that `state` was taken from."""
        out = cls(with_bias=state["with_bias"], target=state["target"], prior=state["prior"])
        out.scale = state["scale"]
        out.bias = None if state["bias"] is None else torch.tensor(state["bias"], dtype=torch.float64)
        return out


def temperature_scaling(target: Target = "population") -> AffineCalibrator:
    """Returns temperature scaling (Guo et al. 2017), to be fitted."""
    return AffineCalibrator(with_bias=False, target=target)


def platt_scaling(target: Target = "balanced") -> AffineCalibrator:
    """Returns Platt scaling with one scale and a bias per class, to be fitted."""
    return AffineCalibrator(with_bias=True, target=target)
