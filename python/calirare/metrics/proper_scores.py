"""Proper scores: negative log-likelihood, Brier score and its parts."""

from __future__ import annotations

from typing import NamedTuple

import torch

from calirare._util.arrays import Array, check_count
from calirare.metrics.binning import N_BINS, bin_sums, equal_width_bins
from calirare.metrics.inputs import Predictions, Scalar, read


def nll(y_true: Array, p: Array, *, weights: Array | None = None) -> Scalar:
    """Mean negative log-likelihood, -log p(true class).

    Probabilities below the machine epsilon of their dtype count as that epsilon (as in scikit-learn's `log_loss`), so
    that one saturated softmax does not make the mean infinite.

    Args:
        y_true: int [n].
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        weights: sample weights [n] >= 0, or None.

    Returns:
        Nats >= 0: a float for numpy input, a 0-dim tensor for torch input; differentiable.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong.
    """
    data = read("nll", y_true, p, weights)
    scores = data.probabilities
    if data.kind == "multiclass":
        true = scores.gather(1, data.labels[:, None])[:, 0]
    else:
        true = torch.where(data.labels.bool(), scores, 1 - scores)
    loss = -true.double().clamp(min=torch.finfo(scores.dtype).eps).log()
    return data.result(data.mean(loss))


def brier(y_true: Array, p: Array, *, weights: Array | None = None) -> Scalar:
    """Brier score: the mean squared distance between probabilities and what happened.

    With two classes (p_1 - y)^2, in [0, 1]; with more the sum over classes, in [0, 2]: the choice of scikit-learn's
    `brier_score_loss`.

    Takes, returns and raises what `nll` does.
    """
    data = read("brier", y_true, p, weights)
    return data.result(data.mean(brier_terms(data)))


def brier_terms(data: Predictions) -> torch.Tensor:
    """Returns the Brier score of each sample, float64 [n]."""
    p = data.probabilities.double()
    if data.kind == "multiclass":
        # sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1 cancels badly when p_y is near one: written out instead.
        squared = (p - data.one_hot().double()).square().sum(1)
        return squared / 2 if data.n_classes == 2 else squared
    return (p - data.labels.double()).square()


class BrierDecomposition(NamedTuple):
    """brier = reliability - resolution + uncertainty + within_bin (Murphy 1973; Stephenson et al. 2008).

    Attributes:
        reliability: weighted squared gap between mean probability and frequency per bin; 0 is calibrated.
        resolution: weighted squared distance of the bins' frequencies from the overall one; more is better.
        uncertainty: the score of always predicting the overall frequency.
        within_bin: what differences of probabilities inside the bins add; goes to 0 with narrow bins.
    """

    reliability: Scalar
    resolution: Scalar
    uncertainty: Scalar
    within_bin: Scalar


def brier_decomposition(
    y_true: Array, p: Array, n_bins: int = N_BINS, *, weights: Array | None = None
) -> BrierDecomposition:
    """Splits the Brier score into reliability, resolution, uncertainty and the spread inside bins.

    Each class's probability is binned by ((m-1)/M, m/M]; as in `brier` two classes count once, more are summed.

    Takes and raises what `brier` does, with `n_bins` = M; the parts are floats for numpy
    input, 0-dim tensors for torch input.
    """
    check_count("brier_decomposition", "n_bins", n_bins)
    data = read("brier_decomposition", y_true, p, weights)
    scores, happened = _event_columns(data)
    bins = equal_width_bins(scores, n_bins)
    statistics = bin_sums(bins, scores, happened, n_bins, data.weights)
    share, accuracy = statistics.share, statistics.accuracy
    base = (share * accuracy).sum(1)
    mean_p, mean_y = (torch.gather(values.T, 0, bins) for values in (statistics.confidence, accuracy))
    off = scores.double() - mean_p
    within = off**2 - 2 * off * (happened.double() - mean_y)
    parts = (
        (share * statistics.gap**2).sum(1),
        (share * (accuracy - base[:, None]) ** 2).sum(1),
        base * (1 - base),
        data.mean(within.sum(1)),
    )
    return BrierDecomposition(*(data.result(part.sum()) for part in parts))


def _event_columns(data: Predictions) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and outcomes [n, G] of the events that count: class 1 alone if there are two classes."""
    if data.n_classes > 2:
        return data.probabilities, data.one_hot()
    p = data.probabilities if data.kind == "binary" else data.probabilities[:, 1]
    return p[:, None], data.labels[:, None].bool()
