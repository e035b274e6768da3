"""Whether all numbers of a matrix are finite, and whether they differ by more than rounding."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from calirare._util.arrays import all_finite, brief, differ
from calirare.graph import Split
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


@dataclass
class Thing:
    numbers: np.ndarray
    network: torch.nn.Module
    inner: object

    __repr__ = brief


def test_arrays_are_shapes_and_what_is_long_is_its_class() -> None:
    thing = Thing(np.zeros((2, 3)), torch.nn.Linear(2, 2), Thing(np.zeros(1, np.int32), torch.nn.ReLU(), "x" * 200))
    inner = "Thing(numbers=int32 [1], network=ReLU, inner=str(...))"
    assert repr(thing) == f"Thing(numbers=float64 [2, 3], network=Linear, inner={inner})"


def test_results_of_any_size_are_one_short_line() -> None:
    ids = torch.arange(30_000)
    change = torch.zeros(10_000, 1, 100)
    result = LooResult(change, change[:100, :, 0], torch.zeros(100, dtype=torch.float64), 5e-4)
    for value in (Split(train=ids[:10_000], val=ids[10_000:20_000], test=ids[20_000:]), result):
        assert len(repr(value)) < 250
        assert "\n" not in repr(value)
        assert "[10000" in repr(value)
