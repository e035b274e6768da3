"""A calibrator of a score is free of the score's level and unit: z, z + 1000 and 1e9 z give the same probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from calirare.calibration import CALIBRATORS, PriorPlattCalibrator, load_calibrator, make_calibrator, save_calibrator
from calirare.metrics import nll

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
