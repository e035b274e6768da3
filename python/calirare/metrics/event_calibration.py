"""Is the probability of one event right: in bins of equal numbers, and on the whole."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calirare._util.arrays import Array, as_scores, as_weights, check_count
from calirare.metrics.binning import binomial_interval, equal_mass_bins, equal_mass_statistics
from calirare.metrics.inputs import Scalar, check_norm, read_event
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
    """

    mean_p: float
    share: float
    ratio: float
    lower: float
    upper: float


def equal_mass_ece(
    y_true: Array, p: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None
) -> Scalar:
    """Calibration error of one event's probability in bins of equal numbers of samples.

    (sum_m |B_m|/n |share(B_m) - mean p(B_m)|^p)^(1/p), as `calibration_error` with other bins: a rare class's
    probabilities crowd near 0, where bins of equal width hold them all in one. Samples of one probability stay
    together, in the bin of their middle rank, so that neither their order nor the labels move a bin.

    `y_true` [n] is 1 where the event happened, `p` [n] its probability; the rest is as in `ece`. A weighted sample
    counts as so many, for bins too.
    """
    name = "equal_mass_ece"
    check_count(name, "n_bins", n_bins)
    check_norm(name, norm)
    data = read_event(name, y_true, p, weights)
    statistics = equal_mass_statistics(data.probabilities, data.labels, n_bins, data.weights)
    return data.result(statistics.error(norm).mean())


def equal_mass_noise_floor(
    p: Array, n_bins: int = 15, *, n_draws: int = 200, seed: int = 0, weights: Array | None = None
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
    return NoiseFloor(float(values.mean()), float(values.std(ddof=1)) if n_draws > 1 else 0.0)


def calibration_in_the_large(
    y_true: Array, p: Array, *, level: float = 0.95, weights: Array | None = None
) -> InTheLarge:
    """Mean probability over observed share: is the event predicted as often as it happens?

    The interval asks which shares of the population the observed count allows: that of Clopper and Pearson (1934), with
    Kish's effective number of samples where there are weights. It takes the samples as independent.

    Args:
        y_true: 1 where the event happened, else 0, [n]; one at least happened.
        p: its predicted probabilities, [n], in [0, 1].
        level: in (0, 1).
        weights: sample weights [n] >= 0, or None.

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
    size = worth_of(None if data.weights is None else data.weights.numpy(), len(data.labels))
    low, high = binomial_interval(np.array([share * size]), np.array([size]), level)
    upper = mean_p / float(low[0]) if low[0] > 0 else math.inf
    return InTheLarge(mean_p, share, mean_p / share, mean_p / float(high[0]), upper)
