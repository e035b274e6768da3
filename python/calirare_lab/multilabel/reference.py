"""The document's Eq. 1 written out literally: both sums, full copula densities. Slow; the tests compare against it."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri


def gaussian_copula_density(u: np.ndarray, theta: np.ndarray) -> float:
    """Returns the density of a Gaussian copula, |theta|^(-1/2) exp(-z^T (theta^-1 - I) z / 2) with z = Phi^-1(u).

    Args:
        u: a point in (0, 1)^d, float64 [d].
        theta: correlation matrix, float64 [d, d].

    Returns:
        The density.
    """
    z = ndtri(u)
    exponent = z @ (np.linalg.inv(theta) - np.eye(len(u))) @ z
    return float(np.exp(-0.5 * exponent) / np.sqrt(np.linalg.det(theta)))


def printed_cdf(column: np.ndarray, at: float) -> float:
    """Returns #{i : at <= column_i} / (n + 1): the printed inequality, with n + 1 in place of n."""
    return float(np.sum(at <= column) / (len(column) + 1))


def literal_conditional_expectation(scores: np.ndarray, labels: np.ndarray, thetas: list[np.ndarray]) -> np.ndarray:
    """Returns the printed estimate of E[y_j | f(x)] at every row by the printed sums over i.

    Args:
        scores: f, float64 [n, K].
        labels: y, 0 or 1, [n, K].
        thetas: for each label the correlation matrix of (y_j, f_1..f_K), float64 [K + 1, K + 1].

    Returns:
        float64 [n, K].
    """
    n, k = scores.shape
    out = np.empty((n, k))
    for j in range(k):
        zeros = np.mean(labels[:, j] == 0)
        extended = [zeros * 0.5 if y == 0 else zeros + (1 - zeros) * 0.5 for y in labels[:, j]]
        for at in range(n):
            u = [printed_cdf(scores[:, m], scores[at, m]) for m in range(k)]
            top = bottom = 0.0
            for i in range(n):
                density = gaussian_copula_density(np.array([extended[i], *u]), thetas[j])
                top += labels[i, j] * density
                bottom += density
            out[at, j] = top / bottom
    return out


def literal_error(scores: np.ndarray, labels: np.ndarray, thetas: list[np.ndarray], p: float) -> float:
    """Returns the printed estimate of CE_p^p, Eq. 1.

    Args:
        scores: f, float64 [n, K].
        labels: y, 0 or 1, [n, K].
        thetas: for each label the correlation matrix of (y_j, f_1..f_K).
        p: order of the norm.

    Returns:
        The estimate.
    """
    expectation = literal_conditional_expectation(scores, labels, thetas)
    return float(np.mean(np.sum(np.abs(expectation - scores) ** p, axis=1)))
