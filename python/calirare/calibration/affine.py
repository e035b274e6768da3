"""Temperature and Platt scaling: softmax(scale z + bias), weighted for a population; on leave-one-out logits."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration.base import (
    Calibrator,
    Target,
    check_prior,
    float64,
    softmax_after,
    standard_of,
    target_weights,
)
from calirare.calibration.minimisers import newton_minimum

SCALE_PRIOR = 1e-3  # on (log scale)^2 and bias^2 / n: keeps separable logits from an infinite map, moves nothing else
FADING = 1.0  # on (log scale)^2 next to a sum of losses, at most: with few rare labels of many 1e-3 of a mean is much


def scale_prior(given: float | None, n: int) -> float:
    """Returns the weight of (log scale)^2 next to the mean loss of n labels; None: `SCALE_PRIOR`, fading with n."""
    return min(SCALE_PRIOR, FADING / max(n, 1)) if given is None else float(given)


class AffineCalibrator(Calibrator):
    """Maps z to softmax(scale z + bias) with one scale > 0 and, if asked for, one bias per class (class 0: 0).

    Without biases this is temperature scaling (Guo et al. 2017), temperature = 1 / scale; with them, for two classes,
    Platt scaling (Platt 1999). Fitted by weighted negative log-likelihood.

    Args:
        with_bias: fit the biases.
        target: population the probabilities shall be right for, see `target_weights`.
        prior: weight of (log scale)^2 next to the mean loss of n labels; None: .001, or 1 / n where that is less. With
            few labels a larger one keeps the map near the identity.
        bias_prior: weight of |bias|^2; None: prior / n, of None .001 / n. The bias sets the mean probability, mean(p) -
            mean(y) = -2 bias_prior bias: one that does not fade overstates a class of one node in a hundred.

    Attributes:
        scale_: fitted scale.
        bias_: fitted biases, float64 [k]; None before fitting.

    Raises:
        ValueError: a prior is negative or not finite.
    """

    fitted: ClassVar = {"scale": float, "bias": float64}
    scale_: float = 1.0
    bias_: Tensor | None = None

    def __init__(
        self,
        *,
        with_bias: bool,
        target: Target = "balanced",
        prior: float | None = None,
        bias_prior: float | None = None,
    ) -> None:
        self.with_bias = with_bias
        self.target: Target = target
        self.prior, self.bias_prior = prior, bias_prior
        self.check_settings()

    def check_settings(self) -> None:
        """Checks the priors."""
        for weight in (self.prior or 0.0, self.bias_prior or 0.0):
            check_prior(type(self).__name__, weight)

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.bias_ is None else len(self.bias_)

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fits scale and biases by Newton's method in float64."""
        level, unit = standard_of(logits, centred=self.with_bias)
        z, k = (logits.detach().double() - level) / unit, logits.shape[1]
        weights = target_weights(labels, k, self.target)

        def bias_of(theta: Tensor) -> Tensor:
            return torch.cat([theta.new_zeros(1), theta[1:]]) if self.with_bias else theta.new_zeros(k)

        start = torch.zeros(k if self.with_bias else 1, dtype=torch.float64, device=z.device)
        bias = (SCALE_PRIOR if self.prior is None else self.prior) / max(len(z), 1)
        prior = torch.full_like(start, float(bias if self.bias_prior is None else self.bias_prior))
        prior[0] = scale_prior(self.prior, len(z))

        def loss(theta: Tensor) -> Tensor:
            losses = F.cross_entropy(theta[0].exp() * z + bias_of(theta), labels, reduction="none")
            return (weights * losses).mean() + prior @ theta.square()

        def derivatives(theta: Tensor) -> tuple[Tensor, Tensor]:
            scaled, share = theta[0].exp() * z, weights / len(z)
            gradient, hessian = _derivatives(scaled, bias_of(theta), labels, share)
            q = len(theta)  # without biases the scale alone
            gradient, hessian = gradient[:q], hessian[:q, :q]
            return gradient + 2 * prior * theta, hessian + torch.diag(2 * prior)

        theta = newton_minimum(loss, start, derivatives)
        self.scale_ = float(theta[0].exp()) / unit
        moved = bias_of(theta) - self.scale_ * level
        self.bias_ = moved - moved[0]

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns scale z + bias, [n, k], in the dtype of the logits."""
        self.check_classes(logits)
        assert self.bias_ is not None
        return self.scale_ * logits + self.bias_.to(logits)

    def _transform(self, logits: Tensor) -> Tensor:
        return softmax_after(self.calibrated_logits, logits)


def temperature_scaling(target: Target = "population") -> AffineCalibrator:
    """Returns temperature scaling (Guo et al. 2017), to be fitted."""
    return AffineCalibrator(with_bias=False, target=target)


def platt_scaling(target: Target = "balanced") -> AffineCalibrator:
    """Returns Platt scaling with one scale and a bias per class, to be fitted."""
    return AffineCalibrator(with_bias=True, target=target)


def _derivatives(scaled: Tensor, bias: Tensor, labels: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Returns slope [k] and curvature [k, k] of the weighted loss of softmax(scale z + bias) in (log scale, bias_1 ..).

    With z' = scale z and P_i = diag(p_i) - p_i p_i^T, the curvature is sum_i share_i J_i^T P_i J_i, J_i = [z'_i, I],
    and z'_i^T (p_i - y_i) more at the scale; all of it from arrays [n, k]. `scaled` is scale z, float64 [n, k]; the
    first of the k biases is 0; `share` [n] is the weight of each row in the mean.
    """
    p = torch.softmax(scaled + bias, 1)
    away = share[:, None] * (p - F.one_hot(labels, p.shape[1]))
    centred = scaled - (p * scaled).sum(1, keepdim=True)
    weighted = share[:, None] * p
    hessian = -(weighted.T @ p)
    hessian.diagonal().copy_((weighted * _others(p)).sum(0))
    slope = (scaled * away).sum()
    hessian[0] = hessian[:, 0] = (weighted * centred).sum(0)
    hessian[0, 0] = (weighted * centred.square()).sum() + slope
    return torch.cat([slope[None], away.sum(0)[1:]]), hessian


def _others(p: Tensor) -> Tensor:
    """Returns 1 - p, [n, k], of the largest as the sum of the others: the difference would lose all its digits."""
    top = p.argmax(1, keepdim=True)
    rest = p.scatter(1, top, 0.0).sum(1, keepdim=True)
    return (1 - p).scatter(1, top, rest)


MIN_RARE = 25  # fewer calibration nodes of the rarest class than this make every map with a bias noise (measured)
FALLBACK_PRIOR = 0.02  # pulls the fallback's temperature to 1; worth a few labelled nodes


class JackknifeCalibrator(Calibrator):
    """Fits a Platt map, or a temperature where labels are few, on leave-one-out logits.

    The logits of node i come from a model that never saw label i (`JackknifeResult.own_loo_logits`), so the map
    corrects what the network does on new nodes. The same map fitted on in-sample logits makes calibration worse. Give
    only nodes that represent the population (a random sample such as the validation nodes); nodes drawn with equal
    numbers per class do not, and a map fitted on them alone is unstable.

    Args:
        target: "balanced" (weights inverse to class share, what cost-sensitive training and Macro-ACE judge) or
            "population" (every node alike, what ECE, NLL and "P(fraud)" mean).
        min_rare: with fewer nodes of the rarest class than this, a temperature with a prior replaces the Platt map.

    Attributes:
        map_: the fitted map; None before fitting.
        note_: one sentence on a fallback, empty otherwise.
    """

    fitted: ClassVar = {"note": str, "map": AffineCalibrator.from_state}
    note_: str = ""
    map_: AffineCalibrator | None = None

    def __init__(self, *, target: Target = "balanced", min_rare: int = MIN_RARE) -> None:
        self.target: Target = target
        self.min_rare = min_rare

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return None if self.map_ is None else self.map_.n_classes

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        """Fits on leave-one-out logits [m, k]."""
        counts = torch.bincount(labels, minlength=logits.shape[1])
        rarest = int(counts.min())
        enough = rarest >= self.min_rare
        self.note_ = ""
        if not enough:
            self.note_ = (
                f"only {rarest} calibration nodes of the rarest class ({self.min_rare} are needed): "
                "temperature scaling with a prior replaces Platt scaling"
            )
        prior = {} if enough else {"prior": FALLBACK_PRIOR}
        self.map_ = AffineCalibrator(with_bias=enough, target=self.target, **prior).fit(logits, labels)

    def _transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k] of in-sample logits [n, k]."""
        return self._fitted(logits).transform(logits)

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns the logits after the map, [n, k]."""
        return self._fitted(logits).calibrated_logits(logits)

    def _fitted(self, logits: Tensor) -> AffineCalibrator:
        self.check_classes(logits)
        assert self.map_ is not None
        return self.map_
