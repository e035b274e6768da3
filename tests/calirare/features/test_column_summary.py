"""A summary of many columns is that of each by scipy's moments."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from calirare.features import numeric
from calirare.features.numeric import ColumnSummary
from calirare.features.raw_table import RawTable
from calirare.graph import default_names, number_columns


def reference(column):
    """The attributes of `ColumnSummary` of one column."""
    numbers = column[~np.isnan(column)]
    gone = len(column) - len(numbers)
    if not len(numbers):
        return (gone, *[np.nan] * 2, 0.0, 0.0, *[np.nan] * 5)
    low, high, median = numbers.min(), numbers.max(), np.median(numbers)
    moments = (stats.skew(numbers), stats.kurtosis(numbers)) if low < high else (0.0, -3.0)
    between = ((numbers > low) & (numbers < high)).sum()
    return gone, low, high, between, (numbers == median).mean(), median, numbers.mean(), numbers.std(), *moments


@pytest.mark.parametrize("n", [1, 2, 301])
def test_a_summary_of_many_columns_is_that_of_each(n, monkeypatch):
    rng = np.random.default_rng(n)
    x = np.exp(rng.normal(size=(n, 23)))
    x[:, 3], x[:, 4], x[:, 5] = 0.1, np.round(x[:, 4]), rng.random(n) < 0.3
    x[:, 6] = np.nan
    x[rng.random(n) < 0.5, 7] = np.nan
    x[: n // 2, 8], x[n // 2 :, 8] = np.nan, 2.5
    raw = torch.from_numpy(x.astype(np.float32))
    table = RawTable(raw, number_columns(default_names(23)), tuple(range(23)), {}, {})
    monkeypatch.setattr(numeric, "TOGETHER", 5 * n)  # five columns at a time
    found = ColumnSummary.of(table, [*range(20), 22])
    wanted = np.array([reference(raw.numpy().astype(np.float64)[:, j]) for j in [*range(20), 22]]).T
    for field, value in zip(dataclasses.fields(ColumnSummary), wanted, strict=True):
        np.testing.assert_allclose(getattr(found, field.name), value, rtol=1e-9, atol=1e-12, err_msg=field.name)
