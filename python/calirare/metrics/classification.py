"""How good the hard predictions are: accuracy, recall, precision, F1. Labels come first, as in scikit-learn."""

from __future__ import annotations

import torch

from ._inputs import Array, Scalar, as_integers, to_tensor


def _read(function: str, labels: Array, predictions: Array) -> tuple[torch.Tensor, torch.Tensor, bool]:
    y = to_tensor(function, "labels", labels)
    y = as_integers(function, "labels", y, y.device, None)
    p = as_integers(function, "predictions", predictions, y.device, None)
    if y.ndim != 1 or y.numel() == 0:
        raise ValueError(f"{function}: labels must be [n] with n >= 1, got shape {tuple(y.shape)}")
    if p.shape != y.shape:
        raise ValueError(f"{function}: predictions must have shape {tuple(y.shape)}, got {tuple(p.shape)}")
    return y, p, isinstance(labels, torch.Tensor)


def _result(value: torch.Tensor, is_torch: bool) -> Scalar:
    return value.to(torch.get_default_dtype()) if is_torch else float(value)


def accuracy(labels: Array, predictions: Array) -> Scalar:
    """Share of right predictions.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].

    Returns:
        In [0, 1]: a float for numpy input, a 0-dim tensor of torch's default dtype for torch input.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty.
    """
    y, p, is_torch = _read("accuracy", labels, predictions)
    return _result((y == p).double().mean(), is_torch)


def recall(labels: Array, predictions: Array, cls: int) -> Scalar:
    """Share of the samples of class `cls` that are predicted as such.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].
        cls: the class.

    Returns:
        As `accuracy`.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty, or no sample has class `cls`.
    """
    y, p, is_torch = _read("recall", labels, predictions)
    members = y == cls
    if not bool(members.any()):
        raise ValueError(f"recall: labels must contain class {cls}, got none of it among {len(y)} samples")
    return _result((p[members] == cls).double().mean(), is_torch)


def precision(labels: Array, predictions: Array, cls: int) -> Scalar:
    """Share of the predictions of class `cls` that are right; 0 if it is never predicted.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].
        cls: the class.

    Returns:
        As `accuracy`.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty.
    """
    y, p, is_torch = _read("precision", labels, predictions)
    predicted = p == cls
    hits = ((y == cls) & predicted).sum().double()
    return _result(hits / predicted.sum().clamp(min=1), is_torch)


def macro_f1(labels: Array, predictions: Array) -> Scalar:
    """Unweighted mean of F1 over the classes that occur among labels or predictions.

    F1 of a class is 2 TP / (2 TP + FP + FN): 0 if it is never predicted right.

    Args:
        labels: true classes, int [n].
        predictions: predicted classes, int [n].

    Returns:
        As `accuracy`.

    Raises:
        TypeError: not integers.
        ValueError: shapes differ or are empty.
    """
    y, p, is_torch = _read("macro_f1", labels, predictions)
    classes = torch.unique(torch.cat((y, p)))
    size = int(classes[-1]) + 1
    hits = torch.bincount(y[y == p], minlength=size)[classes].double()
    total = (torch.bincount(y, minlength=size) + torch.bincount(p, minlength=size))[classes]
    return _result((2 * hits / total).mean(), is_torch)
