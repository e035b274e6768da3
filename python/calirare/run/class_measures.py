"""What judges a run of many classes: measures of all together and of each class, and their tables for a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from calirare._util.amounts import listed
from calirare._util.draws import draws_for
from calirare.metrics import (
    auprc,
    calibration_error,
    calibration_report,
    classwise_ece,
    noise_floor,
)
from calirare.run.choice import Choice

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


def class_summary(metrics: dict[str, Any], width: int) -> str:
    """Returns the summary of a run's metrics (`run.classes`) for a terminal of some width."""
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False)
    title = (
        f"{metrics['graph']['name']}: {metrics['n_judged']:,} {metrics['judged_on']} nodes of "
        f"{len(metrics['graph']['classes'])} classes"
    )
    console.print(_together(metrics, title), highlight=False)
    console.print(_by_class(metrics), highlight=False)
    lines = ["(floor): what a perfectly calibrated model scores on as many nodes by chance"]
    if len(metrics["report"]) > 1:
        lines.append("* the target of prediction and confidence in predictions.csv; --target takes the other")
    rare = metrics["rare_classes"]
    lines.append(f"rare classes (less than half of an equal share): {listed(rare) if rare else 'none'}")
    if metrics["agreement"] is not None:
        lines.append(f"leave-one-out check: {metrics['agreement']['verdict']} ({metrics['agreement']['reason']})")
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    return out.getvalue() + "\n".join([*lines, *(f"note: {note}" for note in metrics["notes"])]) + "\n"


def _together(metrics: dict[str, Any], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    sides = sorted(metrics["report"], key=lambda side: (side != "raw", side))
    for side in sides:
        star = " *" if side == metrics["target"] else ""
        table.add_column("before" if side == "raw" else side + star, justify="right")
    for key, label in TOGETHER:
        floors = f"{key}_noise_floor" in metrics["report"]["raw"]
        cells = [
            f"{report[key]:.3f}" + (f" ({report[f'{key}_noise_floor']:.3f})" if floors else "")
            for report in (metrics["report"][side] for side in sides)
        ]
        table.add_row(label + (" (floor)" if floors else ""), *cells)
    return table


def _by_class(metrics: dict[str, Any]) -> Table:
    side = metrics["target"] if metrics["target"] in metrics["classes"] else "raw"
    table = Table(title=f"by class, {'before calibration' if side == 'raw' else side}", title_justify="left")
    table.add_column("class")
    for name in ("nodes", "share", "mean P / share", "recall", "precision", "AUPRC", "ECE of P (floor)"):
        table.add_column(name, justify="right")
    for row in metrics["classes"][side]:
        shown = [_number(row[key]) for key in ("mean_p_over_share", "recall", "precision", "auprc")]
        error = f"{row['ece']:.3f} ({row['ece_noise_floor']:.3f})"
        table.add_row(row["name"], f"{row['n']:,}", f"{row['share']:.1%}", *shown, error)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
