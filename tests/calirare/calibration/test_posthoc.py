"""Calibrators by name against scikit-learn, and what all of them share: files, settings, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from calirare._util.errors import InputError
from calirare.calibration import (
    CALIBRATORS,
    AffineCalibrator,
    JackknifeCalibrator,
    PriorPlattCalibrator,
    load_calibrator,
    make_calibrator,
    platt_scaling,
    save_calibrator,
    target_weights,
)
from calirare.metrics import nll
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
    for logits, labels, kind, message in (
        (z / 0, y, ValueError, "finite"),
        (z, y + 1, ValueError, "labels must be in"),
        (z, y.int(), TypeError, "int64"),
        (z.numpy(), y.numpy() + 0.0, TypeError, "int64"),
        (z.tolist(), y, TypeError, "logits must be a numpy array or a torch tensor, got list"),
        (z, y.tolist(), TypeError, "labels must be a numpy array or a torch tensor, got list"),
        (z, None, TypeError, "labels must be a numpy array or a torch tensor, got None"),
    ):
        with pytest.raises(kind, match=message):
            make_calibrator(name).fit(logits, labels)
    with pytest.raises(ValueError, match="as many classes as those fitted, 2, got 3"):
        make_calibrator(name).fit(z, y).transform(torch.zeros(1, 3))


def test_names_and_settings_are_checked() -> None:
    with pytest.raises(InputError, match="temperature, platt"):
        make_calibrator("other")
    for prior in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="AffineCalibrator: prior must be at least 0 and finite"):
            AffineCalibrator(with_bias=True, prior=prior)


def test_few_rare_nodes_make_the_jackknife_map_a_temperature() -> None:
    z, y = problem(n=60)
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
@pytest.mark.parametrize("name", ["temperature", "jackknife"])
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


def test_settings_may_be_numbers_of_numpy_and_others_are_named(tmp_path) -> None:
    fitted = AffineCalibrator(with_bias=np.bool_(True), target=np.float32(0.5), prior=np.float32(0.25)).fit(*problem())  # type: ignore[arg-type]
    assert load_calibrator(save_calibrator(fitted, tmp_path / "map.json")).state() == fitted.state()
    odd = AffineCalibrator(with_bias=False, prior=torch.tensor(0.5)).fit(*problem())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="save_calibrator: a setting must be a number, a string or None, got Tensor"):
        save_calibrator(odd, tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_equal_logits_leave_a_map_that_can_be_used():
    labels = torch.tensor([0, 1, 1])
    for z in (torch.zeros(3, 2).double(), torch.tensor([[0.0, 1e-310]]).double().expand(3, 2)):
        p = platt_scaling("population").fit(z, labels).transform(z)
        assert float((p[:, 1] - 2 / 3).abs().max()) < 0.01


NAMES = list(CALIBRATORS)
# Maps of the difference alone: the two columns of [0, z_1 - z_0] are as good as any other two.
OF_DIFFERENCE = ("temperature", "platt", "jackknife")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_numpy_and_torch_give_the_same_numbers(name, dtype):
    z, y = problem(k=3)
    logits = z.numpy().astype(dtype)
    expected = make_calibrator(name).fit(torch.from_numpy(logits), y).transform(torch.from_numpy(logits))
    fitted = make_calibrator(name).fit(logits, y.numpy().astype(np.int32))
    found = fitted.transform(logits)
    assert isinstance(found, np.ndarray)
    assert found.dtype == dtype
    assert np.array_equal(found, expected.numpy())
    assert np.array_equal(fitted.transform(logits[::-1]), found[::-1])
    assert torch.equal(fitted.transform(torch.from_numpy(logits)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_difference_gives_the_probability_of_class_one(name):
    z, y = problem()
    difference = z[:, 1] - z[:, 0]
    columns = torch.stack([torch.zeros_like(difference), difference], 1)
    fitted, of_columns = make_calibrator(name).fit(difference, y), make_calibrator(name).fit(columns, y)
    found = fitted.transform(difference)
    assert found.shape == difference.shape
    assert torch.equal(found, of_columns.transform(columns)[:, 1])
    assert torch.equal(fitted.predict_proba(difference), of_columns.transform(columns))
    as_array = make_calibrator(name).fit(difference.numpy(), y.numpy() == 1).transform(difference.numpy())
    assert np.array_equal(as_array, found.numpy())
    if name in OF_DIFFERENCE:
        of_both = make_calibrator(name).fit(z, y).transform(z)[:, 1]
        assert float((found - of_both).abs().max()) < 1e-9
    with pytest.raises(ValueError, match="as many classes as those fitted, 3, got 2"):
        make_calibrator(name).fit(*problem(k=3)).transform(difference)


@pytest.mark.parametrize("made", [*(lambda n=n: make_calibrator(n, 0.25) for n in NAMES)])
def test_a_clone_has_the_settings_and_nothing_fitted(made):
    z, y = problem()
    fitted = made().fit(z, y)
    copy = clone(fitted)
    assert type(copy) is type(fitted)
    assert copy.get_params() == fitted.get_params() == made().get_params()
    assert copy.n_classes is None
    with pytest.raises(RuntimeError, match="call fit before transform"):
        copy.transform(z)
    assert torch.equal(copy.fit(z, y).transform(z), fitted.transform(z))
    settings = set(fitted.get_params())
    assert settings <= set(vars(made()))
    assert all(attribute in settings for attribute in vars(made())), "set by the constructor"
    assert all(attribute.endswith("_") for attribute in set(vars(fitted)) - settings), "set by fit"


def test_settings_may_be_set_and_are_checked_again():
    fitted = JackknifeCalibrator().set_params(min_rare=5)
    assert (fitted.min_rare, fitted.target) == (5, "balanced")
    with pytest.raises(ValueError, match=r"JackknifeCalibrator: parameters must be among target, .*, got seed"):
        fitted.set_params(seed=1)
    calibrator = AffineCalibrator(with_bias=True)
    before = calibrator.get_params()
    with pytest.raises(ValueError, match="must be at least"):
        calibrator.set_params(prior=-1.0)
    assert calibrator.get_params() == before
    calibrator.prior = -1.0
    with pytest.raises(ValueError, match="must be at least"):
        calibrator.fit(*problem())


def test_scikit_learn_searches_among_calibrators():
    from sklearn.model_selection import GridSearchCV, cross_val_score

    z, y = (each.numpy() for each in problem(k=2))
    scores = cross_val_score(make_calibrator("platt"), z, y, cv=3, scoring="neg_log_loss")
    assert np.isfinite(scores).all()
    search = GridSearchCV(
        JackknifeCalibrator(target="population"), {"min_rare": [5, 9999]}, cv=3, scoring="neg_log_loss"
    )
    assert search.fit(z, y).best_params_["min_rare"] == 5
    assert repr(search.best_estimator_) == "JackknifeCalibrator(target='population', min_rare=5)"
    with pytest.raises(AttributeError, match="after fit"):
        _ = JackknifeCalibrator().classes_


# What priors and a curve's shape leave of the unit; before, probabilities were off by .8.
LEFT = 0.04
FREE_OF_LEVEL = [name for name in CALIBRATORS if name != "temperature"]  # it has no intercept


def scores(n: int = 400, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < 0.13 * n).astype(int)
    return rng.normal(size=n) + 2.5 * y, y


@pytest.mark.parametrize("name", CALIBRATORS)
def test_level_and_scale_change_nothing(name):
    z, y = scores()
    expected = make_calibrator(name).fit(z, y).transform(z)
    for scale, level in ((1e-9, 0.0), (1e9, 0.0), (1.0, 1000.0), (1.0, -1000.0), (1e-9, -1000.0), (1e9, 1000.0)):
        if level and name not in FREE_OF_LEVEL:
            continue
        moved = scale * (z + level)
        found = make_calibrator(name).fit(moved, y).transform(moved)
        assert np.abs(found - expected).max() < LEFT, (scale, level)
        assert nll(y, found) == pytest.approx(nll(y, expected), abs=3e-3)


@pytest.mark.parametrize("form_sd", [None, 0.5])
def test_a_prior_stands_for_network_logits_and_gives_way_to_labels_that_contradict_it(form_sd, tmp_path):
    z, y = scores(1000)
    usual = PriorPlattCalibrator(form_sd=form_sd).fit(z, y)
    assert usual.level_ is None, "logits of a network keep the priors' own unit"
    for moved in (z + 1000, 1e9 * z, 10 * z - 300):
        fitted = PriorPlattCalibrator(form_sd=form_sd).fit(moved, y)
        assert np.abs(fitted.transform(moved) - usual.transform(z)).max() < LEFT
        back = load_calibrator(save_calibrator(fitted, tmp_path / "map.json"))
        assert np.array_equal(back.transform(moved), fitted.transform(moved))
    narrow = PriorPlattCalibrator(slope_sd=1e-3, ratio_sd=1e-3).fit(z + 5, y)
    assert narrow.level_ is None, "a prior that you narrow is kept"
