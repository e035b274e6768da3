"""What columns of numbers hold, many at a time: the numbers of `calirare.features.fitting.Looks`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features.raw_table import RawTable

N_LOOKS = 10  # numbers of a column
TOGETHER = 1 << 18  # numbers looked at together, 2 MiB: what is made of them stays in the cache


def looks(table: RawTable, inputs: Sequence[int]) -> NumpyArray:
    """Returns what columns of a table hold, float64 [d, 10]; a row as the attributes of `Looks`.

    Args:
        table: the raw columns.
        inputs: which of them, d.
    """
    out, width = np.empty((len(inputs), N_LOOKS)), max(1, TOGETHER // max(table.n_nodes, 1))
    for at, block in table.blocks(inputs):
        for first in range(0, block.shape[1], width):
            rows = np.ascontiguousarray(block[:, first : first + width].T)
            out[at.start + first : at.start + first + len(rows)] = _of_rows(rows)
    return out


def _of_rows(rows: NumpyArray) -> NumpyArray:
    """Returns the same of columns, float64 [b, n], contiguous."""
    gaps = np.isnan(rows).any(1) | (rows.shape[1] == 0)
    out = np.empty((len(rows), N_LOOKS))
    out[~gaps] = _without_gaps(rows[~gaps] if gaps.any() else rows)
    for i in np.flatnonzero(gaps):
        out[i] = _with_gaps(rows[i])
    return out


def _with_gaps(row: NumpyArray) -> NumpyArray:
    """Returns the same of one column, float64 [n], of which values are missing."""
    numbers = row[~np.isnan(row)]
    gone = float(len(row) - len(numbers))
    if not len(numbers):
        return np.array((gone, *[np.nan] * 2, 0.0, 0.0, *[np.nan] * 3, 0.0, 0.0))
    out = _without_gaps(numbers[None])[0]
    out[0] = gone
    return out


def _without_gaps(rows: NumpyArray) -> NumpyArray:
    """Returns the same of columns, float64 [b, n > 0], contiguous: sums are those of each column alone, to the bit."""
    low, high = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
    between = ((rows > low) & (rows < high)).sum(1)
    constant = low[:, 0] == high[:, 0]
    mean, spread = rows.mean(1, keepdims=True), np.where(constant[:, None], 1.0, rows.std(1, keepdims=True))
    scores = (rows - mean) / spread
    square = scores * scores
    third, fourth = (square * scores).mean(1), (square * square).mean(1)
    median = np.median(rows, axis=1, keepdims=True)
    same = (rows == median).mean(1)
    parts = (between, same, median[:, 0], mean[:, 0], spread[:, 0], third, fourth - 3.0)
    out = np.stack((np.zeros(len(rows)), low[:, 0], high[:, 0], *parts), 1)
    first = low[constant, 0]
    nothing = np.zeros_like(first)
    out[constant, 4:] = np.stack((nothing + 1, first, first, nothing, nothing, nothing), 1)
    return out
