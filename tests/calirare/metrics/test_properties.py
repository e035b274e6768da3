"""What holds for every input, and that known wrong versions are told apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calirare import metrics

SLACK = 1e-12


@st.composite
def predictions(draw):
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    coarse = draw(st.sampled_from([4, 10, 20, 10**6]))
    if draw(st.booleans()):
        return rng.integers(0, coarse + 1, n) / coarse, rng.integers(0, 2, n)
    p = rng.integers(1, coarse + 1, (n, 4)).astype(float)
    return p / p.sum(1, keepdims=True), rng.integers(0, 4, n)


@settings(max_examples=50, deadline=None)
@given(predictions(), st.integers(1, 30))
def test_bounds_and_order(data, n_bins):
    p, y = data
    one, two, largest = (metrics.ece(y, p, n_bins, norm) for norm in (1, 2, math.inf))
    assert 0 <= one <= two + SLACK
    assert two <= largest + SLACK
    assert largest <= 1 + SLACK
    assert metrics.mce(y, p, n_bins) == largest
    scores, outcomes = (p.max(1), p.argmax(1) == y) if p.ndim == 2 else (p, y)
    # Bins can only hide what cancels: no error is below that of a single bin.
    assert one >= abs(scores.mean() - outcomes.mean()) - SLACK


@settings(max_examples=40, deadline=None)
@given(predictions())
def test_classes_may_be_written_out(data):
    p, y = data
    if p.ndim == 1:
        both = np.stack((1 - p, p), 1)
        for name in ("classwise_ece", "macro_ace", "brier", "nll"):
            metric = getattr(metrics, name)
            # 1 - (1 - p) may round p across an edge of a bin only if p is on one: compared off the edges.
            if name in ("brier", "nll", "macro_ace") or not np.any(np.isclose(p * 15, np.round(p * 15))):
                assert metric(y, both) == pytest.approx(metric(y, p), rel=1e-9, abs=1e-12)


def left_closed(scores: np.ndarray, outcomes: np.ndarray, n_bins: int) -> float:
    return by_bin(scores, outcomes, np.minimum(np.floor(scores * n_bins), n_bins - 1))


def own_bin_for_one(scores: np.ndarray, outcomes: np.ndarray, n_bins: int) -> float:
    return by_bin(scores, outcomes, np.floor(scores * n_bins))


def by_bin(scores: np.ndarray, outcomes: np.ndarray, bins: np.ndarray) -> float:
    gaps = [(np.mean(bins == m), abs(np.mean(outcomes[bins == m] - scores[bins == m]))) for m in np.unique(bins)]
    return sum(share * gap for share, gap in gaps)


@pytest.mark.parametrize("wrong", [left_closed, own_bin_for_one])
def test_wrong_bins_are_told_apart(wrong):
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 21, 500)  # on every edge and in the middle of every bin, erring in opposite directions
    p, y = steps / 20, steps % 2
    assert abs(metrics.ece(y, p, 10) - wrong(p, y, 10)) > 1e-4


def test_wrong_class_ace_is_told_apart():
    rng = np.random.default_rng(0)
    p = rng.beta(0.4, 1.2, 800)
    y = (rng.random(800) < p).astype(int)
    right = metrics.class_ace(y, p, 1)
    confidence, predicted = np.maximum(p, 1 - p), (p > 0.5).astype(int)

    def adaptive(scores: np.ndarray, outcomes: np.ndarray) -> float:
        parts = np.array_split(np.argsort(scores, kind="stable"), 20)
        return sum(len(part) / len(scores) * abs(np.mean(outcomes[part] - scores[part])) for part in parts)

    rare = y == 1
    assert adaptive(confidence[rare], (predicted == y)[rare]) == pytest.approx(right, rel=1e-12, abs=0)
    by_prediction = adaptive(confidence[predicted == 1], (predicted == y)[predicted == 1])
    class_probability = adaptive(p[rare], np.ones(rare.sum()))
    for wrong in (by_prediction, class_probability):
        assert abs(wrong - right) > 0.02


def test_equal_weights_are_none_where_probabilities_are_tied():
    """A bin's end that falls on a sample does so whatever the weights' sums are rounded to."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(30, 300))
        p = rng.integers(0, 31, n) / 30
        y = (rng.random(n) < p).astype(int)
        plain = metrics.equal_mass_ece(y, p)
        for weight in (0.1, 0.3, 7.0):
            assert metrics.equal_mass_ece(y, p, weights=np.full(n, weight)) == pytest.approx(plain, rel=1e-9), seed
