"""What judges a run of many classes: measures of all together and of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from calirare._util.memory import draws_for
from calirare.metrics import (
    auprc,
    calibration_error,
    calibration_report,
    classwise_ece,
    noise_floor,
)

RARE = 0.5  # of an equal share: below it a class is named as rare
TOGETHER = (
    ("accuracy", "accuracy"),
    ("macro_f1", "macro-F1"),
    ("nll", "NLL"),
    ("brier", "Brier score"),
    ("ece", "ECE"),
    ("classwise_ece", "classwise ECE"),
    ("macro_ace", "Macro-ACE"),
)
OF_MINORITY = ("recall", "precision", "ace_minority", "ace_minority_noise_floor")


def measures_together(labels: Tensor, p: Tensor) -> dict[str, float]:
    """Returns what judges all classes together, each calibration error with its noise floor.

    Args:
        labels: int64 [n], on the CPU.
        p: float64 [n, k].
    """
    draws = draws_for(p.numel())
    commonest = int(torch.bincount(labels).argmax())
    values = calibration_report(labels, p, minority=commonest, n_draws=draws)
    floor = noise_floor(classwise_ece, p, n_draws=draws).mean
    return {k: v for k, v in values.items() if k not in OF_MINORITY} | {"classwise_ece_noise_floor": floor}


def measures_by_class(labels: Tensor, p: Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row per class: how common it is, how it is found, and whether its probability is right.

    Args:
        labels: int64 [n], on the CPU.
        p: float64 [n, k].
        names: of the classes.

    Returns:
        name, n, share, mean_p, mean_p_over_share, recall, precision, auprc, ece and ece_noise_floor of P(class); what a
        class without a judged node leaves undefined is None.
    """
    predicted, draws = p.argmax(1).numpy(), draws_for(p.numel())
    rows = list[dict[str, Any]]()
    for c, name in enumerate(names):
        here, of_class = labels == c, p[:, c]
        n, mean = int(here.sum()), float(of_class.mean())
        share = n / max(labels.numel(), 1)
        row: dict[str, Any] = {"name": name, "n": n, "share": share, "mean_p": mean}
        row["mean_p_over_share"] = mean / share if n else None
        row["recall"] = float((predicted[here.numpy()] == c).mean()) if n else None
        row["precision"] = float(here.numpy()[predicted == c].mean()) if bool((predicted == c).any()) else None
        row["auprc"] = float(auprc(here.long(), of_class)) if 0 < n < labels.numel() else None
        row["ece"] = float(calibration_error(here.long(), of_class))
        row["ece_noise_floor"] = noise_floor(calibration_error, of_class, n_draws=draws).mean
        rows.append(row)
    return rows


def rare_among(names: Sequence[str], shares: Sequence[float]) -> list[str]:
    """Returns the classes with less than half of an equal share, the rarest first."""
    below = RARE / len(names)
    return [names[c] for c in sorted(range(len(names)), key=lambda c: shares[c]) if shares[c] < below]
