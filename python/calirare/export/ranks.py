"""Ranks and their normal scores: the pieces of a broken line, and a rational approximation.

The rank is the broken line of `features.numeric.Ranked`, which jumps where several quantiles are one number.
"""

from __future__ import annotations

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features import ties

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
