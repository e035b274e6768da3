"""Uncertainty of a measure: its distribution under perfect calibration, and bootstrap intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from calirare._util.arrays import Array, as_scores, as_weights, check_count, check_order, to_tensor
from calirare.metrics.binning import PAPER_BINS, equal_frequency_bins
from calirare.metrics.inputs import (
    Metric,
    Predictions,
    check_resampling,
    check_rows,
    class_members,
    confidence_and_correct,
    present_classes,
    read,
)


class NoiseFloor(NamedTuple):
    """What a measure reads when nothing is wrong: mean and standard deviation over draws."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: np.ndarray) -> NoiseFloor:
        """Returns mean and standard deviation of a measure's values, one per draw."""
        return cls(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)


class Interval(NamedTuple):
    """Ends of a confidence interval."""

    lower: float
    upper: float


def noise_floor(
    metric: Metric,
    p: Array,
    *,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> NoiseFloor:
    """What `metric` reads when the probabilities are exactly right: labels are drawn from them, again and again.

    For measures that split the samples by their true class use `class_ace_noise_floor` and `macro_ace_noise_floor`:
    drawn labels would change the split, and the reading would contain the bias described at `class_ace` (with a share
    of 13 % it is well above the noise, and does not shrink with n), which is no floor.

    Args:
        metric: called with (y_true, p), returns one number; `y_true` is a tensor if `p` is one, else a numpy array.
        p: [n] = P(class 1), or [n, C] with rows that sum to one.
        n_draws: number of draws.
        seed: seed of the draws; the same seed gives the same floor on any device.
        weights: sample weights [n] >= 0, which the metric then gets as `weights=`, or None.

    Returns:
        Mean and standard deviation of the metric over draws.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("noise_floor", "n_draws", n_draws)
    scores = as_scores("noise_floor", "p", p, ndim=(1, 2))
    chances = scores.detach().double().cpu().numpy()
    rows = scores.ndim == 2
    if rows:
        check_rows("noise_floor", scores)
        # The last class takes what rounding leaves of the sum: its own edge is not needed.
        chances = chances.cumsum(1)[:, :-1]
    given = {} if weights is None else {"weights": weights}
    rng = np.random.default_rng(seed)
    values = np.empty(n_draws)
    for draw in range(n_draws):
        if rows:
            labels = (rng.random(len(chances))[:, None] >= chances).sum(1)
        else:
            labels = (rng.random(chances.shape) >= 1 - chances).astype(np.int64)
        drawn = torch.from_numpy(labels).to(scores.device) if isinstance(p, torch.Tensor) else labels
        values[draw] = float(metric(drawn, p, **given))
    return NoiseFloor.of(values)


def class_ace_noise_floor(
    y_true: Array,
    p: Array,
    cls: int,
    n_bins: int = PAPER_BINS,
    *,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> NoiseFloor:
    """What `class_ace` reads when, on the very samples it judges, accuracy equals confidence.

    The samples of true class `cls`, their confidences and so the bins stay as they are; only whether each prediction is
    right is drawn, Bernoulli(confidence). This is the best the measure can see with that many samples: a reading at or
    below it shows no miscalibration. (Drawn labels would let other samples into the class; see `noise_floor`.)

    Takes what `class_ace` does, the number and the seed of the draws; gives mean and standard deviation over draws;
    raises what `class_ace` does.
    """
    name = "class_ace_noise_floor"
    check_count(name, "n_bins", n_bins)
    check_count(name, "n_draws", n_draws)
    data = read(name, y_true, p, weights)
    return NoiseFloor.of(_class_draws(name, data, cls, n_bins, n_draws, np.random.default_rng(seed)))


def macro_ace_noise_floor(
    y_true: Array,
    p: Array,
    n_bins: int = PAPER_BINS,
    *,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> NoiseFloor:
    """What `macro_ace` reads when accuracy equals confidence within every class; see `class_ace_noise_floor`.

    Takes, gives and raises what `class_ace_noise_floor` does, but for the class.
    """
    name = "macro_ace_noise_floor"
    check_count(name, "n_bins", n_bins)
    check_count(name, "n_draws", n_draws)
    data = read(name, y_true, p, weights)
    rng = np.random.default_rng(seed)
    draws = [_class_draws(name, data, c, n_bins, n_draws, rng) for c in present_classes(data)]
    return NoiseFloor.of(np.mean(draws, axis=0))


def bootstrap_interval(
    metric: Metric,
    y_true: Array,
    p: Array,
    *,
    level: float = 0.95,
    n_draws: int = 1000,
    seed: int = 0,
    stratify: bool = False,
    weights: Array | None = None,
) -> Interval:
    """Percentile bootstrap interval of a measure: samples are drawn with replacement.

    Binned calibration errors grow with noise, and a resampled data set is noisier than the original: their intervals
    sit somewhat high, and near zero error can lie wholly above the estimate. Read them with `noise_floor`.

    Args:
        metric: called with (y_true, p), returns one number; both are what you gave, tensors or numpy arrays (for lists
            too).
        y_true: [n, ...].
        p: [n, ...].
        level: in (0, 1).
        n_draws: number of resampled data sets.
        seed: seed of the draws; the same seed gives the same interval on any device.
        stratify: keep the number of samples of every class (`y_true` must be [n]); needed where a measure is not
            defined without one of the classes and that class is very small.
        weights: sample weights [n] >= 0, drawn along with their samples and given to the metric as `weights=`, or
            None. Samples of weight 0 are never drawn.

    Returns:
        The (1 - level)/2 and (1 + level)/2 quantiles over draws.

    Raises:
        TypeError: the values are not numbers, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or a resample lacks a class that the metric needs.
    """
    name = "bootstrap_interval"
    check_resampling(name, n_draws, level)
    scores = to_tensor(name, "p", p)
    y = to_tensor(name, "y_true", y_true, scores.device)
    for what, values in (("p", scores), ("y_true", y)):
        if values.ndim == 0:
            raise ValueError(f"{name}: {what} must hold one row per sample, got a single number: give an array [n]")
    check_order(name, y, scores)
    if len(scores) != len(y) or len(y) == 0:
        raise ValueError(f"{name}: y_true must have as many rows as p, got {len(y)} and {len(scores)}")
    if stratify and y.ndim != 1:
        raise ValueError(f"{name}: y_true must be [n] to be stratified, got shape {tuple(y.shape)}")
    w = as_weights(name, weights, len(y), y.device)
    host = y.cpu().numpy()
    rows = np.arange(len(y)) if w is None else np.flatnonzero(w.cpu().numpy() > 0)
    groups = [rows[host[rows] == c] for c in np.unique(host[rows])] if stratify else [rows]
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(n_draws):
        chosen = np.concatenate([members[rng.integers(len(members), size=len(members))] for members in groups])
        given = {} if w is None else {"weights": _rows_of(weights, w, chosen)}
        try:
            drawn.append(float(metric(_rows_of(y_true, y, chosen), _rows_of(p, scores, chosen), **given)))
        except ValueError as error:
            if stratify or y.ndim != 1 or len(np.unique(host[chosen])) == len(np.unique(host)):
                raise
            raise ValueError(f"{name}: a resample lacks a class ({error}): pass stratify=True") from error
    lower, upper = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(lower), float(upper))


def _rows_of(given: Array | None, values: torch.Tensor, rows: np.ndarray) -> Array:
    """Some rows of checked values, as the kind of array that was given."""
    if isinstance(given, torch.Tensor):
        return values[torch.from_numpy(rows).to(values.device)]
    return values.cpu().numpy()[rows]


def _class_draws(
    function: str, data: Predictions, cls: int, n_bins: int, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Class ACE of each draw. The confidences never change: they are sorted and binned once, in numpy for speed."""
    members = class_members(function, data, cls)
    if data.weights is not None:
        members = members & (data.weights > 0)
    confidence, _ = confidence_and_correct(data)
    ordered = confidence.detach()[members].double().cpu().numpy()
    share = np.full(len(ordered), 1 / len(ordered))
    if data.weights is not None:
        share = data.weights[members].cpu().numpy()
        share = share / share.sum()
    order = np.lexsort((share, ordered))
    ordered, share = ordered[order], share[order]
    ties = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(ties, append=len(ordered))
    bins = equal_frequency_bins(len(ordered), n_bins, torch.device("cpu")).numpy()
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    values = np.empty(n_draws)
    for draw in range(n_draws):
        surplus = share * ((rng.random(len(ordered)) < ordered) - ordered)
        if len(ties) < len(ordered):  # equal confidences share what happened, as in `adaptive_statistics`
            surplus = np.repeat(np.add.reduceat(surplus, ties) / sizes, sizes)
        values[draw] = np.abs(np.add.reduceat(surplus, starts)).sum()
    return values
