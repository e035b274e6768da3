from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_t, norm, t

from calirare_lab.multilabel.student import StudentCopula, fit_student
from calirare_lab.multilabel.vine import VineCopula
from calirare_multilabel import CopulaOptions, canonical_calibration_error, conditional_expectation

FAMILIES = {"gaussian": None, "student": StudentCopula(), "vine": VineCopula()}


def sample(n: int = 300, k: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    f = norm.cdf((rng.normal(size=(n, k)) + rng.normal(size=(n, 1))) / np.sqrt(2))
    return f, (rng.random((n, k)) < f).astype(int)


def test_student_with_many_degrees_of_freedom_is_gaussian():
    f, y = sample(3000)
    student = conditional_expectation(y, f, options=CopulaOptions(StudentCopula(1e7)))
    gaussian = conditional_expectation(y, f, options=CopulaOptions(label_model="density"))
    # Normal scores of n rows have variance just below 1, which only one of the two fits normalises away.
    assert float((student - gaussian).abs().max()) < 0.01


def test_student_is_the_ratio_of_joint_densities():
    f, y = sample(60)
    rank = np.argsort(np.argsort(f, 0), 0) + 1
    u, nu = torch.from_numpy(rank / 61), 4.0
    fit = fit_student(u, torch.from_numpy(y == 1), degrees_of_freedom=nu, shrinkage=0.0)
    x, r = t.ppf(u.numpy(), nu), fit.dependence.correlation.numpy()
    for j in range(2):
        # The label's correlation with the scores is implied by the log odds, linear in nothing: recover it by search.
        zero_rate = np.mean(y[:, j] == 0)
        low, high = t.ppf(zero_rate / 2, nu), t.ppf(zero_rate + (1 - zero_rate) / 2, nu)

        def odds(c, low=low, high=high, zero_rate=zero_rate):
            theta = np.block([[np.ones((1, 1)), c[None]], [c[:, None], r]])
            joint = multivariate_t(np.zeros(3), theta, nu)
            top, bottom = (joint.logpdf(np.column_stack([np.full(60, v), x])) - t.logpdf(v, nu) for v in (high, low))
            return np.log((1 - zero_rate) / zero_rate) + top - bottom

        slopes = _slopes(fit, u, y, nu, j)
        correlation = r @ slopes / np.sqrt(1 + slopes @ r @ slopes)
        assert np.abs(odds(correlation) - fit.log_odds[:, j].numpy()).max() < 1e-9
        # and those correlations are a maximum of the pseudo-likelihood

        def loss(c, j=j, low=low, high=high):
            theta = np.block([[np.ones((1, 1)), c[None]], [c[:, None], r]])
            points = np.column_stack([np.where(y[:, j] == 1, high, low), x])
            return -multivariate_t(np.zeros(3), theta, nu).logpdf(points).mean()

        for step in 1e-3 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
            assert loss(correlation) < loss(correlation + step)


def _slopes(fit, u, y, nu, j) -> np.ndarray:
    from calirare_lab.multilabel.student import _fit_slopes, _quantile

    x = _quantile(u, nu)
    distance = (torch.linalg.solve_triangular(fit.dependence.factor, x.T, upper=False) ** 2).sum(0)
    widening = ((nu + distance) / (nu + 2)).sqrt()[:, None]
    zero_rate = torch.from_numpy(1 - y.mean(0))
    low, high = _quantile(zero_rate / 2, nu), _quantile(zero_rate + (1 - zero_rate) / 2, nu)
    scores = torch.where(torch.from_numpy(y == 1), high, low)
    return _fit_slopes(x, scores, widening, fit.dependence.correlation, nu + 2)[:, j].numpy()


def test_degrees_of_freedom_are_found_from_the_scores():
    rng = np.random.default_rng(0)
    normal = rng.multivariate_normal(np.zeros(3), np.full((3, 3), 0.5) + 0.5 * np.eye(3), size=3000)
    heavy = normal / np.sqrt(rng.chisquare(3, size=(3000, 1)) / 3)
    y = rng.integers(0, 2, size=(3000, 3))
    found = [
        canonical_calibration_error(y, u, options=CopulaOptions(StudentCopula())).diagnostics.degrees_of_freedom
        for u in (t.cdf(heavy, 3), norm.cdf(normal))
    ]
    assert found[0] == 3
    assert found[1] >= 20


@pytest.mark.slow
def test_vine_finds_what_no_elliptical_copula_can():
    pytest.importorskip("pyvinecopulib")
    rng = np.random.default_rng(0)
    f = rng.random((500, 2))
    chance = np.where(f[:, :1] > 0.7, 0.9, 0.1)  # depends on the upper tail of the first score only
    y = (rng.random((500, 2)) < chance).astype(int)
    gaps = {
        family: float(
            (conditional_expectation(y, f, options=CopulaOptions(FAMILIES[family])) - torch.from_numpy(chance))[:, 0]
            .square()
            .mean()
        )
        for family in ("gaussian", "vine")
    }
    assert gaps["vine"] < 0.8 * gaps["gaussian"]
