"""Each post-hoc map against scikit-learn, scipy or a case worked by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calirare._util.errors import InputError, NotConvergedError
from calirare.calibration import (
    CALIBRATORS,
    AffineCalibrator,
    BetaCalibrator,
    EnsembleTemperatureCalibrator,
    HistogramCalibrator,
    IsotonicCalibrator,
    JackknifeCalibrator,
    LinearCalibrator,
    linear,
    load_calibrator,
    make_calibrator,
    minimisers,
    save_calibrator,
    target_weights,
)
from calirare.calibration.affine import SCALE_PRIOR
from calirare.calibration.minimisers import quasi_newton_minimum
from tests.helpers.logits import problem

CLOSE = 1e-6  # absolute, on probabilities between .01 and .99: two optimisers of the same convex loss
OFF = 1e-3  # a wrong fit differs by more


def difference(logits: torch.Tensor) -> np.ndarray:
    return (logits[:, 1] - logits[:, 0]).numpy()


@pytest.mark.parametrize("target", ["population", "balanced"])
def test_platt_is_logistic_regression_on_the_logit_difference(target: str) -> None:
    z, y = problem()
    weights = target_weights(y, 2, target).numpy()  # type: ignore[arg-type]
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(difference(z)[:, None], y.numpy(), weights)
    ours = AffineCalibrator(with_bias=True, target=target, prior=0.0).fit(z, y).transform(z)[:, 1].numpy()  # type: ignore[arg-type]
    assert np.abs(ours - exact.predict_proba(difference(z)[:, None])[:, 1]).max() < CLOSE
    other = AffineCalibrator(with_bias=False, prior=0.0).fit(z, y).transform(z)[:, 1].numpy()
    assert np.abs(other - exact.predict_proba(difference(z)[:, None])[:, 1]).max() > OFF


@pytest.mark.parametrize("diagonal", [False, True])
def test_matrix_and_vector_scaling_are_logistic_regression_on_both_logits(diagonal: bool) -> None:
    z, y = problem()
    exact = LogisticRegression(C=np.inf, tol=1e-10).fit(z.numpy(), y.numpy())
    ours = LinearCalibrator(diagonal=diagonal, prior=0.0).fit(z, y).transform(z)[:, 1].numpy()
    assert np.abs(ours - exact.predict_proba(z.numpy())[:, 1]).max() < CLOSE


def test_matrix_scaling_of_three_classes_is_multinomial_regression() -> None:
    z, y = problem(k=3)
    exact = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(z.numpy(), y.numpy())
    ours = LinearCalibrator(diagonal=False, prior=0.0).fit(z, y).transform(z).numpy()
    assert np.abs(ours - exact.predict_proba(z.numpy())).max() < 1e-5
    fewer = LinearCalibrator(diagonal=True, prior=0.0).fit(z, y).transform(z).numpy()
    assert np.abs(fewer - exact.predict_proba(z.numpy())).max() > OFF


@pytest.mark.slow
@pytest.mark.parametrize("name", ["platt", "jackknife", "vector", "matrix", "beta", "isotonic"])
def test_a_class_of_two_nodes_in_a_thousand_is_not_overstated(name: str) -> None:
    draw = np.random.default_rng(0)
    y = (draw.random(40_000) < 0.002).astype(int)
    ratio = draw.normal(np.where(y == 1, 1.5, -1.5), 3**0.5)  # the logarithm of the true likelihood ratio
    z, labels = torch.from_numpy(np.stack([0 * ratio, ratio], 1)), torch.from_numpy(y)
    p = make_calibrator(name, "population").fit(z, labels).transform(z)[:, 1]
    assert float(p.mean()) == pytest.approx(y.mean(), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["temperature", "platt", "vector", "beta"])
def test_few_rare_labels_of_many_leave_the_prior_behind(name: str) -> None:
    """Logits are three times too large; about 700 labels of 100,000 are rare. The prior of old had made it 2.6."""
    draw = np.random.default_rng(0)
    truth = draw.normal(-6, 1.5, 100_000)
    labels = torch.from_numpy((draw.random(100_000) < 1 / (1 + np.exp(-truth))).astype(int))
    z = torch.from_numpy(np.stack([0 * truth, 3 * truth], 1))
    p = make_calibrator(name, "population").fit(z, labels).transform(z)
    odds = p[:, 1].logit().numpy()
    assert np.polyfit(truth, odds, 1)[0] == pytest.approx(1.0, abs=0.04)
    assert float(p[:, 1].mean()) == pytest.approx(float(labels.double().mean()), rel=0.05)


def test_a_strong_prior_leaves_the_logits_as_they_are() -> None:
    z, y = problem()
    kept = LinearCalibrator(diagonal=False, prior=1e9).fit(z, y).transform(z)
    assert float((kept - torch.softmax(z, 1)).abs().max()) < CLOSE


@pytest.mark.parametrize("target", ["population", "balanced"])
def test_isotonic_is_scikit_learns_also_beyond_the_fitted_range(target: str) -> None:
    z, y = problem()
    p = torch.softmax(z, 1)[:, 1].numpy()
    weights = target_weights(y, 2, target).numpy()  # type: ignore[arg-type]
    exact = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, y.numpy(), weights)
    new = torch.cat([z, torch.tensor([[0.0, 40.0], [40.0, 0.0]], dtype=z.dtype)])
    ours = IsotonicCalibrator(target=target).fit(z, y).transform(new)[:, 1].numpy()  # type: ignore[arg-type]
    assert np.abs(ours - exact.predict(torch.softmax(new, 1)[:, 1].numpy())).max() < 1e-12


def test_histogram_binning_by_hand() -> None:
    p = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.6, 0.9], dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 0, 1, 1])
    z = torch.stack([torch.zeros_like(p), torch.logit(p)], 1)
    fitted = HistogramCalibrator(n_bins=3).fit(z, y)
    new = torch.tensor([[0.0, -9.0], [0.0, float(torch.logit(p[2]))], [0.0, 0.0], [0.0, 9.0]], dtype=torch.float64)
    assert torch.equal(fitted.transform(new)[:, 1], torch.tensor([0.0, 0.5, 1.0, 1.0], dtype=torch.float64))
    balanced = HistogramCalibrator(n_bins=3, target="balanced").fit(z[:5], y[:5])
    # weights 5/6 for three of class 0, 5/4 for two of class 1; bins {.1, .2}, {.3, .4}, {.6}
    assert float(balanced.transform(new[1:2])[0, 1]) == pytest.approx((5 / 4) / (5 / 4 + 5 / 6), rel=1e-12)


def test_histogram_binning_with_repeated_probabilities_has_no_empty_bin() -> None:
    z = torch.zeros(8, 2)
    fitted = HistogramCalibrator(n_bins=4).fit(z, torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]))
    assert torch.equal(fitted.transform(z[:1]), torch.tensor([[0.75, 0.25]]))


@pytest.mark.parametrize("target", ["population", "balanced"])
def test_beta_calibration_minimises_its_loss(target: str) -> None:
    z, y = problem()
    p = torch.softmax(z, 1)[:, 1].numpy()
    weights = target_weights(y, 2, target).numpy()  # type: ignore[arg-type]
    features = np.stack([np.log(p), -np.log1p(-p), np.ones_like(p)], 1)

    def loss(theta: np.ndarray) -> float:
        a_b_c = np.array([theta[0] ** 2, theta[1] ** 2, theta[2]])  # the bounds by substitution
        away = a_b_c - np.array([1, 1, 0])
        margin = (1 - 2 * y.numpy()) * (features @ a_b_c)
        return float(
            np.mean(weights * np.logaddexp(0, margin)) + SCALE_PRIOR * (away[:2] @ away[:2] + away[2] ** 2 / len(p))
        )

    exact = minimize(loss, np.array([1.0, 1.0, 0.0]), method="BFGS", options={"gtol": 1e-9}).x
    expected = expit(features @ np.array([exact[0] ** 2, exact[1] ** 2, exact[2]]))
    ours = BetaCalibrator(target=target).fit(z, y).transform(z)[:, 1].numpy()  # type: ignore[arg-type]
    assert np.abs(ours - expected).max() < 1e-5
    assert np.abs(p - expected).max() > OFF


def test_beta_calibration_keeps_order_where_the_data_want_to_turn_it() -> None:
    z, y = problem()
    turned = BetaCalibrator().fit(-z, y)
    assert min(turned.maps_[0]["a"], turned.maps_[0]["b"]) == 0.0


def test_ensemble_temperature_scaling_finds_the_best_mixture() -> None:
    z, y = problem(k=3)
    fitted = EnsembleTemperatureCalibrator().fit(z, y)
    assert fitted.tempered_ is not None
    assert fitted.shares_ is not None
    parts = torch.stack([fitted.tempered_.transform(z), torch.softmax(z, 1), torch.full_like(z, 1 / 3)])
    at = parts[:, torch.arange(len(y)), y].numpy()

    def loss(shares: np.ndarray) -> float:
        return float(-np.log(shares @ at).mean())

    constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
    exact = minimize(loss, np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3, constraints=constraint).x
    assert loss(fitted.shares_.numpy()) <= loss(exact) + 1e-7
    assert loss(fitted.shares_.numpy()) < loss(np.full(3, 1 / 3)) - 1e-4
    assert float(fitted.shares_.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "jackknife"])
def test_every_map_improves_the_loss_it_is_fitted_for(name: str, k: int) -> None:
    z, y = problem(k=k)
    for target in ("population", "balanced"):
        weights = target_weights(y, k, target)  # type: ignore[arg-type]
        before = -(weights * torch.log(torch.softmax(z, 1)[torch.arange(len(y)), y])).mean()
        p = make_calibrator(name, target).fit(z, y).transform(z)  # type: ignore[arg-type]
        assert float((p.sum(1) - 1).abs().max()) < 1e-9
        brier_before = (weights * (torch.softmax(z, 1)[torch.arange(len(y)), y] - 1) ** 2).mean()
        after = -(weights * torch.log(p[torch.arange(len(y)), y].clamp(min=1e-12))).mean()
        brier = (weights * (p[torch.arange(len(y)), y] - 1) ** 2).mean()
        assert after < before or brier < brier_before


@pytest.mark.parametrize("name", list(CALIBRATORS))
def test_a_saved_calibrator_gives_the_same_probabilities(name: str, tmp_path) -> None:
    z, y = problem(k=2)
    fitted = make_calibrator(name, "balanced").fit(z, y)
    loaded = load_calibrator(save_calibrator(fitted, tmp_path / "map.json"))
    assert type(loaded) is type(fitted)
    assert torch.equal(loaded.transform(z), fitted.transform(z))
    assert json.loads((tmp_path / "map.json").read_text())["kind"] == type(fitted).__name__


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    path = tmp_path / "other.json"
    fitted = AffineCalibrator(with_bias=True).fit(*problem()).state()
    broken = [{}, 5, fitted | {"scale": float("nan")}, *(fitted | {"bias": b} for b in (None, "a", [[1, 2]], [0]))]
    states = [json.dumps({"kind": "AffineCalibrator", "state": state}) for state in broken]
    for text in ("{}", "no json", '{"kind": "Other", "state": {}}', *states):
        path.write_text(text)
        with pytest.raises(InputError, match="save_calibrator wrote, got something else"):
            load_calibrator(path)
    with pytest.raises(InputError, match="save_calibrator wrote, but cannot be read: No such file"):
        load_calibrator(tmp_path / "missing.json")


@pytest.mark.parametrize("name", list(CALIBRATORS))
def test_bad_input_is_refused(name: str, tmp_path) -> None:
    z, y = problem(n=40)
    with pytest.raises(RuntimeError, match="save_calibrator: calibrator must be fitted"):
        save_calibrator(make_calibrator(name), tmp_path / "map.json")
    assert not (tmp_path / "map.json").exists()
    with pytest.raises(RuntimeError, match="call fit before transform"):
        make_calibrator(name).transform(z)
    with pytest.raises(ValueError, match="finite"):
        make_calibrator(name).fit(z / 0, y)
    with pytest.raises(ValueError, match="labels must be in"):
        make_calibrator(name).fit(z, y + 1)
    with pytest.raises(TypeError, match="int64"):
        make_calibrator(name).fit(z, y.int())
    with pytest.raises(TypeError, match="logits must be a numpy array or a torch tensor, got list"):
        make_calibrator(name).fit(z.tolist(), y)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int64"):
        make_calibrator(name).fit(z.numpy(), y.numpy() + 0.0)
    with pytest.raises(TypeError, match="labels must be a numpy array or a torch tensor, got list"):
        make_calibrator(name).fit(z, y.tolist())  # type: ignore[arg-type]
    fitted = make_calibrator(name).fit(z, y)
    with pytest.raises(TypeError, match="logits must be a numpy array or a torch tensor, got list"):
        fitted.transform(z.tolist())
    with pytest.raises(ValueError, match="as many classes as those fitted, 2, got 3"):
        fitted.transform(torch.zeros(1, 3))


def test_names_and_settings_are_checked() -> None:
    with pytest.raises(InputError, match="temperature, platt"):
        make_calibrator("other")
    with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
        HistogramCalibrator(n_bins=0)
    with pytest.raises(ValueError, match="as many classes"):
        IsotonicCalibrator().fit(*problem(k=3)).transform(torch.zeros(1, 2))
    with pytest.raises(TypeError, match="n_bins must be an integer, got float"):
        HistogramCalibrator(n_bins=2.5)  # type: ignore[arg-type]
    for prior in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="AffineCalibrator: prior must be at least 0 and finite"):
            AffineCalibrator(with_bias=True, prior=prior)
        with pytest.raises(ValueError, match="LinearCalibrator: prior must be at least 0 and finite"):
            LinearCalibrator(diagonal=True, prior=prior)


def test_few_rare_nodes_make_the_jackknife_map_a_temperature() -> None:
    z, y = problem(n=60)
    assert JackknifeCalibrator(sharpen=True).fit(z, y).state()["map"] == JackknifeCalibrator().fit(z, y).state()["map"]
    few = JackknifeCalibrator().fit(z, y)
    assert few.map_ is not None
    assert not few.map_.with_bias
    assert "of the rarest class" in few.note_
    many = JackknifeCalibrator().fit(*problem(n=600))
    assert many.map_ is not None
    assert many.map_.with_bias
    assert many.note_ == ""


def test_weights_between_population_and_balanced() -> None:
    y = torch.tensor([0] * 9 + [1])
    halfway = target_weights(y, 2, 0.5)
    assert float(halfway[9] / halfway[0]) == pytest.approx(3.0, rel=1e-12)
    assert float(halfway.mean()) == pytest.approx(1.0, rel=1e-12)
    assert torch.equal(target_weights(y, 2, 0.0), target_weights(y, 2, "population"))
    assert torch.equal(target_weights(y, 2, 1.0), target_weights(y, 2, "balanced"))
    assert float(target_weights(y, 2, "balanced")[9]) == pytest.approx(5.0, rel=1e-12)
    for wrong in (1.5, -0.1, "rare"):
        with pytest.raises(ValueError, match="population"):
            target_weights(y, 2, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("target", ["balanced", "population"])
def test_the_affine_map_is_where_automatic_differentiation_finds_no_slope(with_bias, k, target):
    draw = torch.Generator().manual_seed(k)
    z = 3 * torch.randn(300, k, generator=draw, dtype=torch.float64)
    labels = torch.where(
        torch.rand(300, generator=draw) < 0.7, z.argmax(1), torch.randint(0, k, (300,), generator=draw)
    )
    fitted = AffineCalibrator(with_bias=with_bias, target=target, prior=0.01).fit(z, labels)
    scale = torch.tensor(fitted.scale_, dtype=torch.float64).log().requires_grad_()
    free = fitted.bias_[1:].clone().requires_grad_()
    bias = torch.cat([torch.zeros(1, dtype=torch.float64), free])
    losses = torch.nn.functional.cross_entropy(scale.exp() * z + bias, labels, reduction="none")
    penalty = 0.01 * (scale.square() + free.square().sum() / len(z))
    loss = (target_weights(labels, k, target) * losses).mean() + penalty
    slopes = torch.autograd.grad(loss, [scale, free])
    assert abs(float(slopes[0])) < 1e-9
    assert fitted.scale_ != 1.0
    if with_bias:
        assert float(slopes[1].abs().max()) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["temperature", "vector", "matrix", "ets", "jackknife"])
def test_logits_that_the_map_takes_out_of_their_range_stay_certain(name: str, dtype: torch.dtype) -> None:
    z, y = problem()
    fitted = make_calibrator(name).fit(z / 8, y)  # timid logits: a map that enlarges them
    assert not isinstance(fitted, AffineCalibrator) or fitted.scale_ > 2
    largest = min(torch.finfo(dtype).max / 2, 1e300)
    extreme = torch.tensor([[largest, -largest], [largest / 2, largest]], dtype=dtype)
    p = fitted.transform(extreme)
    assert p.dtype == dtype
    assert p.argmax(1).tolist() == [0, 1]
    assert float(p.amax(1).min()) > 0.9


@pytest.mark.parametrize(
    "made",
    [
        lambda: HistogramCalibrator(n_bins=np.int64(5)),
        lambda: HistogramCalibrator(target=np.float32(0.5)),
        lambda: AffineCalibrator(with_bias=np.bool_(True), target=np.float32(0.5)),
        lambda: LinearCalibrator(diagonal=True, prior=np.float32(0.25)),
        lambda: JackknifeCalibrator(target=np.float32(0.5)),
    ],
)
def test_settings_may_be_numbers_of_numpy(made, tmp_path) -> None:
    z, y = problem()
    fitted = made().fit(z, y)
    loaded = load_calibrator(save_calibrator(fitted, tmp_path / "map.json"))
    assert torch.equal(loaded.transform(z), fitted.transform(z))
    assert loaded.state() == fitted.state()


def test_a_setting_that_no_file_can_hold_is_named(tmp_path) -> None:
    fitted = AffineCalibrator(with_bias=False, prior=torch.tensor(0.5)).fit(*problem())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="save_calibrator: a setting must be a number, a string or None, got Tensor"):
        save_calibrator(fitted, tmp_path / "map.json")
    assert not (tmp_path / "map.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("diagonal", "k"), [(True, 12), (False, 7)])
@pytest.mark.parametrize("target", ["population", "balanced"])
def test_both_minimisers_find_the_same_map(diagonal: bool, k: int, target: str, monkeypatch) -> None:
    z, y = problem(k=k)
    few = LinearCalibrator(diagonal=diagonal, target=target).fit(z, y).transform(z)  # type: ignore[arg-type]
    monkeypatch.setattr(linear, "FEW", 0)
    many = LinearCalibrator(diagonal=diagonal, target=target).fit(z, y).transform(z)  # type: ignore[arg-type]
    assert not torch.equal(few, many), "the same method ran twice"
    assert float((few - many).abs().max()) < CLOSE


@pytest.mark.slow
@pytest.mark.parametrize(("diagonal", "k"), [(True, 200), (False, 40)])
def test_many_classes_are_fitted_without_a_hessian(diagonal: bool, k: int, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a Hessian of so many numbers takes hours and gigabytes")

    monkeypatch.setattr(linear, "newton_minimum", refused)
    z, y = problem(n=400, k=k)
    fitted = LinearCalibrator(diagonal=diagonal).fit(z, y)
    assert fitted.weight_ is not None
    assert fitted.bias_ is not None
    weight, bias = fitted.weight_.clone().requires_grad_(), fitted.bias_.clone().requires_grad_()
    away = weight - torch.eye(k, dtype=weight.dtype)
    loss = torch.nn.functional.cross_entropy(z @ weight.T + bias, y)
    loss = loss + SCALE_PRIOR * (away.square().sum() + bias.square().sum() / len(z))
    of_weight, of_bias = torch.autograd.grad(loss, [weight, bias])
    assert float((of_weight.diagonal() if diagonal else of_weight).abs().max()) < 1e-7
    assert float(of_bias.abs().max()) < 1e-7
    assert float(away.detach().abs().max()) > OFF


def test_a_slope_that_stays_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimisers, "MAX_SLOPE_STEPS", 100)
    with pytest.raises(NotConvergedError, match=r"the slope must fall below 1e-05, got 1 after .* larger prior"):
        quasi_newton_minimum(
            lambda at: (at.sum(), torch.ones_like(at)), torch.zeros(3).double(), torch.ones(3).double()
        )
