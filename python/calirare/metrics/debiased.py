"""ECE with the bias of finite bins taken off."""

from __future__ import annotations

import math

import torch

from ._inputs import Array, Scalar, check_count, read
from ._predictions import confidence_and_correct
from .ace import adaptive_statistics
from .binning import equal_width_statistics


def debiased_ece(
    probabilities: Array,
    labels: Array,
    n_bins: int = 15,
    norm: int = 2,
    *,
    equal_frequency: bool = False,
    squared: bool = False,
) -> Scalar:
    """ECE of the confidence without the part that sampling noise adds (Kumar, Liang and Ma 2019).

    Norm 2: the squared ECE less its bias, sum_m |B_m|/n [gap_m^2 - a_m (1 - a_m)/(|B_m| - 1)] with a_m = acc(B_m): an
    unbiased estimate of the squared binned error given the confidences. Bins of one sample, whose variance is unknown,
    count as calibrated. A negative estimate becomes 0 before the root.

    Norm 1: twice the ECE less the mean ECE when acc(B_m) is drawn again from N(a_m, a_m (1 - a_m)/|B_m|). The
    reference draws; here the mean of the folded normal is written out, so nothing is random. It may be negative.

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: M.
        norm: 1 or 2.
        equal_frequency: bins of equal numbers of samples, as in the reference, in place of equal widths.
        squared: with norm 2, return the unbiased squared error, which may be negative.

    Returns:
        The error: a float for numpy input, a 0-dim tensor for torch input.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("debiased_ece", "n_bins", n_bins)
    if norm not in (1, 2):
        raise ValueError(f"debiased_ece: norm must be 1 or 2, got {norm}")
    if squared and norm != 2:
        raise ValueError("debiased_ece: squared must be left out with norm 1, got True")
    data = read("debiased_ece", probabilities, labels)
    confidence, correct = confidence_and_correct(data)
    if equal_frequency:
        bins = adaptive_statistics(confidence, correct, n_bins, None)
    else:
        bins = equal_width_statistics(confidence, correct, n_bins)
    variance = bins.accuracy * (1 - bins.accuracy)
    if norm == 1:
        deviation = (variance / bins.count.clamp(min=1)).sqrt()
        return data.result((bins.share * (2 * bins.gap - _folded_mean(bins.gap, deviation))).sum(1).mean())
    terms = torch.where(bins.count > 1, bins.gap**2 - variance / (bins.count - 1).clamp(min=1), 0.0)
    square = (bins.share * terms).sum(1)
    return data.result(square.mean() if squared else square.clamp(min=0).sqrt().mean())


def _folded_mean(mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """E|N(mean, deviation^2)| for mean >= 0."""
    ratio = mean / torch.where(deviation > 0, deviation, 1.0)
    folded = deviation * math.sqrt(2 / math.pi) * torch.exp(-(ratio**2) / 2) + mean * torch.erf(ratio / math.sqrt(2))
    return torch.where(deviation > 0, folded, mean)
