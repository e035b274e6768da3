"""One dictionary with every number a run writes down."""

from __future__ import annotations

from typing import Any

from calirare.metrics._inputs import Array, as_scores, read
from calirare.metrics._predictions import class_members, predicted_classes, refuse_multilabel
from calirare.metrics.ace import class_ace, macro_ace
from calirare.metrics.classification import accuracy, macro_f1, precision, recall
from calirare.metrics.ece import classwise_ece, ece, mce
from calirare.metrics.proper_scores import brier, nll
from calirare.metrics.resampling import class_ace_noise_floor, macro_ace_noise_floor, noise_floor


def calibration_report(
    probabilities: Array,
    labels: Array,
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
        probabilities: [n, C] with rows that sum to one, or [n] = P(class 1).
        labels: int [n]; class `minority` must occur.
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
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has class `minority`.
    """
    p = as_scores("calibration_report", "probabilities", probabilities, ndim=(1, 2)).detach().cpu()
    data = refuse_multilabel("calibration_report", read("calibration_report", p, labels, weights))
    class_members("calibration_report", data, minority, "minority")
    y = data.labels
    predictions = predicted_classes(data).numpy()
    true = y.numpy()
    w = data.weights
    floors: dict[str, Any] = {"n_draws": n_draws, "seed": seed}
    values = {
        "recall": recall(true, predictions, minority, weights=w),
        "precision": precision(true, predictions, minority, weights=w),
        "accuracy": accuracy(true, predictions, weights=w),
        "macro_f1": macro_f1(true, predictions, weights=w),
        "ace_minority": class_ace(p, y, minority, n_ace_bins, weights=w),
        "ace_minority_noise_floor": class_ace_noise_floor(p, y, minority, n_ace_bins, weights=w, **floors).mean,
        "macro_ace": macro_ace(p, y, n_ace_bins, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(p, y, n_ace_bins, weights=w, **floors).mean,
        "ece": ece(p, y, n_bins, weights=w),
        "ece_noise_floor": noise_floor(lambda q, drawn: ece(q, drawn, n_bins, weights=w), p, **floors).mean,
        "mce": mce(p, y, n_bins, weights=w),
        "classwise_ece": classwise_ece(p, y, n_bins, weights=w),
        "nll": nll(p, y, weights=w),
        "brier": brier(p, y, weights=w),
    }
    return {name: float(value) for name, value in values.items()}
