"""Ranks and their normal scores in a query: a search tree of CASEs, and a rational approximation."""

from __future__ import annotations

from collections.abc import Sequence

from calirare._util.array_files import NumpyArray
from calirare.export.ranks import CENTRAL, FAR, NEAR, SPLIT, line
from calirare.export.sql.arrays import searched
from calirare.export.sql.dialects import number

DIGITS = 13


def rank_of(x: str, quantiles: NumpyArray, *, arrays: bool = False) -> str:
    """Returns the rank of a column, in (0, 1), by the quantiles of its map.

    Args:
        x: the column.
        quantiles: rising, float64 [q].
        arrays: whether they are searched in arrays.
    """
    bounds, leaves = line(quantiles)
    if arrays:
        return searched(x, bounds, leaves)
    return _search(x, bounds, [_leaf(x, at, slope, value) for at, slope, value in leaves])


def _leaf(x: str, at: float, slope: float, value: float) -> str:
    if slope == 0:
        return number(value, DIGITS)
    return f"{number(value, DIGITS)} + {number(slope, DIGITS)} * ({x} - {number(at)})"


def _search(x: str, bounds: Sequence[float], leaves: Sequence[str]) -> str:
    """Returns the leaf of a number by halving: leaves lie between the bounds."""
    if not bounds:
        return leaves[0]
    half = len(bounds) // 2
    below, above = (
        _search(x, bounds[:half], leaves[: half + 1]),
        _search(x, bounds[half + 1 :], leaves[half + 1 :]),
    )
    return f"CASE WHEN {x} < {number(bounds[half])} THEN {below} ELSE {above} END"


def reduced(p: str, low: str) -> str:
    """Returns the variable of the approximation for a rank p; `low` is the engine's least of two."""
    tail = f"SQRT(-LN({low}({p}, 1 - {p}))) - {SPLIT}"
    return f"CASE WHEN ABS({p} - 0.5e0) <= {CENTRAL} THEN 0.180625e0 - ({p} - 0.5e0) * ({p} - 0.5e0) ELSE {tail} END"


def normal_score(p: str, r: str) -> str:
    """Returns the normal quantile of a rank p, r being its `reduced`."""
    near, far = (f"({_horner(above, r)}) / ({_horner(below, r)})" for above, below in (NEAR, FAR))
    return (
        f"CASE WHEN ABS({p} - 0.5e0) <= {CENTRAL} THEN ({p} - 0.5e0) * {near} "
        f"WHEN {p} < 0.5e0 THEN -({far}) ELSE {far} END"
    )


def _horner(coefficients: Sequence[float], r: str) -> str:
    out = number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = f"({out} * {r} + {number(c)})"
    return out
