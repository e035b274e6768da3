"""Ranks and their normal scores in a query: a search tree of CASEs, and a rational approximation.

The rank is the broken line of `features.numeric.Ranked`, which jumps where several quantiles are one number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.export.dialects import number
from calirare.features import ties

DIGITS = 13
# Wichura's algorithm AS 241 (Applied Statistics 37, 1988), PPND16: relative error about 1e-16. Its third region, below
# a probability of exp(-25), is not reached: the least rank of q quantiles is 1 / 2q, with q up to 1,000.
CENTRAL, SPLIT = 0.425, 1.6
NEAR = (
    (
        3.3871328727963666080,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
FAR = (
    (
        1.42343711074968357734,
        4.63033784615654529590,
        5.76949722146069140550,
        3.64784832476320460504,
        1.27045825245236838258,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187,
        1.67638483018380384940,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)


def rank_of(x: str, quantiles: NumpyArray) -> str:
    """Returns the rank of a column, in (0, 1), by the quantiles of its map.

    Args:
        x: the column.
        quantiles: rising, float64 [q].
    """
    bounds, leaves = line(quantiles)
    return _search(x, bounds, [_leaf(x, at, slope, value) for at, slope, value in leaves])


def line(quantiles: NumpyArray) -> tuple[list[float], list[tuple[float, float, float]]]:
    """Returns the bounds between the pieces of the line, rising, and of each piece a point, slope and value there."""
    groups, q = _together(quantiles), len(quantiles)
    taken = {float(value): (float(low), float(high)) for value, low, high in zip(*ties(quantiles), strict=True)}
    bounds, leaves = list[float](), [(0.0, 0.0, 0.5 / q)]

    def piece(start: float, at: float, slope: float, value: float) -> None:
        bounds.append(max([start, *bounds[-1:]]))
        leaves.append((at, slope, value))

    for i, (first, last) in enumerate(groups):
        at = float(quantiles[first])
        flat = last > first or i in (0, len(groups) - 1)
        after = at
        if flat:
            before, high = taken[at]
            after = float(np.nextafter(high, np.inf))
            piece(before, 0.0, 0.0, (0.5 * (first + last) + 0.5) / q)
        if i + 1 < len(groups):
            piece(after, at, 1 / (q * (float(quantiles[groups[i + 1][0]]) - at)), (last + 0.5) / q)
        else:
            piece(after, 0.0, 0.0, (q - 0.5) / q)
    return bounds, leaves


def _together(quantiles: NumpyArray) -> list[tuple[int, int]]:
    """Returns the first and last place of each run of equal quantiles."""
    starts = np.flatnonzero(np.r_[True, np.diff(quantiles) > 0])
    ends = np.r_[starts[1:], len(quantiles)] - 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


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
