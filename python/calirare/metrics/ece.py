"""Binned calibration errors: ECE, MCE, classwise ECE.

Two questions are told apart. *Confidence* measures (ECE, MCE) ask whether the predicted class is right as often as its
probability says. *Class* measures (classwise ECE) ask it of the probability of every class. In a multi-label task each
label is a binary task of its own, and the measure is the mean over labels.
"""

from __future__ import annotations

import math

from ._inputs import Array, Scalar, check_count, check_norm, read, read_scores
from ._predictions import Predictions, confidence_and_correct
from .binning import BinStatistics, equal_width_statistics


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
    check_count("ece", "n_bins", n_bins)
    check_norm("ece", norm)
    data = read("ece", probabilities, labels, weights)
    statistics = _of_confidence(data, n_bins)
    statistics.warn_if_small("ece", min_count)
    return data.result(statistics.error(norm).mean())


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
    check_count("mce", "n_bins", n_bins)
    data = read("mce", probabilities, labels, weights)
    statistics = _of_confidence(data, n_bins)
    statistics.warn_if_small("mce", min_count)
    return data.result(statistics.error(math.inf).mean())


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
    For multi-label input the classes are the labels.

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
    check_count("classwise_ece", "n_bins", n_bins)
    check_norm("classwise_ece", norm)
    data = read("classwise_ece", probabilities, labels, weights)
    statistics = _of_classes(data, n_bins)
    statistics.warn_if_small("classwise_ece", min_count)
    return data.result(statistics.error(norm).mean())


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
    return _of_confidence(read("confidence_statistics", probabilities, labels, weights), n_bins)


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
    return _of_classes(read("class_statistics", probabilities, labels, weights), n_bins)


def _of_confidence(data: Predictions, n_bins: int) -> BinStatistics:
    confidence, correct = confidence_and_correct(data)
    return equal_width_statistics(confidence, correct, n_bins, data.weights)


def _of_classes(data: Predictions, n_bins: int) -> BinStatistics:
    p = data.class_probabilities()
    return equal_width_statistics(p, data.one_hot(), n_bins, data.weights)
