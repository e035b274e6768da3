"""The page's words and numbers, from what a run wrote: of k classes, and of the view of one rare class."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calirare._util.amounts import amount, class_words, count_of, in_unit
from calirare._util.measure_tables import (
    CLASS_HEAD,
    KNOWN_OR_DRAWN,
    OF_RARE,
    before_and_after,
    class_rows,
    detection_rows,
)
from calirare._util.run_files import RECALIBRATION
from calirare.explain import time_in_words
from calirare.explain.audit import Audit
from calirare.page.card import cell_in_words
from calirare.run import TOGETHER, Choice, SavedRun, Verdict

ALERTS = 25  # rows of the table of alerts, or of the nodes whose class is least sure
DOUBTS, EXPLAINED = 15, 5  # labels that are probably wrong, and alerts with their reasons
NARROW = ("precision_recall.png", "budget.png")  # pictures of one panel
PICTURES, CLASS_PICTURES = ("p_rare.png", "precision_recall.png", "budget.png"), ("reliability.png", "classes.png")
EARLIER = (
    "The run was recalibrated on fresh labels. Its numbers, alerts and pictures are from before; the reasons of alerts "
    "and calirare predict use the new calibrators."
)
ALIKE = (
    "All of this holds for nodes like the labelled ones. Labels chosen because somebody suspected something, another "
    "region or another month"
)
STYLES = {"calibrated": "trust", "not known": "caution"}  # of the verdict; others are "do"


def values_of(saved: SavedRun, metrics: dict[str, Any], predictions: pd.DataFrame) -> dict[str, Any]:
    """Returns the template's values, but for slices, reasons and labels, from the files of a run."""
    many, graph = saved.settings.many, metrics["graph"]
    choice = metrics["choice"] or {"rows": [], "loss": None}
    lines = class_lead(metrics) if many else lead(metrics)
    if metrics["choice"] is not None and (effect := Choice.from_mapping(metrics["choice"]).graph_effect):
        lines.append(f"The graph {effect}.")
    if (saved.folder / RECALIBRATION).is_file():
        lines.append(EARLIER)
    verdict = Verdict.from_mapping(metrics["verdict"])
    common = {
        "verdict": sentence(str(verdict)),
        "unit": (unit := graph.get("unit", "node")),
        "verdict_class": STYLES.get(verdict.answer, "do"),
        "lead": lines,
        "graph": graph,
        "detectors": sorted(choice["rows"], key=lambda row: -row["weight"]),
        "detectors_loss": choice["loss"],
        "limits": limits(metrics),
        "pictures": [picture_of(saved.folder / name) for name in (CLASS_PICTURES if many else PICTURES)],
    }
    if many:
        return common | _class_values(saved, metrics)
    first = alerts(predictions, saved)
    own = {
        "title": f"{graph['name']}: {class_words(graph['rare_class'])}",
        "rare": class_words(graph["rare_class"]),
        "keys": keys_of(saved),
        "ranges": "p_low" in predictions,
        "covered": f"{metrics['interval_coverage']['wanted']:.0%}",
        "of_known": of_known(metrics),
        "detection": detection_rows(side_of(metrics["detection"], metrics)),
        "probability": before_and_after(metrics, OF_RARE),
        "periods": periods(metrics["periods"]),
        "decision": sentence(metrics["decision"]["sentence"]),
        "decision_rows": decision_rows(metrics),
    }
    return in_unit(common | own, unit) | {"first": first}


def _class_values(saved: SavedRun, metrics: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that only the page of many classes has."""
    graph = metrics["graph"]
    return {
        "title": f"{graph['name']}: {amount(len(graph['classes']), 'class', 'classes')}",
        "rare": None,
        "target": class_side(metrics),
        "probability": before_and_after(metrics, TOGETHER),
        "each_head": CLASS_HEAD,
        "each": class_rows(metrics["classes"][class_side(metrics)]),
        "first": least_sure(saved.review(), saved.class_names),
    }


def lead(metrics: dict[str, Any]) -> list[str]:
    """Returns what a reader who has half a minute should know of a rare class, plain sentences."""
    graph, found = metrics["graph"], side_of(metrics["detection"], metrics)
    rare = class_words(graph["rare_class"])
    known = "known, and hidden ones count as not rare" if of_known(metrics) else rare
    unseen = found["judged_on"] == "leave-one-out"
    nodes = amount(found["n"], "labelled node" if unseen else f"{found['judged_on']} node")
    judged = f"{nodes}, {found['n_rare']:,} of them {known}" + ", each predicted without its own label" * unseen
    scored = "" if graph["scored_nodes"] == graph["nodes"] else f" ({graph['scored_nodes']:,} scored)"
    lines = [
        f"{amount(graph['nodes'], 'node')}{scored}; {graph['rare_share']:.2%} of the labelled ones are {rare}. "
        f"{amount(graph['labels_trained_on'], 'label')} trained the model.",
        f"Ranking: AUPRC {found['auprc']:.3f} (95 %: {found['auprc_lower']:.3f} to {found['auprc_upper']:.3f}; "
        f"random ranking: {found['prevalence']:.3f}) on {judged}.",
    ]
    decision = metrics["decision"]
    return [*lines, f"Decision on {amount(decision['nodes'], decision['on'] + ' node')}: {decision['sentence']}."]


def class_lead(metrics: dict[str, Any]) -> list[str]:
    """Returns the same of many classes."""
    graph, report = metrics["graph"], metrics["report"][class_side(metrics)]
    rare, shares = metrics["rare_classes"], metrics["estimated_shares"]
    rarest = f"{class_words(rare[0])}, expected at {shares[rare[0]]:.2%} of the nodes" if rare else "none"
    return [
        f"{amount(graph['nodes'], 'node')} of {amount(len(graph['classes']), 'class', 'classes')}. "
        f"{amount(graph['labels_trained_on'], 'label')} trained the model.",
        f"On {amount(metrics['n_judged'], metrics['judged_on'] + ' node')} the predicted class is right for "
        f"{report['accuracy']:.1%}; log loss {report['nll']:.3f}, ECE of the confidence {report['ece']:.3f}; "
        f"{report['ece_noise_floor']:.3f} is expected if calibrated.",
        f"The rarest class (less than half as common as with equal sizes): {rarest}.",
    ]


def of_known(metrics: dict[str, Any]) -> bool:
    """Returns whether the run is judged by what positive labels alone tell: P(known), and not P(rare)."""
    return bool(metrics["judged_on"] == KNOWN_OR_DRAWN)


def decision_rows(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns what to expect of the decision: name, number, interval."""
    decision, rare = metrics["decision"], class_words(metrics["graph"]["rare_class"])
    names = {"hits": f"{rare} found", "misses": f"{rare} missed", "precision": "precision", "recall": "recall"}
    rows = [("alerts", f"{decision['alerts']:,}", "")]
    for key, name in (names | {"cost": "cost"}).items():
        value = decision.get(key)
        if isinstance(value, dict) and value.get("expected") is not None:
            cells = (value["expected"], value["low"], value["high"])
            expected, low, high = (f"{x:.1%}" if key in ("precision", "recall") else count_of(x) for x in cells)
            rows.append((name, expected, f"{low} to {high}"))
    if decision.get("by_amount") and decision["test"] is not None:
        rows.append(("cost observed on test transactions", count_of(decision["test"]["cost"]), ""))
    return rows


def keys_of(saved: SavedRun) -> list[str]:
    """Returns the columns that say what a transaction is: its time, parties and amount; empty: it is a node."""
    data = saved.settings.data
    return [key for key in (data.amount, data.time, *data.entities) if key and key != "none"] if data.entities else []


def alerts(predictions: pd.DataFrame, saved: SavedRun) -> list[dict[str, Any]]:
    """Returns the alerts with the highest P(rare) of the nodes that the decision is on, as `nodes_to_decide` says."""
    names = saved.scorer.class_names
    open_ = predictions[predictions["y"] == -1]
    if open_.empty:
        open_ = predictions[~predictions["split"].isin(("train", "val"))]
    if open_.empty:
        open_ = predictions
    first = open_[open_["alert"] == 1].nlargest(ALERTS, "p_rare")
    return [
        {
            "node": str(row["node"]),
            "keys": [cell_in_words(row, key).replace("+00:00", " UTC") for key in keys_of(saved)],
            "p": f"{row['p_rare']:.3f}",
            "interval": _interval(*(row["p_low"], row["p_high"]) if "p_low" in row else (row["lower"], row["upper"])),
            "label": "unknown" if row["y"] == -1 else class_words(names[int(row["y"] == 1)]),
        }
        for _, row in first.iterrows()
    ]


def periods(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns predicted and observed rare nodes in spans of time; times that look like days since 2000 as dates."""
    return [
        (
            f"{time_in_words(row['from'])} to {time_in_words(row['to'])}",
            f"{row['nodes']:,} ({row['test']:,} test)",
            f"{row['predicted']:,.1f}",
            f"{row['rare']:,}",
            f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})" if row["rare"] else "none observed",
        )
        for row in rows
    ]


def _interval(lower: float, upper: float) -> str:
    if pd.isna(lower) or pd.isna(upper):
        return ""
    low, high = (min(max(end, 0.0), 1.0) for end in sorted((lower, upper)))
    return f"{low:.3f} to {high:.3f}"


def least_sure(queue: pd.DataFrame, names: tuple[str, ...]) -> list[dict[str, str]]:
    """Returns the first rows of the queue, with the predicted class and the most likely other one."""
    first = queue.head(ALERTS)
    p = first[[f"p_{name}" for name in names]].to_numpy(dtype=np.float64)
    rows = []
    for i, (node, confidence) in enumerate(zip(first["node"].astype(str), first["confidence"], strict=True)):
        best, second = np.argsort(-p[i], kind="stable")[:2]
        rows.append(
            {
                "node": node,
                "prediction": class_words(names[best]),
                "confidence": f"{confidence:.3f}",
                "second": class_words(names[second]),
                "p_second": f"{p[i][second]:.3f}",
            }
        )
    return rows


def doubt_sentence(audit: Audit) -> str:
    """Returns how many labels are probably wrong, and how many are expected to be."""
    flagged = int(audit.flagged.sum())
    return (
        f"Of {amount(len(audit.given), 'label')} {flagged:,} {'is' if flagged == 1 else 'are'} probably wrong, judged "
        f"by models that have not seen them; {audit.in_all}."
    )


def limits(metrics: dict[str, Any]) -> list[str]:
    """Returns what a reader must not take from the page."""
    lines = list(metrics["notes"])
    if "decision" not in metrics:
        if metrics["agreement"] is not None:
            lines.append(sentence(f"leave-one-out check: {metrics['agreement']['reason']}"))
        return [*lines, f"{ALIKE} may have other class proportions."]
    covered, quality = metrics["interval_coverage"], metrics["quality"]
    shown = [f"{covered[k]:.1%} of {k}" for k in ("all", "rare") if covered[k] is not None]
    lines.append(
        f"Intervals should contain the label of {covered['wanted']:.0%} of the nodes; here they contain that of "
        f"{' and '.join(shown)} nodes."
    )
    lines.append(f"Leave-one-out models: {quality['verdict']}. {sentence(quality['reason'])}")
    if metrics["decision"]["caveat"]:
        lines.append(sentence(metrics["decision"]["caveat"]))
    return [*lines, f"{ALIKE} may have another base rate (--prevalence)."]


def sentence(words: str) -> str:
    """Returns words with a capital and a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "."


def side_of(reports: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Returns the report of the run's target, else that before calibration."""
    side: dict[str, Any] = reports.get(metrics["target"], reports["raw"])
    return side


def class_side(metrics: dict[str, Any]) -> str:
    """Returns what predictions.csv of a run of classes is calibrated for: its target, or without a calibrator "raw"."""
    return metrics["target"] if metrics["target"] in metrics["report"] else "raw"


class Picture(NamedTuple):
    """A picture on a page.

    Attributes:
        address: that holds the file itself; None where there is none.
        wide: whether it is of several panels, which a phone shows side by side all the same.
    """

    address: str | None
    wide: bool


def picture_of(path: Path) -> Picture:
    """Returns a picture of a run; the address of a missing one is None."""
    there = path.is_file() and path.stat().st_size > 0
    address = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii") if there else None
    return Picture(address, path.name not in NARROW)
