"""Calibration of the probability of one event: in bins of equal numbers, its mean, and the line of its log-odds."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import torch

from calirare._util.arrays import EQUAL, Array, as_scores, as_weights, check_count
from calirare._util.errors import NotConvergedError
from calirare.metrics.binning import N_BINS, binomial_interval, equal_mass_bins, equal_mass_statistics
from calirare.metrics.inputs import Scalar, read_event
from calirare.metrics.ranked import worth_of
from calirare.metrics.resampling import NoiseFloor


class InTheLarge(NamedTuple):
    """Calibration in the large: mean probability against what happened.

    Attributes:
        mean_p: mean probability.
        share: how often the event happened.
        ratio: mean_p / share; 1 is calibrated, above 1 the event is overestimated.
        lower: lower end of the ratio's interval, mean_p over the highest share that the count allows.
        upper: upper end of the ratio's interval.
        effect: design effect of groups, 1 without any: how many times its variance is that of independent samples.
    """

    mean_p: float
    share: float
    ratio: float
    lower: float
    upper: float
    effect: float = 1.0


def equal_mass_ece(y_true: Array, p: Array, n_bins: int = N_BINS, *, weights: Array | None = None) -> Scalar:
    """Calibration error of one event's probability in bins of equal numbers of samples.

    sum_m |B_m|/n |share(B_m) - mean p(B_m)|, as `ece` with other bins: a rare class's
    probabilities crowd near 0, where bins of equal width hold them all in one. Samples of one probability stay
    together, in the bin of their middle rank, so that neither their order nor the labels move a bin.

    `y_true` [n] is 1 where the event happened, `p` [n] its probability; the rest is as in `ece`. A weighted sample
    counts as so many, for bins too.
    """
    name = "equal_mass_ece"
    check_count(name, "n_bins", n_bins)
    data = read_event(name, y_true, p, weights)
    statistics = equal_mass_statistics(data.probabilities, data.labels, n_bins, data.weights)
    return data.result(statistics.error().mean())


def equal_mass_noise_floor(
    p: Array, n_bins: int = N_BINS, *, n_draws: int = 200, seed: int = 0, weights: Array | None = None
) -> NoiseFloor:
    """What `equal_mass_ece` reads when the probabilities are exactly right: y is drawn from Bernoulli(p).

    The same as `noise_floor(equal_mass_ece, p)`, with the samples binned once.

    Args:
        p: the event's probabilities, [n].
        n_bins: as for `equal_mass_ece`.
        n_draws: number of draws.
        seed: seed of the draws; the same seed gives the same floor on any device.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Mean and standard deviation over draws.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    name = "equal_mass_noise_floor"
    check_count(name, "n_bins", n_bins)
    check_count(name, "n_draws", n_draws)
    scores = as_scores(name, "p", p).detach().cpu().double()
    w = as_weights(name, weights, len(scores), scores.device)
    bins = equal_mass_bins(scores, n_bins, w).numpy()
    chance = scores.numpy()
    share = np.full(len(chance), 1 / len(chance)) if w is None else (w / w.sum()).numpy()
    rng = np.random.default_rng(seed)
    values = np.empty(n_draws)
    for draw in range(n_draws):
        happened = rng.random(len(chance)) >= 1 - chance
        values[draw] = np.abs(np.bincount(bins, weights=share * (happened - chance), minlength=n_bins)).sum()
    return NoiseFloor.of(values)


def calibration_in_the_large(
    y_true: Array, p: Array, *, level: float = 0.95, weights: Array | None = None, groups: np.ndarray | None = None
) -> InTheLarge:
    """Mean probability over observed frequency: is the event predicted as often as it happens?

    The interval holds the proportions that the observed count allows: that of Clopper and Pearson (1934), with Kish's
    effective number of samples where there are weights. It takes the samples as independent, or those of different
    groups: then their number is divided by the design effect (Kish 1965): the sum over groups of (sum of r)^2 over the
    sum of r^2, where r = y - c p, and c scales the probabilities to the observed number.

    Args:
        y_true: 1 where the event happened, else 0, [n]; one at least happened.
        p: its predicted probabilities, [n], in [0, 1].
        level: in (0, 1).
        weights: sample weights [n] >= 0, or None.
        groups: int64 [n, g]: g ways of grouping the samples, such as by card and by merchant; None: no groups.

    Returns:
        Mean probability, share, their ratio and the ratio's interval.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or the event never happened.

    Example:
        >>> calibration_in_the_large([1, 0, 0, 0], [0.8, 0.4, 0.4, 0.4]).ratio
        2.0
    """
    name = "calibration_in_the_large"
    if not 0 < level < 1:
        raise ValueError(f"{name}: level must lie in (0, 1), got {level}")
    data = read_event(name, y_true, p, weights).on_cpu()
    mean_p, share = float(data.mean(data.probabilities.double())), float(data.mean(data.labels.double()))
    if share == 0:
        raise ValueError(f"{name}: y_true must hold a 1, got zeros only: the ratio has no denominator")
    w, y = None if data.weights is None else data.weights.numpy(), data.labels.numpy()
    effect = 1.0 if groups is None else _design_effect(y, data.probabilities.double().numpy(), groups, w)
    size = worth_of(w, len(y)) / effect
    low, high = binomial_interval(np.array([share * size]), np.array([size]), level)
    upper = mean_p / float(low[0]) if low[0] > 0 else math.inf
    return InTheLarge(mean_p, share, mean_p / share, mean_p / float(high[0]), upper, effect)


def _design_effect(y: np.ndarray, p: np.ndarray, groups: np.ndarray, weights: np.ndarray | None) -> float:
    """Returns the largest design effect of the ways of grouping, at least 1."""
    w = np.ones(len(y)) if weights is None else weights
    predicted = float(w @ p)
    residual = w * (y - p * (float(w @ y) / predicted if predicted > 0 else 0.0))
    alone = float(residual @ residual)
    effects = [1.0]
    for each in groups.T:
        sums = np.bincount(np.unique(each, return_inverse=True)[1], weights=residual)
        effects.append(float(sums @ sums) / alone if alone > 0 else 1.0)
    return max(effects)


class CalibrationLine(NamedTuple):
    """logit P(y = 1) = intercept + slope * logit(p), fitted by maximum likelihood (Cox 1958).

    Attributes:
        slope: 1 is calibrated; below 1 the probabilities are too extreme, above 1 too timid.
        intercept: 0 is calibrated, if the slope is 1.
    """

    slope: float
    intercept: float


def calibration_line(y_true: Array, p: Array, *, weights: Array | None = None) -> CalibrationLine:
    """Calibration slope and intercept of one event's probabilities.

    Probabilities are kept a machine epsilon of their dtype away from 0 and 1; but those nearer to 0 count as they are,
    and 0 as the smallest of them. For one class of many or one label give its column and whether it is the true one.

    Args:
        y_true: 1 where the event happened, else 0, [n].
        p: its predicted probabilities, [n], in [0, 1].
        weights: sample weights [n] >= 0, or None.

    Returns:
        Slope and intercept, as floats.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the event always or never happens, all of `p` is equal, or it separates the
            outcomes so that no finite slope is the likeliest.
        NotConvergedError: Newton's method stops short, which only probabilities that all but separate the outcomes can
            bring about.
    """
    data = read_event("calibration_line", y_true, p, weights).on_cpu()
    eps, p = torch.finfo(data.probabilities.dtype).eps, data.probabilities.double()
    low = float(torch.where(p > 0, p, eps).min().clamp(max=eps))
    logit = torch.logit(p.clamp(low, 1 - eps))
    y = data.labels.double()
    counted = torch.ones_like(y).bool() if data.weights is None else data.weights > 0
    events, others = logit[counted & (y == 1)], logit[counted & (y == 0)]
    if not (events.numel() and others.numel() and 0 < float(data.mean(y)) < 1):  # tiny weights are lost to rounding
        raise ValueError("calibration_line: y_true must hold both 0 and 1 with positive weights, got one of them")
    if float(logit.max() - logit.min()) <= EQUAL * max(1.0, float(logit.abs().max())):
        raise ValueError("calibration_line: p must differ to have a slope, got equal ones")
    if bool(events.min() >= others.max()) or bool(others.min() >= events.max()):
        raise ValueError("calibration_line: p must overlap between outcomes, got probabilities that separate them")
    share = counted.double() / len(y) if data.weights is None else data.weights / data.weights.sum()
    return _line(logit.numpy(), y.numpy(), share.numpy())


def _line(logit: np.ndarray, y: np.ndarray, share: np.ndarray) -> CalibrationLine:
    """Returns slope and intercept, fitted in log-odds of mean 0 and size 1: close ones are nearly a constant."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    centre = share @ logit
    size = np.abs(logit - centre)[share > 0].max()
    model = LogisticRegression(C=math.inf, solver="newton-cholesky", tol=1e-12)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit((logit - centre)[:, None] / size, y, sample_weight=share)
    except ConvergenceWarning as error:
        raise NotConvergedError(
            f"calibration_line: Newton's method must reach the maximum, but {error}. Give more samples, whose scores "
            "overlap between the outcomes"
        ) from error
    slope = float(model.coef_[0, 0] / size)
    return CalibrationLine(slope, float(model.intercept_[0] - slope * centre))
