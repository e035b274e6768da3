"""Platt scaling with a prior: its derivatives, its two limits, and which labels tell what."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, logit

from calirare import InputError
from calirare.calibration import (
    AffineCalibrator,
    JackknifeCalibrator,
    PriorPlattCalibrator,
    Sampling,
    cross_fitted_probabilities,
    load_calibrator,
    platt_scaling,
    save_calibrator,
    with_prevalence,
)
from calirare.calibration.platt_posterior import PlattPosterior
from calirare.calibration.posterior import log_odds
from calirare_lab.calibrator_interval import probability_interval
from tests.helpers.logits import drawn_logits, problem

CLOSE = 1e-6  # absolute, on probabilities and numbers about 1: two optimisers of the same smooth loss
OFF = 1e-2  # another model differs by more


def posterior(k: int) -> PlattPosterior:
    rng = np.random.default_rng(k)
    m = 40
    numbers = torch.from_numpy
    return PlattPosterior(
        away=numbers(rng.normal(size=(m, k))),
        labels=numbers(rng.integers(0, k, m)),
        offsets=numbers(rng.normal(size=(m, k))),
        representative=numbers((rng.random(m) < 0.6).astype(float)),
        counts=numbers(rng.uniform(0.5, 5, k)),
        slope_precision=3.0,
        ratio_precision=2.0,
        log_slope=-0.4,
    )


@pytest.mark.parametrize("form_precision", [None, 1.5], ids=["one slope", "a slope for each class"])
@pytest.mark.parametrize("k", [2, 4])
def test_derivatives_are_those_of_the_loss(k, form_precision):
    exact = replace(posterior(k), form_precision=form_precision)
    theta = torch.linspace(-0.7, 0.9, 2 * k - 1 if form_precision is None else 3 * k - 2, dtype=torch.float64)
    gradient, hessian = exact.derivatives(theta)
    assert float((gradient - torch.autograd.functional.jacobian(exact.loss, theta)).abs().max()) < CLOSE
    found = torch.autograd.functional.hessian(exact.loss, theta)
    assert float((hessian - found).abs().max()) < CLOSE
    assert float((exact.information(theta) / 40 - found).abs().max()) > OFF, "the information is the expected one"
    assert float(torch.linalg.eigvalsh(exact.information(theta)).min()) > 0


def test_the_map_is_the_maximum_of_the_posterior_as_the_docstring_has_it():
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.1).astype(int)
    z = drawn_logits(y, rng, slope=1.5, shift=0.4)[:, 1].numpy()
    draw = rng.integers(0, 2, 300)  # half of the labels as if drawn with numbers per class
    m = np.bincount(y[draw == 1], minlength=2)
    shares = np.array([0.7, 0.3])

    def loss(theta: np.ndarray, ratio_sd: float = 0.5) -> float:
        log_s, alpha, lam = theta
        eta = np.exp(log_s) * (z - np.log(shares[1] / shares[0])) + alpha + np.where(draw, np.log(m[1] / m[0]), lam)
        of_labels = np.logaddexp(0, np.where(y == 1, -eta, eta)).sum()
        of_shares = -0.5 * np.log(expit(lam)) - 0.5 * np.log(expit(-lam))
        return of_labels + of_shares + (log_s - np.log(0.6)) ** 2 / (2 * 0.3**2) + alpha**2 / (2 * ratio_sd**2)

    ours = PriorPlattCalibrator(trained_shares=shares.tolist(), slope=0.6, slope_sd=0.3)
    ours.fit(z, y, sampling=Sampling(torch.from_numpy(draw == 0)))
    exact = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
    found = ours.theta_.numpy()
    assert np.abs(found[:1] - exact[:1]).max() < 1e-5
    assert abs(found[1:].sum() - exact[1:].sum()) < 1e-5
    counted = np.bincount(y[draw == 0], minlength=2) + 0.5
    assert found[2] == pytest.approx(np.log(counted[1] / counted[0]), abs=CLOSE)
    eta = np.exp(exact[0]) * (z - np.log(shares[1] / shares[0])) + exact[1] + exact[2]
    assert np.abs(ours.transform(z) - expit(eta)).max() < 1e-5
    looser = minimize(lambda theta: loss(theta, 5.0), np.zeros(3), method="BFGS", options={"gtol": 1e-8}).x
    assert abs(found[1:].sum() - looser[1:].sum()) > OFF


def test_without_a_rare_label_it_is_the_analytic_correction():
    far = torch.tensor([[60.0, 0.0]], dtype=torch.float64)  # a label that nobody doubts tells nothing
    drawn = Sampling(torch.zeros(1, dtype=torch.bool))
    fitted = PriorPlattCalibrator(trained_shares=[0.8, 0.2]).fit(far, torch.tensor([0]), sampling=drawn)
    assert fitted.scale_ == pytest.approx(1.0, abs=CLOSE)
    assert float(fitted.bias_[1]) == pytest.approx(-np.log(0.2 / 0.8), abs=CLOSE)


@pytest.mark.parametrize("k", [2, 3])
def test_with_hundreds_of_labels_it_is_free_platt_scaling(k):
    z, y = problem(n=8_000, k=k)
    ours = PriorPlattCalibrator().fit(z, y)
    free = platt_scaling("population").fit(z, y)
    assert float((ours.transform(z) - free.transform(z)).abs().max()) < OFF / 2
    narrow = PriorPlattCalibrator(slope_sd=1e-3, ratio_sd=1e-3).fit(z, y)
    assert float((narrow.transform(z) - free.transform(z)).abs().max()) > 5 * OFF


def test_labels_drawn_per_class_tell_the_slope_and_not_the_prevalence():
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 1000)
    z = drawn_logits(y, rng, slope=2.5)
    random_y = np.zeros(50, dtype=int)
    random_z = drawn_logits(random_y, rng, slope=2.5)
    both, labels = torch.cat([z, random_z]), torch.from_numpy(np.concatenate([y, random_y]))
    designed = PriorPlattCalibrator().fit(both, labels, sampling=Sampling(torch.arange(2050) >= 2000))
    alone = PriorPlattCalibrator().fit(random_z, labels[2000:])
    assert designed.scale_ == pytest.approx(1 / 2.5, abs=0.1)
    assert float(designed.shares_[1]) == pytest.approx(float(alone.shares_[1]), rel=0.25)
    at_random = PriorPlattCalibrator().fit(both, labels)
    assert float(at_random.shares_[1]) > 10 * float(designed.shares_[1])


def test_all_targets_share_one_map():
    z, y = problem(n=400)
    fitted = {t: PriorPlattCalibrator(target=t).fit(z, y) for t in ("population", "balanced", 0.5)}
    odds = {t: logit(f.transform(z)[:, 1].numpy()) for t, f in fitted.items()}
    lam = float(fitted["population"].theta_[2])
    assert np.abs(odds["population"] - odds["balanced"] - lam).max() < CLOSE
    assert np.abs(odds["population"] - odds[0.5] - lam / 2).max() < CLOSE


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slope_sd": 0.0}, "slope_sd must be positive"),
        ({"slope": 0.0}, "slope must be positive"),
        ({"ratio_sd": float("nan")}, "ratio_sd must be positive"),
        ({"residual_sd": 0.0}, "residual_sd must be positive"),
        ({"trained_shares": [0.0, 1.0]}, "trained_shares must be positive"),
        ({"target": "everyone"}, "target must be one of"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PriorPlattCalibrator(**settings)


def test_shares_and_sampling_must_fit_the_logits():
    z, y = problem(n=30)
    with pytest.raises(ValueError, match="one number per class, 2, got 3"):
        PriorPlattCalibrator(trained_shares=[1.0, 1.0, 1.0]).fit(z, y)
    with pytest.raises(ValueError, match="sampling must be of 30 labels, got 29"):
        PriorPlattCalibrator().fit(z, y, sampling=Sampling.at_random(29))


def test_probabilities_of_labels_come_from_maps_without_them():
    z, y = problem(n=12)
    found = cross_fitted_probabilities(PriorPlattCalibrator(), z, y, n_folds=99)
    for i in (0, 5):
        others = torch.arange(12) != i
        alone = PriorPlattCalibrator().fit(z[others], y[others]).transform(z[i : i + 1])
        assert float((found[i : i + 1] - alone).abs().max()) < CLOSE
    z, y = problem(n=300, share=0.05)
    sampling = Sampling(torch.arange(300) >= 60)
    p = cross_fitted_probabilities(PriorPlattCalibrator(), z, y, sampling=sampling)
    whole = PriorPlattCalibrator().fit(z, y, sampling=sampling).transform(z)
    assert 0 < float((p - whole).abs().max()) < 0.2
    for other in (AffineCalibrator(with_bias=False), JackknifeCalibrator(target="population")):
        found = cross_fitted_probabilities(other, z[:12], y[:12], n_folds=99)
        alone = type(other)(**other.get_params()).fit(z[1:12], y[1:12]).transform(z[:1])
        assert float((found[:1] - alone).abs().max()) < CLOSE, "a map of the same kind"
    with pytest.raises(InputError, match="needs 2 labels and 2 folds, got 1 and 10"):
        cross_fitted_probabilities(PriorPlattCalibrator(), z[:1], y[:1])


def test_logits_of_other_orders_of_magnitude_are_refused_in_one_sentence():
    z = torch.tensor([[1e300, -1e300], [0.0, 1.0]], dtype=torch.float64).repeat(6, 1)
    with pytest.raises(InputError, match=r"logits must be of one order of magnitude, got numbers up to 1e\+300"):
        PriorPlattCalibrator().fit(z, torch.ones(12, dtype=torch.int64))


def test_a_rare_class_of_which_a_part_looks_like_the_rest_wants_two_slopes():
    """Below, log-odds have a floor that no straight line has: P(rare) of the plain nodes is what the hidden part is."""
    rng = np.random.default_rng(5)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = rng.random(n) < 0.1
        seen = y & (rng.random(n) < 0.7)
        score = 3 * (rng.normal(np.where(seen, 3.0, 0.0), 1.0) - 1.5)
        odds = 0.1 / 0.9 * (0.7 * np.exp(score) + 0.3)
        return score, y.astype(int), odds / (1 + odds)

    z, y, _ = drawn(1500)
    scored, _, truth = drawn(4000)
    off, held = {}, {}
    for form_sd in (None, 0.5):
        fitted = PriorPlattCalibrator(form_sd=form_sd).fit(z, y)
        p = fitted.transform(scored)
        off[form_sd] = float(-(truth * np.log(p / truth) + (1 - truth) * np.log((1 - p) / (1 - truth))).mean())
        low, high = probability_interval(fitted, torch.from_numpy(np.stack([0 * scored, scored], 1)))
        held[form_sd] = float(((low.numpy() <= truth) & (truth <= high.numpy())).mean())
    assert off[0.5] < off[None] / 3
    assert held[0.5] > held[None] + 0.2
    assert fitted.theta_[3] < -0.3, "the slope among nodes that speak against the rare class is the smaller one"


@pytest.mark.parametrize("k", [2, 3])
def test_two_slopes_know_their_gradient_and_keep_it_in_files(k, tmp_path):
    rng = np.random.default_rng(k)
    y = rng.integers(0, k, 200)
    z = torch.from_numpy(rng.normal(size=(200, k)) + 2 * np.eye(k)[y])
    fitted = PriorPlattCalibrator(form_sd=0.5, trained_shares=[1.0 + c for c in range(k)]).fit(z, y)
    again = load_calibrator(save_calibrator(fitted, tmp_path / "map.json"))
    assert torch.equal(again.transform(z), fitted.transform(z))
    odds, gradient = log_odds(fitted, z)
    for place in range(len(fitted.theta_)):
        moved = copy(fitted)
        moved.theta_ = fitted.theta_.clone()
        moved.theta_[place] += 1e-6
        assert float(((log_odds(moved, z)[0] - odds) / 1e-6 - gradient[:, place]).abs().max()) < 1e-4
    told = with_prevalence(fitted, z, 0.2)
    assert float(told.transform(z)[:, 1].mean()) == pytest.approx(0.2, abs=1e-9)
