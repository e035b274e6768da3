"""What columns of numbers hold, many at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features.raw_table import RawTable

TOGETHER = 1 << 18  # numbers read together, 2 MiB: what is made of them stays in the cache

# Rules of thumb: |skewness| above 1 is "highly skewed" (Bulmer, Principles of Statistics, 1979), and a Laplace
# distribution has excess kurtosis 3. Beyond either, a few nodes dominate a standardised column.
SKEWED, HEAVY = 1.0, 3.0


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """What each of d columns of numbers holds, float64 [d], missing values aside.

    Attributes:
        missing: how many values are missing.
        low: least number; NaN where all are missing, and so below.
        high: greatest number.
        between: how many numbers are neither of the two.
        same: proportion of the numbers that are the median.
        median: of the numbers.
        mean: of the numbers.
        spread: standard deviation.
        skewness: third standardised moment; 0 for a constant column.
        excess: fourth standardised moment less 3; negative for a constant column.
    """

    missing: NumpyArray
    low: NumpyArray
    high: NumpyArray
    between: NumpyArray
    same: NumpyArray
    median: NumpyArray
    mean: NumpyArray
    spread: NumpyArray
    skewness: NumpyArray
    excess: NumpyArray

    @classmethod
    def of(cls, table: RawTable, inputs: Sequence[int]) -> Self:
        """Returns what columns of a table hold."""
        parts, width = [np.empty((10, 0))], max(1, TOGETHER // max(table.n_nodes, 1))
        for _, block in table.blocks(inputs):
            for first in range(0, block.shape[1], width):
                parts.append(_summarise(np.ascontiguousarray(block[:, first : first + width].T)))
        return cls(*np.concatenate(parts, axis=1))

    @property
    def constant(self) -> NumpyArray:
        """Whether all numbers are the same, or there are none; bool [d]."""
        return ~(self.high > self.low)

    @property
    def zero_one(self) -> NumpyArray:
        """Whether every number is 0 or 1, and both occur; bool [d]."""
        return (self.low == 0) & (self.high == 1) & (self.between == 0)

    @property
    def mostly_one(self) -> NumpyArray:
        """Whether more than half of the numbers are one and the same; bool [d]."""
        return self.same > 0.5

    @property
    def long_tailed(self) -> NumpyArray:
        """Whether the distribution is skewed or heavy-tailed, and more than two points; bool [d]."""
        return (self.between > 0) & ((np.abs(self.skewness) > SKEWED) | (self.excess > HEAVY))


def _summarise(rows: NumpyArray) -> NumpyArray:
    """Returns the attributes of `ColumnSummary` of columns, float64 [b, n], as float64 [10, b]."""
    missing = np.isnan(rows).sum(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns without a number
        low, high, median = np.nanmin(rows, 1), np.nanmax(rows, 1), np.nanmedian(rows, 1)
        constant = low == high
        mean = np.where(constant, low, np.nanmean(rows, 1))
        spread = np.where(constant, 0.0, np.nanstd(rows, 1))
        scores = (rows - mean[:, None]) / np.where(constant, 1.0, spread)[:, None]
        square = scores * scores
        third, fourth = np.nanmean(square * scores, 1), np.nanmean(square * square, 1)
    between = ((rows > low[:, None]) & (rows < high[:, None])).sum(1)
    same = (rows == median[:, None]).sum(1) / np.maximum(rows.shape[1] - missing, 1)
    return np.stack((missing, low, high, between, same, median, mean, spread, third, fourth - 3.0))
