"""The page as HTML: one file, nothing fetched, readable without scripts, every name of the user's escaped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from calirare._util.amounts import class_words
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.pages import template_of
from calirare._util.run_files import RECALIBRATION, check_as_written, other_metrics
from calirare.explain.audit import Audit
from calirare.graph import Graph
from calirare.page import content
from calirare.page.against import against
from calirare.page.classes import PICTURES as CLASS_PICTURES
from calirare.page.classes import class_values, sliced_classes
from calirare.page.drift import Elsewhere
from calirare.page.picture import picture_of
from calirare.page.slices import FEWEST, Slice, slices_of
from calirare.page.variables import variables_of
from calirare.run import SavedRun

TEMPLATE, CLASS_TEMPLATE = "rare.html", "classes.html"
TESTED = "Test nodes in parts."
UNSEEN = "Labelled nodes in parts, each judged by models and a calibrator that have not seen its label."
MANY = 40  # parts of the nodes: of more those with a flag are shown, and all where it is asked for


def html_of(
    saved: SavedRun,
    graph: Graph | None,
    why_not: str = "",
    other: SavedRun | None = None,
    elsewhere: Elsewhere | None = None,
) -> str:
    """Returns the page of a run.

    Args:
        saved: the run.
        graph: the run's own graph with the run's split, for the slices; None: there are none.
        why_not: why there is no graph, a sentence.
        other: a run to show beside it; None: none.
        elsewhere: what the run said of another graph; None: nothing is told of one.

    Raises:
        InputError: a file of a run is missing or damaged, or the other run has other classes.
    """
    check_as_written(saved.folder, ("metrics.json", "config.yaml"))
    many, predictions = saved.settings.many, saved.to_frame()
    queue = saved.review() if many else None
    try:
        metrics = parse_json(read_text(saved.folder / "metrics.json"))
        # Runs of before nodes could carry edges alone have scored them all.
        metrics["graph"].setdefault("scored_nodes", metrics["graph"]["nodes"])
        values = _values(saved, metrics, predictions) if queue is None else class_values(saved, metrics, queue)
        choice = metrics["choice"] or {"rows": [], "loss": None}
        values |= {"data": content.data_rows(metrics), "detectors_loss": choice["loss"]}
        values |= {"detectors": sorted(choice["rows"], key=lambda row: -row["weight"])}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(saved.folder, error) from error
    values |= {"config": read_text(saved.folder / "config.yaml"), "versions": _versions_of(saved)}
    first = CLASS_PICTURES if many else content.PICTURES
    values |= {"against": None if other is None else against(saved, metrics, predictions, other)}
    values |= {"other_picture": None if other is None else picture_of(other.folder / first[0][0], "")}
    values |= {"elsewhere": elsewhere}
    audit, doubt = _audited(saved, graph, why_not)
    if graph is None:
        sliced = Sliced([], why_not)
    elif many:
        sliced = Sliced(*sliced_classes(graph, predictions, metrics))
    else:
        other_map = _other_map(saved)
        sliced = _sliced(graph, predictions, *((None, other_map) if other_map else (audit, doubt)))
    values |= _doubted(audit, doubt) | _explained(saved, graph, why_not, queue)
    flagged = [each for each in sliced.slices if each.flag]
    page = template_of("calirare.page", CLASS_TEMPLATE if many else TEMPLATE)
    return page.render(**values, **vars(sliced), flagged=flagged, many=MANY, fewest=FEWEST)


@dataclass(frozen=True)
class Sliced:
    """The slices of a run, or why there are none.

    Attributes:
        slices: in the order of the page.
        no_slices: why there are none; empty where there are.
        judged: what is sliced, the beginning of a sentence.
    """

    slices: list[Slice]
    no_slices: str = ""
    judged: str = ""


def _audited(saved: SavedRun, graph: Graph | None, why_not: str) -> tuple[Audit | None, str]:
    """Returns the audit of the run's labels, or None and why there is none, a sentence."""
    if graph is None:
        return None, why_not
    try:
        return saved.audit(graph), ""
    except InputError as error:
        return None, content.sentence(str(error).removeprefix("audit: "))


def _doubted(audit: Audit | None, why_not: str) -> dict[str, Any]:
    """Returns labels that are probably wrong, or why they are not there."""
    if audit is None:
        return {"doubts": [], "doubt": why_not}
    table = audit.to_frame()
    doubts = table[table["flag"] == 1].head(content.DOUBTS).to_dict("records")
    return {"doubts": doubts, "doubt": content.doubt_sentence(audit)}


def _explained(saved: SavedRun, graph: Graph | None, why_not: str, queue: pd.DataFrame | None) -> dict[str, Any]:
    """Returns the reasons of the first alerts, or of the first of a queue; or why they are not there."""
    if graph is None or (queue is not None and queue.empty):
        return {"reasons": [], "reason": why_not}
    first = None if queue is None else list(queue.head(content.EXPLAINED)["node"])
    try:
        found = saved.explain(first, graph=graph, top=content.EXPLAINED if first is None else None)
    except InputError as error:
        return {"reasons": [], "reason": content.sentence(str(error).removeprefix("explain: "))}
    return {"reasons": [(each.name, each.sentences) for each in found.each], "reason": ""}


def _values(saved: SavedRun, metrics: dict[str, Any], predictions: pd.DataFrame) -> dict[str, Any]:
    """Returns the template's values without the slices."""
    graph = metrics["graph"]
    head, rows = content.probability_table(metrics)
    verdict = None if metrics["population_check"] is None else metrics["population_check"]["verdict"]
    return {
        "title": f"{graph['name']}: {class_words(graph['rare_class'])}",
        "rare": class_words(graph["rare_class"]),
        "covered": f"{metrics['interval_coverage']['wanted']:.0%}",
        "of_known": content.of_known(metrics),
        "verdict": verdict,
        "verdict_class": verdict and verdict.split()[0],
        "lead": content.lead(metrics) + [content.EARLIER] * (saved.folder / RECALIBRATION).is_file(),
        "detection": content.detection_rows(metrics),
        "probability_head": head,
        "probability": rows,
        "decision": content.sentence(metrics["decision"]["sentence"]),
        "decision_rows": content.decision_rows(metrics),
        "alerts": content.alerts(predictions, (saved.scorer.class_names[0], saved.scorer.class_names[1])),
        "limits": content.limits(metrics),
        "pictures": [
            picture_of(saved.folder / name, words, name not in content.NARROW)
            for name, words in content.pictures(metrics)
        ],
    }


def _versions_of(saved: SavedRun) -> list[str]:
    """Returns what made a run: lines of its log, or without one the version that it stores, if it does."""
    log = read_text(saved.folder / "log.txt") if (saved.folder / "log.txt").is_file() else ""
    lines = [line for line in log.splitlines() if line.startswith(("calirare ", "device "))]
    return lines or [f"calirare {saved.version}"]


def _other_map(saved: SavedRun) -> str:
    """Returns in what the run's map is not the one by which an audit judges labels, a sentence, or nothing."""
    settings = saved.scorer.settings
    if (saved.folder / RECALIBRATION).is_file():
        return "Its calibrator was fitted again on fresh labels."
    if settings.method != "jackknife" or settings.calibration.map != "prior":
        return "Its calibrator is not the default one, the only one that can be cross-fitted."
    return "" if settings.calibration.prevalence is None else "Its calibrator uses the prevalence that was given."


def _sliced(graph: Graph, predictions: pd.DataFrame, audit: Audit | None, doubt: str) -> Sliced:
    """Returns the slices of the test nodes; without any of the labelled ones, each as it is judged without its label.

    Args:
        graph: of the run.
        predictions: of the run, a row for each scored node.
        audit: of the run's labels; None: there is none that tells of the run's map.
        doubt: why not, a sentence.
    """
    scored = graph.scored_nodes.cpu().numpy()
    told = np.flatnonzero(((predictions["split"] == "test") & (predictions["y"] >= 0)).to_numpy())
    if len(told):
        p = np.full(graph.n_nodes, np.nan)
        p[scored] = predictions["p_rare"].to_numpy(dtype=np.float64)
        rare = (predictions["y"].to_numpy()[told] == 1).astype(bool)
        return Sliced(slices_of(variables_of(graph, p), p[scored[told]], rare, scored[told]), "", TESTED)
    if audit is None:
        return Sliced([], f"the run has no labelled test nodes and no out-of-fold predictions of its labels. {doubt}")
    labels, rare = np.full(graph.n_nodes, np.nan), audit.given == 1
    labels[audit.nodes] = rare
    p = np.where(rare, audit.p_given, 1 - audit.p_given)
    assert graph.split is not None
    validating = np.isin(
        audit.nodes, graph.split.val.cpu().numpy()
    )  # which represent the population where there are any
    here = validating if 0 < rare[validating].sum() < validating.sum() else np.full(len(rare), fill_value=True)
    variables = variables_of(graph, np.full(graph.n_nodes, np.nan), labels)
    return Sliced(slices_of(variables, p[here], rare[here], audit.nodes[here]), "", UNSEEN)
