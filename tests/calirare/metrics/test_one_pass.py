"""Class probabilities on the CPU are counted in one compiled pass: the same bins as torch's operators give."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare import metrics


def by_torch(p: torch.Tensor, y: torch.Tensor, n_bins: int, weights=None) -> torch.Tensor:
    """The sums by torch's operators, which a derivative asks for."""
    statistics = metrics.confidence_statistics(y, p.clone().requires_grad_(), n_bins, weights=weights)
    assert statistics.sums.requires_grad
    return statistics.sums.detach()


def in_one_pass(p: torch.Tensor, y: torch.Tensor, n_bins: int, weights=None) -> torch.Tensor:
    return metrics.confidence_statistics(y, p, n_bins, weights=weights).sums


def nasty_rows(n_bins: int, dtype: torch.dtype) -> torch.Tensor:
    """Largest probabilities on every edge above 1/3 and one step beside it, ties, zeros, ones and subnormals."""
    numpy_type = np.float32 if dtype == torch.float32 else np.float64
    edges = (np.arange(n_bins + 1) / n_bins).astype(numpy_type)
    high = np.concatenate((edges, np.nextafter(edges, numpy_type(0)), np.nextafter(edges, numpy_type(1))))
    high = high[(high > 0.34) & (high <= 1)]
    rest = (1 - high) / 2
    tiny = numpy_type(torch.finfo(dtype).smallest_normal / 16)
    special = [[0, 1, 0], [1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [tiny, 1, tiny], [1, tiny, 0]]
    return torch.from_numpy(np.concatenate((np.stack((rest, high, rest), 1), np.asarray(special, dtype=numpy_type))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_bins", [1, 3, 10, 100])
def test_counts_are_equal_to_the_bit_on_and_beside_edges(n_bins, dtype, within_rounding):
    p = nasty_rows(n_bins, dtype)
    for label in range(3):
        y = torch.full((len(p),), label)
        ours, theirs = in_one_pass(p, y, n_bins), by_torch(p, y, n_bins)
        assert torch.equal(ours[[0, 1, 3]], theirs[[0, 1, 3]])
        within_rounding(ours, theirs, terms=len(p))


PARTS = st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(any)


@pytest.mark.slow
@given(rows=st.lists(PARTS, min_size=1, max_size=30), n_bins=st.integers(1, 12), data=st.data())
def test_random_fractions_with_many_ties(rows, n_bins, data):
    parts = np.asarray(rows, dtype=np.float64)
    p = torch.from_numpy(parts / parts.sum(1, keepdims=True))
    y = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=len(p), max_size=len(p))))
    w = torch.tensor(data.draw(st.lists(st.integers(1, 4), min_size=len(p), max_size=len(p)))).double()
    for weights in (None, w):
        ours, theirs = in_one_pass(p, y, n_bins, weights), by_torch(p, y, n_bins, weights)
        assert torch.equal(ours[[0, 1, 3]], theirs[[0, 1, 3]])
        assert float((ours - theirs).abs().max()) <= 4 * len(p) * len(p) * torch.finfo(torch.float64).eps


def test_every_kind_of_input_is_the_same_number():
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet([1, 1], 400), rng.integers(0, 2, 400)
    frozen = p.copy()
    frozen.flags.writeable = False
    inputs = {
        "int32 labels": (torch.from_numpy(p), torch.from_numpy(y.astype(np.int32))),
        "bool labels": (torch.from_numpy(p), torch.from_numpy(y.astype(bool))),
        "read-only numpy": (frozen, y.astype(np.uint8)),
        "big-endian": (p.astype(">f8"), y.astype(">i2")),
        "longdouble": (p.astype("g"), y.astype("g")),
        "lists": (p.tolist(), y.tolist()),
        "Fortran order": (np.asfortranarray(p), y),
        "strided": (np.repeat(p, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
    }
    for kind, (probabilities, labels) in inputs.items():
        assert float(metrics.ece(labels, probabilities)) == metrics.ece(y, p), kind


@pytest.mark.parametrize(
    ("row", "label", "message"),
    [
        ([np.nan, 0.5], 0, r"p must lie in \[0, 1\], got 1 that are no number, the first at \(12345, 0\): leave"),
        ([-0.25, 1.0], 0, r"p must lie in \[0, 1\], got values from -0.25 to 1"),
        ([0.5, 0.25], 0, "sum to 1 in every row, got a sum that is off by 0.25"),
        ([0.5, 0.5], 2, r"y_true must lie in 0\.\.1, got values from 0 to 2"),
        ([0.5, 0.5], -1, r"y_true must lie in 0\.\.1, got values from -1 to 0"),
    ],
)
@pytest.mark.parametrize("metric", [metrics.ece, metrics.mce, metrics.confidence_statistics])
def test_one_bad_row_among_many_is_named(metric, row, label, message):
    p, y = np.full((20_000, 2), 0.5), np.zeros(20_000, dtype=np.int64)
    p[12_345], y[12_345] = row, label
    with pytest.raises(ValueError, match=message):
        metric(y, p)


def test_a_float_table_that_adds_up_nearly_is_taken():
    p = np.array([[0.333, 0.333, 0.333], [0.99, 0.005, 0.004]])  # rounded to three digits
    assert metrics.ece([0, 0], p, 2) == pytest.approx((abs(1 - 0.333) + abs(1 - 0.99)) / 2, rel=1e-14, abs=0)


def test_batches_add_up(task, within_rounding):
    p, y = task
    w = np.random.default_rng(0).random(len(y))
    parts = [
        metrics.confidence_statistics(y[part], p[part], 10, weights=w[part])
        for part in np.array_split(np.arange(len(y)), 5)
    ]
    total, columns = functools.reduce(operator.add, parts), np.stack((1 - p, p), 1) if p.ndim == 1 else p
    within_rounding(float(total.error().mean()), metrics.ece(y, columns, 10, weights=w), terms=4 * len(y))
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
