"""confidence_bins: the sums per bin of confidence, against a row-by-row reference on values made to go wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from calirare_ext import confidence_bins, reference
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

DTYPES = [torch.float32, torch.float64]


def random_rows(n: int, k: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(2 * torch.randn(n, k, generator=generator, dtype=torch.float64), 1).to(dtype)
    weights = torch.rand(n, generator=generator, dtype=torch.float64)
    return p, torch.randint(0, k, (n,), generator=generator), weights


def beside_edges(n_bins: int, dtype: torch.dtype) -> Tensor:
    """Two classes whose larger probability lies on an edge m/M or one step beside it."""
    numpy_type = np.float32 if dtype == torch.float32 else np.float64
    edges = (np.arange(n_bins + 1) / n_bins).astype(numpy_type)
    steps = [edges, np.nextafter(edges, numpy_type(0)), np.nextafter(edges, numpy_type(1))]
    high = np.concatenate([*steps, [np.nextafter(numpy_type(1), numpy_type(0))]])
    high = high[(high >= 0.5) & (high <= 1)]
    return torch.from_numpy(np.stack((1 - high, high), 1))


def agree(p: Tensor, y: Tensor, n_bins: int, weights: Tensor | None = None) -> None:
    sums, refused = confidence_bins(p, y, n_bins, weights=weights)
    want, want_refused = reference.confidence_bins(p, y, n_bins, weights)
    assert refused == want_refused
    assert_identical(sums[0], want[0])
    if weights is None:
        assert_identical(sums[[1, 3]], want[[1, 3]])
    assert_within(sums, want, sum_bound(want, len(y) + 1, want, out=torch.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "k", "n_bins"), [(0, 3, 4), (1, 1, 1), (1, 2, 15), (300, 2, 10), (257, 10, 15), (64, 33, 7)]
)
def test_against_the_reference(n, k, n_bins, dtype) -> None:
    p, y, weights = random_rows(n, k, dtype)
    agree(p, y, n_bins)
    agree(p, y, n_bins, weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_bins", [1, 3, 10, 15, 49, 1000])
def test_on_and_beside_every_edge(n_bins, dtype) -> None:
    p = beside_edges(n_bins, dtype)
    agree(p, torch.arange(len(p)) % 2, n_bins)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_zero_and_subnormal_numbers(dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal / 8
    assert tiny > 0
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0], [tiny, 1.0], [1.0, tiny], [0.5, 0.5]], dtype=dtype)
    y = torch.tensor([0, 0, 1, 1, 1])
    agree(p, y, 10)
    sums, refused = confidence_bins(p, y, 10)
    assert refused == 0
    assert sums[0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 4]  # a confidence of 1 shares the last bin
    assert sums[3].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_equal_probabilities_the_first_is_predicted(dtype) -> None:
    rows = [[0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.4, 0.1], [0.5, 0.5, 0.0, 0.0], [0.2, 0.3, 0.2, 0.3]]
    p = torch.tensor(rows, dtype=dtype)
    for label, right in enumerate(([1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0])):
        y = torch.full((4,), label)
        agree(p, y, 15)
        assert float(confidence_bins(p, y, 15)[0][3].sum()) == sum(right)


REFUSED = {
    "NaN first": [float("nan"), 0.5],
    "NaN last": [1.0, float("nan")],
    "infinite": [float("inf"), 0.0],
    "minus infinity": [float("-inf"), 1.0],
    "below 0": [-0.001, 1.0],
    "above 1": [1.001, 0.0],
    "sum too small": [0.5, 0.45],
    "sum too large": [0.9, 0.15],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_is_no_distribution_enters_no_sum(name, dtype) -> None:
    p = torch.tensor([[0.2, 0.8], REFUSED[name], [0.7, 0.3]], dtype=dtype)
    y = torch.tensor([1, 0, 1])
    sums, refused = confidence_bins(p, y, 10)
    assert refused == 1
    assert_identical(sums, confidence_bins(p[[0, 2]], y[[0, 2]], 10)[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_refused_row_spoils_none_beside_it(dtype, weighted) -> None:
    # Rows are counted sixteen at a time: every place in two such blocks and in what is left over.
    p, y, weights = random_rows(37, 3, dtype)
    for place in range(37):
        bad, kept = p.clone(), torch.arange(37) != place
        bad[place, 1] = float("nan")
        sums, refused = confidence_bins(bad, y, 10, weights=weights if weighted else None)
        assert refused == 1
        agree(p[kept], y[kept], 10, weights[kept] if weighted else None)
        assert_identical(sums, confidence_bins(p[kept], y[kept], 10, weights=weights[kept] if weighted else None)[0])


@pytest.mark.parametrize("label", [-1, 2, -(2**40), 2**40])
def test_a_label_out_of_range_is_refused_and_reads_nothing(label) -> None:
    p = torch.tensor([[0.2, 0.8], [0.7, 0.3]])
    sums, refused = confidence_bins(p, torch.tensor([label, 0]), 10)
    assert refused == 1
    assert float(sums[0].sum()) == 1


def test_strided_rows_and_columns() -> None:
    p, y, weights = random_rows(200, 6, torch.float64)
    want = confidence_bins(p, y, 15, weights=weights)[0]
    wide = torch.zeros(200, 9, dtype=torch.float64)
    wide[:, :6] = p
    for view in (wide[:, :6], p.T.contiguous().T, p.repeat_interleave(2, 0)[::2]):
        assert not view.is_contiguous()
        assert_identical(confidence_bins(view, y, 15, weights=weights)[0], want)
    doubled = torch.stack((y, y), 1)[:, 0]
    assert_identical(confidence_bins(p, doubled, 15, weights=weights)[0], want)


P, Y = torch.tensor([[0.2, 0.8]]), torch.tensor([0])
BAD = [
    ((P.half(), Y, 5), {}, TypeError, "probabilities must be float32 or float64"),
    ((P[:, :0], Y, 5), {}, ValueError, "at least one column"),
    ((P, Y.int(), 5), {}, TypeError, "labels must be torch.int64"),
    ((P, torch.tensor([0, 1]), 5), {}, ValueError, "labels must have shape"),
    ((P, Y, 2.5), {}, TypeError, "n_bins must be a whole number, got 2.5"),
    ((P, Y, 5), {"weights": torch.tensor([1.0])}, TypeError, "weights must be torch.float64"),
]


@pytest.mark.parametrize(("arguments", "options", "error", "message"), BAD)
def test_bad_input_is_named(arguments, options, error, message) -> None:
    with pytest.raises(error, match=message):
        confidence_bins(*arguments, **options)
