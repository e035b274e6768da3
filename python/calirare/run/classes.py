"""What `calirare.train_classes` returns: calibrated probabilities of every class, and what a run's folder holds."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from rich.console import Console
from rich.table import Table
from torch import Tensor

from calirare._util.brief import brief
from calirare._util.device import choose_device
from calirare.calibration import TARGETS, Calibrator, Target
from calirare.drift import Reference
from calirare.features import FeatureMap
from calirare.graph import Graph, fingerprint
from calirare.leave_one_out import Agreement
from calirare.metrics import (
    auprc,
    calibration_error,
    calibration_report,
    classwise_ece,
    noise_floor,
    precision,
    recall,
)
from calirare.models import GcnFit
from calirare.plots import class_panels, confidence_panel, reliability_diagram
from calirare.run.choice import Choice
from calirare.run.folder import CLASSES, CONFIG, write_json, write_model
from calirare.run.probabilities import LIKELIER
from calirare.run.report import LEAST, WORK
from calirare.run.result import CalibratedRun
from calirare.run.scoring import NO_TABLES, Scorer
from calirare.run.settings import Settings
from calirare.run.summary import WIDTH
from calirare.run.tables import node_column, part_column, write_predictions
from calirare.training import Fitted

DRAWN_CLASSES = 12  # panels of classes.png: of more classes the rarest


@dataclass(eq=False)
class ClassesOutcome(CalibratedRun):
    """A trained and calibrated detector of many classes.

    Attributes:
        graph: the graph, with labels and split.
        settings: how it was made, as asked for.
        fit: the detector and the labels it was trained on.
        logits: of every node [n, k].
        own_logits: of each training label from the model without it, [m, k]; None where calibration took none.
        calibrators: the fitted map of each target; empty without calibration.
        agreement: how leave-one-out loss and held-out loss compare; None without the check.
        notes: sentences a user should read.
        seconds: wall time of each stage.
        choice: what was chosen among detectors, and why; None where one was asked for.
        features: what the features became; None stands for "stored".
    """

    graph: Graph
    settings: Settings
    fit: Fitted
    logits: Tensor
    own_logits: Tensor | None
    calibrators: dict[Target, Calibrator]
    agreement: Agreement | None
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    choice: Choice | None = None
    features: FeatureMap | None = None

    __repr__ = brief

    def mapped_logits(self, logits: Tensor, target: Target | None) -> Tensor:
        """Returns the probabilities of logits [m, k], float64."""
        return super().mapped_logits(logits.double(), target)

    def judged(self) -> tuple[str, Tensor, Tensor]:
        """Returns what the run is judged on ("test" or "leave-one-out"), the nodes, and their logits.

        These are the labelled test nodes; where there is none the labelled nodes, each without its own label.

        Raises:
            ValueError: there is neither.
        """
        split, y = self.graph.split, self.graph.y
        assert split is not None
        assert y is not None
        test = split.test[y[split.test] >= 0]
        if test.numel():
            return "test", test, self.logits[test]
        if self.own_logits is None:
            raise ValueError("judged: there must be a labelled test node, or leave-one-out logits, got neither")
        known = torch.isfinite(self.own_logits).all(1)
        return "leave-one-out", self.fit.nodes[known], self.own_logits[known]

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Everything `metrics.json` holds: plain numbers and strings."""
        judged_on, nodes, logits = self.judged()
        names, target = self.graph.class_names, self.settings.calibration.target
        assert self.graph.y is not None
        labels = self.graph.y[nodes].cpu()
        sides: dict[str, Target | None] = {"raw": None} | {str(t): t for t in TARGETS if t in self.calibrators}
        p = {side: self.mapped_logits(logits, t).cpu() for side, t in sides.items()}
        shares = self.probabilities("population")[self.graph.scored_nodes].mean(0).tolist()
        return {
            "task": "classes",
            "graph": self._graph_facts(),
            "method": self.settings.method,
            "model": self.settings.model,
            "target": target,
            "judged_on": judged_on,
            "n_judged": int(nodes.numel()),
            "report": {side: measures_together(labels, q) for side, q in p.items()},
            "classes": {side: measures_by_class(labels, q, names) for side, q in p.items()},
            "estimated_shares": dict(zip(names, shares, strict=True)),
            "rare_classes": rare_among(names, shares),
            "agreement": None if self.agreement is None else vars(self.agreement),
            "calibrators": {str(t): c.state() for t, c in self.calibrators.items()},
            "choice": None if self.choice is None else self.choice.to_mapping(),
            "notes": self.notes,
        }

    def _graph_facts(self) -> dict[str, Any]:
        graph, split = self.graph, self.graph.split
        assert split is not None
        parts = {name: int(getattr(split, name).numel()) for name in ("train", "val", "test")}
        return {
            "name": graph.name,
            "nodes": graph.n_nodes,
            "directed_edges": graph.n_edges,
            "features": graph.n_features,
            "classes": list(graph.class_names),
            "split": split.name,
            **parts,
            "labels_trained_on": int(self.fit.nodes.numel()),
        }

    def summary(self, width: int = WIDTH) -> str:
        """Returns measures before and after calibration, the classes one by one, the verdict and notes, as text."""
        return class_summary(self.metrics, width)

    def to_frame(self) -> pd.DataFrame:
        """Returns one row per scored node: the predicted class, its probability, and that of every class.

        Returns:
            node, split, y (name of the class, empty where unknown), prediction, confidence, confidence_raw (the
            detector's own), then `p_<class>` of each class, for the run's target.
        """
        graph, names = self.graph, self.graph.class_names
        assert graph.y is not None
        p = self.probabilities(self.settings.calibration.target).cpu()
        confidence, predicted = p.max(1)
        columns: dict[str, Any] = {
            "node": node_column(graph),
            "split": part_column(graph.n_nodes, graph.split),
            "y": [names[c] if c >= 0 else "" for c in graph.y.tolist()],
            "prediction": [names[c] for c in predicted.tolist()],
            "confidence": confidence.numpy(),
            "confidence_raw": self.probabilities().max(1).values.cpu().numpy(),
        }
        table = pd.DataFrame(columns | {f"p_{name}": p[:, c].numpy() for c, name in enumerate(names)})
        return table if graph.scored is None else table[graph.scored.cpu().numpy()].reset_index(drop=True)

    def write(self, folder: Path) -> None:
        """Writes what a run's folder holds into an empty folder."""
        (folder / CONFIG).write_text(yaml.safe_dump(self._resolved().to_mapping(), sort_keys=False), encoding="utf-8")
        write_json(self.metrics, folder / "metrics.json")
        write_predictions(self.to_frame(), folder)
        assert self.graph.split is not None
        write_model(self.scorer(), self.graph.split, fingerprint(self.graph), None, folder / CLASSES)
        self._draw(folder)

    def scorer(self) -> Scorer:
        """Returns what scores other graphs with the run; of its graph's scores nothing is remembered."""
        graph, features = self.graph, self.features or FeatureMap.fit(self.graph, "stored")
        nobody = torch.empty(0, dtype=torch.int64)
        return Scorer(
            self.fit,
            self.settings,
            self.calibrators,
            0.0,
            None,
            graph.class_names,
            features,
            LIKELIER,
            Reference.of(graph, features, torch.zeros(graph.n_nodes), nobody),
            graph.tables or NO_TABLES,
            bool((graph.adjacency.values != 1).any()),
        )

    def _resolved(self) -> Settings:
        """Returns every setting as the run took it, paths absolute: the same run again."""
        data, training = dataclasses.replace(self.settings.data.absolute(), task="classes"), self.settings.training
        if isinstance(self.fit, GcnFit) and self.settings.model in ("gcn", "hops"):
            epochs = max(len(self.fit.losses), 1)
            decay, hops = self.fit.weight_decay, self.fit.hops
            training = dataclasses.replace(training, epochs=epochs, weight_decay=decay, hops=hops)
        return dataclasses.replace(
            self.settings, data=data, training=training, device=choose_device(self.settings.device).type
        )

    def _draw(self, folder: Path) -> None:
        """Draws `reliability.png`, of the predicted class, and `classes.png`, of every class's probability."""
        judged_on, nodes, logits = self.judged()
        target, name = self.settings.calibration.target, self.graph.name
        assert self.graph.y is not None
        labels = self.graph.y[nodes].cpu()
        panels = [confidence_panel("before calibration", labels, self.mapped_logits(logits, None).cpu())]
        p = self.mapped_logits(logits, target).cpu()
        after = "before calibration"
        if self.calibrators:
            after = f"after, target {target}"
            panels.append(confidence_panel(after, labels, p))
        title = f"{name}: is the predicted class right as often as it says? ({judged_on} nodes)"
        reliability_diagram(panels, folder / "reliability.png", title=title)
        shares = torch.bincount(labels, minlength=p.shape[1])
        rarest = shares.argsort(stable=True)[:DRAWN_CLASSES].sort().values.tolist()
        every = class_panels(labels, p, class_names=self.graph.class_names) if p.shape[1] > 2 else panels[-1:]
        chosen = [every[c] for c in rarest] if p.shape[1] > 2 else every
        which = "" if len(chosen) == len(every) else f", the {len(chosen)} rarest"
        title = f"{name}: does each class happen as often as its probability says{which}? ({after}, {judged_on} nodes)"
        columns = min(4, len(chosen))
        reliability_diagram(
            chosen, folder / "classes.png", n_columns=columns, title=title, x_label="P(class)", y_label="share of class"
        )


RARE = 0.5  # of an equal share: below it a class is named as rare
DRAWS = 200
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
    draws = draws_for(p)
    commonest = int(torch.bincount(labels).argmax())
    values = calibration_report(labels, p, minority=commonest, n_draws=draws)
    floor = noise_floor(classwise_ece, p, n_draws=draws).mean
    return {k: v for k, v in values.items() if k not in OF_MINORITY} | {"classwise_ece_noise_floor": floor}


def draws_for(p: Tensor) -> int:
    """Returns how many draws of a noise floor take about a second."""
    return max(LEAST, min(DRAWS, WORK // max(p.numel(), 1)))


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
    predicted, draws = p.argmax(1).numpy(), draws_for(p)
    rows = list[dict[str, Any]]()
    for c, name in enumerate(names):
        here, of_class = labels == c, p[:, c]
        n, mean = int(here.sum()), float(of_class.mean())
        share = n / max(labels.numel(), 1)
        row: dict[str, Any] = {"name": name, "n": n, "share": share, "mean_p": mean}
        row["mean_p_over_share"] = mean / share if n else None
        row["recall"] = recall(labels.numpy(), predicted, c) if n else None
        row["precision"] = precision(labels.numpy(), predicted, c) if bool((predicted == c).any()) else None
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
    lines.append(f"rare classes (less than half of an equal share): {', '.join(rare) if rare else 'none'}")
    if metrics["agreement"] is not None:
        lines.append(f"leave-one-out check: {metrics['agreement']['verdict']} ({metrics['agreement']['reason']})")
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    return out.getvalue() + "\n".join([*lines, *(f"note: {note}" for note in metrics["notes"])]) + "\n"


def _together(metrics: dict[str, Any], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    for side in metrics["report"]:
        star = " *" if side == metrics["target"] else ""
        table.add_column("before" if side == "raw" else side + star, justify="right")
    for key, label in TOGETHER:
        floors = f"{key}_noise_floor" in metrics["report"]["raw"]
        cells = [
            f"{report[key]:.3f}" + (f" ({report[f'{key}_noise_floor']:.3f})" if floors else "")
            for report in metrics["report"].values()
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
