"""Binned calibration errors: ECE, MCE, classwise ECE.

Two questions are told apart. *Confidence* measures (ECE, MCE) ask whether the predicted class is right as often as its
probability says. *Class* measures (classwise ECE) ask it of the probability of every class. In a multi-label task each
label is a binary task of its own, and the measure is the mean over labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from calirare.metrics._inputs import Array, Scalar, as_weights, check_count, check_norm, read, read_scores, to_tensor
from calirare.metrics._predictions import ROW_SUM_SLACK, Predictions, confidence_and_correct
from calirare.metrics.binning import BinStatistics, equal_width_statistics
from calirare_ext import confidence_bins

# (function, probabilities, labels, n_bins, weights) -> the checked input and its sums per bin.
Count = Callable[[str, Array, Array, int, Array | None], tuple[Predictions, BinStatistics]]


def calibration_error(
    scores: Array,
    outcomes: Array,
    n_bins: int = 15,
    norm: float = 1,
    *,
    weights: Array | None = None,
    min_count: int = 0,
) -> Scalar:
    """Binned L_p distance between a score and how often its event happens.

    The measure under all others of this module: (sum_m |B_m|/n |acc(B_m) - conf(B_m)|^p)^(1/p) with bins
    ((m-1)/M, m/M]; a score of 0 lies in the first bin, a score of 1 in the last.

    Args:
        scores: predicted probabilities of the event, [n], in [0, 1].
        outcomes: 1 where it happened, else 0, [n].
        n_bins: M.
        norm: p >= 1; `math.inf` gives the largest gap.
        weights: sample weights [n] >= 0, or None.
        min_count: warn (`SmallSampleWarning`) if a bin that is not empty holds fewer samples.

    Returns:
        The error in [0, 1]: a float for numpy input, a 0-dim tensor for torch input.

    Raises:
        ValueError: shape or range is wrong.
    """
    name = "calibration_error"
    check_count(name, "n_bins", n_bins)
    check_norm(name, norm)
    data = read_scores(name, scores, outcomes, weights)
    s = data.probabilities
    statistics = equal_width_statistics(s, data.labels, n_bins, data.weights)
    statistics.warn_if_small(name, min_count)
    return data.result(statistics.error(norm)[0])


def ece(
    probabilities: Array,
    labels: Array,
    n_bins: int = 15,
    norm: float = 1,
    *,
    weights: Array | None = None,
    min_count: int = 0,
) -> Scalar:
    """Expected calibration error of the confidence (paper, Eq. 2; Guo et al. 2017), in L_p.

    ECE_p = (sum_m |B_m|/n |acc(B_m) - conf(B_m)|^p)^(1/p), where conf is the probability of the predicted class and
    acc the share of right predictions. Of equally probable classes the first is predicted.

    Args:
        probabilities: [n, C] with rows that sum to one, or [n] = P(class 1), or [n, K] of labels; float32/float64.
        labels: int [n], or [n, K] of 0 and 1 for multi-label.
        n_bins: M equal-width bins ((m-1)/M, m/M] on [0, 1].
        norm: p >= 1; `math.inf` gives MCE.
        weights: sample weights [n] >= 0, or None.
        min_count: warn (`SmallSampleWarning`) if a bin that is not empty holds fewer samples.

    Returns:
        The error in [0, 1]: a float for numpy input, a 0-dim tensor for torch input; differentiable in the
        confidences, with bins and predictions held fixed.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.

    Example:
        >>> ece([[0.05, 0.95], [0.0, 1.0]], [1, 0], n_bins=10)
        0.475
    """
    return _error("ece", _of_confidence, probabilities, labels, n_bins, norm, weights, min_count)


def mce(
    probabilities: Array, labels: Array, n_bins: int = 15, *, weights: Array | None = None, min_count: int = 0
) -> Scalar:
    """Maximum calibration error: the largest |acc(B_m) - conf(B_m)| of a bin that is not empty (Naeini et al. 2015).

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: as for `ece`.
        weights: as for `ece`.
        min_count: as for `ece`.

    Returns:
        As `ece`.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    return _error("mce", _of_confidence, probabilities, labels, n_bins, math.inf, weights, min_count)


def classwise_ece(
    probabilities: Array,
    labels: Array,
    n_bins: int = 15,
    norm: float = 1,
    *,
    weights: Array | None = None,
    min_count: int = 0,
) -> Scalar:
    """Mean over classes of the ECE of that class's probability (Kull et al. 2019).

    cwECE = 1/K sum_i sum_m |B_m,i|/n |acc(B_m,i) - conf(B_m,i)|: every sample takes part for every class i, binned by
    v_i; conf is the mean of v_i and acc the share of samples of class i. In L_p each class's error is rooted first.
    For multi-label input the classes are the labels. A binary task has two classes, whose errors are equal unless a
    probability lies on an edge.

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: as for `ece`.
        norm: as for `ece`.
        weights: as for `ece`.
        min_count: as for `ece`.

    Returns:
        As `ece`.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    return _error("classwise_ece", _of_classes, probabilities, labels, n_bins, norm, weights, min_count)


def confidence_statistics(
    probabilities: Array, labels: Array, n_bins: int = 15, *, weights: Array | None = None
) -> BinStatistics:
    """The sums behind `ece` and `mce`, to be added up over batches and processes.

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: as for `ece`.
        weights: as for `ece`.

    Returns:
        One group, or one per label if multi-label; `.error(norm).mean()` is the ECE.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("confidence_statistics", "n_bins", n_bins)
    return _of_confidence("confidence_statistics", probabilities, labels, n_bins, weights)[1]


def class_statistics(
    probabilities: Array, labels: Array, n_bins: int = 15, *, weights: Array | None = None
) -> BinStatistics:
    """The sums behind `classwise_ece`, to be added up over batches and processes.

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: as for `ece`.
        weights: as for `ece`.

    Returns:
        One group per class or label; `.error(norm).mean()` is the classwise ECE.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("class_statistics", "n_bins", n_bins)
    return _of_classes("class_statistics", probabilities, labels, n_bins, weights)[1]


def _error(
    function: str,
    count: Count,
    probabilities: Array,
    labels: Array,
    n_bins: int,
    norm: float,
    weights: Array | None,
    min_count: int,
) -> Scalar:
    check_count(function, "n_bins", n_bins)
    check_norm(function, norm)
    data, statistics = count(function, probabilities, labels, n_bins, weights)
    statistics.warn_if_small(function, min_count, stacklevel=4)
    return data.result(statistics.error(norm).mean())


def _of_confidence(
    function: str, probabilities: Array, labels: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics]:
    fused = _in_one_pass(function, probabilities, labels, n_bins, weights)
    if fused is not None:
        return fused
    data = read(function, probabilities, labels, weights)
    confidence, correct = confidence_and_correct(data)
    return data, equal_width_statistics(confidence, correct, n_bins, data.weights)


def _in_one_pass(
    function: str, probabilities: Array, labels: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics] | None:
    """Checks and counts class probabilities on the CPU together; None where no row may be counted unseen.

    That is where a derivative is wanted, the task or the device is another, or a row is refused: `read` says which.
    """
    p = to_tensor(function, "probabilities", probabilities)
    y = to_tensor(function, "labels", labels)
    countable = p.dtype in (torch.float32, torch.float64) and p.device.type == "cpu" and not p.requires_grad
    if not countable or p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2:
        return None
    if y.shape != p.shape[:1] or y.is_floating_point() or y.device != p.device:
        return None
    y, w = y.long(), as_weights(function, weights, len(p), p.device)
    sums, refused = confidence_bins(p, y, n_bins, weights=w, slack=ROW_SUM_SLACK)
    if refused:
        return None
    data = Predictions("multiclass", p, y, w, isinstance(probabilities, torch.Tensor))
    return data, BinStatistics(sums[:, None])


def _of_classes(
    function: str, probabilities: Array, labels: Array, n_bins: int, weights: Array | None
) -> tuple[Predictions, BinStatistics]:
    data = read(function, probabilities, labels, weights)
    return data, equal_width_statistics(data.class_probabilities(), data.one_hot(), n_bins, data.weights)
