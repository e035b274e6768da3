"""Calibration in the large: how many times the observed share the mean probability is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calirare._util.arrays import Array
from calirare.metrics.inputs import read_event

NUMBERS = ("factor", "low", "high", "mean", "share", "events")  # of a check
TRUSTED = (0.67, 1.5)  # a mean probability within these factors of the truth may be called right
TINY = 1e-15
FARTHEST = 80.0  # shift of log-odds beyond which every probability is 0 or 1


class PopulationCheck(NamedTuple):
    """Mean probability over the observed share, with an interval.

    Attributes:
        factor: mean probability over observed share; infinite where the event never happened.
        low: lower end of the interval.
        high: upper end, infinite where the event never happened.
        mean: weighted mean probability.
        share: weighted share of the event.
        events: how many labels have the event.
    """

    factor: float
    low: float
    high: float
    mean: float
    share: float
    events: int

    def numbers(self) -> dict[str, float]:
        """Returns what was counted."""
        return {name: getattr(self, name) for name in NUMBERS}

    @property
    def trusted(self) -> bool:
        """Whether the whole interval lies within `TRUSTED`, which few events cannot reach."""
        return TRUSTED[0] <= self.low and self.high <= TRUSTED[1]

    @property
    def wrong(self) -> bool:
        """Whether the interval leaves 1 out: the probabilities are too high or too low on the whole."""
        return not self.low <= 1 <= self.high

    @property
    def verdict(self) -> str:
        """How far probabilities may be trusted on the whole: "trust", "caution" or "do not trust"."""
        return "trust" if self.trusted else "do not trust" if self.wrong else "caution"

    @property
    def sentence(self) -> str:
        """What a user should know."""
        factor, low, high = map(_shown, (self.factor, self.low, self.high))
        times = f"the predicted rate is {factor} times the observed rate ({low} to {high})"
        if self.wrong and not self.trusted:
            side = "too high" if self.low > 1 else "too low"
            return f"{times}, {side}: not to be read as a probability"
        if self.trusted:
            return f"{times}: calibrated on average if the labels are a random sample"
        labels = f"{self.events} rare label{'s' if self.events != 1 else ''}"
        return f"{times}: {labels} cannot show whether it is calibrated"


def population_check(
    y_true: Array, p: Array, *, weights: Array | None = None, coverage: float = 0.95
) -> PopulationCheck:
    """Mean probability of an event over the share of samples in which it happened.

    The interval inverts a test: all shifts d of the log-odds at which the number of events is not in a tail of
    (1 - coverage) / 2, where events are independent with probabilities sigmoid(logit(p) + d). Their number is taken as
    binomial with the right mean and variance, so few events are treated exactly and sharp probabilities as the
    information they are. With weights, mean and variance are those of the weighted sum, in units of variance over mean.

    Give labels outside the training set. A calibrator fitted with a free bias on these same labels has factor 1 by
    construction: then only the interval is informative: how much the labels leave open.

    Args:
        y_true: 1 where the event happened, else 0, [n].
        p: its predicted probabilities, [n], in [0, 1].
        weights: sample weights [n] >= 0, such as inverse sampling rates, or None.
        coverage: of the interval, in (0, 1).

    Returns:
        The factor and its interval.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"population_check: coverage must be in (0, 1), got {coverage}")
    data = read_event("population_check", y_true, p, weights)
    given = data.probabilities.detach().double().cpu().numpy()
    y = data.labels.cpu().numpy().astype(np.float64)
    w = np.ones_like(y) if data.weights is None else data.weights.double().cpu().numpy()
    w = w / w.sum()
    mean, share = float(w @ given), float(w @ y)
    counts = w > 0
    low, high = _ends(given[counts], y[counts], w[counts], (1 - coverage) / 2)
    factor = mean / share if share > 0 else math.inf
    return PopulationCheck(factor, min(low, factor), max(high, factor), mean, share, int(y.sum()))


def _ends(given: np.ndarray, y: np.ndarray, w: np.ndarray, tail: float) -> tuple[float, float]:
    """Returns the factors at the two ends; `w` sums to 1."""
    from scipy.special import betainc, expit

    inside = given.clip(TINY, 1 - TINY)
    logit = np.log(inside) - np.log1p(-inside)

    def tails(shift: float) -> tuple[float, float, float]:
        """Returns the mean, P(at most as many events) and P(at least as many) at a shift."""
        q, rest = expit(logit + shift), expit(-logit - shift)
        mean, unit = w @ q, (w**2 @ (q * rest)) / (w @ (q * rest))
        p, not_p = (w @ q**2) / mean, (w @ (q * rest)) / mean
        trials = mean / (p * unit)
        seen = (w @ y) / unit
        most = 1.0 if seen >= trials else betainc(trials - seen, seen + 1, not_p)
        # More events than trials are no commoner than all of the trials; were they counted as just these, they would be
        # common again where one sample keeps its p however far the others are shifted.
        least = 0.0 if seen >= trials + 1 else betainc(seen, max(trials - seen, 0.0) + 1, p)
        return mean, most, 1.0 if seen <= 0 else least

    total = w @ given
    few, many = not y.any(), y.all()
    up = FARTHEST if many else _crossing(lambda shift: tails(shift)[1] - tail)
    down = -FARTHEST if few else _crossing(lambda shift: tails(shift)[2] - tail)
    return float(total / tails(up)[0]), math.inf if few else float(total / tails(down)[0])


def _crossing(gap: Callable[[float], float]) -> float:
    """Returns the shift at which a gap is none; the end nearest to it where weights leave all but one sample out."""
    from scipy.optimize import brentq

    ends = gap(-FARTHEST), gap(FARTHEST)
    if min(ends) < 0 < max(ends):
        return float(brentq(gap, -FARTHEST, FARTHEST))
    return FARTHEST if abs(ends[1]) < abs(ends[0]) else -FARTHEST


def _shown(factor: float) -> str:
    return f"{factor:#.2g}" if factor < 9.95 else f"{factor:.0f}"
