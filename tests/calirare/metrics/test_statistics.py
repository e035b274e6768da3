"""Sums per bin: batches and weights."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from calirare import metrics


def test_batches_add_up(task, within_rounding):
    p, y = task
    w = np.random.default_rng(0).random(len(y))
    pairs = (
        (metrics.confidence_statistics, functools.partial(metrics.ece, of="confidence")),
        (metrics.class_statistics, metrics.classwise_ece),
    )
    for make, metric in pairs:
        parts = [make(y[part], p[part], 10, weights=w[part]) for part in np.array_split(np.arange(len(y)), 5)]
        total = functools.reduce(operator.add, parts)
        within_rounding(float(total.error().mean()), metric(y, p, 10, weights=w), terms=4 * len(y))
        assert int(total.count[0].sum()) == len(y)


def test_different_bins_do_not_add_up():
    first, second = (metrics.confidence_statistics([0, 1], [0.2, 0.8], m) for m in (5, 6))
    with pytest.raises(ValueError, match="same shape"):
        first + second


def test_a_class_of_zero_weight_is_absent():
    p, y = np.array([0.2, 0.7, 0.9]), np.array([0, 1, 1])
    weights = np.array([0.0, 1.0, 1.0])
    assert metrics.macro_ace(y, p, weights=weights) == metrics.class_ace(y, p, 1, weights=weights)
    with pytest.raises(ValueError, match="must contain class 0"):
        metrics.class_ace(y, p, 0, weights=weights)
