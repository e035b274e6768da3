from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from calirare_lab.multilabel.reference import (
    literal_conditional_expectation,
    literal_error,
)
from calirare_lab.multilabel.student import StudentCopula
from calirare_multilabel import CopulaOptions, canonical_calibration_error, conditional_expectation
from calirare_multilabel.families import GaussianFit, fit_gaussian, likelihood_root
from calirare_multilabel.margins import normal_score_dependence, pseudo_observations

PLAIN = CopulaOptions(shrinkage=0.0, label_model="density")


def sample(n: int = 24, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Dependent scores, labels that follow them, and ties in one column."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, k)) + rng.normal(size=(n, 1))
    f = norm.cdf(latent / np.sqrt(2))
    if k > 1:
        f[:, 1] = np.round(f[:, 1], 1)
    return f, (rng.random((n, k)) < f).astype(int)


def fitted(f: np.ndarray, y: np.ndarray, **options) -> tuple[GaussianFit, np.ndarray]:
    u, _ = pseudo_observations(torch.from_numpy(f))
    z = torch.special.ndtri(u)
    printed = {"shrinkage": 0.0, "label_model": "density"}
    return fit_gaussian(z, torch.from_numpy(y == 1), **printed | options), z.numpy()


def thetas(fit: GaussianFit) -> list[np.ndarray]:
    """The correlation matrix of (y_j, f_1..f_K) for each label."""
    k = len(fit.dependence.correlation)
    out = []
    for j in range(k):
        theta = np.eye(k + 1)
        theta[1:, 1:] = fit.dependence.correlation
        theta[0, 1:] = theta[1:, 0] = fit.label_correlation[:, j]
        out.append(theta)
    return out


@pytest.mark.parametrize("p", [1, 2, 3.5])
@pytest.mark.parametrize(("n", "k", "seed"), [(24, 3, 0), (12, 1, 1), (15, 5, 2)])
def test_equal_to_the_printed_double_sum(n, k, seed, p):
    f, y = sample(n, k, seed)
    expected = literal_error(f, y, thetas(fitted(f, y)[0]), p)
    error = canonical_calibration_error(y, f, norm=p, options=PLAIN)
    assert abs(error.value - expected) <= 1e-10
    assert expected > 1e-4
    assert (error.root, error.mean) == pytest.approx((error.value ** (1 / p), error.value / k), rel=1e-14, abs=0)


def test_a_wrong_estimator_is_told_from_the_printed_double_sum():
    f, y = sample()
    fit, z = fitted(f, y)
    expected = literal_conditional_expectation(f, y, thetas(fit))
    assert np.abs(fit.conditional_mean(torch.from_numpy(z)).numpy() - expected).max() <= 1e-10
    mutants = {
        "sign of the correlation": dataclasses.replace(fit, loadings=-fit.loadings),
        "residual variance 1": dataclasses.replace(fit, residual_variance=torch.ones(3, dtype=torch.float64)),
        "prior odds 1": dataclasses.replace(fit, positive_rate=torch.full((3,), 0.5, dtype=torch.float64)),
        "labels thresholded": dataclasses.replace(fit, label_model="threshold"),
    }
    for what, mutant in mutants.items():
        gap = np.abs(mutant.conditional_mean(torch.from_numpy(z)).numpy() - expected).max()
        assert gap > 1e-3, what


def test_label_correlation_maximises_the_pseudo_likelihood():
    f, y = sample(80, 2, 3)
    fit, _ = fitted(f, y)
    r = fit.dependence.correlation.numpy()
    scaled = fit.dependence.standardised.numpy()
    for j in range(2):
        zero_rate = np.mean(y[:, j] == 0)
        score = np.where(y[:, j] == 1, norm.ppf(zero_rate + (1 - zero_rate) / 2), norm.ppf(zero_rate / 2))

        def loss(correlation, score=score):
            weights = np.linalg.solve(r, correlation)
            variance = 1 - correlation @ weights
            if variance <= 0:
                return np.inf
            return -norm.logpdf(score, scaled @ weights, np.sqrt(variance)).mean()

        found = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
        ours = fit.label_correlation[:, j].numpy()
        assert loss(ours) <= found.fun + 1e-12
        assert np.abs(ours - found.x).max() <= 1e-6


def test_likelihood_root_is_the_root_in_the_unit_interval_with_its_derivative():
    c = torch.tensor([1e-9, 0.05, 0.3, 0.6, 0.99], dtype=torch.float64)
    v = torch.tensor([0.3, 1e-2, 0.5, 0.45, 1.0], dtype=torch.float64)
    for a, b, t in zip(c.tolist(), v.tolist(), likelihood_root(c, v).tolist(), strict=True):
        roots = np.roots([-1, a, -b, a])
        real = roots[np.abs(roots.imag) < 1e-7].real
        assert t == pytest.approx(real[(real >= 0) & (real < 1)][0], rel=1e-9, abs=0)
    c, v = c[1:].requires_grad_(), v[1:].requires_grad_()
    assert torch.autograd.gradcheck(likelihood_root, (c, v))
    assert torch.autograd.gradgradcheck(likelihood_root, (c, v))


def test_shrinkage_weight_by_loops():
    z = np.random.default_rng(0).normal(size=(20, 4))
    s = (z - z.mean(0)) / z.std(0)
    noise = signal = 0.0
    for i in range(4):
        for j in range(4):
            if i != j:
                products = s[:, i] * s[:, j]
                noise += products.var() / 20
                signal += products.mean() ** 2
    found = normal_score_dependence(torch.from_numpy(z))
    assert float(found.shrinkage) == pytest.approx(min(1, noise / signal), rel=1e-12, abs=0)
    off = np.corrcoef(z.T) - np.eye(4)
    expected = (1 - float(found.shrinkage)) * off + np.eye(4)
    np.testing.assert_allclose(found.correlation.numpy(), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose((found.factor @ found.factor.T).numpy(), expected, rtol=1e-12, atol=1e-15)
    assert found.jitter == 0


def test_the_threshold_model_is_the_conditional_probability_of_a_latent_normal():
    f, y = sample(60, 3, 4)
    fit, z = fitted(f, y, label_model="threshold")
    for j, theta in enumerate(thetas(fit)):
        weights = np.linalg.inv(theta[1:, 1:]) @ theta[1:, 0]
        variance = theta[0, 0] - theta[0, 1:] @ weights
        expected = norm.sf(norm.isf(y[:, j].mean()), z @ weights, np.sqrt(variance))
        ours = fit.conditional_mean(torch.from_numpy(z))[:, j].numpy()
        assert np.abs(ours - expected).max() <= 1e-12


def test_the_default_falls_to_nothing_for_true_probabilities_and_the_printed_form_does_not():
    rng = np.random.default_rng(0)
    latent = rng.multivariate_normal(np.zeros(2), [[1, 0.5], [0.5, 1]], size=50_000)
    f = norm.cdf(0.8 * latent - 0.6)
    y = (rng.random(f.shape) < f).astype(int)
    default = canonical_calibration_error(y, f).mean
    assert default < 0.01 < 0.02 < canonical_calibration_error(y, f, options=CopulaOptions(label_model="density")).mean
    assert CopulaOptions().label_model == "threshold"
    assert CopulaOptions(StudentCopula()).label_model == "density", "other families know no threshold"


def test_the_threshold_model_recovers_a_known_copula_and_the_printed_one_does_not():
    n, theta = 100_000, np.array([[1, 0.6, 0.1], [0.6, 1, 0.4], [0.1, 0.4, 1]])
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(3), theta, size=n)
    labels = (draws[:, :1] > 0.8).repeat(2, 1).astype(int)
    scores = norm.sf(draws[:, 1:])  # falling, as the printed CDF mirrors the scores once more
    true = fitted(scores, labels, label_model="threshold")[0].label_correlation[:, 0].numpy()
    printed = fitted(scores, labels)[0].label_correlation[:, 0].numpy()
    assert np.abs(true - theta[0, 1:]).max() < 4 * 2 / np.sqrt(n)  # sd(z y / phi) < 2
    assert abs(printed[0] - 0.6) > 0.05


@pytest.mark.parametrize("label_model", ["density", "threshold"])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("constant column", lambda f: np.column_stack([np.full(len(f), 0.3), f[:, 1:]])),
        ("all columns constant", lambda f: np.full_like(f, 0.5)),
        ("equal columns", lambda f: np.repeat(f[:, :1], 3, 1)),
        ("opposite columns", lambda f: np.column_stack([f[:, 0], 1 - f[:, 0], f[:, 2]])),
        ("scores 0 and 1", lambda f: np.round(f)),
        ("fewer rows than labels", lambda f: f[:3]),
        ("two rows", lambda f: f[:2]),
    ],
)
@pytest.mark.parametrize("shrinkage", ["auto", 0.0])
def test_numerically_safe(name, change, label_model, shrinkage):
    f, y = sample(40, 3)
    f = change(f)
    y = y[: len(f)]
    options = CopulaOptions(label_model=label_model, shrinkage=shrinkage)
    expectation = conditional_expectation(y, f, options=options)
    assert bool(torch.isfinite(expectation).all())
    assert 0 <= float(expectation.min()) <= float(expectation.max()) <= 1
    error = canonical_calibration_error(y, f, options=options)
    assert 0 <= error.mean <= 1
    if name == "constant column":
        assert error.diagnostics.constant_scores == (0,)
    if name == "all columns constant":
        np.testing.assert_allclose(expectation.numpy(), np.broadcast_to(y.mean(0), y.shape), rtol=1e-12, atol=0)
    if name == "equal columns":
        assert (error.diagnostics.jitter > 0) == (shrinkage == 0.0)


def test_a_label_nobody_has_and_one_everybody_has():
    f, y = sample(20, 4)
    y[:, 1], y[:, 3] = 0, 1
    error = canonical_calibration_error(y, f)
    assert error.diagnostics.absent_labels == (1,)
    assert error.diagnostics.universal_labels == (3,)
    assert float(error.per_label[1]) == pytest.approx(f[:, 1].mean(), rel=1e-14, abs=0)
    assert float(error.per_label[3]) == pytest.approx((1 - f[:, 3]).mean(), rel=1e-14, abs=0)
    kept = [0, 2]
    # The literal sums say the same: every y in the numerator is 0, or every one is 1.
    literal = literal_conditional_expectation(f, y, [np.eye(5)] * 4)
    np.testing.assert_allclose(literal[:, [1, 3]], y[:, [1, 3]], rtol=1e-14, atol=0)
    assert bool((conditional_expectation(y, f)[:, kept] > 0).all())


@pytest.mark.parametrize(
    ("scores", "labels", "kind", "message"),
    [
        (np.full((3, 2), 0.5), np.zeros((3, 1)), ValueError, r"y_true must have shape \[3, 2\], got \[3, 1\]"),
        (np.full((3, 2), 1.5), np.zeros((3, 2)), ValueError, r"p must lie in \[0, 1\], got values from 1.5"),
        (np.full((3, 2), 0.5), np.full((3, 2), 2), ValueError, "y_true must be 0 or 1, got 2"),
        (np.full((3, 2), 0.5), np.full((3, 2), np.inf), ValueError, "y_true must be finite"),
        (np.full((1, 2), 0.5), np.zeros((1, 2)), ValueError, "at least 2 rows, got 1"),
        (np.array([["a"]]), np.zeros((1, 1)), TypeError, "p must hold real numbers"),
        (np.ma.array([[0.5], [0.6]], mask=[[0], [1]]), np.zeros((2, 1)), ValueError, "p must not be masked"),
    ],
)
def test_bad_input_is_named(scores, labels, kind, message):
    with pytest.raises(kind, match=message):
        canonical_calibration_error(labels, scores)
