"""Numbers and dates: kept, standardised, or brought to a normal distribution by their ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.features.raw_table import ColumnMap, RawTable
from calirare.graph import names_in_words

N_QUANTILES = 1000  # of a rank; scikit-learn's default
SAMPLE = 100_000  # nodes whose quantiles are taken, where there are more
ROUNDING = 2.0**-21  # relative, of means of float32 numbers: four units in the last place
Ties = tuple[NumpyArray, NumpyArray, NumpyArray]  # see `ties`


@dataclass(frozen=True, eq=False)
class Kept(ColumnMap):
    """Numbers as they are.

    Attributes:
        fill: takes the place of a missing value, float64 [d]; NaN where none may be missing.
    """

    kind: ClassVar[str] = "kept"
    fill: NumpyArray

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`.

        Raises:
            InputError: a value is missing where none may be.
        """
        for at, block in table.blocks(self.inputs):
            with np.errstate(invalid="ignore", over="ignore"):
                doubt = np.isnan(block.sum())  # a gap, or infinities of both signs
            if doubt:
                block = np.where(np.isnan(block), self.fill[at], block)
                left = np.flatnonzero(np.isnan(block).any(0))
                names = [table.columns[self.inputs[at][int(j)]].name for j in left]
                if names:
                    raise InputError(
                        f"features: {names_in_words(names)} must have a value for every node, as in the run's graph: "
                        "fill the empty cells, or train with --impute median"
                    )
            out[:, at] = self.scaled(block, at)

    def scaled(self, block: NumpyArray, at: slice) -> NumpyArray:
        """Returns the columns `at` of the inputs, float64 [n, b] without gaps, as the map makes them."""
        del at
        return block


@dataclass(frozen=True, eq=False)
class Standardized(Kept):
    """(x - mean) / spread.

    Attributes:
        mean: float64 [d].
        spread: standard deviations, float64 [d]; infinite where a column is constant.
    """

    kind: ClassVar[str] = "standardized"
    mean: NumpyArray
    spread: NumpyArray

    def scaled(self, block: NumpyArray, at: slice) -> NumpyArray:
        """Returns standardised columns."""
        away = block - self.mean[at]
        away /= self.spread[at]
        return away


@dataclass(frozen=True, eq=False)
class Logged(Kept):
    """sign(z) log(1 + |z|) with z = (x - centre) / spread, divided by `scale`.

    For columns that are mostly one number, the centre: ranks would tear that number's nodes away from the others by a
    distance that the numbers do not have.

    Attributes:
        centre: medians, float64 [d].
        spread: standard deviations, float64 [d].
        scale: standard deviations of the logarithms, float64 [d].
    """

    kind: ClassVar[str] = "logged"
    centre: NumpyArray
    spread: NumpyArray
    scale: NumpyArray

    def scaled(self, block: NumpyArray, at: slice) -> NumpyArray:
        """Returns signed logarithms."""
        return signed_log((block - self.centre[at]) / self.spread[at]) / self.scale[at]


@dataclass(frozen=True, eq=False)
class Ranked(Kept):
    """The normal quantile of a number's mean rank among those of the map's graph (van der Waerden's scores).

    scikit-learn's QuantileTransformer between the quantiles. At the ends it has no tie and no rank: the lowest and
    highest number go to -/+5.2, and so do all zeros of a column that is mostly zero. Here the ends are ranks as any
    others, (rank - 1/2) / n, and a number beyond them counts as the last one. Numbers that rounding moved off a number
    which many nodes share have its rank (`ties`).

    Attributes:
        quantiles: of each column, float64 [q, d], rising.
    """

    kind: ClassVar[str] = "ranked"
    quantiles: NumpyArray

    @cached_property
    def tied(self) -> list[Ties]:
        """The `ties` of each column, made once."""
        return [ties(quantiles) for quantiles in self.quantiles.T]

    def scaled(self, block: NumpyArray, at: slice) -> NumpyArray:
        """Returns normal scores; the mean of both ends of a run of equal quantiles, as scikit-learn has it."""
        from scipy.special import ndtri

        q, out = len(self.quantiles), np.empty_like(block)
        ranks = (np.arange(q) + 0.5) / q
        for j, (rising, tied) in enumerate(zip(self.quantiles.T[at], self.tied[at], strict=True)):
            column, (middles, low, high) = block[:, j], tied
            place = np.maximum(low.searchsorted(column, side="right") - 1, 0)
            among = (column >= low[place]) & (column <= high[place])
            out[:, j] = np.where(among, middles[place], np.interp(column, rising, ranks))
        return ndtri(out)


def rounding_of(quantiles: NumpyArray, share: float = ROUNDING) -> NumpyArray:
    """Returns how far rounding may move numbers of a column that are as large as these quantiles, float64 [q].

    A sum that cancels keeps the error of its terms, so that small numbers have that of the middle ones.
    """
    size = np.abs(quantiles)
    middle = float(np.median(size[size > 0])) if size.any() else 0.0
    rounding: NumpyArray = share * np.maximum(size, middle)
    return rounding


def ties(quantiles: NumpyArray) -> Ties:
    """Returns the middle ranks of quantiles at which a rank jumps, and from where to where a number has them.

    A mean of neighbours that many nodes share, such as 1/3, comes out as it or as a rounding beside it, by the order in
    which neighbours are added: as near as that, and nearer than to the next quantile, it is it.

    Args:
        quantiles: of a column, float64 [q], rising.

    Returns:
        Of the quantiles that several share, and of the ends: the ranks in (0, 1), the low and the high ends, [t] each.
    """
    values, first, counts = np.unique(quantiles, return_index=True, return_counts=True)
    gaps, rounding = np.diff(values, prepend=-np.inf, append=np.inf), rounding_of(quantiles)[first]
    low, high = (values + sign * np.minimum(rounding, 0.49 * gap) for sign, gap in ((-1, gaps[:-1]), (1, gaps[1:])))
    jumps = (counts > 1) | (values == values[0]) | (values == values[-1])
    middles = (first + 0.5 * counts) / len(quantiles)
    return middles[jumps], low[jumps], high[jumps]


def together(quantiles: NumpyArray, share: float = ROUNDING) -> NumpyArray:
    """Returns rising quantiles, float64 [q]; those that rounding of relative size `share` may have parted are one."""
    rounding = rounding_of(quantiles, share)
    first = np.flatnonzero(np.diff(quantiles, prepend=-np.inf) > np.append(-np.inf, rounding[:-1]))
    last = np.append(first[1:], len(quantiles)) - 1  # of chains whose steps rounding may have made
    short = quantiles[last] - quantiles[first] <= rounding[first]
    middles = np.where(short, 0.5 * (quantiles[first] + quantiles[last]), np.nan)
    out = np.repeat(middles, last - first + 1)
    for start, end in zip(first[~short], last[~short], strict=True):
        while start <= end:
            stop = int(np.searchsorted(quantiles[: end + 1], quantiles[start] + rounding[start], side="right"))
            out[start:stop] = 0.5 * (quantiles[start] + quantiles[stop - 1])
            start = stop
    return out


def signed_log(z: NumpyArray) -> NumpyArray:
    """Returns sign(z) log(1 + |z|)."""
    return np.sign(z) * np.log1p(np.abs(z))


def fit_logs(table: RawTable, inputs: Sequence[int], centre: NumpyArray, spread: NumpyArray) -> dict[str, NumpyArray]:
    """Returns the arrays of `Logged` for columns that vary, by their medians and standard deviations, float64 [d]."""
    scale = np.empty(len(inputs))
    for at, block in table.blocks(inputs):
        scale[at] = np.nanstd(signed_log((block - centre[at]) / spread[at]), axis=0)
    return {"centre": centre, "spread": spread, "scale": scale}


def fit_quantiles(table: RawTable, inputs: Sequence[int], seed: int = 0) -> NumpyArray:
    """Returns rising quantiles, float64 [q, len(inputs)], of a random sample of a large table; gaps have no rank."""
    from sklearn.utils import check_random_state

    n, q = table.n_nodes, min(N_QUANTILES, table.n_nodes)
    some = check_random_state(seed).permutation(n)[:SAMPLE] if n > SAMPLE else slice(None)
    quantiles = np.empty((q, len(inputs)))
    for at, block in table.blocks(inputs):
        for j, column in enumerate(block[some].T, at.start):
            rising = np.sort(column[~np.isnan(column)])
            quantiles[:, j] = together(np.interp(np.linspace(0, len(rising) - 1, q), np.arange(len(rising)), rising))
    return quantiles


YEAR = 365.2425  # days
PERIODS = {"time of day": 1.0, "day of week": 7.0, "day of year": YEAR}
# Steps in which a phase is told apart: a minute, a day, a day.
STEPS = {"time of day": 1440, "day of week": 7, "day of year": 365}


@dataclass(frozen=True, eq=False)
class Cyclic(ColumnMap):
    """Sine and cosine of a date's phases; 0, the middle of the circle, where it is missing.

    Attributes:
        cycles: which of `PERIODS`.
    """

    kind: ClassVar[str] = "cyclic"
    cycles: tuple[str, ...]

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`."""
        day = _days(table, self.inputs[0])
        for j, cycle in enumerate(self.cycles):
            angle = 2 * np.pi * _phase(day, cycle)
            out[:, 2 * j], out[:, 2 * j + 1] = np.nan_to_num(np.sin(angle)), np.nan_to_num(np.cos(angle))


def fit_cyclic(table: RawTable, i: int) -> Cyclic | None:
    """Returns the phases of a date that vary, of cycles that the dates go through more than once; None without any."""
    day, name = _days(table, i), table.columns[i].name
    day = day[~np.isnan(day)]
    span = float(day.max() - day.min()) if len(day) else 0.0
    cycles = tuple(
        cycle
        for cycle, period in PERIODS.items()
        if span > period and len(np.unique(np.floor(_phase(day, cycle) * STEPS[cycle]))) > 1
    )
    names = tuple(f"{name} {cycle} {part}" for cycle in cycles for part in ("sin", "cos"))
    return Cyclic((i,), names, cycles) if cycles else None


def _days(table: RawTable, i: int) -> NumpyArray:
    """Returns a date column as days since the start of the year 2000, float64 [n]."""
    return table.newest[i] - table.column(i)


def _phase(day: NumpyArray, cycle: str) -> NumpyArray:
    """Returns the share of a cycle that has passed, in [0, 1); of the week and the year in whole days."""
    whole = day if cycle == "time of day" else np.floor(day)
    return (whole / PERIODS[cycle]) % 1.0


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
