"""Adaptive calibration errors, in bins of equal numbers of samples: ACE, and the paper's class ACE and Macro-ACE."""

from __future__ import annotations

import torch

from calirare._util.arrays import Array, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import BinStatistics, adaptive_statistics
from calirare.metrics.inputs import Scalar, read
from calirare.metrics.predictions import (
    Predictions,
    class_members,
    class_task,
    confidence_and_correct,
    present_classes,
    single_label_tasks,
)


@known_keywords
def ace(y_true: Array, p: Array, n_bins: int = 20, *, weights: Array | None = None) -> Scalar:
    """Adaptive calibration error of Nixon et al. (2019): 1/(C R) sum_c sum_r |acc(r, c) - conf(r, c)|.

    For every class all samples, sorted by the probability of that class, are cut into R ranges whose sizes differ by at
    most one; ranges without a sample (n < R) are left out. The paper's Eq. 3 prints the bins' share |B_m|/N beside a
    further 1/M; one of the two is enough, and this is the definition it cites. Its tables use `class_ace`.

    In a multi-label task the classes are the labels, as in `classwise_ece`. A binary task has two classes: the ranges
    of its class 0 are those of class 1 from the other end, which makes a difference where R does not divide n.

    `n_bins` is R. Ranges hold equal numbers of samples with a weight above 0, weights enter acc and conf. Samples of
    equal probability share their labels and weights (`RankBins`): their order changes nothing. Takes, returns and
    raises what `ece` does.
    """
    check_count("ace", "n_bins", n_bins)
    data = read("ace", y_true, p, weights)
    statistics = adaptive_statistics(data.class_probabilities(), data.one_hot(), n_bins, data.weights)
    filled = statistics.weight > 0
    return data.result((statistics.gap.sum(1) / filled.sum(1)).mean())


@known_keywords
def class_ace(y_true: Array, p: Array, cls: int, n_bins: int = 20, *, weights: Array | None = None) -> Scalar:
    """Adaptive error of one class as the paper's code computes it: sum_m |B_m|/N_cls |acc(B_m) - conf(B_m)|.

    Takes the samples whose TRUE class is `cls`, sorts them by the confidence of the predicted class, cuts them into
    bins whose sizes differ by at most one, and compares confidence with the share of right predictions (= predictions
    of `cls`). The paper's tables call it ACE for the minority class.

    In a multi-label task `cls` is a label, each label being a binary task: the samples that have the label, as class 1.

    Read it beside `class_ace_noise_floor`. Choosing samples by their true class means that a model whose probabilities
    are exact does not reach 0 when classes are unequal: of the rare samples more are mispredicted with confidence than
    the confidence says. The measure judges the balanced population, not the one the samples came from.

    Args:
        y_true: int [n], or [n, K] of 0 and 1 for multi-label.
        p: [n, C], [n] = P(class 1), or [n, K] of labels.
        cls: the class, in 0..C-1, or the label, in 0..K-1.
        n_bins: M.
        weights: sample weights [n] >= 0, or None; samples of weight 0 are left out of the bins.

    Returns:
        As `ece`. Samples of equal confidence share their outcomes and weights (`RankBins`).

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, or no sample has class `cls`.
    """
    check_count("class_ace", "n_bins", n_bins)
    data, cls = class_task("class_ace", read("class_ace", y_true, p, weights), cls)
    confidence, correct = confidence_and_correct(data)
    statistics = _of_class("class_ace", data, confidence, correct, cls, n_bins)
    return data.result(statistics.error()[0])


@known_keywords
def macro_ace(y_true: Array, p: Array, n_bins: int = 20, *, weights: Array | None = None) -> Scalar:
    """Unweighted mean of `class_ace` over the classes (paper, section 4.1), those that occur among the labels.

    In a multi-label task the mean over labels of the Macro-ACE of each label's binary task. Takes, returns and raises
    what `class_ace` does.
    """
    check_count("macro_ace", "n_bins", n_bins)
    data = read("macro_ace", y_true, p, weights)
    errors = []
    for task in single_label_tasks(data):
        confidence, correct = confidence_and_correct(task)
        parts = [_of_class("macro_ace", task, confidence, correct, c, n_bins) for c in present_classes(task)]
        errors.append(torch.stack([statistics.error()[0] for statistics in parts]).mean())
    return data.result(torch.stack(errors).mean())


def _of_class(
    function: str, data: Predictions, confidence: torch.Tensor, correct: torch.Tensor, cls: int, n_bins: int
) -> BinStatistics:
    members = class_members(function, data, cls)
    weights = None if data.weights is None else data.weights[members]
    return adaptive_statistics(confidence[members], correct[members], n_bins, weights)
