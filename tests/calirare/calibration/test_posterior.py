"""What the labels leave open of a map: gradients, ends by hand, and coverage where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit, logit

from calirare.calibration import (
    PriorPlattCalibrator,
    count_draws,
    expected_count,
    load_calibrator,
    node_probabilities,
    save_calibrator,
)
from calirare.calibration.posterior import likeliest_log_odds, log_odds
from calirare.calibration.probability_scatter import SAMPLING, UNSEEN, normal_log_odds
from calirare_lab.calibrator_interval import probability_interval
from tests.helpers.logits import drawn_logits, problem

CLOSE = 1e-9  # absolute, on numbers about 1 in float64
Z95 = 1.6448536269514722  # the normal quantile of .95, from tables


@pytest.mark.parametrize("target", ["population", "balanced", 0.5])
@pytest.mark.parametrize(("k", "size"), [(2, 1.0), (4, 1.0), (2, 1e7)])
def test_log_odds_have_the_gradient_of_automatic_differentiation(k, size, target):
    z, y = problem(n=60, k=k)
    z = size * z
    shares = list(range(1, k + 1))
    fitted = PriorPlattCalibrator(target=target, trained_shares=shares).fit(z, y)

    def odds_at(theta):
        moved = PriorPlattCalibrator(target=target, trained_shares=shares)
        moved.unit_, moved.level_, moved.covariance_ = fitted.unit_, fitted.level_, fitted.covariance_
        zero = theta.new_zeros(1)
        t = {"population": 0.0, "balanced": 1.0}.get(target, target)
        bias = torch.cat([zero, theta[1:k] + (1 - t) * theta[k:]]) - theta[0].exp() * moved.pivot(k)
        p = torch.softmax(theta[0].exp() / fitted.unit_ * z + bias, 1)[:, 1]
        return torch.logit(p)

    odds, gradient = log_odds(fitted, z)
    assert float((odds - odds_at(fitted.theta_)).abs().max()) < CLOSE * 1e3
    expected = torch.autograd.functional.jacobian(odds_at, fitted.theta_)
    scale = 1 + expected.abs()
    of_theta = gradient[:, : len(fitted.theta_)]
    assert float(((of_theta - expected) / scale).abs().max()) < CLOSE * 1e3
    assert gradient.shape[1] == len(fitted.covariance_)


def test_interval_of_a_node_by_hand():
    z, y = problem(n=80)
    fitted = PriorPlattCalibrator(residual_sd=None).fit(z, y)
    low, high = probability_interval(fitted, z[:1], 0.9)
    eta = fitted.calibrated_logits(z[:1])
    odds = float(eta[0, 1] - eta[0, 0])
    row = torch.tensor([fitted.scale_ * float(z[0, 1] - z[0, 0]), 1.0, 1.0], dtype=torch.float64)
    sd = float(row @ fitted.covariance_ @ row) ** 0.5
    assert float(torch.logit(low)) == pytest.approx(odds - Z95 * sd, abs=1e-8)
    assert float(torch.logit(high)) == pytest.approx(odds + Z95 * sd, abs=1e-8)
    with pytest.raises(ValueError, match=r"coverage must be in \(0, 1\), got 1"):
        probability_interval(fitted, z, 1)
    with pytest.raises(ValueError, match="as many classes as those fitted"):
        expected_count(fitted, torch.zeros(3, 3))


@pytest.mark.parametrize(("sd", "right"), [(1.0, True), (0.99, False)])
@pytest.mark.parametrize("form_sd", [None, 0.5])
def test_the_residual_is_the_gaussian_process_of_the_docstring(form_sd, sd, right):
    """In terms of functions: prior covariance K of the log-odds, posterior k** - k*' (K + 1 / (p (1 - p)))^-1 k*.

    The likeliest log-odds f are where K^-1 (f - prior mean) = y - p(f), whatever numbers stand for map and residual.
    """
    z, y = problem(n=150)
    bare = PriorPlattCalibrator(form_sd=form_sd, residual_sd=None).fit(z, y)
    fitted = PriorPlattCalibrator(form_sd=form_sd, residual_sd=sd).fit(z, y)
    odds, rows = log_odds(bare, z)
    likeliest, gradient = likeliest_log_odds(fitted, z)
    p, mapped = torch.sigmoid(likeliest), torch.sigmoid(odds)
    prior = torch.linalg.inv(torch.linalg.inv(bare.covariance_) - rows.T @ ((mapped * (1 - mapped))[:, None] * rows))
    noise = torch.diag(1 / (p * (1 - p)))
    at = (bare.sloped(z) * torch.tensor([-1.0, 1.0])).sum(1)
    wholes = torch.arange(-12, 13).double()[:, None, None]
    bumps = (2 / torch.pi) ** 0.5 * torch.exp(-((at[:, None] - wholes) ** 2) - (at - wholes) ** 2).sum(0)
    assert float((bumps - torch.exp(-((at[:, None] - at) ** 2) / 2)).abs().max()) < 0.02
    process = rows @ prior @ rows.T + bumps
    exact = (process - process @ torch.linalg.solve(process + noise, process)).diagonal()
    found = ((gradient @ fitted.covariance_) * gradient).sum(1)
    assert (float((found / exact - 1).abs().max()) < 1e-6) == right
    moved = process @ (y - p) - rows @ prior @ rows.T @ (y - mapped)
    assert (float((likeliest - odds - moved).abs().max()) < 1e-6) == right
    of_form = torch.linalg.inv(torch.linalg.inv(prior) + rows.T @ torch.linalg.solve(noise, rows))
    assert float((fitted.covariance_of_form() - of_form).abs().max()) < CLOSE


def test_the_residual_widens_intervals_and_moves_no_probability(tmp_path):
    z, y = problem(n=3000)
    bare, fitted = (PriorPlattCalibrator(form_sd=0.5, residual_sd=sd).fit(z, y) for sd in (None, 1.0))
    assert torch.equal(fitted.transform(z), bare.transform(z))
    widths = [torch.diff(torch.logit(torch.stack(probability_interval(each, z))), dim=0) for each in (bare, fitted)]
    assert bool((widths[1] > widths[0]).all())
    counts = [expected_count(each, z) for each in (bare, fitted)]
    assert counts[1].high - counts[1].low == pytest.approx(counts[0].high - counts[0].low, rel=0.05), "labels tell it"
    beyond = torch.tensor([[0.0, 1e3], [1e3, 0.0]], dtype=torch.float64)
    assert bool(torch.isfinite(torch.stack(probability_interval(fitted, beyond))).all())
    again = load_calibrator(save_calibrator(fitted, tmp_path / "map.json"))
    assert torch.equal(torch.stack(probability_interval(again, z)), torch.stack(probability_interval(fitted, z)))
    assert len(fitted.fit(*problem(n=300, k=3)).covariance_) == 7, "of more classes there is none"
    assert len(bare.set_params(residual_sd=0.5).fit(z, y).covariance_) == 4 + 25


def test_counts_of_groups_add_up_and_an_empty_set_has_none():
    z, y = problem(n=500)
    fitted = PriorPlattCalibrator().fit(z, y)
    groups = torch.arange(500) % 3
    expected, draws = count_draws(fitted, z, groups, 4)
    whole = expected_count(fitted, z)
    assert draws.shape[1] == 4
    assert expected.sum() == pytest.approx(whole.expected)
    assert not draws[:, 3].any()
    assert draws.sum(1).mean() == pytest.approx(whole.expected, rel=0.02)
    assert np.corrcoef(draws[:, 0], draws[:, 1])[0, 1] > 0.05, "one map for all groups"
    assert whole.low < whole.expected < whole.high
    assert str(expected_count(fitted, z[:0])) == "0 (0 to 0)"


@pytest.mark.parametrize("size", [74.0, 1e6])
def test_of_a_group_that_is_certain_every_draw_is_the_same(size):
    z, y = problem(n=500)
    fitted = PriorPlattCalibrator().fit(z, y)
    certain = torch.tensor([[0.0, size], [size, 0.0]], dtype=z.dtype).repeat_interleave(7, 0)
    groups = torch.cat([torch.full((500,), 2), torch.arange(2).repeat_interleave(7)])
    _, draws = count_draws(fitted, torch.cat([z, certain]), groups, 3)
    assert (draws[:, 0] == 7).all()
    assert (draws[:, 1] == 0).all()
    assert draws[:, 2].std() > 1, "the others are as they were"
    assert expected_count(fitted, certain[:7]).low == 7


@pytest.mark.slow
def test_intervals_of_the_number_hold_as_often_as_they_say():
    rare = 10
    rng, hits, runs = np.random.default_rng(rare), 0, 80
    for _ in range(runs):
        slope, shift = np.exp(rng.normal(0, 0.3)), rng.normal(0, 0.3)
        y = (rng.random(rare * 20) < 0.05).astype(int)
        fitted = PriorPlattCalibrator().fit(drawn_logits(y, rng, slope=slope, shift=shift), torch.from_numpy(y))
        truth = (rng.random(3000) < 0.05).astype(int)
        found = expected_count(fitted, drawn_logits(truth, rng, slope=slope, shift=shift), 0.9)
        hits += found.low <= truth.sum() <= found.high
    assert 0.82 * runs <= hits <= 0.98 * runs  # .9 +/- 2.4 standard errors


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
    found = node_probabilities(fitted, z, folds, 900)
    p = fitted.transform(z.double())[:, 1].numpy()
    odds = np.stack([logit(fitted.transform(each.double())[:, 1].numpy()) for each in folds])
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
        (z.repeat(3, 1, 1), {"n_labels": 0}),
    ):
        with pytest.raises(ValueError, match="node_probabilities"):
            node_probabilities(fitted, z, folds, **{"n_labels": 80} | more)
