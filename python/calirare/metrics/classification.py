"""How good the hard predictions are: accuracy, recall, precision, F1. Labels come first, as in scikit-learn."""

from __future__ import annotations

import torch

from calirare.metrics._inputs import Array, Scalar, as_integers, as_weights, to_tensor
from calirare.metrics._predictions import check_class


def _read(
    function: str, labels: Array, predictions: Array, weights: Array | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    y = to_tensor(function, "labels", labels)
    y = as_integers(function, "labels", y, y.device, None)
    p = as_integers(function, "predictions", predictions, y.device, None)
    if y.ndim != 1 or y.numel() == 0:
        raise ValueError(f"{function}: labels must be [n] with n >= 1, got shape {tuple(y.shape)}")
    if p.shape != y.shape:
        raise ValueError(f"{function}: predictions must have shape {tuple(y.shape)}, got {tuple(p.shape)}")
    w = as_weights(function, weights, len(y), y.device)
    if w is None:
        w = torch.ones(len(y), dtype=torch.float64, device=y.device)
    return y, p, w, isinstance(labels, torch.Tensor)


def _result(value: torch.Tensor, is_torch: bool) -> Scalar:
    return value.to(torch.get_default_dtype()) if is_torch else float(value)


def accuracy(labels: Array, predictions: Array, *, weights: Array | None = None) -> Scalar:
    """Share of right predictions.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].
        weights: sample weights [n] >= 0, or None.

    Returns:
        In [0, 1]: a float for numpy input, a 0-dim tensor of torch's default dtype for torch input.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty, or weights are out of range.
    """
    y, p, w, is_torch = _read("accuracy", labels, predictions, weights)
    return _result(w[y == p].sum() / w.sum(), is_torch)


def recall(labels: Array, predictions: Array, cls: int, *, weights: Array | None = None) -> Scalar:
    """Share of the samples of class `cls` that are predicted as such.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].
        cls: the class.
        weights: sample weights [n] >= 0, or None.

    Returns:
        As `accuracy`.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty, or weights are out of range, or no sample has class `cls`.
    """
    check_class("recall", cls)
    y, p, w, is_torch = _read("recall", labels, predictions, weights)
    members = y == cls
    if not bool(w[members].sum() > 0):
        raise ValueError(f"recall: labels must contain class {cls}, got none of it among {len(y)} samples")
    return _result(w[members & (p == cls)].sum() / w[members].sum(), is_torch)


def precision(labels: Array, predictions: Array, cls: int, *, weights: Array | None = None) -> Scalar:
    """Share of the predictions of class `cls` that are right; 0 if it is never predicted.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].
        cls: the class.
        weights: sample weights [n] >= 0, or None.

    Returns:
        As `accuracy`.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty, or weights are out of range.
    """
    check_class("precision", cls)
    y, p, w, is_torch = _read("precision", labels, predictions, weights)
    predicted = w[p == cls].sum()
    hits = w[(y == cls) & (p == cls)].sum()
    return _result(hits / torch.where(predicted > 0, predicted, 1.0), is_torch)


def macro_f1(labels: Array, predictions: Array, *, weights: Array | None = None) -> Scalar:
    """Unweighted mean of F1 over the classes that occur among labels or predictions.

    F1 of a class is 2 TP / (2 TP + FP + FN): 0 if it is never predicted right.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].
        weights: sample weights [n] >= 0, or None.

    Returns:
        As `accuracy`.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty, or weights are out of range.
    """
    y, p, w, is_torch = _read("macro_f1", labels, predictions, weights)
    size = int(torch.maximum(y.max(), p.max())) + 1
    if size > 2 * len(y):  # numbers of classes far above their count would need as much memory
        (y, p), size = torch.unique(torch.stack((y, p)), return_inverse=True)[1], 2 * len(y)
    right = y == p
    hits = torch.bincount(y[right], weights=w[right], minlength=size)
    total = torch.bincount(y, weights=w, minlength=size) + torch.bincount(p, weights=w, minlength=size)
    return _result((2 * hits / total)[total > 0].mean(), is_torch)
