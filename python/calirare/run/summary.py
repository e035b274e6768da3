"""What a run says of itself in a terminal: detection, P(rare), before and after calibration, verdict and notes."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from calirare.run.choice import Choice

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


def summary_of(metrics: dict[str, Any], width: int = WIDTH) -> str:
    """Returns the summary of a run's metrics (`run.report`) for a terminal of some width."""
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False)
    judged = f"{metrics['n_judged']:,} {metrics['judged_on']} nodes, {metrics['n_judged_rare']} of them rare"
    title = f"{metrics['graph']['name']}: {judged}"
    if "detection" in metrics:  # of a run's folder that was written before there was such a thing: not
        found = metrics["detection"].get("population", metrics["detection"]["raw"])
        console.print(detection_table(found, title), highlight=False)
        title = ""
    console.print(_table(metrics, title), highlight=False)
    return out.getvalue() + "\n".join(_lines(metrics)) + "\n"


def detection_table(found: dict[str, Any], title: str = "") -> Table:
    """Returns a table of `metrics.detection_report`: values, intervals, and what a random order would read."""
    table = Table(title=title or None, title_justify="left")
    table.add_column("finding the rare class")
    for name in ("value", f"{found['level']:.0%} interval", "by chance"):
        table.add_column(name, justify="right")

    def add(label: str, values: dict[str, Any], name: str, chance: float) -> None:
        if values[name] is not None:
            ends = f"{values[f'{name}_lower']:.3f} to {values[f'{name}_upper']:.3f}"
            table.add_row(label, f"{values[name]:.3f}", ends, f"{chance:.3f}")

    add("AUPRC", found, "auprc", found["prevalence"])
    if "macro_auprc" in found:
        table.add_row("AUPRC, mean over classes", f"{found['macro_auprc']:.3f}", "", "")
    add("AUROC", found, "auroc", 0.5)
    for at in found["budgets"]:
        if at["precision"] != found["prevalence"]:  # else it looks at all there is
            where = budget_name(at["budget"], at["nodes"])
            add(f"recall, {where}", at, "recall", at["recall"] / at["lift"] if at["lift"] else at["budget"])
            add(f"precision, {where}", at, "precision", found["prevalence"])
    return table


def budget_name(budget: float, nodes: float) -> str:
    """Returns what a budget is called: "top 1 % (27)", "top 100"."""
    return f"top {budget:,}" if isinstance(budget, int) else f"top {100 * budget:g} % ({nodes:,.3g})"


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
            cells.append(f"{report[key]:.3f}" + (_floor(report[f"{key}_noise_floor"]) if key in FLOORS else ""))
        table.add_row(label + (" (floor)" if key in FLOORS else ""), *cells)
    table.add_row("EICE, all nodes", *(f"{eice[side]:.3f}" if side in eice else "" for side, _ in sides))
    return table


def rare_rows(reports: list[dict[str, Any]]) -> list[list[str]]:
    """Returns the rows of a table of `metrics.rare_report`s side by side, the first cell of each its label."""
    ends = [f"{r['mean_p_over_share_lower']:.2g} to {r['mean_p_over_share_upper']:.2g}" for r in reports]
    return [
        ["mean P(rare) / its share", *(f"{r['mean_p_over_share']:.3g}" for r in reports)],
        ["  interval", *ends],
        ["ECE of P(rare) (floor)", *(f"{r['ece']:.3f}{_floor(r['ece_noise_floor'])}" for r in reports)],
        ["slope of P(rare)", *("-" if r["slope"] is None else f"{r['slope']:.2f}" for r in reports)],
        ["log loss of P(rare)", *(f"{r['log_loss']:.3f}" for r in reports)],
    ]


def _floor(value: float) -> str:
    return f" ({value:.3f})"


def _lines(metrics: dict[str, Any]) -> list[str]:
    lines = ["(floor): what a perfectly calibrated model scores on as many nodes by chance"]
    if len(_sides(metrics)) > 1:
        lines.append(f"* the probabilities in predictions.csv (target {metrics['target']}); the other target: --target")
    if "p_rare" in metrics:
        raw = metrics["p_rare"]["raw"]
        if raw["n"] != metrics["n_judged"]:
            lines.append(f"P(rare) and detection: {raw['n']:,} {raw['judged_on']} nodes that represent the population")
    covered = metrics["interval_coverage"]
    shown = ", ".join(f"{name} {covered[name]:.1%}" for name in ("all", "rare", "rest") if covered[name] is not None)
    lines.append(f"intervals hold the label: {shown} (wanted {covered['wanted']:.0%})")
    if metrics["agreement"] is not None:
        verdict = metrics["agreement"]
        lines.append(f"leave-one-out check: {verdict['verdict']} ({verdict['reason']})")
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    return lines + [f"note: {note}" for note in metrics["notes"]]
