"""What a run says of itself in a terminal: detection, P(rare), before and after calibration, verdict and notes."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from calirare._util.amounts import amount
from calirare._util.measure_tables import KNOWN_OR_DRAWN, detection_table, event_of, floor_of, rare_rows
from calirare.run.choice import Choice
from calirare.run.class_report import class_summary
from calirare.run.deciding import REVIEW_BEGINS_WITH

ROWS = (
    ("recall", "recall of the rare class"),
    ("precision", "precision of the rare class"),
    ("macro_f1", "macro-F1"),
    ("ace_minority", "ACE, rare class"),
    ("macro_ace", "Macro-ACE"),
    ("ece", "ECE"),
    ("nll", "NLL"),
    ("brier", "Brier score"),
)
WIDTH = 80  # characters, where there is no terminal; the tables need no more
FLOORS = {"ace_minority", "macro_ace", "ece"}
STAR = "* the target of prediction, confidence and intervals in predictions.csv; --target takes the other"
STAR_OF_KNOWN = "* what labels tell of the map is P(known); predictions.csv has P(rare), which no label can judge"


def summary_of(metrics: dict[str, Any], width: int = WIDTH) -> str:
    """Returns the summary of a run's metrics (`run.report`, `run.class_report`) for a terminal of some width."""
    if metrics.get("task") == "classes":
        return class_summary(metrics, width)
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False)
    of_them = "known" if metrics["judged_on"] == KNOWN_OR_DRAWN else "rare"
    judged = f"{metrics['n_judged']:,} {metrics['judged_on']} nodes, {metrics['n_judged_rare']} of them {of_them}"
    title = f"{metrics['graph']['name']}: {judged}"
    if "detection" in metrics:  # of a run's folder that was written before there was such a thing: not
        found = metrics["detection"].get("population", metrics["detection"]["raw"])
        console.print(detection_table(found, title), highlight=False)
        title = ""
    console.print(_table(metrics, title), highlight=False)
    return out.getvalue() + "\n".join(_lines(metrics)) + "\n"


def _sides(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the reports that are shown and their titles; the run's target has a star."""
    sides = [("raw", "before")]
    for name in metrics["report"]:
        if name != "raw":
            sides.append((name, name + (" *" if name == metrics["target"] else "")))
    return sides


def _table(metrics: dict[str, Any], title: str) -> Table:
    sides, eice = _sides(metrics), metrics["eice"]
    table = Table(title=title or None, title_justify="left")
    table.add_column("measure")
    for _, name in sides:
        table.add_column(name, justify="right")
    if "p_rare" in metrics:
        for row in rare_rows([metrics["p_rare"][side] for side, _ in sides]):
            table.add_row(*row)
        table.add_section()
    for key, label in ROWS:
        cells = []
        for side, _ in sides:
            report = metrics["report"][side]
            cells.append(f"{report[key]:.3f}" + (floor_of(report[f"{key}_noise_floor"]) if key in FLOORS else ""))
        table.add_row(label + (" (floor)" if key in FLOORS else ""), *cells)
    table.add_row("EICE, all nodes", *(f"{eice[side]:.3f}" if side in eice else "" for side, _ in sides))
    return table


def _lines(metrics: dict[str, Any]) -> list[str]:
    lines = ["(floor): what a perfectly calibrated model scores on as many nodes by chance"]
    if len(_sides(metrics)) > 1:
        lines.append(STAR_OF_KNOWN if metrics["judged_on"] == KNOWN_OR_DRAWN else STAR)
    if "p_rare" in metrics:
        raw = metrics["p_rare"]["raw"]
        if raw["n"] != metrics["n_judged"]:
            p = event_of([raw])
            lines.append(f"{p} and detection: {raw['n']:,} {raw['judged_on']} nodes that represent the population")
    covered = metrics["interval_coverage"]
    shown = ", ".join(f"{name} {covered[name]:.1%}" for name in ("all", "rare", "rest") if covered[name] is not None)
    lines.append(f"intervals hold the label: {shown} (wanted {covered['wanted']:.0%})")
    if metrics["agreement"] is not None:
        verdict = metrics["agreement"]
        lines.append(f"leave-one-out check: {verdict['verdict']} ({verdict['reason']})")
    if metrics["population_check"] is not None:
        verdict = metrics["population_check"]
        lines.append(f"P(rare) check: {verdict['verdict']} ({verdict['reason']})")
    if "decision" in metrics:  # likewise
        lines += _decision(metrics["decision"])
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    return lines + [f"note: {note}" for note in metrics["notes"]]


def _decision(decision: dict[str, Any]) -> list[str]:
    """Returns what is an alert, what to expect of it, and what it did among the test nodes."""
    where, test = amount(decision["nodes"], f"{decision['on']} node"), decision["test"]
    lines = [f"decision on {where}: {decision['sentence']}"]
    if decision.get("undecided") is not None:
        lines.append(f"  {decision['undecided']['sentence']}")
    if test is not None:
        shares = [f", {name} {test[name]:.3g}" for name in ("precision", "recall") if test[name] is not None]
        alerts = amount(test["alerts"], "alert")
        lines.append(f"  among the {amount(test['nodes'], 'test node')}: {alerts}{''.join(shares)}")
    if test is not None and test.get("undecided") is not None and test["undecided"]["error"] is not None:
        found = test["undecided"]
        lines.append(
            f"  among them {found['abstained']:,} left open, and {found['error']:.2%} of the others decided wrongly"
        )
    if decision.get("review") is not None:
        lines.append(f"  review.csv begins with {REVIEW_BEGINS_WITH[decision['review']]}")
    return lines + ([f"  {decision['caveat']}"] if decision["caveat"] else [])
