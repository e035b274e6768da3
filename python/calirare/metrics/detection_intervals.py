"""Intervals of shares whose spread is known from resamples, made for few samples of a class."""

from __future__ import annotations

import numpy as np

from calirare.metrics.binning import binomial_interval


def worth_of(weights: np.ndarray | None, n: int) -> float:
    """Returns how many samples of equal weight the weights [n] >= 0 are worth (Kish); n without any.

    One weight at least must be above zero.
    """
    if weights is None:
        return float(n)
    scaled = np.ldexp(weights, -np.frexp(weights.max())[1])  # by a power of two, exactly: 1e-200 has no square
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def share_interval(value: float, draws: np.ndarray, level: float, n: float, trials: float) -> tuple[float, float]:
    """Returns the ends of a share's interval: Student's on the scale of log-odds, with the spread of resamples.

    logit(v) -/+ t sqrt(n / (n - 1)) sd / (v (1 - v)), with t of n - 1 degrees of freedom. Percentiles of resamples are
    too narrow where few samples decide and the measure is skewed: of AUROC .9 from ten positives, intervals of 95 %
    held the truth in 79 % of 400 simulated data sets by percentiles and in 90 % so. Where the share is 0 or 1 its
    log-odds say nothing: then the wider of the resamples' range and the binomial interval of `trials`.

    Args:
        value: v, in [0, 1].
        draws: v of each resample, float64 [b].
        level: in (0, 1).
        n: samples that decide, > 0, the rarer side's; with one the interval is all of [0, 1].
        trials: samples the share is a share of, > 0.
    """
    from scipy.special import expit, logit, stdtrit

    if n <= 1:
        return 0.0, 1.0
    if not 0 < value < 1:
        low, high = (float(end[0]) for end in binomial_interval(np.array([value * trials]), np.array([trials]), level))
        return min(low, float(draws.min())), max(high, float(draws.max()))
    spread = float(np.std(draws)) * np.sqrt(n / (n - 1)) / (value * (1 - value))
    reach = -float(stdtrit(n - 1, (1 - level) / 2)) * spread
    return float(expit(logit(value) - reach)), float(expit(logit(value) + reach))


def expanded_tails(level: float, n: float) -> tuple[float, float]:
    """Returns the two quantiles of resampled values between which an interval of some level lies.

    Percentiles of resamples are too narrow where few samples decide: their spread is that of n draws about a mean of n.
    Hesterberg (2015, "What teachers should know about the bootstrap", section 5) widens the tails to
    Phi(-sqrt(n / (n - 1)) t), with t the quantile of Student's distribution with n - 1 degrees of freedom.

    Args:
        level: in (0, 1).
        n: samples that decide, here the positives; with one the tails are 0 and 1.
    """
    from scipy.special import ndtr, stdtrit

    tail = 0.0 if n <= 1 else float(ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - level) / 2)))
    return tail, 1 - tail
