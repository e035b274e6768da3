"""What columns of numbers hold, by which their map is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features.raw_table import RawTable

# Rules of thumb: |skewness| above 1 is "highly skewed" (Bulmer, Principles of Statistics, 1979), and a Laplace
# distribution has excess kurtosis 3. Beyond either a few nodes make a standardised column alone.
SKEWED, HEAVY = 1.0, 3.0


@dataclass(frozen=True, eq=False)
class Looks:
    """What each of d columns of numbers holds, float64 [d], missing values aside.

    Attributes:
        missing: how many values are missing.
        low: least number; NaN where all are missing, and so below.
        high: greatest number.
        between: how many numbers are neither of the two.
        same: share of the numbers that are the median.
        median: of the numbers.
        mean: of the numbers.
        spread: standard deviation.
        skewness: third standardised moment; 0 for a constant column.
        excess: fourth standardised moment less 3; 0 for a constant column.
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
        rows = [_look(block[:, j]) for _, block in table.blocks(inputs) for j in range(block.shape[1])]
        numbers = np.array(rows, dtype=np.float64).reshape(len(inputs), len(fields(cls)))
        return cls(*numbers.T.copy())

    @property
    def constant(self) -> NumpyArray:
        """Whether all numbers are the same, or there are none; bool [d]."""
        return ~(self.high > self.low)

    @property
    def zero_one(self) -> NumpyArray:
        """Whether there are 0 and 1 alone; bool [d]."""
        return (self.low == 0) & (self.high == 1) & (self.between == 0)

    @property
    def mostly_one(self) -> NumpyArray:
        """Whether more than half of the numbers are one and the same; bool [d]."""
        return self.same > 0.5

    @property
    def long_tailed(self) -> NumpyArray:
        """Whether the distribution is skewed or heavy-tailed, and more than two points; bool [d]."""
        return (self.between > 0) & ((np.abs(self.skewness) > SKEWED) | (self.excess > HEAVY))


def _look(column: NumpyArray) -> tuple[float, ...]:
    """Returns the attributes of one column, float64 [n]."""
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
    same = (numbers == median).mean()
    return gone, low, high, between, same, median, mean, spread, third, fourth - 3.0
