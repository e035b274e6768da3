"""Is one class's probability right: bins of equal numbers, the honest floor, calibration in the large, the report."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from calirare import metrics
from calirare.metrics.binning import binomial_interval


def example(n: int = 600, wrong: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.beta(0.4, 6, n)
    return (rng.random(n) < p**wrong).astype(np.int64), p


def test_by_hand():
    # Two bins of two: mean p .15 and .75, shares 0 and 1.
    y, p = [0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8]
    assert metrics.equal_mass_ece(y, p, 2) == pytest.approx((0.15 + 0.25) / 2, rel=1e-12)
    large = metrics.calibration_in_the_large(y, p)
    assert (large.mean_p, large.share, large.ratio) == pytest.approx((0.45, 0.5, 0.9), rel=1e-12)
    ends = binomtest(2, 4).proportion_ci(0.95, method="exact")
    assert (large.lower, large.upper) == pytest.approx((0.45 / ends.high, 0.45 / ends.low), rel=1e-9)


def test_equal_mass_is_the_gap_of_sorted_parts():
    y, p = example()
    order = np.argsort(p)
    parts = np.split(order, 12)
    expected = np.mean([abs(y[part].mean() - p[part].mean()) for part in parts])
    assert metrics.equal_mass_ece(y, p, 12) == pytest.approx(expected, rel=1e-12)
    assert expected > 1.2 * metrics.ece(y, p, 12), "bins of equal width would hide it"


def test_the_floor_is_that_of_drawn_labels():
    y, p = example()
    floor = metrics.equal_mass_noise_floor(p, n_draws=50)
    slow = metrics.noise_floor(metrics.equal_mass_ece, p, n_draws=50)
    assert (floor.mean, floor.std) == pytest.approx(tuple(slow), rel=1e-9)
    w = np.random.default_rng(1).random(len(y))
    slow = metrics.noise_floor(metrics.equal_mass_ece, p, n_draws=20, weights=w)
    assert metrics.equal_mass_noise_floor(p, n_draws=20, weights=w).mean == pytest.approx(slow.mean, rel=1e-9)
    assert metrics.equal_mass_ece(y, p) < floor.mean + 3 * floor.std, "labels drawn from p"
    wrong, _ = example(wrong=0.5)
    assert metrics.equal_mass_ece(wrong, p) > floor.mean + 5 * floor.std


def test_the_interval_is_the_exact_binomial_one():
    hits, trials = np.array([0, 1, 7, 40, 50]), np.full(5, 50)
    low, high = binomial_interval(hits, trials, 0.9)
    for i, k in enumerate(hits):
        ends = binomtest(int(k), 50).proportion_ci(0.9, method="exact")
        assert (low[i], high[i]) == pytest.approx((ends.low, ends.high), rel=1e-9)
    with pytest.raises(ValueError, match="calibration_in_the_large: y_true must hold a 1"):
        metrics.calibration_in_the_large([0, 0], [0.1, 0.2])
    with pytest.raises(ValueError, match="calibration_in_the_large: level must lie in"):
        metrics.calibration_in_the_large([0, 1], [0.1, 0.2], level=1)


def test_the_report_holds_what_the_measures_say():
    y, p = example()
    report = metrics.rare_report(y, p, n_draws=20)
    assert report == metrics.rare_report(y, np.stack((1 - p, p), 1), n_draws=20)
    assert all(type(value) in (int, float) for value in report.values())
    large, line = metrics.calibration_in_the_large(y, p), metrics.calibration_line(y, p)
    assert (report["n"], report["n_rare"]) == (600, y.sum())
    assert (report["mean_p"], report["observed_share"], report["mean_p_over_share"]) == large[:3]
    assert (report["mean_p_over_share_lower"], report["mean_p_over_share_upper"]) == large[3:5]
    assert (report["slope"], report["intercept"]) == tuple(line)
    assert report["ece"] == metrics.equal_mass_ece(y, p)
    assert report["ece_noise_floor"] == metrics.equal_mass_noise_floor(p, n_draws=20).mean
    assert report["log_loss"] == metrics.nll(y, p)
    assert report["brier"] == metrics.brier(y, p)
    parts = (report[f"brier_{name}"] for name in ("reliability", "resolution", "uncertainty", "within_bin"))
    reliability, resolution, uncertainty, within = parts
    assert report["brier"] == pytest.approx(reliability - resolution + uncertainty + within, rel=1e-9)
    other = metrics.rare_report(y, np.stack((1 - p, p), 1), cls=0, n_draws=5)
    assert other["observed_share"] == 1 - y.mean()
    assert other["mean_p"] == pytest.approx(1 - p.mean(), rel=1e-12)


def test_what_is_not_defined_is_none():
    report = metrics.rare_report([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], n_draws=3)
    assert (report["slope"], report["intercept"]) == (None, None)
    for call in (metrics.rare_report, metrics.detection_report):
        with pytest.raises(ValueError, match=f"{call.__name__}: y_true must contain class 1"):
            call([0, 0], [0.1, 0.2])
        with pytest.raises(ValueError, match=rf"{call.__name__}: y_true must have shape"):
            call([[0, 1]], [[0.1, 0.2]])


def test_an_interval_with_groups_covers_where_events_come_together():
    rng, held, without = np.random.default_rng(0), 0, 0
    card = np.repeat(np.arange(1000), 10)  # of ten transactions each: all are fraud, or none is
    groups = np.stack([rng.integers(0, 50, 10_000), card], 1)
    for _ in range(200):
        p = np.full(10_000, 0.03)
        y = (rng.random(1000) < 0.03)[card].astype(int)
        grouped, independent = (
            metrics.calibration_in_the_large(y, p, groups=groups),
            metrics.calibration_in_the_large(y, p),
        )
        held += grouped.lower <= 1 <= grouped.upper
        without += independent.lower <= 1 <= independent.upper
    assert 184 <= held <= 200  # of 95 %
    assert without < 120
    assert grouped.effect == pytest.approx(10, rel=1e-6)
    assert metrics.calibration_in_the_large(y, p, groups=np.arange(10_000)[:, None]).effect == 1
