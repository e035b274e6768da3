"""Measures of a rare class as rows of a table for a terminal, at most 80 characters wide."""

from __future__ import annotations

from typing import Any

from rich.table import Table

KNOWN_OR_DRAWN = (
    "known or drawn"  # nodes that a run with positive labels alone is judged on: only P(known) can be judged
)


def detection_table(found: dict[str, Any], title: str = "") -> Table:
    """Returns a table of `metrics.detection_report`: values, intervals, and what a random order would read."""
    table = Table(title=title or None, title_justify="left")
    table.add_column("finding the rare class")
    for name in ("value", f"{found['level']:.0%} interval", "random"):
        table.add_column(name, justify="right")

    def add(label: str, values: dict[str, Any], name: str, chance: float) -> None:
        if values[name] is not None:
            ends = f"{values[f'{name}_lower']:.3f} to {values[f'{name}_upper']:.3f}"
            table.add_row(label, f"{values[name]:.3f}", ends, f"{chance:.3f}")

    add("AUPRC", found, "auprc", found["prevalence"])
    if "macro_auprc" in found:
        table.add_row("AUPRC, mean over classes", f"{found['macro_auprc']:.3f}", "", "")
    add("AUROC", found, "auroc", 0.5)
    for at in budgets_of(found):
        budget = at["budget"]
        where = f"top {budget:,}" if isinstance(budget, int) else f"top {100 * budget:g} % ({at['nodes']:,.3g})"
        add(f"recall, {where}", at, "recall", at["share"])
        add(f"precision, {where}", at, "precision", found["prevalence"])
    return table


def budgets_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the budgets of a `metrics.detection_report` that are worth a row: a node at least, and not all."""
    return [at for at in found["budgets"] if at["nodes"] >= 1 and at["share"] < 1]


def rare_rows(reports: list[dict[str, Any]]) -> list[list[str]]:
    """Returns the rows of a table of `metrics.rare_report`s side by side, the first cell of each its label."""
    p = event_of(reports)
    ends = [f"{r['mean_p_over_share_lower']:.2g} to {r['mean_p_over_share_upper']:.2g}" for r in reports]
    return [
        ["predicted / observed", *(f"{r['mean_p_over_share']:.3g}" for r in reports)],
        ["  interval", *ends],
        [f"ECE of {p} (floor)", *(f"{r['ece']:.3f}{floor_of(r['ece_noise_floor'])}" for r in reports)],
        [f"slope of {p}", *("-" if r["slope"] is None else f"{r['slope']:.2f}" for r in reports)],
        [f"log loss of {p}", *(f"{r['log_loss']:.3f}" for r in reports)],
    ]


def event_of(reports: list[dict[str, Any]]) -> str:
    """Returns what reports of P are about: P(rare), P(known) where known rare nodes are the only labels, or either."""
    known = {report.get("judged_on") == KNOWN_OR_DRAWN for report in reports}
    return "P" if len(known) > 1 else "P(known)" if known == {True} else "P(rare)"


def floor_of(value: float) -> str:
    """Returns a noise floor as it stands behind its measure."""
    return f" ({value:.3f})"
