"""The post-hoc calibrators that the tables compare with, fitted on float64 logits and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration import CALIBRATORS, Target, newton_minimum, target_weights, temperature_scaling
from calirare.calibration.affine import SCALE_PRIOR, scale_prior

N_BINS = 10
MAX_STEPS = 2000
STEP_LIMIT = 1e-9  # largest change of a weight at which the mixture counts as found


class PostHoc(Protocol):
    """A calibrator from logits to probabilities."""

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits it on logits [n, k] and labels int64 [n]."""

    def transform(self, logits: Tensor) -> Tensor:
        """Returns probabilities [n, k]."""


class LinearScaling:
    """Maps z to softmax(W z + b), W a full or a diagonal matrix (Guo et al. 2017).

    A prior pulls W to the identity and b to 0. It chooses among the many (W, b) that give the same probabilities.
    """

    def __init__(self, target: Target = "population", *, diagonal: bool) -> None:
        self.target: Target = target
        self.diagonal = diagonal

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits W and b by Newton's method."""
        k = logits.shape[1]
        weights = target_weights(labels, k, self.target)
        size = k if self.diagonal else k * k
        prior = torch.full((size + k,), scale_prior(None, len(logits)), dtype=torch.float64)
        prior[size:] = SCALE_PRIOR / len(logits)

        def loss(theta: Tensor) -> Tensor:
            weight, bias = self._split(theta, k)
            value = (weights * F.cross_entropy(logits @ weight.T + bias, labels, reduction="none")).mean()
            return value + prior @ theta.square()

        self.weight_, self.bias_ = self._split(newton_minimum(loss, torch.zeros_like(prior)), k)
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """Returns probabilities [n, k]."""
        return torch.softmax(logits @ self.weight_.T + self.bias_, 1)

    def _split(self, theta: Tensor, k: int) -> tuple[Tensor, Tensor]:
        free = torch.diag(theta[:-k]) if self.diagonal else theta[:-k].view(k, k)
        return torch.eye(k, dtype=theta.dtype) + free, theta[-k:]


class EnsembleTemperature:
    """Mixes the tempered, the plain and the uniform probabilities (Zhang, Kailkhura & Han 2020).

    The temperature is fitted first. Expectation maximisation then fits the weights, which climbs to the one maximum of
    a likelihood concave in them.
    """

    def __init__(self, target: Target = "population") -> None:
        self.target: Target = target

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits the temperature, then the three weights."""
        self.tempered_ = temperature_scaling(self.target).fit(logits, labels)
        weights = target_weights(labels, logits.shape[1], self.target)
        likelihood = self._parts(logits)[:, torch.arange(len(labels)), labels]  # [3, n]
        mixture = torch.full((3, 1), 1 / 3, dtype=torch.float64)
        for _ in range(MAX_STEPS):
            posterior = mixture * likelihood
            updated = (weights * posterior / posterior.sum(0)).mean(1, keepdim=True)
            updated /= updated.sum()
            moved, mixture = float((updated - mixture).abs().max()), updated
            if moved < STEP_LIMIT:
                break
        self.mixture_ = mixture.flatten()
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """Returns probabilities [n, k]."""
        return torch.einsum("j,jnk->nk", self.mixture_, self._parts(logits))

    def _parts(self, z: Tensor) -> Tensor:
        return torch.stack([self.tempered_.transform(z), torch.softmax(z, 1), torch.full_like(z, 1 / z.shape[1])])


Curve = Callable[[np.ndarray], np.ndarray]  # log-odds of class 1 [n] to its probability [n]


class BinaryCurve:
    """A calibrator of two classes made of one curve from the log-odds of class 1 to its probability.

    Args:
        fit_curve: gets log-odds, labels and weights of mean 1, all float64 [n], and returns the curve.
        target: the population, see `target_weights`.
    """

    def __init__(self, fit_curve: Callable[[np.ndarray, np.ndarray, np.ndarray], Curve], target: Target) -> None:
        self.fit_curve, self.target = fit_curve, target

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits the curve."""
        weights = target_weights(labels, 2, self.target).numpy()
        self.curve_ = self.fit_curve(_odds(logits), labels.double().numpy(), weights)
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """Returns probabilities [n, 2]."""
        p = torch.from_numpy(self.curve_(_odds(logits)))
        return torch.stack([1 - p, p], 1)


def _odds(logits: Tensor) -> np.ndarray:
    return (logits[:, 1] - logits[:, 0]).numpy()


def isotonic(odds: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Curve:
    """Returns isotonic regression (Zadrozny & Elkan 2002), by scikit-learn."""
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(expit(odds), y, weights)
    return lambda scored: model.predict(expit(scored))


def histogram(odds: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Curve:
    """Returns the proportion of class 1 in ten bins of equal numbers of nodes (Zadrozny & Elkan 2001)."""
    ends = np.unique(np.quantile(odds, np.arange(1, N_BINS + 1) / N_BINS, method="inverted_cdf"))  # no bin is empty
    at = np.searchsorted(ends[:-1], odds, side="left")
    value = np.bincount(at, weights * y, minlength=len(ends)) / np.bincount(at, weights, minlength=len(ends))
    return lambda scored: value[np.searchsorted(ends[:-1], scored, side="left")]


def beta(odds: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Curve:
    """Returns sigma(a ln p - b ln(1 - p) + c), a and b >= 0 (Kull, Silva Filho & Flach 2017), with a weak prior."""

    def features(at: np.ndarray) -> np.ndarray:
        return np.stack([-np.logaddexp(0, -at), np.logaddexp(0, at), np.ones_like(at)], 1)

    x, signs, centre, n = features(odds), 1 - 2 * y, np.array([1.0, 1.0, 0.0]), len(y)
    prior = np.array([scale_prior(None, n)] * 2 + [SCALE_PRIOR / n])

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margin, away = signs * (x @ theta), theta - centre
        value = np.mean(weights * np.logaddexp(0, margin)) + prior @ away**2
        return float(value), x.T @ (weights * signs * expit(margin)) / n + 2 * prior * away

    bounds = [(0, None), (0, None), (None, None)]
    options = {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 1000}
    fitted = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return lambda scored: expit(features(scored) @ fitted)


def post_hoc(name: str, target: Target = "population") -> PostHoc:
    """Returns an unfitted calibrator: a comparator, or one of `calirare.calibration`."""
    if name in ("vector", "matrix"):
        return LinearScaling(target, diagonal=name == "vector")
    if name == "ets":
        return EnsembleTemperature(target)
    curves = {"isotonic": isotonic, "histogram": histogram, "beta": beta}
    return BinaryCurve(curves[name], target) if name in curves else CALIBRATORS[name](target)
