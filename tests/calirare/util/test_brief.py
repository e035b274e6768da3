from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from calirare._util.arrays import brief
from calirare.graph import Split
from calirare.leave_one_out import LooResult


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
