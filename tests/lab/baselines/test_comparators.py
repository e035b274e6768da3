"""Each comparator calibrator against scikit-learn, scipy or a case worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from calirare.calibration import target_weights
from calirare.calibration.affine import SCALE_PRIOR
from calirare_lab.baselines.comparators import EnsembleTemperature, LinearScaling, post_hoc
from tests.helpers.logits import problem

TARGETS = pytest.mark.parametrize("target", ["population", "balanced"])


@TARGETS
@pytest.mark.parametrize(("name", "k"), [("vector", 2), ("matrix", 2), ("vector", 5), ("matrix", 5)])
def test_linear_scaling_is_where_its_loss_is_flat(name, k, target):
    z, y = problem(k=k)
    fitted = post_hoc(name, target).fit(z, y)
    assert isinstance(fitted, LinearScaling)
    weight, bias = fitted.weight_.clone().requires_grad_(), fitted.bias_.clone().requires_grad_()
    losses = torch.nn.functional.cross_entropy(z @ weight.T + bias, y, reduction="none")
    away = (weight - torch.eye(k)).square().sum() + bias.square().sum() / len(z)
    slopes = torch.autograd.grad((target_weights(y, k, target) * losses).mean() + SCALE_PRIOR * away, [weight, bias])
    of_weight = slopes[0].diagonal() if name == "vector" else slopes[0]
    assert float(of_weight.abs().max()) < 1e-8
    assert float(slopes[1].abs().max()) < 1e-8
    assert name == "matrix" or float((fitted.weight_ - torch.diag(fitted.weight_.diagonal())).abs().max()) == 0


@TARGETS
def test_isotonic_is_scikit_learns_also_beyond_the_fitted_range(target):
    z, y = problem()
    weights = target_weights(y, 2, target).numpy()
    p = torch.softmax(z, 1)[:, 1].numpy()
    exact = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, y.numpy(), weights)
    new = torch.cat([z, torch.tensor([[0.0, 40.0], [40.0, 0.0]]).double()])
    found = post_hoc("isotonic", target).fit(z, y).transform(new)[:, 1].numpy()
    assert np.abs(found - exact.predict(torch.softmax(new, 1)[:, 1].numpy())).max() < 1e-9


def test_histogram_binning_by_hand():
    odds = torch.arange(20).double()
    z, y = torch.stack([torch.zeros(20).double(), odds], 1), torch.tensor([0, 1] * 3 + [1] * 14)
    new = torch.tensor([[0.0, -9.0], [0.0, 5.0], [0.0, 5.5], [0.0, 99.0]]).double()  # two nodes to a bin
    assert post_hoc("histogram").fit(z, y).transform(new)[:, 1].tolist() == [0.5, 0.5, 1.0, 1.0]
    weights = target_weights(y, 2, "balanced")
    balanced = post_hoc("histogram", "balanced").fit(z, y).transform(new)[0, 1]
    assert float(balanced) == pytest.approx(float(weights[1] / (weights[0] + weights[1])), rel=1e-12)
    one_bin = post_hoc("histogram").fit(torch.zeros(20, 2).double(), y)
    assert float(one_bin.transform(new)[0, 1]) == pytest.approx(17 / 20)


@TARGETS
def test_beta_calibration_minimises_its_loss(target):
    z, y = problem()
    p = torch.softmax(z, 1)[:, 1].numpy()
    weights = target_weights(y, 2, target).numpy()
    features = np.stack([np.log(p), -np.log1p(-p), np.ones_like(p)], 1)

    def loss(theta: np.ndarray) -> float:
        a_b_c = np.array([theta[0] ** 2, theta[1] ** 2, theta[2]])  # the bounds by substitution
        away = a_b_c - np.array([1, 1, 0])
        margin = (1 - 2 * y.numpy()) * (features @ a_b_c)
        prior = away[:2] @ away[:2] + away[2] ** 2 / len(p)
        return float(np.mean(weights * np.logaddexp(0, margin)) + SCALE_PRIOR * prior)

    exact = minimize(loss, np.array([1.0, 1.0, 0.0]), method="BFGS", options={"gtol": 1e-9}).x
    expected = expit(features @ np.array([exact[0] ** 2, exact[1] ** 2, exact[2]]))
    assert np.abs(post_hoc("beta", target).fit(z, y).transform(z)[:, 1].numpy() - expected).max() < 1e-5
    turned = post_hoc("beta", target).fit(-z, y).transform(-z)[:, 1]
    assert bool((turned[z[:, 1] > z[:, 0]].max() <= turned.max()).item())


def test_ensemble_temperature_scaling_finds_the_best_mixture():
    z, y = problem(k=3)
    fitted = post_hoc("ets").fit(z, y)
    assert isinstance(fitted, EnsembleTemperature)
    parts = torch.stack([fitted.tempered_.transform(z), torch.softmax(z, 1), torch.full_like(z, 1 / 3)])
    at = parts[:, torch.arange(len(y)), y].numpy()

    def loss(mixture: np.ndarray) -> float:
        return float(-np.log(mixture @ at).mean())

    constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
    exact = minimize(loss, np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3, constraints=constraint).x
    assert loss(fitted.mixture_.numpy()) <= loss(exact) + 1e-7
    assert loss(fitted.mixture_.numpy()) < loss(np.full(3, 1 / 3)) - 1e-4
    assert float(fitted.mixture_.sum()) == pytest.approx(1, abs=1e-12)
