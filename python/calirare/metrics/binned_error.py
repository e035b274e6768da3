"""Binned calibration errors: ECE, MCE, classwise ECE.

Two questions are told apart. *Confidence* measures (ECE, MCE) ask whether the predicted class is right as often as its
probability says. *Class* measures (classwise ECE) ask it of the probability of every class. In a multi-label task each
label is a binary task of its own, and the measure is the mean over labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from calirare._util.arrays import Array, as_weights, check_count, to_tensor
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import BinStatistics, equal_width_statistics
from calirare.metrics.inputs import Scalar, check_norm, read, read_event
from calirare.metrics.predictions import ROW_SUM_SLACK, Predictions, confidence_and_correct
from calirare_ext import confidence_bins

# (function, y_true, p, n_bins, weights) -> the checked input and its sums per bin.
Count = Callable[[str, Array, Array, int, Array | None], tuple[Predictions, BinStatistics]]


@known_keywords
def calibration_error(
    y_true: Array, p: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None
) -> Scalar:
    """Binned L_p distance between the probability of one event and how often it happens.

    The measure under all others of this module: (sum_m |B_m|/n |acc(B_m) - conf(B_m)|^p)^(1/p) with bins
    ((m-1)/M, m/M]; a probability of 0 lies in the first bin, one of 1 in the last.

    `y_true` [n] is 1 where the event happened, `p` [n] its probability; the rest is as in `ece`.
    """
    return _error("calibration_error", _of_event, y_true, p, n_bins, norm, weights)


@known_keywords
def ece(y_true: Array, p: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None) -> Scalar:
    """Expected calibration error of the confidence (paper, Eq. 2; Guo et al. 2017), in L_p.

    ECE_p = (sum_m |B_m|/n |acc(B_m) - conf(B_m)|^p)^(1/p), where conf is the probability of the predicted class and
    acc the share of right predictions. Of equally probable classes the first is predicted.

    Args:
        y_true: int [n], or [n, K] of 0 and 1 for multi-label.
        p: [n, C] with rows that sum to one, or [n] = P(class 1), or [n, K] of labels; float32/float64.
        n_bins: M equal-width bins ((m-1)/M, m/M] on [0, 1].
        norm: p >= 1; `math.inf` gives MCE.
        weights: sample weights [n] >= 0, or None.

    Returns:
        The error in [0, 1]: a float for numpy input, a 0-dim tensor for torch input; differentiable in the
        confidences, with bins and predictions held fixed.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong.

    Example:
        >>> ece([1, 0], [[0.05, 0.95], [0.0, 1.0]], n_bins=10)
        0.475
    """
    return _error("ece", _of_confidence, y_true, p, n_bins, norm, weights)


@known_keywords
def mce(y_true: Array, p: Array, n_bins: int = 15, *, weights: Array | None = None) -> Scalar:
    """Maximum calibration error: the largest |acc(B_m) - conf(B_m)| of a bin that is not empty (Naeini et al. 2015).

    Takes, returns and raises what `ece` does.
    """
    return _error("mce", _of_confidence, y_true, p, n_bins, math.inf, weights)


@known_keywords
def classwise_ece(
    y_true: Array, p: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None
) -> Scalar:
    """Mean over classes of the ECE of that class's probability (Kull et al. 2019).

    cwECE = 1/K sum_i sum_m |B_m,i|/n |acc(B_m,i) - conf(B_m,i)|: every sample takes part for every class i, binned by
    v_i; conf is the mean of v_i and acc the share of samples of class i. In L_p each class's error is rooted first.
    For multi-label input the classes are the labels. A binary task has two classes, whose errors are equal unless a
    probability lies on an edge. Takes, returns and raises what `ece` does.
    """
    return _error("classwise_ece", _of_classes, y_true, p, n_bins, norm, weights)


@known_keywords
def confidence_statistics(y_true: Array, p: Array, n_bins: int = 15, *, weights: Array | None = None) -> BinStatistics:
    """The sums behind `ece` and `mce`, to be added up over batches.

    Takes and raises what `ece` does. One group, or one per label if multi-label; `.error(norm).mean()` is the ECE.
    """
    check_count("confidence_statistics", "n_bins", n_bins)
    return _of_confidence("confidence_statistics", y_true, p, n_bins, weights)[1]


@known_keywords
def class_statistics(y_true: Array, p: Array, n_bins: int = 15, *, weights: Array | None = None) -> BinStatistics:
    """The sums behind `classwise_ece`, to be added up over batches.

    Takes and raises what `ece` does. One group per class or label; `.error(norm).mean()` is the classwise ECE.
    """
    check_count("class_statistics", "n_bins", n_bins)
    return _of_classes("class_statistics", y_true, p, n_bins, weights)[1]


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


def _of_event(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics]:
    data = read_event(function, y_true, p, weights)
    return data, equal_width_statistics(data.probabilities, data.labels, n_bins, data.weights)


def _of_confidence(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics]:
    fused = _in_one_pass(function, y_true, p, n_bins, weights)
    if fused is not None:
        return fused
    data = read(function, y_true, p, weights)
    confidence, correct = confidence_and_correct(data)
    return data, equal_width_statistics(confidence, correct, n_bins, data.weights)


def _of_classes(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics]:
    data = read(function, y_true, p, weights)
    return data, equal_width_statistics(data.class_probabilities(), data.one_hot(), n_bins, data.weights)


def _in_one_pass(
    function: str, y_true: Array, p: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics] | None:
    """Checks and counts class probabilities on the CPU together; None where no row may be counted unseen.

    That is where a derivative is wanted, the task or the device is another, or a row is refused: `read` says which.
    """
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
