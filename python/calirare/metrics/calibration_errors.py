"""Binned calibration errors: ECE, MCE, classwise ECE, and in bins of equal numbers ACE, class ACE and Macro-ACE.

ECE and MCE are about P(class 1) where there is one probability per row, else about the confidence: the probability of
the predicted class. *Class* measures (classwise ECE) are about the probability of every class.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from calirare._util.arrays import Array, as_weights, check_count, to_tensor
from calirare.metrics.binning import N_BINS, PAPER_BINS, BinStatistics, adaptive_statistics, equal_width_statistics
from calirare.metrics.inputs import (
    ROW_SUM_SLACK,
    Predictions,
    Scalar,
    check_norm,
    class_members,
    confidence_and_correct,
    present_classes,
    read,
)
from calirare_ext import confidence_bins

# (function, y_true, p, n_bins, weights) -> the checked input and its sums per bin.
Count = Callable[[str, Array, Array, int, Array | None], tuple[Predictions, BinStatistics]]


def ece(y_true: Array, p: Array, n_bins: int = N_BINS, norm: float = 1, *, weights: Array | None = None) -> Scalar:
    """Expected calibration error (paper, Eq. 2; Guo et al. 2017), in L_p.

    ECE_p = (sum_m |B_m|/n |observed(B_m) - mean p(B_m)|^p)^(1/p). With one probability per row, p is
    P(class 1) and observed how often class 1 occurs: torchmetrics' `binary_calibration_error`. With a column per class,
    p is the confidence, the probability of the predicted class, and observed how often it is right. Of equally probable
    classes the first is predicted.

    Args:
        y_true: int [n].
        p: [n, C] with rows that sum to one, or [n] = P(class 1); float32/float64.
        n_bins: M equal-width bins ((m-1)/M, m/M] on [0, 1]; a probability of 0 lies in the first.
        norm: p >= 1; `math.inf` gives MCE.
        weights: sample weights [n] >= 0, or None.

    Returns:
        The error in [0, 1]: a float for numpy input, a 0-dim tensor for torch input; differentiable in the
        probabilities, with bins and predictions held fixed.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong.

    Example:
        >>> ece([1, 0], [0.95, 0.0], n_bins=10)
        0.025
        >>> ece([1, 0], [[0.05, 0.95], [0.0, 1.0]], n_bins=10)
        0.475
    """
    return _error("ece", _of_p, y_true, p, n_bins, norm, weights)


def mce(y_true: Array, p: Array, n_bins: int = N_BINS, *, weights: Array | None = None) -> Scalar:
    """Maximum calibration error: the largest |observed(B_m) - mean p(B_m)| of a bin that is not empty.

    Naeini et al. 2015. Takes, returns and raises what `ece` does.
    """
    return _error("mce", _of_p, y_true, p, n_bins, math.inf, weights)


def classwise_ece(y_true: Array, p: Array, n_bins: int = N_BINS, *, weights: Array | None = None) -> Scalar:
    """Mean over classes of the ECE of that class's probability (Kull et al. 2019).

    cwECE = 1/K sum_i sum_m |B_m,i|/n |acc(B_m,i) - conf(B_m,i)|: every sample takes part for every class i, binned by
    v_i; conf is the mean of v_i and acc the share of samples of class i.
    A binary task has two classes, whose errors are equal unless a
    probability lies on an edge. Takes, returns and raises what `ece` does.
    """
    return _error("classwise_ece", _of_classes, y_true, p, n_bins, 1, weights)


def confidence_statistics(
    y_true: Array, p: Array, n_bins: int = N_BINS, *, weights: Array | None = None
) -> BinStatistics:
    """The sums behind `ece` and `mce` of the confidence, to be added up over batches.

    Takes and raises what `ece` does. One group; `.error(norm).mean()` is the ECE.
    """
    check_count("confidence_statistics", "n_bins", n_bins)
    return _of_p("confidence_statistics", y_true, p, n_bins, weights, confident=True)[1]


def _error(
    function: str,
    count: Count,
    y_true: Array,
    p: Array,
    n_bins: int,
    norm: float,
    weights: Array | None,
) -> Scalar:
    check_count(function, "n_bins", n_bins)
    check_norm(function, norm)
    data, statistics = count(function, y_true, p, n_bins, weights)
    return data.result(statistics.error(norm).mean())


def _of_p(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None, *, confident: bool = False
) -> tuple[Predictions, BinStatistics]:
    fused = _in_one_pass(function, y_true, p, n_bins, weights)
    if fused is not None:
        return fused
    data = read(function, y_true, p, weights)
    of_class_1 = data.kind == "binary" and not confident
    pair = (data.probabilities, data.labels) if of_class_1 else confidence_and_correct(data)
    return data, equal_width_statistics(*pair, n_bins, data.weights)


def _of_classes(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics]:
    data = read(function, y_true, p, weights)
    return data, equal_width_statistics(data.class_probabilities(), data.one_hot(), n_bins, data.weights)


def _in_one_pass(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics] | None:
    """Checks and counts class probabilities on the CPU together; None where no row may be counted unseen."""
    scores = to_tensor(function, "p", p)
    y = to_tensor(function, "y_true", y_true)
    countable = scores.dtype in (torch.float32, torch.float64) and scores.device.type == "cpu"
    if not countable or scores.requires_grad or scores.ndim != 2 or scores.shape[0] == 0 or scores.shape[1] < 2:
        return None
    if y.shape != scores.shape[:1] or y.is_floating_point() or y.device != scores.device:
        return None
    y, w = y.long(), as_weights(function, weights, len(scores), scores.device)
    sums, refused = confidence_bins(scores, y, n_bins, weights=w, slack=ROW_SUM_SLACK)
    if refused:
        return None
    data = Predictions("multiclass", scores, y, w, isinstance(p, torch.Tensor))
    return data, BinStatistics(sums[:, None])


def class_ace(y_true: Array, p: Array, cls: int, n_bins: int = PAPER_BINS, *, weights: Array | None = None) -> Scalar:
    """Adaptive error of one class as the paper's code computes it: sum_m |B_m|/N_cls |acc(B_m) - conf(B_m)|.

    Takes the samples whose TRUE class is `cls`, sorts them by the confidence of the predicted class, cuts them into
    bins whose sizes differ by at most one, and compares confidence with the share of right predictions (= predictions
    of `cls`). The paper's tables call it ACE for the minority class.

    Read it beside `class_ace_noise_floor`. Choosing samples by their true class means that a model whose probabilities
    are exact does not reach 0 when classes are unequal: of the rare samples more are mispredicted with confidence than
    the confidence says. The measure judges the balanced population, not the one the samples came from.

    Args:
        y_true: int [n].
        p: [n, C], or [n] = P(class 1).
        cls: the class, in 0..C-1.
        n_bins: M.
        weights: sample weights [n] >= 0, or None; samples of weight 0 are left out of the bins.

    Returns:
        As `ece`. Samples of equal confidence share their outcomes and weights (`adaptive_statistics`).

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, or no sample has class `cls`.
    """
    check_count("class_ace", "n_bins", n_bins)
    data = read("class_ace", y_true, p, weights)
    confidence, correct = confidence_and_correct(data)
    statistics = _of_class("class_ace", data, confidence, correct, cls, n_bins)
    return data.result(statistics.error()[0])


def macro_ace(y_true: Array, p: Array, n_bins: int = PAPER_BINS, *, weights: Array | None = None) -> Scalar:
    """Unweighted mean of `class_ace` over the classes (paper, section 4.1), those that occur among the labels.

    Takes, returns and raises what `class_ace` does.
    """
    check_count("macro_ace", "n_bins", n_bins)
    data = read("macro_ace", y_true, p, weights)
    confidence, correct = confidence_and_correct(data)
    parts = [_of_class("macro_ace", data, confidence, correct, c, n_bins) for c in present_classes(data)]
    return data.result(torch.stack([statistics.error()[0] for statistics in parts]).mean())


def _of_class(
    function: str, data: Predictions, confidence: torch.Tensor, correct: torch.Tensor, cls: int, n_bins: int
) -> BinStatistics:
    members = class_members(function, data, cls)
    weights = None if data.weights is None else data.weights[members]
    return adaptive_statistics(confidence[members], correct[members], n_bins, weights)
