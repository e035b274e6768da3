"""The report for several labels per sample."""

from __future__ import annotations

from typing import Any

from calirare.metrics._inputs import Array, as_scores, read
from calirare.metrics.ace import macro_ace
from calirare.metrics.ece import classwise_ece, ece, mce
from calirare.metrics.proper_scores import brier, nll
from calirare.metrics.resampling import macro_ace_noise_floor, noise_floor


def multilabel_report(
    probabilities: Array,
    labels: Array,
    *,
    n_bins: int = 15,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> dict[str, float]:
    """Prediction quality and marginal calibration of a multi-label model.

    Args:
        probabilities: [n, K], each label's own.
        labels: [n, K] of 0 and 1.
        n_bins: bins of the calibration errors.
        n_draws: draws of the noise floor.
        seed: seed of the noise floor.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain floats: hamming_loss, subset_accuracy, macro_ace, macro_ace_noise_floor, ece, mce, classwise_ece,
        classwise_ece_noise_floor, nll, brier. The calibration errors are means over labels.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    name = "multilabel_report"
    p = as_scores(name, "probabilities", probabilities, ndim=(2,)).detach().cpu()
    data = read(name, p, labels, weights)
    if data.kind != "multilabel":
        raise ValueError(f"{name}: labels must be [n, K] of 0 and 1, got shape {tuple(data.labels.shape)}")
    y, w = data.labels, data.weights
    wrong = (p > 0.5) != y.bool()
    floor = noise_floor(
        lambda q, drawn: classwise_ece(q, drawn, n_bins, weights=w), p, n_draws=n_draws, seed=seed, multilabel=True
    )
    values: dict[str, Any] = {
        "hamming_loss": data.mean(wrong.double()),
        "subset_accuracy": data.mean((~wrong.any(1)).double()),
        "macro_ace": macro_ace(p, y, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(p, y, n_draws=n_draws, seed=seed, weights=w).mean,
        "ece": ece(p, y, n_bins, weights=w),
        "mce": mce(p, y, n_bins, weights=w),
        "classwise_ece": classwise_ece(p, y, n_bins, weights=w),
        "classwise_ece_noise_floor": floor.mean,
        "nll": nll(p, y, weights=w),
        "brier": brier(p, y, weights=w),
    }
    return {key: float(value) for key, value in values.items()}
