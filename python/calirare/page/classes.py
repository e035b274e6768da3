"""The words and numbers of the page of a run of many classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from calirare._util.amounts import amount, class_words
from calirare._util.measure_tables import floor_of
from calirare._util.run_files import RECALIBRATION
from calirare.graph import Graph
from calirare.page.content import EARLIER, sentence
from calirare.page.picture import picture_of
from calirare.page.slices import Slice, slices_of
from calirare.page.variables import variables_of
from calirare.run import TOGETHER, Choice, SavedRun

UNSURE = 25  # rows of the table of nodes to look at
INSTEAD = "the calibrator was fitted on cross-validated logits instead"  # as a note of the run ends
OF_RARE = "mean P(rare) of its neighbours"  # a division that many classes do not have
PICTURES = (
    ("reliability.png", "Reliability of the confidence in the predicted class"),
    ("classes.png", "Does each class happen as often as its probability says?"),
)
EACH = ("nodes", "share", "mean P / share", "recall", "precision", "AUPRC", "ECE of P (floor)")


def _verdict(metrics: dict[str, Any]) -> dict[str, str | None]:
    """Returns what the check of leave-one-out logits says, and its style; where the map took others, that it did."""
    agreement = metrics["agreement"]
    if agreement is None:
        return {"verdict": None, "verdict_class": None}
    if any(note.endswith(INSTEAD) for note in metrics["notes"]):
        return {"verdict": f"not passed, {INSTEAD}", "verdict_class": "caution"}
    return {"verdict": agreement["verdict"], "verdict_class": agreement["verdict"].split()[0]}


def class_values(saved: SavedRun, metrics: dict[str, Any], queue: pd.DataFrame) -> dict[str, Any]:
    """Returns the template's values without slices, reasons and labels, from the run's metrics.json and review.csv."""
    graph = metrics["graph"]
    side = metrics["target"] if metrics["target"] in metrics["classes"] else "raw"
    head, rows = _together(metrics)
    return {
        "title": f"{graph['name']}: {amount(len(graph['classes']), 'class', 'classes')}",
        **_verdict(metrics),
        "lead": _lead(metrics, side) + [EARLIER] * (saved.folder / RECALIBRATION).is_file(),
        "target": side,
        "together_head": head,
        "together": rows,
        "each_head": ("class", *EACH),
        "each": [_each(row) for row in metrics["classes"][side]],
        "unsure": _unsure(queue, saved.class_names),
        "limits": _limits(metrics),
        "pictures": [picture_of(saved.folder / name, words) for name, words in PICTURES],
    }


def _lead(metrics: dict[str, Any], side: str) -> list[str]:
    """Returns what a reader who has half a minute should know, plain sentences."""
    graph, report = metrics["graph"], metrics["report"][side]
    rare, shares = metrics["rare_classes"], metrics["estimated_shares"]
    told = f"{class_words(rare[0])}, to be expected at {shares[rare[0]]:.2%} of the nodes" if rare else "none"
    lines = [
        f"A graph of {amount(graph['nodes'], 'node')} of {amount(len(graph['classes']), 'class', 'classes')}; "
        f"{amount(graph['labels_trained_on'], 'label')} trained the detector.",
        f"On {amount(metrics['n_judged'], metrics['judged_on'] + ' node')} the predicted class is right for "
        f"{report['accuracy']:.1%}; log loss {report['nll']:.3f}, ECE of the confidence {report['ece']:.3f}, where "
        f"perfect calibration leaves {report['ece_noise_floor']:.3f}.",
        f"The rarest class (less than half of an equal share): {told}.",
    ]
    if metrics["choice"] is not None:
        lines.append(sentence(Choice.from_mapping(metrics["choice"]).graph_sentence))
    return lines


def _together(metrics: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of the measures of all classes together, before calibration and after."""
    sides = sorted(metrics["report"], key=lambda side: (side != "raw", side))
    rows = []
    for key, label in TOGETHER:
        reports = [metrics["report"][side] for side in sides]
        floors = f"{key}_noise_floor" in reports[0]
        cells = [f"{r[key]:.3f}" + (floor_of(r[f"{key}_noise_floor"]) if floors else "") for r in reports]
        rows.append([label + (" (floor)" if floors else ""), *cells])
    return ["", *("before calibration" if side == "raw" else side for side in sides)], rows


def _each(row: dict[str, Any]) -> list[str]:
    shown = [row[key] for key in ("mean_p_over_share", "recall", "precision", "auprc")]
    numbers = ["" if value is None else f"{value:.2f}" for value in shown]
    error = f"{row['ece']:.3f}{floor_of(row['ece_noise_floor'])}"
    return [class_words(row["name"]), f"{row['n']:,}", f"{row['share']:.1%}", *numbers, error]


def _unsure(queue: pd.DataFrame, names: tuple[str, ...]) -> list[dict[str, str]]:
    """Returns the first rows of the queue, with the predicted class and the most likely other one."""
    first = queue.head(UNSURE)
    p = first[[f"p_{name}" for name in names]].to_numpy(dtype=np.float64)
    rows = []
    for i, (node, confidence) in enumerate(zip(first["node"].astype(str), first["confidence"], strict=True)):
        best, second = np.argsort(-p[i], kind="stable")[:2]
        said = {"node": node, "prediction": class_words(names[best]), "confidence": f"{confidence:.3f}"}
        rows.append(said | {"second": class_words(names[second]), "p_second": f"{p[i][second]:.3f}"})
    return rows


def _limits(metrics: dict[str, Any]) -> list[str]:
    """Returns what a reader must not take from the page."""
    lines = list(metrics["notes"])
    if metrics["agreement"] is not None:
        lines.append(sentence(f"leave-one-out check: {metrics['agreement']['reason']}"))
    lines.append(
        "Everything here is about nodes like the labelled ones. Labels that were chosen because somebody suspected "
        "something, another region or another month may have the classes in other shares."
    )
    return lines


def sliced_classes(graph: Graph, predictions: pd.DataFrame, metrics: dict[str, Any]) -> tuple[list[Slice], str]:
    """Returns the slices of the test nodes by their confidence, or why there are none."""
    known = (predictions["split"] == "test") & (predictions["y"] != "")
    told = np.flatnonzero(known.to_numpy())
    if len(told) == 0:
        return [], "the run has no labelled test nodes to judge slices by"
    scored = graph.scored_nodes.cpu().numpy()
    p = predictions["confidence"].to_numpy(dtype=np.float64)[told]
    right = (predictions["prediction"] == predictions["y"]).to_numpy()[told]
    divisions = [v for v in variables_of(graph, np.full(graph.n_nodes, np.nan)) if v.name != OF_RARE]
    return slices_of(divisions, p, right, scored[told]), ""
