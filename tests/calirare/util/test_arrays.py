"""Whether all numbers of a matrix are finite, and whether they differ by more than rounding; caches have a bound."""

import math

import numpy as np
import pytest
import torch

from calirare._util.arrays import all_finite, describe, differ
from calirare.calibration import prior_platt
from calirare.graph import Split, columns
from calirare.leave_one_out import LooResult

WHOLE = {
    "none": torch.empty(0, 3),
    "some": torch.tensor([[1.0, -2.0], [0.0, 5.0]]),
    "of a sum too large for float32": torch.full((4, 2), 3e38),
    "of sums too large either way": torch.tensor([3e38, 3e38, -3e38, -3e38]),
}
BROKEN = {
    "NaN": [1.0, math.nan],
    "infinite": [1.0, math.inf],
    "infinite both ways": [math.inf, -math.inf],
    "minus infinite": [-math.inf, 3e38],
}


@pytest.mark.parametrize("numbers", WHOLE.values(), ids=list(WHOLE))
def test_finite_numbers_are_finite(numbers):
    assert all_finite(numbers)


@pytest.mark.parametrize("numbers", BROKEN.values(), ids=list(BROKEN))
def test_one_that_is_not_is_found(numbers):
    assert not all_finite(torch.tensor([numbers, [0.0, 0.0]]))


def test_numbers_that_differ_by_rounding_alone_are_equal():
    rows = np.array([[0.1 + 0.2, 0.3, 0.3], [0.0, 0.0, 0.0], [1e9, 1e9 + 1, 1e9], [0.0, 1e-30, 0.0]])
    assert differ(rows, 1).tolist() == [False, False, True, True]
    assert not differ(rows[0])
    assert differ(rows)


def test_results_of_any_size_are_one_short_line() -> None:
    assert describe(torch.nn.Linear(2, 2)) == "Linear"
    ids = torch.arange(30_000)
    change = torch.zeros(10_000, 1, 100)
    result = LooResult(change, change[:100, :, 0], torch.zeros(100, dtype=torch.float64), 5e-4)
    for value in (Split(train=ids[:10_000], val=ids[10_000:20_000], test=ids[20_000:]), result):
        assert len(repr(value)) < 250
        assert "\n" not in repr(value)
        assert "[10000" in repr(value)


@pytest.mark.parametrize("remembers", [columns.default_names, columns.number_columns, prior_platt._log_ratios])
def test_caches_of_data_have_a_bound(remembers):
    assert remembers.cache_parameters()["maxsize"] is not None
