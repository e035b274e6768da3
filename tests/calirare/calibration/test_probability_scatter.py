"""Intervals of each node's true P(class): integrals by another quadrature, and coverage where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit, logit

from calirare.calibration import PriorPlattCalibrator, node_probabilities
from calirare.calibration.probability_scatter import SAMPLING, UNSEEN, normal_log_odds
from tests.helpers.logits import problem

T95 = 2.3533634348018264  # quantile of .95 of Student's t with 3 degrees of freedom, from tables


def integral(of, mean: float, sd: float) -> float:
    """E of(sigmoid(mean + sd e)), adaptive."""
    density = lambda e: of(expit(mean + sd * e)) * math.exp(-(e**2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    return quad(density, -9, 9, limit=400, epsabs=1e-13)[0]


@pytest.mark.parametrize("sd", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("p", [1e-4, 0.03, 0.5, 0.999])
def test_mean_of_the_log_odds_keeps_p(p: float, sd: float) -> None:
    mean = normal_log_odds(torch.tensor([p], dtype=torch.float64), torch.tensor([sd], dtype=torch.float64))
    assert integral(lambda q: q, float(mean), sd) == pytest.approx(p, rel=2e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_intervals_and_error_by_hand(k: int) -> None:
    z, y = problem(n=80, k=k)
    folds = z + 0.3 * torch.randn(4, *z.shape, generator=torch.Generator().manual_seed(1))
    fitted = PriorPlattCalibrator().fit(z, y)
    found = node_probabilities(fitted, z, folds, 900, of_class=k - 1)
    p = fitted.transform(z.double())[:, k - 1].numpy()
    odds = np.stack([logit(fitted.transform(each.double())[:, k - 1].numpy()) for each in folds])
    jackknife = 3 / 4 * ((odds - odds.mean(0)) ** 2).sum(0)
    scatter = np.sqrt(SAMPLING * (jackknife + jackknife.mean()) / 2 + UNSEEN / 30)
    np.testing.assert_allclose(found.scatter.numpy(), scatter, rtol=1e-10)
    means = normal_log_odds(torch.from_numpy(p), torch.from_numpy(scatter)).numpy()
    low, high = expit(means - T95 * scatter), expit(means + T95 * scatter)
    np.testing.assert_allclose(found.low.numpy(), np.where(low < 3 / 900, 0, low), rtol=1e-10)
    np.testing.assert_allclose(found.high.numpy(), np.where(high > 1 - 3 / 900, 1, high), rtol=1e-10)
    errors = [integral(lambda q, mine=mine: abs(q - mine), *at) for *at, mine in zip(means, scatter, p, strict=True)]
    assert found.error == pytest.approx(np.mean(errors), rel=0.02)
    assert found.error_low < found.error < found.error_high


def test_intervals_cover_where_the_model_of_scatter_is_right() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 400, 20_000, 5
    z, y = problem(n=2000)
    fitted = PriorPlattCalibrator().fit(z, y)
    z = problem(n=n, seed=1)[0]
    moved = rng.standard_normal((k, n)) * 0.25
    folds = torch.stack([torch.stack([z[:, 0], z[:, 1] + torch.from_numpy(each).to(z)], 1) for each in moved])
    found = node_probabilities(fitted, z, folds, m)
    p = fitted.transform(z.double())[:, 1]
    truth = expit(normal_log_odds(p, found.scatter).numpy() + found.scatter.numpy() * rng.standard_normal(n))
    inside = (found.low.numpy() <= truth) & (truth <= found.high.numpy())
    assert 0.96 <= inside.mean() <= 0.99  # P(|N(0, 1)| < 2.132) = .967; ends that moved to 0 or 1 cover more
    assert found.error == pytest.approx(np.abs(truth - p.numpy()).mean(), rel=0.03)


def test_bad_input_is_refused() -> None:
    z, y = problem(n=80)
    fitted = PriorPlattCalibrator().fit(z, y)
    for folds, more in (
        (z[None], {}),
        (z, {}),
        (z[None, :5].repeat(3, 1, 1), {}),
        (z.repeat(3, 1, 1), {"coverage": 1.0}),
        (z.repeat(3, 1, 1), {"of_class": 2}),
        (z.repeat(3, 1, 1), {"n_labels": 0}),
    ):
        with pytest.raises(ValueError, match="node_probabilities"):
            node_probabilities(fitted, z, folds, **{"n_labels": 80} | more)
