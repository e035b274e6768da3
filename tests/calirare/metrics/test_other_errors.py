"""Debiased, soft-binned, smooth and kernel calibration errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from calirare import metrics


def skewed(n: int, seed: int = 0, power: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.beta(0.8, 1.0, n)
    return p, (rng.random(n) < p**power).astype(np.int64)


def sure(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.maximum(p, 1 - p), (p > 0.5) == y


def central_difference(function, at: torch.Tensor, direction: torch.Tensor, step: float) -> float:
    return float(function(at + step * direction) - function(at - step * direction)) / (2 * step)


class TestDebiased:
    def test_by_hand(self):
        # One bin, confidences .6 .7 .8 .9, three of four right: gap 0, variance 3/16 / 3 = 1/16.
        p = np.array([0.6, 0.7, 0.8, 0.9])
        value = metrics.debiased_ece([1, 1, 1, 0], p, 1, squared=True)
        assert value == pytest.approx(-1 / 16, rel=1e-12, abs=0)
        assert metrics.debiased_ece([1, 1, 1, 0], p, 1) == 0

    @pytest.mark.slow
    def test_squared_error_is_unbiased(self):
        # Confidence .7 throughout, accuracy .8: the true squared error is .01. Plain ECE^2 is .01 + .16/n.
        n, draws = 20, 800
        rng = np.random.default_rng(0)
        values, plain = [], []
        for _ in range(draws):
            y = (rng.random(n) < 0.8).astype(int)
            values.append(metrics.debiased_ece(y, np.full(n, 0.7), squared=True))
            plain.append(metrics.ece(y, np.full(n, 0.7), norm=2) ** 2)
        tolerance = 4 * np.std(values) / math.sqrt(draws)
        assert abs(np.mean(values) - 0.01) < tolerance
        assert np.mean(plain) - 0.01 > 2 * tolerance

    def test_norm_one_against_drawing(self):
        p, y = skewed(300)
        confidence, correct = sure(p, y)
        bins = np.minimum(np.ceil(confidence * 15).astype(int) - 1, 14)
        rng = np.random.default_rng(0)
        mean, plain = 0.0, 0.0
        for m in np.unique(bins):
            inside = bins == m
            a, c = correct[inside].mean(), confidence[inside].mean()
            drawn = rng.normal(a, math.sqrt(a * (1 - a) / inside.sum()), 200_000)
            mean += inside.mean() * np.abs(drawn - c).mean()
            plain += inside.mean() * abs(a - c)
        # Each bin's mean of 200,000 draws is off by at most 5 * .5/sqrt(bin) / sqrt(200,000).
        assert abs(metrics.debiased_ece(y, p, norm=1) - (2 * plain - mean)) < 2e-3

    def test_equal_frequency_bins_and_single_samples(self):
        p, y = np.array([0.9, 0.8, 0.7]), [1, 1, 0]
        # Two bins {.7 wrong, .8 right} and {.9 right}; the second has one sample and drops out.
        expected = 2 / 3 * ((0.75 - 0.5) ** 2 - 0.25)
        value = metrics.debiased_ece(y, p, 2, equal_frequency=True, squared=True)
        assert value == pytest.approx(expected, rel=1e-12, abs=0)

    def test_bad_settings_are_named(self):
        with pytest.raises(ValueError, match="norm must be 1 or 2"):
            metrics.debiased_ece([1], [0.5], norm=3)
        with pytest.raises(ValueError, match="squared must be left out"):
            metrics.debiased_ece([1], [0.5], norm=1, squared=True)


class TestSoft:
    def test_cold_bins_are_hard_bins(self, task):
        p, y = task
        if p.ndim == 1:  # two-digit probabilities lie on edges
            p = 0.999 * p + 0.0003
        for norm in (1, 2):
            soft = metrics.soft_ece(y, p, norm=norm, temperature=1e-9)
            assert soft == pytest.approx(metrics.ece(y, p, norm=norm), rel=1e-6, abs=0)

    def test_against_the_formula(self):
        p, y = skewed(50)
        confidence, correct = sure(p, y)
        centres = (np.arange(5) + 0.5) / 5
        member = special.softmax(-((confidence[:, None] - centres) ** 2) / 0.02, axis=1)
        size = member.sum(0)
        gap = np.abs((member * correct[:, None]).sum(0) - (member * confidence[:, None]).sum(0)) / size
        expected = math.sqrt((size / 50 * gap**2).sum())
        assert metrics.soft_ece(y, p, 5, 2, temperature=0.02) == pytest.approx(expected, rel=1e-12, abs=0)

    def test_gradient(self):
        p, y = (torch.from_numpy(a) for a in skewed(20, seed=3))
        p = p.clamp(0.05, 0.95).requires_grad_()
        assert torch.autograd.gradcheck(lambda q: metrics.soft_ece(y, q, 5, temperature=0.01), p)

    def test_weights_and_labels(self):
        rng = np.random.default_rng(0)
        p, y = rng.random((60, 2)), rng.integers(0, 2, (60, 2))
        w = rng.integers(0, 3, 60)
        index = np.repeat(np.arange(60), w)
        weighted = metrics.soft_ece(y, p, weights=w)
        assert weighted == pytest.approx(metrics.soft_ece(y[index], p[index]), rel=1e-12, abs=0)
        parts = [metrics.soft_ece(y[:, k], p[:, k]) for k in range(2)]
        assert metrics.soft_ece(y, p) == pytest.approx(np.mean(parts), rel=1e-12, abs=0)

    def test_bad_settings_are_named(self):
        with pytest.raises(ValueError, match="temperature must be positive"):
            metrics.soft_ece([1], [0.5], temperature=0)
        with pytest.raises(ValueError, match="norm must be finite"):
            metrics.soft_ece([1], [0.5], norm=math.inf)


def reflected(t: np.ndarray, centre: float, width: float) -> np.ndarray:
    """The kernel by its images: the point mirrored in 0 and 1, again and again."""
    images = [2 * k + sign * centre for k in range(-4, 5) for sign in (1, -1)]
    return sum(stats.norm.pdf(t, image, width) for image in images)


class TestSmooth:
    @pytest.mark.parametrize("width", [0.02, 0.1, 0.4])
    def test_against_images_and_quadrature(self, width):
        p, y = skewed(60)
        t = (np.arange(1000) + 0.5) / 1000
        residual = sum((y_i - f) * reflected(t, f, width) for f, y_i in zip(p, y, strict=True)) / len(p)
        value = metrics.smooth_calibration_error(y, p, bandwidth=width)
        assert abs(value - np.abs(residual).mean()) < 1 / 4096

    def test_the_value_is_a_fixed_point(self):
        p, y = skewed(500)
        value = metrics.smooth_calibration_error(y, p)
        assert metrics.smooth_calibration_error(y, p, bandwidth=value) == pytest.approx(value, rel=1e-9, abs=0)

    def test_no_residual_is_no_error(self):
        assert metrics.smooth_calibration_error([0, 1], [0.0, 1.0]) < 1e-10

    def test_constant_prediction(self):
        # All at f: any kernel keeps the mass |mean(y) - f|, so that is the fixed point.
        y = np.repeat([0, 1], [70, 30])
        assert metrics.smooth_calibration_error(y, np.full(100, 0.5)) == pytest.approx(0.2, rel=1e-9, abs=0)

    def test_continuous_where_binning_jumps(self):
        y = np.array([0, 1] * 50)
        below, above = np.full(100, 0.5 - 1e-9), np.full(100, 0.5 - 1e-9)
        above[1::2] = 0.5 + 1e-9
        binned = [metrics.calibration_error(y, p, 10) for p in (below, above)]
        smooth = [metrics.smooth_calibration_error(y, p) for p in (below, above)]
        assert abs(binned[0] - binned[1]) > 0.4
        assert abs(smooth[0] - smooth[1]) < 1 / 4096

    @pytest.mark.slow
    def test_against_the_authors_implementation(self):
        oracle = pytest.importorskip("relplot", reason="relplot is not installed: the authors' smECE is not compared")
        for seed in range(3):
            p, y = skewed(1000, seed)
            assert abs(metrics.smooth_calibration_error(y, p) - oracle.smECE(p, y)) < 2e-3

    @pytest.mark.parametrize("bandwidth", [None, 0.05])
    def test_gradient(self, bandwidth):
        p, y = (torch.from_numpy(a) for a in skewed(40, seed=1))
        p = p.clamp(0.01, 0.99)
        direction = torch.from_numpy(np.random.default_rng(2).normal(size=40))
        at = p.clone().requires_grad_()
        value = metrics.smooth_calibration_error(y, at, bandwidth=bandwidth)
        (gradient,) = torch.autograd.grad(value, at)
        # Linear between cell centres: steps well below a cell.
        slope = central_difference(
            lambda q: metrics.smooth_calibration_error(y, q, bandwidth=bandwidth), p, direction, 1e-7
        )
        assert float(gradient @ direction) == pytest.approx(slope, rel=1e-3, abs=0)

    def test_confidence_and_labels(self):
        rng = np.random.default_rng(0)
        p, y = rng.random((100, 2)), rng.integers(0, 2, (100, 2))
        parts = []
        for k in range(2):
            confidence, correct = sure(p[:, k], y[:, k])
            parts.append(metrics.smooth_calibration_error(correct, confidence))
        assert metrics.smooth_ece(y, p) == pytest.approx(np.mean(parts), rel=1e-9, abs=0)
        assert metrics.smooth_ece(y[:, 0], p[:, 0]) == pytest.approx(parts[0], rel=1e-9, abs=0)

    def test_weights(self):
        p, y = skewed(60)
        w = np.random.default_rng(0).integers(0, 3, 60)
        index = np.repeat(np.arange(60), w)
        weighted = metrics.smooth_calibration_error(y, p, weights=w)
        assert weighted == pytest.approx(metrics.smooth_calibration_error(y[index], p[index]), rel=1e-6, abs=0)

    def test_bad_settings_are_named(self):
        with pytest.raises(ValueError, match="bandwidth must be positive"):
            metrics.smooth_ece([1], [0.5], bandwidth=0.0)
        with pytest.raises(ValueError, match=r"at least 0\.0001 and finite, got 1e-05: give a wider one"):
            metrics.smooth_calibration_error([1], [0.5], bandwidth=1e-5)

    @pytest.mark.parametrize("width", [1e-4, 3e-4, 1e-3, 4e-3])
    @pytest.mark.parametrize("apart", [0.3, 1, 4])
    @pytest.mark.parametrize("left", [0.5, 0.50013, 0.0])
    def test_narrow_bandwidths_are_as_exact_as_wide_ones(self, width, apart, left):
        right = left + apart * width
        p, y = np.repeat([left, right], 50), np.repeat([1, 0], 50)
        t = np.linspace(max(left - 12 * width, 0), right + 12 * width, 5_001)
        kernels = [reflected(t, f, width) for f in (left, right)]
        exact = integrate.trapezoid(np.abs((1 - left) * kernels[0] - right * kernels[1]) / 2, t)
        assert abs(metrics.smooth_calibration_error(y, p, bandwidth=width) - exact) < 1 / 4096


def literal_kde(p: np.ndarray, target: np.ndarray, h: float, norm: float) -> float:
    """The double sum as printed, one Dirichlet density at a time."""
    total = 0.0
    for j in range(len(p)):
        kernels = [0.0 if i == j else stats.dirichlet.pdf(p[j], p[i] / h + 1) for i in range(len(p))]
        expected = np.array(kernels) @ target / sum(kernels)
        total += np.sum(np.abs(expected - p[j, : target.shape[1]]) ** norm)
    return (total / len(p)) ** (1 / norm)


class TestKernel:
    @pytest.mark.parametrize("norm", [1, 2])
    def test_canonical_against_the_double_sum(self, norm):
        rng = np.random.default_rng(0)
        p, y = rng.dirichlet([1, 1, 1], 30), rng.integers(0, 3, 30)
        expected = literal_kde(p, np.eye(3)[y], 0.05, norm)
        value = metrics.kde_calibration_error(y, p, norm=norm, bandwidth=0.05)
        assert value == pytest.approx(expected, rel=1e-10, abs=0)

    def test_classwise_and_confidence_against_the_double_sum(self):
        rng = np.random.default_rng(1)
        p, y = rng.dirichlet([1, 1, 1], 25), rng.integers(0, 3, 25)
        pairs = [np.stack((p[:, k], 1 - p[:, k]), 1) for k in range(3)]
        expected = np.mean([literal_kde(pair, (y == k)[:, None], 0.1, 1) for k, pair in enumerate(pairs)])
        value = metrics.kde_calibration_error(y, p, kind="classwise", bandwidth=0.1)
        assert value == pytest.approx(expected, rel=1e-10, abs=0)
        top = p.max(1)
        expected = literal_kde(np.stack((top, 1 - top), 1), (p.argmax(1) == y)[:, None], 0.1, 1)
        value = metrics.kde_calibration_error(y, p, kind="confidence", bandwidth=0.1)
        assert value == pytest.approx(expected, rel=1e-10, abs=0)

    def test_two_classes_are_one_coordinate(self):
        p, y = skewed(40)
        one = metrics.kde_calibration_error(y, p, bandwidth=0.05)
        assert one == pytest.approx(literal_kde(np.stack((p, 1 - p), 1), y[:, None], 0.05, 1), rel=1e-10, abs=0)
        two = metrics.kde_calibration_error(y, np.stack((1 - p, p), 1), bandwidth=0.05)
        assert two == pytest.approx(one, rel=1e-10, abs=0)

    def test_rows_in_blocks(self, monkeypatch):
        p, y = skewed(100)
        whole = metrics.kde_calibration_error(y, p, bandwidth=0.05)
        monkeypatch.setattr("calirare.metrics.kernel_error.ROWS", 7)
        assert metrics.kde_calibration_error(y, p, bandwidth=0.05) == pytest.approx(whole, rel=1e-12, abs=0)

    @pytest.mark.slow
    def test_finds_a_known_error(self):
        p, y = skewed(4000, power=1.5)
        truth = integrate.quad(lambda t: abs(t**1.5 - t) * stats.beta.pdf(t, 0.8, 1.0), 0, 1)[0]
        assert metrics.kde_calibration_error(y, p, bandwidth=0.01) == pytest.approx(truth, rel=0.1, abs=0)

    def test_certain_predictions_stay_finite(self):
        p, y = np.array([0.0, 1.0, 0.0, 1.0, 0.3]), np.array([0, 1, 0, 0, 1])
        assert math.isfinite(metrics.kde_calibration_error(y, p, bandwidth=1e-3))
        assert math.isfinite(metrics.kde_calibration_error(y, p))

    def test_bandwidth_is_the_likeliest(self):
        p, _ = skewed(60)
        candidates = (0.003, 0.02, 0.1, 0.7)
        scores = []
        for h in candidates:
            parts = stats.beta.pdf(p[:, None], p / h + 1, (1 - p) / h + 1)
            density = (parts.sum(1) - np.diag(parts)) / (len(p) - 1)
            scores.append(np.log(density).sum())
        assert metrics.kde_bandwidth(p, candidates=candidates) == candidates[int(np.argmax(scores))]

    def test_bandwidth_falls_with_more_data(self):
        p, _ = skewed(900)
        p = np.clip(p, 0.01, 0.99)
        assert metrics.kde_bandwidth(p) < metrics.kde_bandwidth(p[:30])

    @pytest.mark.parametrize("kind", ["canonical", "classwise"])
    def test_gradient(self, kind):
        rng = np.random.default_rng(0)
        logits = torch.from_numpy(rng.normal(size=(12, 3))).requires_grad_()
        y = torch.from_numpy(rng.integers(0, 3, 12))
        assert torch.autograd.gradcheck(
            lambda z: metrics.kde_calibration_error(y, torch.softmax(z, 1), kind=kind, norm=2, bandwidth=0.1), logits
        )

    def test_labels(self):
        rng = np.random.default_rng(0)
        p, y = rng.random((50, 2)), rng.integers(0, 2, (50, 2))
        parts = [metrics.kde_calibration_error(y[:, k], p[:, k], bandwidth=0.1) for k in range(2)]
        value = metrics.kde_calibration_error(y, p, kind="classwise", bandwidth=0.1)
        assert value == pytest.approx(np.mean(parts), rel=1e-12, abs=0)
        with pytest.raises(ValueError, match="kind must be 'classwise' or 'confidence' for multi-label"):
            metrics.kde_calibration_error(y, p)

    def test_bad_settings_are_named(self):
        with pytest.raises(ValueError, match="at least 2 rows"):
            metrics.kde_calibration_error([1], [0.5])
        with pytest.raises(ValueError, match="kind must be"):
            metrics.kde_calibration_error([1, 0], [0.5, 0.4], kind="marginal")
        with pytest.raises(ValueError, match="bandwidth must be positive"):
            metrics.kde_calibration_error([1, 0], [0.5, 0.4], bandwidth=-1)
        with pytest.raises(ValueError, match="norm must be finite"):
            metrics.kde_calibration_error([1, 0], [0.5, 0.4], norm=math.inf)
        with pytest.raises(ValueError, match="candidates must hold"):
            metrics.kde_bandwidth([0.5, 0.4], candidates=())


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_the_size_of_weights_does_not_matter_to_their_squares(norm, factor):
    rng = np.random.default_rng(0)
    p, y, w = rng.random(40), rng.integers(0, 2, 40), rng.random(40)
    expected = metrics.debiased_ece(y, p, norm=norm, weights=w)
    assert expected > 0
    assert metrics.debiased_ece(y, p, norm=norm, weights=factor * w) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("max_points", [-1, 0, 1])
def test_a_bandwidth_needs_two_points(max_points):
    with pytest.raises(ValueError, match=f"max_points must be at least 2, got {max_points}"):
        metrics.kde_bandwidth(np.linspace(0, 1, 9), max_points=max_points)
