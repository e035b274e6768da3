"""Worlds in which the canonical calibration error is known: data from a known copula with a known miscalibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.special import betaincinv, expit, logit, ndtr, ndtri, stdtr
from torch import Tensor

N_LABELS = 4
RATES = np.array([0.5, 0.3, 0.2, 0.1])  # of the labels, from common to rare
OWN = 0.7  # correlation of a latent label with its own score
NEIGHBOUR = 0.5  # weight of the next label's score in the world "hidden"
SHARED = 0.5  # correlation of the latent labels' residuals: labels stay dependent given the scores
SHARPENING = 1.5  # factor on the log-odds in the overconfident worlds
TAIL = 3.0  # degrees of freedom of the t copula
BETA = (0.5, 1.5)  # parameters of the scores' distribution in the skewed worlds: many near 0, mean 1/4
GRID = np.linspace(-8.5, 8.5, 3401)  # standard normal quadrature, exact to 1e-8 for integrands with a kink


@dataclass(frozen=True)
class Sample:
    """Rows drawn from a world.

    Attributes:
        scores: f(x), float64 [n, K].
        labels: bool [n, K].
        conditional: the true E[y | f(x)], float64 [n, K].
    """

    scores: Tensor
    labels: Tensor
    conditional: Tensor


@dataclass(frozen=True)
class World:
    """A joint distribution of scores and labels with known calibration error.

    Attributes:
        name: short.
        description: one sentence.
        gaussian: whether scores and latent labels have a Gaussian copula, the best case of the document's estimator.
        draw: (n, random) -> rows.
        true_error: p -> CE_p^p per label (divided by K), by quadrature.
    """

    name: str
    description: str
    gaussian: bool
    draw: Callable[[int, np.random.Generator], Sample]
    true_error: Callable[[float], float]


@cache
def worlds() -> tuple[World, ...]:
    """Returns the worlds of the study, K = 4 labels each.

    "calibrated", "overconfident" and "hidden" have a Gaussian copula of scores and latent labels: y_j = 1 where a
    latent normal variable exceeds a threshold. In "hidden" each label also depends on the next label's score, so that
    f is calibrated label by label and yet not canonically. "skewed" and "skewed_overconfident" have Beta
    distributed scores with a t copula and labels drawn with probability f (before sharpening): calibration is as simple
    there as can be, but no latent normal variable describes it.
    """
    return (
        World("calibrated", "Gaussian copula, f = E[y|f]", True, _gaussian_draw(1.0), _own_error(1.0)),
        World(
            "overconfident",
            f"Gaussian copula, log-odds times {SHARPENING}",
            True,
            _gaussian_draw(SHARPENING),
            _own_error(SHARPENING),
        ),
        World(
            "hidden",
            "Gaussian copula, each f_j calibrated by itself but y_j depends on f_(j+1) too",
            True,
            _hidden_draw,
            _hidden_error,
        ),
        World("skewed", "Beta-distributed scores, t copula, f = E[y|f]", False, _skewed_draw(1.0), _skewed_error(1.0)),
        World(
            "skewed_overconfident",
            f"Beta-distributed scores, t copula, log-odds times {SHARPENING}",
            False,
            _skewed_draw(SHARPENING),
            _skewed_error(SHARPENING),
        ),
    )


def _score_correlation() -> np.ndarray:
    """Returns the correlation of the normal scores: 0.4 between neighbours, falling geometrically."""
    at = np.arange(N_LABELS)
    return 0.4 ** np.abs(at[:, None] - at[None, :])


def _normal(n: int, random: np.random.Generator, correlation: np.ndarray) -> np.ndarray:
    return random.standard_normal((n, len(correlation))) @ np.linalg.cholesky(correlation).T


def _residuals(n: int, random: np.random.Generator) -> np.ndarray:
    return _normal(n, random, (1 - SHARED) * np.eye(N_LABELS) + SHARED)


def _own_score(z: np.ndarray) -> np.ndarray:
    """Returns P(y_j = 1 | z_j) for z [..., K] where latent label j has correlation OWN with z_j."""
    return ndtr((OWN * z + ndtri(RATES)) / np.sqrt(1 - OWN**2))


def _sharpen(f: np.ndarray, factor: float) -> np.ndarray:
    return f if factor == 1 else expit(factor * logit(f))


def _sample(scores: np.ndarray, labels: np.ndarray, conditional: np.ndarray) -> Sample:
    return Sample(torch.from_numpy(scores), torch.from_numpy(labels), torch.from_numpy(conditional))


def _gaussian_draw(factor: float) -> Callable[[int, np.random.Generator], Sample]:
    def draw(n: int, random: np.random.Generator) -> Sample:
        z = _normal(n, random, _score_correlation())
        latent = OWN * z + np.sqrt(1 - OWN**2) * _residuals(n, random)
        truth = _own_score(z)
        return _sample(_sharpen(truth, factor), latent > -ndtri(RATES), truth)

    return draw


def _own_error(factor: float) -> Callable[[float], float]:
    @cache
    def error(p: float) -> float:
        f = _own_score(np.repeat(GRID[:, None], N_LABELS, 1))
        return float((_gauss_weights() @ np.abs(_sharpen(f, factor) - f) ** p).mean())

    return error


def _hidden_parts() -> tuple[np.ndarray, np.ndarray]:
    """Returns the loadings g [K, K] of m = z g and the standard deviation of the latent labels' residual, [K].

    m_j = a (z_j + NEIGHBOUR * z_(j+1)) with variance OWN^2.
    """
    g = np.eye(N_LABELS) + NEIGHBOUR * np.roll(np.eye(N_LABELS), -1, axis=1).T
    g *= OWN / np.sqrt(np.diag(g.T @ _score_correlation() @ g))
    return g, np.full(N_LABELS, np.sqrt(1 - OWN**2))


def _hidden_draw(n: int, random: np.random.Generator) -> Sample:
    g, deviation = _hidden_parts()
    z = _normal(n, random, _score_correlation())
    mean = z @ g
    latent = mean + deviation * _residuals(n, random)
    own = np.diag(_score_correlation() @ g)  # correlation of latent label j with z_j
    scores = ndtr((own * z + ndtri(RATES)) / np.sqrt(1 - own**2))
    return _sample(scores, latent > -ndtri(RATES), ndtr((mean + ndtri(RATES)) / deviation))


@cache
def _hidden_error(p: float) -> float:
    g, deviation = _hidden_parts()
    own = np.diag(_score_correlation() @ g)
    rest = np.sqrt(OWN**2 - own**2)  # m_j = own_j z_j + rest_j w with w independent of z_j
    total, weights, coarse = 0.0, _gauss_weights()[::4] * 4, GRID[::4]
    for j in range(N_LABELS):
        z, w = coarse[:, None], coarse[None, :]
        truth = ndtr((own[j] * z + rest[j] * w + ndtri(RATES[j])) / deviation[j])
        score = ndtr((own[j] * z + ndtri(RATES[j])) / np.sqrt(1 - own[j] ** 2))
        total += float(weights @ np.abs(truth - score) ** p @ weights)
    return total / N_LABELS


def _skewed_draw(factor: float) -> Callable[[int, np.random.Generator], Sample]:
    def draw(n: int, random: np.random.Generator) -> Sample:
        z = _normal(n, random, _score_correlation())
        u = stdtr(TAIL, z / np.sqrt(random.chisquare(TAIL, n) / TAIL)[:, None])
        # float64 rounds the far tails to 0 and 1, whose log-odds are infinite
        f = np.clip(betaincinv(*BETA, u), 1e-12, 1 - 1e-12)
        return _sample(_sharpen(f, factor), ndtr(_residuals(n, random)) < f, f)

    return draw


def _skewed_error(factor: float) -> Callable[[float], float]:
    @cache
    def error(p: float) -> float:
        f = betaincinv(*BETA, (np.arange(20_000) + 0.5) / 20_000)
        return float((np.abs(_sharpen(f, factor) - f) ** p).mean())

    return error


@cache
def _gauss_weights() -> np.ndarray:
    """Returns trapezoid weights of the standard normal on GRID."""
    weights = np.exp(-0.5 * GRID**2)
    return weights / weights.sum()
