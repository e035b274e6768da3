"""Proper scores: negative log-likelihood and Brier score; and hard predictions: accuracy, recall, precision, F1."""

from __future__ import annotations

import torch

from calirare._util.arrays import Array, as_integers, as_weights, to_tensor
from calirare._util.keywords import known_keywords
from calirare.metrics.inputs import Scalar, read
from calirare.metrics.predictions import Predictions, check_class


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


def _read(
    function: str, y_true: Array, y_pred: Array, weights: Array | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    y = to_tensor(function, "y_true", y_true)
    y = as_integers(function, "y_true", y, y.device, None)
    p = as_integers(function, "y_pred", y_pred, y.device, None)
    if y.ndim != 1 or y.numel() == 0:
        raise ValueError(f"{function}: y_true must be [n] with n >= 1, got shape {tuple(y.shape)}")
    if p.shape != y.shape:
        raise ValueError(f"{function}: y_pred must have shape {tuple(y.shape)}, got {tuple(p.shape)}")
    w = as_weights(function, weights, len(y), y.device)
    if w is None:
        w = torch.ones(len(y), dtype=torch.float64, device=y.device)
    return y, p, w, isinstance(y_true, torch.Tensor)


def _result(value: torch.Tensor, is_torch: bool) -> Scalar:
    return value.to(torch.get_default_dtype()) if is_torch else float(value)


@known_keywords
def accuracy(y_true: Array, y_pred: Array, *, weights: Array | None = None) -> Scalar:
    """Share of right predictions.

    Args:
        y_true: true classes, int [n], n >= 1.
        y_pred: predicted classes, int [n].
        weights: sample weights [n] >= 0, or None.

    Returns:
        In [0, 1]: a float for numpy input, a 0-dim tensor of torch's default dtype for torch input.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty, or weights are out of range.
    """
    y, p, w, is_torch = _read("accuracy", y_true, y_pred, weights)
    return _result(w[y == p].sum() / w.sum(), is_torch)


@known_keywords
def recall(y_true: Array, y_pred: Array, cls: int, *, weights: Array | None = None) -> Scalar:
    """Share of the samples of class `cls` that are predicted as such.

    Takes, returns and raises what `accuracy` does, and ValueError where no sample has that class.
    """
    check_class("recall", cls)
    y, p, w, is_torch = _read("recall", y_true, y_pred, weights)
    members = y == cls
    if not bool(w[members].sum() > 0):
        raise ValueError(f"recall: y_true must contain class {cls}, got none of it among {len(y)} samples")
    return _result(w[members & (p == cls)].sum() / w[members].sum(), is_torch)


@known_keywords
def precision(y_true: Array, y_pred: Array, cls: int, *, weights: Array | None = None) -> Scalar:
    """Share of the predictions of class `cls` that are right; 0 if it is never predicted.

    Takes, returns and raises what `accuracy` does.
    """
    check_class("precision", cls)
    y, p, w, is_torch = _read("precision", y_true, y_pred, weights)
    predicted = w[p == cls].sum()
    hits = w[(y == cls) & (p == cls)].sum()
    return _result(hits / torch.where(predicted > 0, predicted, 1.0), is_torch)


@known_keywords
def macro_f1(y_true: Array, y_pred: Array, *, weights: Array | None = None) -> Scalar:
    """Unweighted mean of F1 over the classes that occur among labels or predictions.

    F1 of a class is 2 TP / (2 TP + FP + FN): 0 if it is never predicted right. Takes, returns and raises
    what `accuracy` does.
    """
    y, p, w, is_torch = _read("macro_f1", y_true, y_pred, weights)
    size = int(torch.maximum(y.max(), p.max())) + 1
    if size > 2 * len(y):  # numbers of classes far above their count would need as much memory
        (y, p), size = torch.unique(torch.stack((y, p)), return_inverse=True)[1], 2 * len(y)
    right = y == p
    hits = torch.bincount(y[right], weights=w[right], minlength=size)
    total = torch.bincount(y, weights=w, minlength=size) + torch.bincount(p, weights=w, minlength=size)
    return _result((2 * hits / total)[total > 0].mean(), is_torch)
