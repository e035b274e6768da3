"""Numbers: kept, standardised, or brought to a normal distribution by their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.features.column_map import ColumnMap
from calirare.features.raw_table import RawTable
from calirare.graph import named

N_QUANTILES = 1000  # of a rank; scikit-learn's default
SAMPLE = 100_000  # nodes whose quantiles are taken, where there are more
BEYOND = 2 * float(np.finfo(np.float32).max)  # no number of a table reaches it


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
            gaps = np.isnan(block)
            if gaps.any():
                block = np.where(gaps, self.fill[at], block)
                self._check(table, at, block)
            out[:, at] = self.scaled(block, at)

    def _check(self, table: RawTable, at: slice, block: NumpyArray) -> None:
        left = np.flatnonzero(np.isnan(block).any(0))
        if len(left):
            names = [table.columns[self.inputs[at][int(j)]].name for j in left]
            raise InputError(
                f"features: {named(names)} must have a value for every node, as in the run's graph: fill the empty "
                "cells, or train with --impute median"
            )

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
        return (block - self.mean[at]) / self.spread[at]


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
    others, (rank - 1/2) / n, and a number beyond them counts as the last one.

    Attributes:
        quantiles: of each column, float64 [q, d], rising.
    """

    kind: ClassVar[str] = "ranked"
    quantiles: NumpyArray

    def scaled(self, block: NumpyArray, at: slice) -> NumpyArray:
        """Returns normal scores; the mean of both ends of a run of equal quantiles, as scikit-learn has it."""
        from scipy.special import ndtri

        q, out = len(self.quantiles), np.empty_like(block)
        ranks = (np.arange(q) + 0.5) / q
        for j, quantiles in enumerate(self.quantiles[:, at].T):
            column = block[:, j]
            last = np.interp(column, quantiles, ranks)
            out[:, j] = ndtri(0.5 * (last - np.interp(-column, -quantiles[::-1], -ranks[::-1])))
        return out


def signed_log(z: NumpyArray) -> NumpyArray:
    """Returns sign(z) log(1 + |z|)."""
    return np.sign(z) * np.log1p(np.abs(z))


def fit_logs(table: RawTable, inputs: Sequence[int], centre: NumpyArray, spread: NumpyArray) -> dict[str, NumpyArray]:
    """Returns the arrays of `Logged` for columns of a table that vary.

    Args:
        table: the raw columns.
        inputs: which of them.
        centre: their medians, float64 [d].
        spread: their standard deviations, float64 [d].
    """
    scale = np.empty(len(inputs))
    for at, block in table.blocks(inputs):
        scale[at] = np.nanstd(signed_log((block - centre[at]) / spread[at]), axis=0)
    return {"centre": centre, "spread": spread, "scale": scale}


def fit_quantiles(table: RawTable, inputs: Sequence[int], seed: int = 0) -> NumpyArray:
    """Returns the quantiles of columns, of a random sample of a large table; missing values have no rank.

    Args:
        table: the raw columns.
        inputs: which of them.
        seed: of the sample.

    Returns:
        Float64 [q, len(inputs)], rising; q is 1,000 or the number of nodes.
    """
    from sklearn.preprocessing import QuantileTransformer

    q = min(N_QUANTILES, table.n_nodes)
    quantiles = np.empty((q, len(inputs)))
    for at, block in table.blocks(inputs):
        sample = max(q, min(SAMPLE, table.n_nodes))
        quantiles[:, at] = QuantileTransformer(n_quantiles=q, subsample=sample, random_state=seed).fit(block).quantiles_
    return quantiles
