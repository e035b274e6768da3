"""Calibrators take numpy and torch, columns and one difference, and scikit-learn clones them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from calirare.calibration import (
    CALIBRATORS,
    AffineCalibrator,
    JackknifeCalibrator,
    PriorPlattCalibrator,
    load_calibrator,
    make_calibrator,
    save_calibrator,
)
from calirare.metrics import nll
from tests.helpers.logits import problem

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
