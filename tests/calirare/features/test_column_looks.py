"""What many columns of numbers hold is what each alone holds, to the bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from calirare.features import column_looks
from calirare.features.fitting import Looks
from calirare.features.raw_table import RawTable
from calirare.graph import default_names, number_columns


def one_by_one(column):
    """The attributes of `Looks` of a column as they were taken one by one."""
    numbers = column[~np.isnan(column)]
    gone = float(len(column) - len(numbers))
    if not len(numbers):
        return (gone, *[np.nan] * 2, 0.0, 0.0, *[np.nan] * 3, 0.0, 0.0)
    low, high = float(numbers.min()), float(numbers.max())
    between = float(((numbers > low) & (numbers < high)).sum())
    if low == high:
        return gone, low, high, between, 1.0, low, low, 0.0, 0.0, 0.0
    mean, spread = float(numbers.mean()), float(numbers.std())
    scores = (numbers - mean) / spread
    square = scores * scores
    third, fourth = float((square * scores).mean()), float((square * square).mean())
    median = float(np.median(numbers))
    return gone, low, high, between, (numbers == median).mean(), median, mean, spread, third, fourth - 3.0


@pytest.mark.parametrize("n", [1, 2, 301])
def test_columns_together_hold_what_each_alone_does(n, monkeypatch):
    rng = np.random.default_rng(n)
    x = np.exp(rng.normal(size=(n, 23)))
    x[:, 3], x[:, 4], x[:, 5] = 0.1, np.round(x[:, 4]), rng.random(n) < 0.3
    x[:, 6] = np.nan
    x[rng.random(n) < 0.5, 7] = np.nan
    x[: n // 2, 8], x[n // 2 :, 8] = np.nan, 2.5
    raw = torch.from_numpy(x.astype(np.float32))
    table = RawTable(raw, number_columns(default_names(23)), tuple(range(23)), {}, {})
    monkeypatch.setattr(column_looks, "TOGETHER", 5 * n)  # five columns at a time
    found = Looks.of(table, [*range(20), 22])
    wanted = np.array([one_by_one(raw.numpy().astype(np.float64)[:, j]) for j in [*range(20), 22]]).T
    for field, value in zip(dataclasses.fields(Looks), wanted, strict=True):
        np.testing.assert_array_equal(getattr(found, field.name), value, err_msg=field.name)
