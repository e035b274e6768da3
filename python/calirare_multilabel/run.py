"""A multi-label run: train, calibrate, measure, and write a folder a person can use."""

from __future__ import annotations

import csv
import dataclasses
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from torch import Tensor

from calirare._util.array_files import write_tensors
from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import fresh_folder
from calirare.graph import PARTS
from calirare.plots import Panel, reliability_diagram
from calirare_ext import __version__
from calirare_multilabel.data import MultilabelData
from calirare_multilabel.evaluate import multilabel_report
from calirare_multilabel.training import (
    BetaChoice,
    TrainedModel,
    TrainOptions,
    choose_beta,
    fit_temperature,
    train_network,
)

Calibration = Literal["none", "temperature"]


@dataclass(frozen=True, eq=False)
class MultilabelOutcome:
    """What a training gave.

    Attributes:
        data: standardised.
        model: the network.
        choice: which beta the validation rows chose; None where beta was given or plays no part.
        temperature: fitted on the validation rows; 1 without calibration.
        reports: part -> side ("raw", "calibrated") -> measures.
    """

    data: MultilabelData
    model: TrainedModel
    choice: BetaChoice | None
    temperature: float
    reports: dict[str, dict[str, dict[str, float]]]


def train_and_measure(
    data: MultilabelData,
    options: TrainOptions,
    *,
    choose: bool = False,
    calibration: Calibration = "none",
    floors: int = 0,
    reporter: Reporter | None = None,
) -> MultilabelOutcome:
    """Standardises, trains, calibrates and measures.

    Args:
        data: as loaded.
        options: of the training; their seed is that of the noise floors too.
        choose: let the validation rows choose beta (CMLCC only).
        calibration: "temperature" divides the logits by one number fitted on the validation rows.
        floors: draws for the noise floors of the test rows.
        reporter: shows the epochs.

    Returns:
        The outcome.

    Raises:
        InputError: an option cannot be used.
    """
    if calibration not in ("none", "temperature"):
        raise InputError(f"multilabel training: calibrate must be none or temperature, got {calibration!r}")
    data = data.standardised()
    choice = None
    if choose and options.loss == "cmlcc":
        choice = choose_beta(data, options)
        model = choice.model
    else:
        show = None if reporter is None else lambda epoch, _: reporter("epochs", epoch, options.max_epochs)
        model = train_network(data, options, progress=show)
    rows, labels = data.part("val")
    temperature = fit_temperature(model.logits(data, rows), labels) if calibration == "temperature" else 1.0
    reports: dict[str, dict[str, dict[str, float]]] = {}
    for part in ("val", "test"):
        rows, labels = data.part(part)
        if len(rows) < 2:
            continue
        logits = model.logits(data, rows)
        sides = {"raw": logits} | ({"calibrated": logits / temperature} if calibration != "none" else {})
        draws = floors if part == "test" else 0
        reports[part] = {
            side: multilabel_report(labels, z.sigmoid(), norm=options.p, floors=draws, seed=options.seed)
            for side, z in sides.items()
        }
    return MultilabelOutcome(data, model, choice, temperature, reports)


def write_run(
    outcome: MultilabelOutcome, told: dict[str, Any], out: Path, *, overwrite: bool, reporter: Reporter
) -> list[Path]:
    """Writes config.yaml, metrics.json, predictions.csv, model.safetensors, reliability.png and log.txt.

    Args:
        outcome: what to write.
        told: how the data were loaded.
        out: the folder.
        overwrite: replace a run that is there.
        reporter: keeper of the log.

    Returns:
        The paths.

    Raises:
        InputError: the folder cannot be written.
    """
    model, data = outcome.model, outcome.data
    everything = torch.arange(len(data.x))
    scores = (model.logits(data, everything) / outcome.temperature).sigmoid()
    with fresh_folder(out, overwrite=overwrite) as folder:
        config = {**told, **dataclasses.asdict(model.options), "temperature": outcome.temperature}
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=True), encoding="utf-8")
        metrics = json.dumps(_metrics(outcome), indent=2, sort_keys=True) + "\n"
        (folder / "metrics.json").write_text(metrics, encoding="utf-8")
        _write_predictions(data, scores, folder / "predictions.csv")
        names_of_labels = json.dumps(data.label_names)
        write_tensors(model.network.state_dict(), folder / "model.safetensors", {"labels": names_of_labels})
        part = "test" if "test" in outcome.reports else "val"
        rows, labels = data.part(part)
        _draw_reliability(
            scores[rows], labels, data.label_names, folder / "reliability.png", f"{data.name}, {part} rows"
        )
        reporter.log(f"calirare {__version__}, torch {torch.__version__}, Python {platform.python_version()}")
        reporter.log(f"best epoch {model.best_epoch} of {len(model.history)}")
        (folder / "log.txt").write_text("\n".join(reporter.lines) + "\n", encoding="utf-8")
        names = sorted(path.name for path in folder.iterdir())
    return [out / name for name in names]


def _metrics(outcome: MultilabelOutcome) -> dict[str, Any]:
    data, choice, options = outcome.data, outcome.choice, outcome.model.options
    chosen = None
    if choice is not None:
        names = ("copula_threshold", "hamming_loss")
        table = {str(beta): dict(zip(names, found, strict=True)) for beta, found in choice.table.items()}
        chosen = {"validation": table, "within_slack": choice.within_slack}
    return {
        "data": {
            "name": data.name,
            "rows": {part: len(data.part(part)[0]) for part in PARTS},
            "labels": data.n_labels,
            "label_names": list(data.label_names),
            "graph_edges": None if data.adjacency is None else data.adjacency.nnz,
        },
        "loss": options.loss,
        "beta": options.beta if options.loss == "cmlcc" else None,
        "beta_choice": chosen,
        "best_epoch": outcome.model.best_epoch,
        "temperature": outcome.temperature,
        "report": outcome.reports,
    }


def _write_predictions(data: MultilabelData, scores: Tensor, path: Path) -> None:
    """Writes row, split, y_<label> and p_<label> for each label."""
    part = np.full(len(data.x), "unused", dtype=object)
    for name in PARTS:
        part[getattr(data.split, name).numpy()] = name
    header = ["row", "split", *(f"{kind}_{label}" for kind in "yp" for label in data.label_names)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row, (y, p) in enumerate(zip(data.y.int().tolist(), scores.tolist(), strict=True)):
            writer.writerow([row, part[row], *y, *(f"{value:.9g}" for value in p)])


def _draw_reliability(scores: Tensor, labels: Tensor, names: tuple[str, ...], path: Path, title: str) -> None:
    """Draws the reliability of all label decisions together and of the three commonest and two rarest labels."""
    order = labels.double().mean(0).argsort(descending=True).tolist()
    chosen = order if len(order) <= 5 else order[:3] + order[-2:]
    panels = [Panel("all labels", labels.flatten().long(), scores.flatten())]
    panels += [
        Panel(f"{names[j]} ({float(labels[:, j].double().mean()):.1%})", labels[:, j].long(), scores[:, j])
        for j in chosen
    ]
    reliability_diagram(panels, path, title=title, n_columns=3, x_label="probability", y_label="share with the label")
