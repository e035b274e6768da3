from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from calirare import metrics


@pytest.mark.slow
def test_noise_floor_of_one_bin_has_a_known_mean():
    # With one bin and p = .5 the error is |mean of n coins - .5|: mean sqrt(2/pi) * .5/sqrt(n) for large n.
    n, draws = 400, 2000
    floor = metrics.noise_floor(lambda y, p: metrics.ece(y, p, 1), np.full(n, 0.5), n_draws=draws)
    mean, std = 0.5 / math.sqrt(n) * math.sqrt(2 / math.pi), 0.5 / math.sqrt(n) * math.sqrt(1 - 2 / math.pi)
    assert abs(floor.mean - mean) < 4 * std / math.sqrt(draws)
    assert abs(floor.std - std) < 0.1 * std


def test_drawn_labels_follow_the_probabilities():
    p = np.tile([0.1, 0.0, 0.6, 0.3], (5000, 1))
    seen = []
    metrics.noise_floor(lambda y, _: seen.append(np.bincount(y, minlength=4)) or 0.0, p, n_draws=20)
    counts = np.sum(seen, axis=0)
    assert counts[1] == 0
    assert counts.sum() == 100_000
    for share, count in zip(p[0], counts, strict=True):
        assert abs(count - 1e5 * share) <= 4 * math.sqrt(1e5 * share * (1 - share))


def test_certain_probabilities_have_no_noise():
    certain = np.array([0.0, 1.0, 1.0, 0.0])
    assert metrics.noise_floor(metrics.ece, certain, n_draws=5) == (0.0, 0.0)
    assert metrics.class_ace_noise_floor([0, 1, 1, 0], certain, 1, n_draws=5) == (0.0, 0.0)


def test_class_ace_floor_keeps_samples_and_bins():
    rng = np.random.default_rng(0)
    p, y = rng.beta(0.4, 1.2, 300), rng.integers(0, 2, 300)
    floor = metrics.class_ace_noise_floor(y, p, 1, n_draws=400)
    # The same thing the slow way, through class_ace itself: on samples of class 1 "right" means P(class 1) > .5.
    confidence = np.maximum(p, 1 - p)[y == 1]
    rng = np.random.default_rng(1)
    values = []
    for _ in range(400):
        right = rng.random(len(confidence)) < confidence
        values.append(metrics.class_ace(np.ones(len(right), int), np.where(right, confidence, 1 - confidence), 1))
    assert abs(floor.mean - np.mean(values)) < 4 * np.hypot(floor.std, np.std(values)) / math.sqrt(400)
    assert 0.8 < floor.std / np.std(values) < 1.25


def test_macro_floor_is_the_mean_over_classes(task):
    p, y = task
    macro = metrics.macro_ace_noise_floor(y, p, n_draws=300)
    parts = [metrics.class_ace_noise_floor(y, p, c, n_draws=300) for c in np.unique(y)]
    tolerance = 4 * np.linalg.norm([part.std for part in parts]) / math.sqrt(300) / len(
        parts
    ) + 4 * macro.std / math.sqrt(300)
    assert abs(macro.mean - np.mean([part.mean for part in parts])) < tolerance


def test_stratified_bootstrap_keeps_class_sizes():
    y = np.array([0] * 50 + [1])
    sizes = set()
    metrics.bootstrap_interval(lambda labels, _: sizes.add(int(labels.sum())) or 0.0, y, y, n_draws=30, stratify=True)
    assert sizes == {1}


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        metrics.noise_floor(metrics.ece, [0.5], n_draws=0)
    with pytest.raises(ValueError, match="level must lie in"):
        metrics.bootstrap_interval(metrics.ece, [1], [0.5], level=1.0)
    with pytest.raises(ValueError, match="as many rows"):
        metrics.bootstrap_interval(metrics.ece, [1, 0], [0.5])
    with pytest.raises(ValueError, match="sum to 1"):
        metrics.noise_floor(metrics.ece, [[0.5, 0.1]])


KEYS = [
    *("recall", "precision", "accuracy", "macro_f1", "ace_minority", "ace_minority_noise_floor", "macro_ace"),
    *("macro_ace_noise_floor", "ece", "ece_noise_floor", "mce", "classwise_ece", "nll", "brier"),
]


def test_report_holds_every_number(task):
    p, y = task
    report = metrics.calibration_report(y, p, minority=1, n_draws=10)
    assert list(report) == KEYS
    assert all(type(value) is float and math.isfinite(value) for value in report.values())
    assert report == metrics.calibration_report(y, p, minority=1, n_draws=10)
    y_hat = (p > 0.5).astype(int) if p.ndim == 1 else p.argmax(1)
    assert report["recall"] == pytest.approx((y_hat[y == 1] == 1).mean(), rel=1e-12)
    assert report["ace_minority"] == metrics.class_ace(y, p, 1)
    assert report["ece"] == metrics.ece(y, p)
    tensors = metrics.calibration_report(torch.from_numpy(y), torch.from_numpy(p), minority=1, n_draws=10)
    assert tensors == report


def test_report_needs_the_minority():
    with pytest.raises(ValueError, match="must contain class 1"):
        metrics.calibration_report([0, 0], [0.2, 0.3])


@pytest.mark.parametrize("kind", [np.array, list, torch.tensor])
def test_the_metric_gets_the_users_kind_of_array(kind):
    p, y, w = kind([0.1, 0.6, 0.7, 0.2]), kind([0, 1, 1, 0]), kind([1.0, 2.0, 1.0, 3.0])
    expected = torch.Tensor if kind is torch.tensor else np.ndarray

    def seen(y, p, weights):
        assert isinstance(y, expected)
        return np.abs(np.asarray(p) - np.asarray(y)).mean()

    def drawn(y, p, weights):
        assert isinstance(p, expected)
        assert isinstance(weights, expected)
        return seen(y, p, weights)

    assert metrics.noise_floor(seen, p, n_draws=3, weights=w).mean > 0
    assert metrics.bootstrap_interval(drawn, y, p, n_draws=3, weights=w).lower > 0


def test_whole_numbers_are_probabilities_of_an_interval_too():
    assert metrics.bootstrap_interval(metrics.ece, np.array([0, 1, 0, 0]), np.array([0, 1, 1, 0]), n_draws=9).upper > 0


@pytest.mark.parametrize(("p", "y", "what"), [(0.5, 1, "p"), (0.5, [1], "p"), ([0.5], 1, "y_true")])
def test_an_interval_of_a_single_number_is_refused(p, y, what):
    with pytest.raises(
        ValueError, match=f"bootstrap_interval: {what} must hold one row per sample, got a single number"
    ):
        metrics.bootstrap_interval(metrics.ece, y, p)


def test_a_resample_without_a_class_names_the_remedy():
    y, p = np.r_[np.zeros(20, int), 1], np.linspace(0, 1, 21)
    with pytest.raises(ValueError, match=r"a resample lacks a class \(auroc: .*\): pass stratify=True"):
        metrics.bootstrap_interval(metrics.auroc, y, p, n_draws=50)
    assert metrics.bootstrap_interval(metrics.auroc, y, p, n_draws=50, stratify=True) == (1.0, 1.0)
