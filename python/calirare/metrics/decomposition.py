"""What the Brier score is made of."""

from __future__ import annotations

from typing import NamedTuple

import torch

from calirare._util.arrays import Array, check_count
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
    y_true: Array, p: Array, n_bins: int = 15, *, weights: Array | None = None
) -> BrierDecomposition:
    """Splits the Brier score into reliability, resolution, uncertainty and the spread inside bins.

    Each class's probability is binned by ((m-1)/M, m/M]; as in `brier` two classes count once, more are summed, labels
    are averaged.

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


def _event_columns(data: Predictions) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and outcomes [n, G] of the events that count: class 1 alone if there are two classes."""
    if data.kind == "multilabel" or data.n_classes > 2:
        return data.probabilities, data.one_hot()
    p = data.probabilities if data.kind == "binary" else data.probabilities[:, 1]
    return p[:, None], data.labels[:, None].bool()


def _of_bin(values: torch.Tensor, bins: torch.Tensor) -> torch.Tensor:
    """Each sample's own bin's value, [n, G]."""
    return torch.gather(values.T, 0, bins)
