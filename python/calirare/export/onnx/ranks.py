"""Ranks and their normal scores: a search by halving, all columns at once, and a rational approximation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.export.onnx.sketch import DOUBLE, WHOLE, Value
from calirare.export.ranks import CENTRAL, FAR, NEAR, SPLIT, line


def ranks(x: Value, quantiles: NumpyArray) -> Value:
    """Returns the rank of each column, in (0, 1), by the quantiles of its map.

    Args:
        x: columns without gaps, float64 [n, d]; NaN stays NaN.
        quantiles: rising, float64 [q, d].
    """
    lines = [line(column) for column in quantiles.T]
    steps = max(len(bounds) for bounds, _ in lines).bit_length()
    size, sketch = 2**steps, x.sketch  # pieces of each column's line, the last one again and again
    bounds = np.array([[*found, *[np.inf] * (size - len(found))] for found, _ in lines])
    pieces = np.array([[*found, *[found[-1]] * (size - len(found))] for _, found in lines])  # [d, size, 3]
    first = size * np.arange(len(lines))
    table, half = sketch.constant(bounds.ravel()), size // 2
    place = (x >= bounds[:, half - 1]).cast(WHOLE) * half
    while half := half // 2:
        place = place + (x >= table.at(place + (first + half - 1))).cast(WHOLE) * half
    place = place + first
    at, slope, value = (sketch.constant(pieces[:, :, i].ravel()).at(place) for i in range(3))
    return value + slope * (x - at)


def normal_scores(p: Value) -> Value:
    """Returns the normal quantiles of ranks, float64."""
    assert p.dtype == DOUBLE
    away, sketch = p - 0.5, p.sketch
    near = away * _ratio(NEAR, 0.180625 - away * away)
    tail = (-sketch.op("Min", p, 1.0 - p).apply("Log")).apply("Sqrt") - SPLIT
    central = p.sketch.constant(np.array(CENTRAL)) >= away.apply("Abs")
    return central.choose(near, away.apply("Sign") * _ratio(FAR, tail))


def _ratio(both: Sequence[Sequence[float]], r: Value) -> Value:
    above, below = (_horner(coefficients, r) for coefficients in both)
    return above / below


def _horner(coefficients: Sequence[float], r: Value) -> Value:
    out = r * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        out = out * r + c
    return out
