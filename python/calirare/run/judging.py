"""What a run is judged by: labelled nodes with probabilities in which no node's own label has a say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import brief
from calirare._util.measure_tables import SIDES
from calirare._util.memory import draws_for, resamples_for
from calirare.metrics import auprc, calibration_report, classwise_ece, ece, noise_floor
from calirare.plots import class_panels, confidence_panel, reliability_diagram

RAW = "raw"  # the side before calibration
DRAWN_CLASSES = 12  # panels of classes.png: of more classes the rarest
RARE = 0.5  # of an equal share: below it a class is named as rare
TOGETHER = (
    ("accuracy", "accuracy"),
    ("macro_f1", "macro-F1"),
    ("nll", "log loss"),
    ("brier", "Brier score"),
    ("ece", "ECE"),
    ("classwise_ece", "classwise ECE"),
)
OF_MINORITY = ("recall", "precision", "ace_minority", "ace_minority_noise_floor")


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled nodes that judge a run.

    Attributes:
        on: what they are: "test", "leave-one-out" (the labels, each without itself), "known or drawn" or "fresh"
            (labels that calibrators were fitted on again, each by calibrators without it).
        labels: their classes, int64 [m], on the CPU.
        p: their probabilities before calibration ("raw") and for each target, [m, k], on the CPU.
        nodes: int64 [m]; None: they are not the run's own.
        groups: int64 [m, g], transactions that share a party, see `party_groups`; None: they are none.
    """

    on: str
    labels: Tensor
    p: Mapping[str, Tensor]
    nodes: Tensor | None = None
    groups: NumpyArray | None = None

    __repr__ = brief

    @property
    def draws(self) -> tuple[int, int]:
        """Bootstrap resamples, and simulations of a perfect model, that take about a second."""
        return resamples_for(self.labels.numel()), draws_for(self.labels.numel())

    def measures(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns what metrics.json of a run of every class holds of them; `names` are those of the classes."""
        return {
            "judged_on": self.on,
            "n_judged": int(self.labels.numel()),
            "report": {side: measures_together(self.labels, p) for side, p in self.p.items()},
            "classes": {side: measures_by_class(self.labels, p, names) for side, p in self.p.items()},
        }

    def draw(self, folder: Path, name: str, names: Sequence[str], target: str) -> None:
        """Draws `reliability.png`, of the predicted class, and `classes.png`, of every class's probability.

        Args:
            folder: where they are written.
            name: of the graph.
            names: of the classes.
            target: of the run; without its calibrator the pictures are of before calibration only.
        """
        panels = [confidence_panel("before calibration", self.labels, self.p[RAW])]
        p, after = self.p.get(target, self.p[RAW]), "before calibration"
        if target in self.p:
            after = SIDES[target]
            panels.append(confidence_panel(after, self.labels, p))
        title = f"{name}: is the predicted class right as often as it says? ({self.on} nodes)"
        reliability_diagram(panels, folder / "reliability.png", title=title)
        chosen, which = panels[-1:], ""
        if p.shape[1] > 2:
            counts = torch.bincount(self.labels, minlength=p.shape[1])
            rarest = counts.argsort(stable=True)[:DRAWN_CLASSES].sort().values.tolist()
            every = class_panels(self.labels, p, class_names=names)
            chosen = [every[c] for c in rarest]
            which = "" if len(chosen) == len(every) else f", the {len(chosen)} rarest"
        title = f"{name}: does each class happen as often as its probability says{which}? ({after}, {self.on} nodes)"
        where, columns = folder / "classes.png", min(4, len(chosen))
        reliability_diagram(chosen, where, n_columns=columns, title=title, x_label="P(class)", y_label="share of class")


def measures_together(labels: Tensor, p: Tensor) -> dict[str, float]:
    """Returns the measures of all classes, each calibration error with its value under perfect calibration.

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
        row["ece"] = float(ece(here.long(), of_class))
        row["ece_noise_floor"] = noise_floor(ece, of_class, n_draws=draws).mean
        rows.append(row)
    return rows


def rare_among(names: Sequence[str], shares: Sequence[float]) -> list[str]:
    """Returns the classes with less than half of an equal share, the rarest first."""
    below = RARE / len(names)
    return [names[c] for c in sorted(range(len(names)), key=lambda c: shares[c]) if shares[c] < below]
