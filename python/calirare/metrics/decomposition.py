"""What the Brier score is made of, and how sharp predictions are."""

from __future__ import annotations

from typing import NamedTuple

import torch

from calirare._util.arrays import Array, check_count, to_tensor
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import bin_sums, equal_width_bins
from calirare.metrics.inputs import Scalar, read
from calirare.metrics.predictions import Predictions


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


@known_keywords
def brier_decomposition(
    y_true: Array, p: Array, n_bins: int = 15, *, weights: Array | None = None, min_count: int = 0
) -> BrierDecomposition:
    """Splits the Brier score into reliability, resolution, uncertainty and the spread inside bins.

    Each class's probability is binned by ((m-1)/M, m/M]; as in `brier` two classes count once, more are summed, labels
    are averaged.

    Takes and raises what `brier` does, with `n_bins` = M and `min_count` as in `ece`; the parts are floats for numpy
    input, 0-dim tensors for torch input.
    """
    check_count("brier_decomposition", "n_bins", n_bins)
    data = read("brier_decomposition", y_true, p, weights)
    scores, happened = _event_columns(data)
    bins = equal_width_bins(scores, n_bins)
    statistics = bin_sums(bins, scores, happened, n_bins, data.weights)
    statistics.warn_if_small("brier_decomposition", min_count)
    share, accuracy = statistics.share, statistics.accuracy
    base = (share * accuracy).sum(1)
    mean_p, mean_y = (_of_bin(values, bins) for values in (statistics.confidence, accuracy))
    off = scores.double() - mean_p
    within = off**2 - 2 * off * (happened.double() - mean_y)
    parts = (
        (share * statistics.gap**2).sum(1),
        (share * (accuracy - base[:, None]) ** 2).sum(1),
        base * (1 - base),
        data.mean(within) * torch.ones_like(base),
    )
    over_classes = torch.sum if data.kind == "multiclass" and data.n_classes > 2 else torch.mean
    return BrierDecomposition(*(data.result(over_classes(part)) for part in parts))


@known_keywords
def sharpness(p: Array, *, multilabel: bool = False, weights: Array | None = None) -> Scalar:
    """Variance of the predicted probabilities about their mean: how far predictions dare to leave the base rate.

    Of two calibrated models the sharper one is better; of a calibrated model it equals the Brier score's resolution
    (Broecker 2009). Two classes count once, more are summed, labels are averaged, as in `brier`.

    Args:
        p: [n] = P(class 1), [n, C] with rows that sum to one, or [n, K] with `multilabel`.
        multilabel: the columns are independent labels.
        weights: sample weights [n] >= 0, or None.

    Returns:
        The variance: a float for numpy input, a 0-dim tensor for torch input.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    shape = to_tensor("sharpness", "p", p).shape
    zeros = torch.zeros(shape if multilabel else shape[:1], dtype=torch.int64)
    data = read("sharpness", zeros, p, weights)
    columns = _event_columns(data)[0].double()
    mean = columns.mean(0) if data.weights is None else data.weights @ columns / data.weights.sum()
    value = data.mean((columns - mean) ** 2)
    return data.result(value * columns.shape[1] if data.kind == "multiclass" and data.n_classes > 2 else value)


def _event_columns(data: Predictions) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and outcomes [n, G] of the events that count: class 1 alone if there are two classes."""
    if data.kind == "multilabel" or data.n_classes > 2:
        return data.probabilities, data.one_hot()
    p = data.probabilities if data.kind == "binary" else data.probabilities[:, 1]
    return p[:, None], data.labels[:, None].bool()


def _of_bin(values: torch.Tensor, bins: torch.Tensor) -> torch.Tensor:
    """Each sample's own bin's value, [n, G]."""
    return torch.gather(values.T, 0, bins)
