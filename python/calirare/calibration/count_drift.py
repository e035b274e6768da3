"""How far the number of nodes to expect drifts from one period to the next, by labels in order of time."""

from __future__ import annotations

import numpy as np

from calirare._util.array_files import NumpyArray

PERIODS, FEWEST = 6, 50  # spans of time with as many labels each, and labels in one
STEPS = np.array([0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7])  # standard deviations of a step, equally likely
LEVEL = 0.25  # standard deviation of the first level, which calibration puts near 0


def period_spans(n: int) -> list[NumpyArray]:
    """Returns the places of n labels in order of time, period by period."""
    return np.array_split(np.arange(n), min(PERIODS, max(n // FEWEST, 1)))


def next_period(expected: NumpyArray, observed: NumpyArray) -> tuple[float, float]:
    """Returns mean and standard deviation of the next period's log of observed over expected nodes.

    Its level walks at random (local level model, Harvey 1989): the level of a period is that of the one before plus a
    normal step, and a period's ratio is its level plus the noise of its count. The standard deviation of the step is
    averaged over its posterior on `STEPS`.

    Args:
        expected: sum of the probabilities of the labels in each period, the oldest first, >= 0, [t].
        observed: their nodes of the class, [t].
    """
    level, spread, fit = (np.full(len(STEPS), start) for start in (0.0, LEVEL**2, 0.0))
    ratios = np.log((observed + 0.5) / (expected + 0.5))
    for ratio, noise in zip(ratios, 1 / (observed + 0.5), strict=True):
        spread = spread + STEPS**2
        total = spread + noise
        fit -= (np.log(total) + (ratio - level) ** 2 / total) / 2
        level = level + spread / total * (ratio - level)
        spread = spread * noise / total
    weight = np.exp(fit - fit.max())
    weight /= weight.sum()
    mean = float(weight @ level)
    return mean, float(np.sqrt(weight @ (spread + STEPS**2 + (level - mean) ** 2)))
