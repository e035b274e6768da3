"""The page as HTML: one file, nothing fetched, readable without scripts, every name of the user's escaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from calirare._util.amounts import amount, class_words, in_unit
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.pages import template_of
from calirare._util.run_files import check_as_written, other_metrics
from calirare.explain import Explanations
from calirare.explain.audit import Audit
from calirare.graph import Graph
from calirare.page import content
from calirare.page.card import Card, Cards
from calirare.page.drift import told_of
from calirare.page.slices import FEWEST, slices_of
from calirare.page.variables import variables_of
from calirare.run import SavedRun

TEMPLATE = "run.html"
MANY = 40  # parts of the nodes: of more those with a flag are shown, and all where it is asked for


def html_of(saved: SavedRun, graph: Graph | None, why_not: str = "") -> str:
    """Returns the page of a run.

    Args:
        saved: the run.
        graph: the run's own graph with the run's split, for the slices; None: there are none.
        why_not: why there is no graph, a sentence.

    Raises:
        InputError: a file of it is missing or damaged.
    """
    if saved.scoring is not None:
        return _scoring_html(saved, saved.scoring, graph, why_not)
    check_as_written(saved.folder, ("metrics.json", "config.yaml"))
    many, predictions = saved.settings.many, saved.to_frame()
    try:
        metrics = parse_json(read_text(saved.folder / "metrics.json"))
        values = content.values_of(saved, metrics, predictions)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise other_metrics(saved.folder, error) from error
    audit, doubt = None, why_not
    sliced: dict[str, Any] = {"slices": [], "no_slices": why_not}
    if graph is not None:
        audit, doubt = _audited(saved, graph)
        sliced = _sliced(graph, predictions, many=many)
    return template_of("calirare.page", TEMPLATE).render(
        **values,
        **sliced,
        **_doubted(audit, doubt),
        **_explained(saved, graph, why_not),
        config=read_text(saved.folder / "config.yaml"),
        versions=_versions_of(saved),
        flagged=[each for each in sliced["slices"] if each.flag],
        most=MANY,
        fewest=FEWEST,
    )


def _audited(saved: SavedRun, graph: Graph) -> tuple[Audit | None, str]:
    """Returns the audit of the run's labels, or None and why there is none, a sentence."""
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


def _explained(saved: SavedRun, graph: Graph | None, why_not: str) -> dict[str, Any]:
    """Returns the reasons of the first alerts, or of the first nodes of the queue; or why they are not there."""
    if graph is None:
        return {"reasons": [], "reason": why_not}
    first = None
    if saved.settings.many:
        first = list(saved.review().head(content.EXPLAINED)["node"])
        if not first:
            return {"reasons": [], "reason": why_not}
    try:
        found = saved.explain(first, graph=graph, top=content.EXPLAINED if first is None else None)
    except InputError as error:
        return {"reasons": [], "reason": content.sentence(str(error).removeprefix("explain: "))}
    return {"reasons": _cards(saved, graph, found), "reason": "", "notes": found.notes}


def _cards(saved: SavedRun, graph: Graph, found: Explanations) -> list[Card]:
    """Returns the cards of explained nodes."""
    cards = Cards(saved.explainer_for(graph).context)
    alert = ("no alert", "an alert")
    many = saved.settings.many
    return [cards.of(each, "" if many else f"{alert[each.alert]} at {each.threshold:.3g}") for each in found]


def _scoring_html(saved: SavedRun, facts: dict[str, Any], graph: Graph | None, why_not: str) -> str:
    """Returns the page of another graph that a run scored."""
    names, rare = saved.class_names, "" if saved.settings.many else class_words(saved.class_names[1])
    title = f"{facts['graph']}: {rare or amount(len(names), 'class', 'classes')}"
    values = {"title": title, "rare": rare, "run": facts.get("run", {}).get("name"), "unit": saved.settings.data.unit}
    first = content.alerts(saved.to_frame(), saved) if rare else content.least_sure(saved.review(), names)
    why = _explained(saved, graph, why_not) if facts.get("alerts", 1) else {"reasons": [], "reason": ""}
    more = {"keys": content.keys_of(saved), "first": first, "cards": why["reasons"], "reason": why["reason"]}
    more["there"] = in_unit(told_of(facts), saved.settings.data.unit)
    return template_of("calirare.page", "scoring.html").render(**values, **more)


def _versions_of(saved: SavedRun) -> list[str]:
    """Returns what made a run: lines of its log, or without one the version that it stores, if it does."""
    log = read_text(saved.folder / "log.txt") if (saved.folder / "log.txt").is_file() else ""
    lines = [line for line in log.splitlines() if line.startswith(("calirare ", "device "))]
    return lines or [f"calirare {saved.version}"]


def _sliced(graph: Graph, predictions: pd.DataFrame, *, many: bool = False) -> dict[str, Any]:
    """Returns the slices of the labelled test nodes, or why there are none."""
    scored = graph.scored_nodes.cpu().numpy()
    known = predictions["y"] != "" if many else predictions["y"] >= 0
    tested = np.flatnonzero(((predictions["split"] == "test") & known).to_numpy())
    if not len(tested):
        return {"slices": [], "no_slices": "the run has no labelled test nodes to judge slices by"}
    p = predictions["confidence" if many else "p_rare"].to_numpy(dtype=np.float64)
    hits = predictions["y"] == (predictions["prediction"] if many else 1)
    every = np.full(graph.n_nodes, np.nan)
    every[scored] = p
    variables = variables_of(graph, None if many else every)
    return {"slices": slices_of(variables, p[tested], hits.to_numpy()[tested], scored[tested]), "no_slices": ""}
