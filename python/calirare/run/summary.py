"""A run in a terminal: how it detects, its probabilities before and after calibration, verdicts and notes."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from calirare._util.amounts import amount, listed
from calirare._util.measure_tables import KNOWN_OR_DRAWN, detection_table, event_of, floor_of, rare_rows
from calirare.run.choice import Choice
from calirare.run.deciding import REVIEW_BEGINS_WITH
from calirare.run.judging import TOGETHER

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
FLOOR = "(floor): what a perfectly calibrated model scores on as many nodes"
STAR = "* the target of prediction, confidence and intervals in predictions.csv; --target takes the other"
STAR_OF_KNOWN = "* what labels tell of the map is P(known); predictions.csv has P(rare), which no label can judge"


def summary_of(metrics: dict[str, Any], width: int = WIDTH) -> str:
    """Returns the summary of a run's metrics (`run.report`) for a terminal of some width."""
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False)
    many, known = metrics.get("task") == "classes", metrics["judged_on"] == KNOWN_OR_DRAWN
    title = f"{metrics['graph']['name']}: {metrics['n_judged']:,} {metrics['judged_on']} nodes"
    lines = [FLOOR]
    if len(metrics["report"]) > 1:
        lines.append(STAR_OF_KNOWN if known else STAR)
    if many:
        tables = [_measures(metrics, f"{title} of {len(metrics['graph']['classes'])} classes"), _by_class(metrics)]
        rare = listed(metrics["rare_classes"]) if metrics["rare_classes"] else "none"
        lines.append(f"rare classes (less than half of an equal share): {rare}")
    else:
        found = metrics["detection"].get("population", metrics["detection"]["raw"])
        title += f", {metrics['n_judged_rare']} of them {'known' if known else 'rare'}"
        tables = [detection_table(found, title), _measures(metrics, None)]
        lines += _of_rare(metrics)
    for name, label in (("agreement", "leave-one-out check"), ("population_check", "P(rare) check")):
        if metrics.get(name) is not None:
            lines.append(f"{label}: {metrics[name]['verdict']} ({metrics[name]['reason']})")
    if not many:
        lines += _decision(metrics["decision"])
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    for table in tables:
        console.print(table, highlight=False)
    return out.getvalue() + "\n".join([*lines, *(f"note: {note}" for note in metrics["notes"])]) + "\n"


def _measures(metrics: dict[str, Any], title: str | None) -> Table:
    """Returns measures before calibration and for each target; the run's has a star."""
    table, reports = Table(title=title, title_justify="left"), metrics["report"]
    table.add_column("measure")
    sides = sorted(reports, key=lambda side: (side != "raw", side))
    for side in sides:
        star = " *" if side == metrics["target"] else ""
        table.add_column("before" if side == "raw" else side + star, justify="right")
    if "p_rare" in metrics:
        for row in rare_rows([metrics["p_rare"][side] for side in sides]):
            table.add_row(*row)
        table.add_section()
    for key, label in ROWS if "p_rare" in metrics else TOGETHER:
        floor = f"{key}_noise_floor"
        floors = floor in reports["raw"]
        cells = [f"{reports[side][key]:.3f}" + (floor_of(reports[side][floor]) if floors else "") for side in sides]
        table.add_row(label + (" (floor)" if floors else ""), *cells)
    if "eice" in metrics:
        eice = metrics["eice"]
        table.add_row("EICE, all nodes", *(f"{eice[side]:.3f}" if side in eice else "" for side in sides))
    return table


def _of_rare(metrics: dict[str, Any]) -> list[str]:
    raw, covered, lines = metrics["p_rare"]["raw"], metrics["interval_coverage"], list[str]()
    if raw["n"] != metrics["n_judged"]:
        p = event_of([raw])
        lines.append(f"{p} and detection: {raw['n']:,} {raw['judged_on']} nodes that represent the population")
    shown = ", ".join(f"{name} {covered[name]:.1%}" for name in ("all", "rare", "rest") if covered[name] is not None)
    return [*lines, f"intervals hold the label: {shown} (wanted {covered['wanted']:.0%})"]


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
