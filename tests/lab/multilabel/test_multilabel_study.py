from __future__ import annotations

import json

import numpy as np
import pytest

from calirare_lab.multilabel.plots import draw_study
from calirare_lab.multilabel.simulate import worlds
from calirare_lab.multilabel.study import Cell, run_study, verdicts

WORLDS = {world.name: world for world in worlds()}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_true_error_is_what_the_draws_average_to(name):
    n = 60_000
    sample = WORLDS[name].draw(n, np.random.default_rng(0))
    wrong = sample.labels.double() - sample.conditional
    z = wrong.mean(0) / (sample.conditional * (1 - sample.conditional)).mean(0).sqrt() * n**0.5
    assert float(z.abs().max()) < 4.5
    moments = sample.scores[:, :, None] * wrong[:, None, :]  # nor is there anything left to learn from the scores
    assert float((moments.mean(0) / moments.std(0)).abs().max()) < 4.5 / n**0.5
    assert float((wrong[:, 0] * wrong[:, 1]).mean()) > 0.01  # labels stay dependent given the scores
    gap = (sample.conditional - sample.scores).abs()
    for p in (1.0, 2.0):
        rows = gap.pow(p).mean(1)
        # labels of one row are dependent, rows are not
        assert abs(float(rows.mean()) - WORLDS[name].true_error(p)) <= 4 * float(rows.std()) / n**0.5 + 1e-12
    assert (WORLDS[name].true_error(1.0) == 0) == (name in ("calibrated", "skewed"))


@pytest.mark.slow
def test_a_small_study_is_complete_and_drawn(tmp_path):
    lines = []
    study = run_study(sizes=(40, 80), repeats=3, seed=1, progress=lines.append)
    assert len(lines) == 10
    keys = {(c["world"], c["estimator"], c["n"], c["p"]) for c in study["cells"]}
    assert len(keys) == len(study["cells"]) == 5 * 2 * (4 * 2 + 1)
    assert all(np.isfinite([c["mean"], c["deviation"]]).all() for c in study["cells"])
    assert json.loads(json.dumps(study)) == study
    path = draw_study(study, tmp_path / "study.png")
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("small", "large", "p", "unbiased", "consistent"),
    [
        ((0.0800, 0.02), (0.0700, 0.002), 1.0, False, False),  # stays
        ((0.0501, 0.02), (0.0500, 0.002), 1.0, True, True),  # never there
        ((0.0900, 0.02), (0.0540, 0.002), 1.0, False, True),  # 0.04 falls to a tenth, as n^(-1/2) does
        ((0.0900, 0.02), (0.0630, 0.002), 1.0, False, False),  # 0.04 falls to a third only
        ((0.0900, 0.02), (0.0540, 0.002), 2.0, False, False),  # the square should have fallen to a hundredth
        ((0.0900, 0.02), (0.0101, 0.002), 1.0, False, False),  # overshoots
    ],
)
def test_verdicts_weigh_bias_against_its_noise(small, large, p, unbiased, consistent):
    cells = [Cell("w", "copula", n, p, 100, 0.05, *found, None) for n, found in ((100, small), (10_000, large))]
    (verdict,) = verdicts(cells[::-1])
    assert (verdict["unbiased"], verdict["consistent"]) == (unbiased, consistent)
    assert verdict["z_large"] == pytest.approx((large[0] - 0.05) / (large[1] / 10), rel=1e-9, abs=0)
