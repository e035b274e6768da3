"""ECE with the bias of finite bins taken off."""

from __future__ import annotations

import math

import torch

from calirare._util.arrays import Array, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.adaptive_error import adaptive_statistics
from calirare.metrics.binning import equal_width_statistics
from calirare.metrics.inputs import Scalar, read
from calirare.metrics.predictions import confidence_and_correct

# Rounding may put the effective number of a single weighted sample so far above one.
ONE_SAMPLE = 1e-12


@known_keywords
def debiased_ece(
    y_true: Array,
    p: Array,
    n_bins: int = 15,
    norm: int = 2,
    *,
    equal_frequency: bool = False,
    squared: bool = False,
    weights: Array | None = None,
    min_count: int = 0,
) -> Scalar:
    """ECE of the confidence without the part that sampling noise adds (Kumar, Liang and Ma 2019).

    Norm 2: the squared ECE less its bias, sum_m |B_m|/n [gap_m^2 - a_m (1 - a_m)/(|B_m| - 1)] with a_m = acc(B_m): an
    unbiased estimate of the squared binned error given the confidences. Bins of one sample, whose variance is unknown,
    count as calibrated. A negative estimate becomes 0 before the root.

    Norm 1: twice the ECE less the mean ECE when acc(B_m) is drawn again from N(a_m, a_m (1 - a_m)/|B_m|). The
    reference draws; here the mean of the folded normal is written out, so nothing is random. It may be negative.

    With weights, |B_m| in the variances is Kish's effective number (sum w)^2 / sum w^2, which keeps norm 2 unbiased.

    Args:
        y_true: as for `ece`.
        p: as for `ece`.
        n_bins: M.
        norm: 1 or 2.
        equal_frequency: bins of equal numbers of samples, as in the reference, in place of equal widths.
        squared: with norm 2, return the unbiased squared error, which may be negative.
        weights: as for `ece`.
        min_count: as for `ece`.

    Returns:
        The error; otherwise as `ece`, whose errors it raises too.
    """
    check_count("debiased_ece", "n_bins", n_bins)
    if norm not in (1, 2):
        raise ValueError(f"debiased_ece: norm must be 1 or 2, got {norm}")
    if squared and norm != 2:
        raise ValueError("debiased_ece: squared must be left out with norm 1, got True")
    data = read("debiased_ece", y_true, p, weights)
    confidence, correct = confidence_and_correct(data)
    make = adaptive_statistics if equal_frequency else equal_width_statistics
    # Squares of very large or small weights leave float64: only their ratios count.
    weights = None if data.weights is None else data.weights / data.weights.mean()
    bins = make(confidence, correct, n_bins, weights)
    bins.warn_if_small("debiased_ece", min_count)
    number = bins.count
    if weights is not None:
        squares = make(confidence.detach(), correct, n_bins, weights**2).weight
        number = bins.weight**2 / torch.where(squares > 0, squares, 1.0)
    variance = bins.accuracy * (1 - bins.accuracy)
    if norm == 1:
        deviation = (variance / number.clamp(min=1)).sqrt()
        return data.result((bins.share * (2 * bins.gap - _folded_mean(bins.gap, deviation))).sum(1).mean())
    known = number > 1 + ONE_SAMPLE
    terms = torch.where(known, bins.gap**2 - variance / torch.where(known, number - 1, 1.0), 0.0)
    square = (bins.share * terms).sum(1)
    return data.result(square.mean() if squared else square.clamp(min=0).sqrt().mean())


def _folded_mean(mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """E|N(mean, deviation^2)| for mean >= 0."""
    ratio = mean / torch.where(deviation > 0, deviation, 1.0)
    folded = deviation * math.sqrt(2 / math.pi) * torch.exp(-(ratio**2) / 2) + mean * torch.erf(ratio / math.sqrt(2))
    return torch.where(deviation > 0, folded, mean)
