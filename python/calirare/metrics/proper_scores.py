"""Proper scores: negative log-likelihood and Brier score."""

from __future__ import annotations

import torch

from calirare._util.arrays import Array
from calirare._util.keywords import known_keywords
from calirare.metrics.inputs import Scalar, read
from calirare.metrics.predictions import Predictions


@known_keywords
def nll(y_true: Array, p: Array, *, weights: Array | None = None) -> Scalar:
    """Mean negative log-likelihood, -log p(true class); the mean over labels as well if multi-label.

    Probabilities below the machine epsilon of their dtype count as that epsilon (as in scikit-learn's `log_loss`), so
    that one saturated softmax does not make the mean infinite.

    Args:
        y_true: int [n], or [n, K] of 0 and 1 for multi-label.
        p: [n, C] with rows that sum to one, or [n] = P(class 1), or [n, K] of labels.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Nats >= 0: a float for numpy input, a 0-dim tensor for torch input; differentiable.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong.
    """
    data = read("nll", y_true, p, weights)
    scores = data.probabilities
    if data.kind == "multiclass":
        true = scores.gather(1, data.labels[:, None])[:, 0]
    else:
        true = torch.where(data.labels.bool(), scores, 1 - scores)
    loss = -true.double().clamp(min=torch.finfo(scores.dtype).eps).log()
    return data.result(data.mean(loss))


@known_keywords
def brier(y_true: Array, p: Array, *, weights: Array | None = None) -> Scalar:
    """Brier score: the mean squared distance between probabilities and what happened.

    With two classes (p_1 - y)^2, in [0, 1]; with more the sum over classes, in [0, 2]; with labels the mean over labels
    of the two-class score. (scikit-learn's `brier_score_loss` makes the same choice.)

    Takes, returns and raises what `nll` does.
    """
    data = read("brier", y_true, p, weights)
    return data.result(data.mean(brier_terms(data)))


def brier_terms(data: Predictions) -> torch.Tensor:
    """Returns the Brier score of each sample, float64 [n], or [n, K] if multilabel."""
    p = data.probabilities.double()
    if data.kind == "multiclass":
        # sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1 cancels badly when p_y is near one: written out instead.
        squared = (p - data.one_hot().double()).square().sum(1)
        return squared / 2 if data.n_classes == 2 else squared
    return (p - data.labels.double()).square()
