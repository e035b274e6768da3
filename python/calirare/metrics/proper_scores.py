"""Proper scores: negative log-likelihood and Brier score."""

from __future__ import annotations

import torch

from calirare.metrics._inputs import Array, Scalar, read
from calirare.metrics._predictions import Predictions


def nll(probabilities: Array, labels: Array, *, weights: Array | None = None) -> Scalar:
    """Mean negative log-likelihood, -log p(true class); the mean over labels as well if multi-label.

    Probabilities below the machine epsilon of their dtype count as that epsilon (as in scikit-learn's `log_loss`), so
    that one saturated softmax does not make the mean infinite.

    Args:
        probabilities: [n, C] with rows that sum to one, or [n] = P(class 1), or [n, K] of labels.
        labels: int [n], or [n, K] of 0 and 1 for multi-label.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Nats >= 0: a float for numpy input, a 0-dim tensor for torch input; differentiable.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    data = read("nll", probabilities, labels, weights)
    p = data.probabilities
    if data.kind == "multiclass":
        true = p.gather(1, data.labels[:, None])[:, 0]
    else:
        true = torch.where(data.labels.bool(), p, 1 - p)
    loss = -true.double().clamp(min=torch.finfo(p.dtype).eps).log()
    return data.result(data.mean(loss))


def brier(probabilities: Array, labels: Array, *, weights: Array | None = None) -> Scalar:
    """Brier score: the mean squared distance between probabilities and what happened.

    With two classes (p_1 - y)^2, in [0, 1]; with more the sum over classes, in [0, 2]; with labels the mean over labels
    of the two-class score. (scikit-learn's `brier_score_loss` makes the same choice.)

    Args:
        probabilities: as for `nll`.
        labels: as for `nll`.
        weights: as for `nll`.

    Returns:
        The score: a float for numpy input, a 0-dim tensor for torch input; differentiable.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    data = read("brier", probabilities, labels, weights)
    return data.result(data.mean(brier_terms(data)))


def brier_terms(data: Predictions) -> torch.Tensor:
    """Brier score of each sample.

    Args:
        data: checked predictions.

    Returns:
        float64 [n], or [n, K] if multilabel.
    """
    p = data.probabilities.double()
    if data.kind == "multiclass":
        # sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1 cancels badly when p_y is near one: written out instead.
        squared = (p - data.one_hot().double()).square().sum(1)
        return squared / 2 if data.n_classes == 2 else squared
    return (p - data.labels.double()).square()
