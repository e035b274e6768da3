"""Dictionaries with every number a run writes down: for one label per sample, and for several."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare._util.arrays import Array
from calirare._util.keywords import known_keywords
from calirare.metrics.adaptive_error import class_ace, macro_ace
from calirare.metrics.binned_error import classwise_ece, ece, mce
from calirare.metrics.inputs import read
from calirare.metrics.predictions import class_members, predicted_classes, refuse_multilabel
from calirare.metrics.proper_scores import brier, nll
from calirare.metrics.resampling import class_ace_noise_floor, macro_ace_noise_floor, noise_floor


@known_keywords
def calibration_report(
    y_true: Array,
    p: Array,
    *,
    minority: int = 1,
    n_bins: int = 15,
    n_ace_bins: int = 20,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> dict[str, float]:
    """Prediction quality, calibration errors and their noise floors.

    Args:
        y_true: int [n]; class `minority` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        minority: the rare class: recall, precision and ace_minority are about it.
        n_bins: bins of ece, mce and classwise_ece.
        n_ace_bins: bins of ace_minority and macro_ace.
        n_draws: draws of the noise floors.
        seed: seed of the noise floors; the same input and seed give the same numbers.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain floats under the keys recall, precision, accuracy, macro_f1, ace_minority, ace_minority_noise_floor,
        macro_ace, macro_ace_noise_floor, ece, ece_noise_floor, mce, classwise_ece, nll, brier. Computed on the CPU, so
        that the device does not change a digit of the sums.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has class `minority`.
    """
    name = "calibration_report"
    data = refuse_multilabel(name, read(name, y_true, p, weights).on_cpu())
    class_members(name, data, minority, "minority")
    y, q, w = data.labels, data.probabilities, data.weights
    floors: dict[str, Any] = {"n_draws": n_draws, "seed": seed}
    values = _decisions(y.numpy(), predicted_classes(data).numpy(), minority, None if w is None else w.numpy()) | {
        "ace_minority": class_ace(y, q, minority, n_ace_bins, weights=w),
        "ace_minority_noise_floor": class_ace_noise_floor(y, q, minority, n_ace_bins, weights=w, **floors).mean,
        "macro_ace": macro_ace(y, q, n_ace_bins, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(y, q, n_ace_bins, weights=w, **floors).mean,
        "ece": ece(y, q, n_bins, weights=w),
        "ece_noise_floor": noise_floor(lambda drawn, q: ece(drawn, q, n_bins, weights=w), q, **floors).mean,
        "mce": mce(y, q, n_bins, weights=w),
        "classwise_ece": classwise_ece(y, q, n_bins, weights=w),
        "nll": nll(y, q, weights=w),
        "brier": brier(y, q, weights=w),
    }
    return {name: float(value) for name, value in values.items()}


def _decisions(y: np.ndarray, predicted: np.ndarray, minority: int, weights: np.ndarray | None) -> dict[str, Any]:
    """Returns recall and precision of the minority, accuracy and macro-F1 of the predicted classes."""
    from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

    if weights is not None:  # a class of weight 0 alone is absent
        y, predicted, weights = (each[weights > 0] for each in (y, predicted, weights))
    given: dict[str, Any] = {"sample_weight": weights, "average": "macro", "zero_division": 0.0}
    return {
        "recall": recall_score(y, predicted, labels=[minority], **given),
        "precision": precision_score(y, predicted, labels=[minority], **given),
        "accuracy": accuracy_score(y, predicted, sample_weight=weights),
        "macro_f1": f1_score(y, predicted, **given),
    }


@known_keywords
def marginal_report(
    y_true: Array, p: Array, *, n_bins: int = 15, n_draws: int = 200, seed: int = 0, weights: Array | None = None
) -> dict[str, float]:
    """Prediction quality and marginal calibration of a multi-label model.

    Args:
        y_true: [n, K] of 0 and 1.
        p: [n, K], each label's own.
        n_bins: bins of the calibration errors.
        n_draws: draws of the noise floor.
        seed: seed of the noise floor.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain floats: hamming_loss, subset_accuracy, macro_ace, macro_ace_noise_floor, ece, mce, classwise_ece,
        classwise_ece_noise_floor, nll, brier. The calibration errors are means over labels.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or there is one label per sample.
    """
    name = "marginal_report"
    data = read(name, y_true, p, weights).on_cpu()
    if data.kind != "multilabel":
        raise ValueError(f"{name}: y_true must be [n, K] of 0 and 1, got shape {tuple(data.labels.shape)}")
    y, q, w = data.labels, data.probabilities, data.weights
    wrong = (q > 0.5) != y.bool()
    floors: dict[str, Any] = {"n_draws": n_draws, "seed": seed}
    floor = noise_floor(lambda drawn, q: classwise_ece(drawn, q, n_bins, weights=w), q, multilabel=True, **floors)
    values: dict[str, Any] = {
        "hamming_loss": data.mean(wrong.double()),
        "subset_accuracy": data.mean((~wrong.any(1)).double()),
        "macro_ace": macro_ace(y, q, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(y, q, weights=w, **floors).mean,
        "ece": ece(y, q, n_bins, weights=w),
        "mce": mce(y, q, n_bins, weights=w),
        "classwise_ece": classwise_ece(y, q, n_bins, weights=w),
        "classwise_ece_noise_floor": floor.mean,
        "nll": nll(y, q, weights=w),
        "brier": brier(y, q, weights=w),
    }
    return {key: float(value) for key, value in values.items()}
