"""Measures as rows of tables, which a terminal (at most 80 characters wide) and a page show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from calirare._util.amounts import class_words

Values = dict[str, Any]
# Measures of all classes that a run of a rare class shows.
OF_RARE = ("recall", "recall of the rare class"), ("precision", "precision of the rare class"), ("brier", "Brier score")
SIDES = {"raw": "uncalibrated", "balanced": "equal classes", "population": "true base rate"}
CLASS_KEYS = "mean_p_over_share", "recall", "precision", "auprc"
CLASS_HEAD = "class", "nodes", "share", "pred. / obs.", "recall", "precision", "AUPRC", "ECE of P (expected)"
KNOWN_OR_DRAWN = (
    "known or drawn"  # nodes that a run with positive labels alone is judged on: only P(known) can be judged
)


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """Returns a table for a terminal: words at the left, and numbers in every further column."""
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def detection_head(found: Values) -> Sequence[str]:
    """Returns the head of `detection_rows`."""
    return "finding the rare class", "value", f"{found['level']:.0%} interval", "random"


def detection_rows(found: Values) -> list[list[str]]:
    """Returns each value of `metrics.detection_report`, its interval, and what a random order would read."""
    rows = list[list[str]]()

    def add(label: str, values: Values, name: str, chance: float) -> None:
        if values[name] is not None:
            ends = f"{values[f'{name}_lower']:.3f} to {values[f'{name}_upper']:.3f}"
            rows.append([label, f"{values[name]:.3f}", ends, f"{chance:.3f}"])

    add("AUPRC", found, "auprc", found["prevalence"])
    if "macro_auprc" in found:
        rows.append(["AUPRC, mean over classes", f"{found['macro_auprc']:.3f}", "", ""])
    add("AUROC", found, "auroc", 0.5)
    for at in budgets_of(found):
        budget = at["budget"]
        where = f"top {budget:,}" if isinstance(budget, int) else f"top {100 * budget:g} % ({at['nodes']:,.3g})"
        add(f"recall, {where}", at, "recall", at["share"])
        add(f"precision, {where}", at, "precision", found["prevalence"])
    return rows


def before_and_after(metrics: Values, together: Sequence[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of a run's measures before calibration and for each target.

    Args:
        metrics: as metrics.json holds them.
        together: key and label of each measure of all classes.
    """
    sides = sorted(metrics["report"], key=lambda side: (side != "raw", side))
    rows = rare_rows([metrics["p_rare"][side] for side in sides]) if "p_rare" in metrics else []
    rows += together_rows([metrics["report"][side] for side in sides], together, 3)
    if metrics["method"] == "calirare" and "eice" in metrics:
        eice = metrics["eice"]
        rows.append(["EICE, all nodes", *(f"{eice[side]:.3f}" if side in eice else "" for side in sides)])
    return ["measure", *(SIDES[side] for side in sides)], rows


def together_rows(reports: list[Values], together: Sequence[tuple[str, str]], digits: int) -> list[list[str]]:
    """Returns label and values of each measure, with its value under perfect calibration if known."""
    rows = []
    for key, label in together:
        expected = f"{key}_noise_floor"
        known = all(expected in report for report in reports)
        cells = [f"{report[key]:.{digits}f}" + (in_brackets(report[expected]) if known else "") for report in reports]
        rows.append([label + (" (expected)" if known else ""), *cells])
    return rows


def class_rows(rows: list[Values]) -> list[list[str]]:
    """Returns the cells of each class, below `CLASS_HEAD`."""
    return [
        [
            class_words(row["name"]),
            f"{row['n']:,}",
            f"{row['share']:.1%}",
            *("-" if row[key] is None else f"{row[key]:.2f}" for key in CLASS_KEYS),
            f"{row['ece']:.3f}{in_brackets(row['ece_noise_floor'])}",
        ]
        for row in rows
    ]


def budgets_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the budgets of a `metrics.detection_report` that are worth a row: one node to half of all."""
    return [at for at in found["budgets"] if at["nodes"] >= 1 and at["share"] <= 0.5]


def rare_rows(reports: list[dict[str, Any]]) -> list[list[str]]:
    """Returns the rows of a table of `metrics.rare_report`s side by side, the first cell of each its label."""
    p = event_of(reports)
    ends = [f"{r['mean_p_over_share_lower']:.2g} to {r['mean_p_over_share_upper']:.2g}" for r in reports]
    return [
        ["predicted / observed", *(f"{r['mean_p_over_share']:.3g}" for r in reports)],
        ["  interval", *ends],
        [f"ECE of {p} (expected)", *(f"{r['ece']:.3f}{in_brackets(r['ece_noise_floor'])}" for r in reports)],
        ["calibration slope (ideal: 1)", *("-" if r["slope"] is None else f"{r['slope']:.2f}" for r in reports)],
        [f"log loss of {p}", *(f"{r['log_loss']:.3f}" for r in reports)],
    ]


def event_of(reports: list[dict[str, Any]]) -> str:
    """Returns what reports of P are about: P(rare), P(known) where known rare nodes are the only labels, or either."""
    known = {report.get("judged_on") == KNOWN_OR_DRAWN for report in reports}
    return "P" if len(known) > 1 else "P(known)" if known == {True} else "P(rare)"


def in_brackets(value: float) -> str:
    """Returns the value expected if calibrated, as it stands behind its measure."""
    return f" ({value:.3f})"
