"""Binned calibration errors: ECE, MCE, classwise ECE, and the adaptive errors ACE, class ACE and Macro-ACE.

Two questions are told apart. *Confidence* measures (ECE, MCE, class ACE, Macro-ACE) ask whether the predicted class is
right as often as its probability says. *Class* measures (classwise ECE, ACE) ask it of the probability of every class.
In a multi-label task each label is a binary task of its own, and the measure is the mean over labels.
"""

from __future__ import annotations

import math

import torch

from ._inputs import Array, Predictions, Scalar, as_scores, check_count, check_norm, read
from .binning import BinStatistics, bin_sums, equal_frequency_bins, equal_width_bins


def calibration_error(
    scores: Array, outcomes: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None
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

    Returns:
        The error in [0, 1]: a float for numpy input, a 0-dim tensor for torch input.

    Raises:
        ValueError: shape or range is wrong.
    """
    name = "calibration_error"
    check_count(name, "n_bins", n_bins)
    check_norm(name, norm)
    s = as_scores(name, "scores", scores)
    data = read(name, scores, outcomes, weights)
    statistics = bin_sums(equal_width_bins(s, n_bins), s, data.labels, n_bins, data.weights)
    return data.result(statistics.error(norm)[0])


def ece(
    probabilities: Array, labels: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None
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
    return data.result(_confidence_statistics(data, n_bins).error(norm).mean())


def mce(probabilities: Array, labels: Array, n_bins: int = 15, *, weights: Array | None = None) -> Scalar:
    """Maximum calibration error: the largest |acc(B_m) - conf(B_m)| of a bin that is not empty (Naeini et al. 2015).

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: as for `ece`.
        weights: as for `ece`.

    Returns:
        As `ece`.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("mce", "n_bins", n_bins)
    data = read("mce", probabilities, labels, weights)
    return data.result(_confidence_statistics(data, n_bins).error(math.inf).mean())


def classwise_ece(
    probabilities: Array, labels: Array, n_bins: int = 15, norm: float = 1, *, weights: Array | None = None
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

    Returns:
        As `ece`.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("classwise_ece", "n_bins", n_bins)
    check_norm("classwise_ece", norm)
    data = read("classwise_ece", probabilities, labels, weights)
    p = data.class_probabilities()
    statistics = bin_sums(equal_width_bins(p, n_bins), p, data.one_hot(), n_bins, data.weights)
    return data.result(statistics.error(norm).mean())


def ace(probabilities: Array, labels: Array, n_bins: int = 20, *, weights: Array | None = None) -> Scalar:
    """Adaptive calibration error of Nixon et al. (2019): 1/(C R) sum_c sum_r |acc(r, c) - conf(r, c)|.

    For every class all samples, sorted by the probability of that class, are cut into R ranges whose sizes differ by at
    most one; ranges without a sample (n < R) are left out. The paper's Eq. 3 prints the bins' share |B_m|/N beside a
    further 1/M; one of the two is enough, and this is the definition it cites. Its tables use `class_ace`.

    Args:
        probabilities: as for `ece`.
        labels: as for `ece`.
        n_bins: R.
        weights: as for `ece`; ranges hold equal numbers of samples, weights enter acc and conf.

    Returns:
        As `ece`. Equal probabilities keep the order of the input.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    check_count("ace", "n_bins", n_bins)
    data = read("ace", probabilities, labels, weights)
    statistics = adaptive_statistics(data.class_probabilities(), data.one_hot(), n_bins, data.weights)
    filled = statistics.weight > 0
    return data.result((statistics.gap.sum(1) / filled.sum(1)).mean())


def class_ace(
    probabilities: Array, labels: Array, cls: int, n_bins: int = 20, *, weights: Array | None = None
) -> Scalar:
    """Adaptive error of one class as the paper's code computes it: sum_m |B_m|/N_cls |acc(B_m) - conf(B_m)|.

    Takes the samples whose TRUE class is `cls`, sorts them by the confidence of the predicted class, cuts them into
    bins whose sizes differ by at most one, and compares confidence with the share of right predictions (= predictions
    of `cls`). The paper's tables call it ACE for the minority class.

    Read it beside `class_ace_noise_floor`. Choosing samples by their true class means that a model whose probabilities
    are exact does not reach 0 when classes are unequal: of the rare samples more are mispredicted with confidence than
    the confidence says. The measure judges the balanced population, not the one the samples came from.

    Args:
        probabilities: [n, C], or [n] = P(class 1).
        labels: int [n].
        cls: the class, in 0..C-1.
        n_bins: M.
        weights: as for `ace`.

    Returns:
        As `ece`. Equal confidences keep the order of the input.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has class `cls`.
    """
    check_count("class_ace", "n_bins", n_bins)
    data = read("class_ace", probabilities, labels, weights)
    confidence, correct = confidence_and_correct(refuse_multilabel("class_ace", data))
    return data.result(_error_of_class("class_ace", data, confidence, correct, cls, n_bins))


def macro_ace(probabilities: Array, labels: Array, n_bins: int = 20, *, weights: Array | None = None) -> Scalar:
    """Unweighted mean of `class_ace` over the classes (paper, section 4.1), those that occur among the labels.

    Args:
        probabilities: as for `class_ace`.
        labels: as for `class_ace`.
        n_bins: as for `class_ace`.
        weights: as for `class_ace`.

    Returns:
        As `ece`.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, or the task is multi-label.
    """
    check_count("macro_ace", "n_bins", n_bins)
    data = read("macro_ace", probabilities, labels, weights)
    confidence, correct = confidence_and_correct(refuse_multilabel("macro_ace", data))
    classes = torch.unique(data.labels).tolist()
    errors = [_error_of_class("macro_ace", data, confidence, correct, c, n_bins) for c in classes]
    return data.result(torch.stack(errors).mean())


def confidence_and_correct(data: Predictions) -> tuple[torch.Tensor, torch.Tensor]:
    """Probability of the predicted class and whether it is the true one.

    Of equally probable classes the first is predicted.

    Args:
        data: checked predictions.

    Returns:
        confidence, correct: [n], or [n, K] if multilabel.
    """
    p = data.probabilities
    if data.kind == "multiclass":
        confidence, prediction = p.max(1)
        return confidence, prediction == data.labels
    positive = p.detach() > 0.5
    return torch.where(positive, p, 1 - p), positive == data.labels.bool()


def adaptive_statistics(
    scores: torch.Tensor, outcomes: torch.Tensor, n_bins: int, weights: torch.Tensor | None
) -> BinStatistics:
    """Sums per equal-frequency bin, each column of `scores` on its own.

    Args:
        scores: [n] or [n, G].
        outcomes: the same shape.
        n_bins: M.
        weights: float64 [n], or None.

    Returns:
        The sums.
    """
    order = torch.argsort(scores.detach(), dim=0, stable=True)
    rank_bins = equal_frequency_bins(scores.shape[0], n_bins, scores.device)
    source = rank_bins if scores.ndim == 1 else rank_bins[:, None].expand_as(order)
    bins = torch.empty_like(order).scatter_(0, order, source)
    return bin_sums(bins, scores, outcomes, n_bins, weights)


def refuse_multilabel(function: str, data: Predictions) -> Predictions:
    """Passes single-label predictions on.

    Args:
        function: who asks, for the message.
        data: checked predictions.

    Returns:
        `data`.

    Raises:
        ValueError: the labels are [n, K].
    """
    if data.kind == "multilabel":
        raise ValueError(f"{function}: labels must be [n], one class per sample, got shape {tuple(data.labels.shape)}")
    return data


def class_members(function: str, data: Predictions, cls: int) -> torch.Tensor:
    """Which samples have true class `cls`.

    Args:
        function: who asks, for the message.
        data: checked predictions.
        cls: the class.

    Returns:
        Bool [n] with at least one True.

    Raises:
        ValueError: there is no such class, or no sample of it.
    """
    if not 0 <= cls < data.n_classes:
        raise ValueError(f"{function}: cls must lie in 0..{data.n_classes - 1}, got {cls}")
    members = data.labels == cls
    if not bool(members.any()):
        raise ValueError(f"{function}: labels must contain class {cls}, got none of it among {len(members)} samples")
    return members


def _error_of_class(
    function: str, data: Predictions, confidence: torch.Tensor, correct: torch.Tensor, cls: int, n_bins: int
) -> torch.Tensor:
    members = class_members(function, data, cls)
    weights = None if data.weights is None else data.weights[members]
    return adaptive_statistics(confidence[members], correct[members], n_bins, weights).error()[0]


def _confidence_statistics(data: Predictions, n_bins: int) -> BinStatistics:
    confidence, correct = confidence_and_correct(data)
    return bin_sums(equal_width_bins(confidence, n_bins), confidence, correct, n_bins, data.weights)
