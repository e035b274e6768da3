"""`calirare metrics`: calibration and detection of anyone's table of predictions."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from calirare._util.console import Screen
from calirare._util.errors import InputError
from calirare._util.measure_tables import detection_table, rare_rows
from calirare.cli.tables import TableColumns, TableReport, evaluate_table
from calirare.metrics import BUDGETS


def run(
    table: Path,
    y: list[str] | None = None,
    p: list[str] | None = None,
    before: list[str] | None = None,
    *,
    weights: str | None = None,
    where: str | None = None,
    minority: str | None = None,
    unknown: list[str] | None = None,
    bins: int = 15,
    budget: list[int | float] | None = None,
    threshold: float = 0.5,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints every measure of a table and, with `out`, writes metrics.json and the pictures there.

    Args:
        table: CSV, TSV or Parquet file.
        y: columns of the labels; None: y.
        p: columns of the probabilities; None: p.
        before: the same columns of an earlier model.
        weights: column of sample weights.
        where: "column=value": only these rows.
        minority: the rare class; None: 1, or where columns of several classes name none so, that with fewest rows.
        unknown: labels that stand for no label, beside an empty cell and -1.
        bins: bins of the equal-width measures and of the pictures.
        budget: how many samples are looked at, each a number or a share; None: 1 % and 100.
        threshold: P(rare class) above which is an alert, in the picture.
        out: folder to write to; made if it is not there; None writes nothing.
        overwrite: replace such files that are in the folder.

    Raises:
        InputError: the file, a column or the folder cannot be used.
    """
    columns = TableColumns(
        tuple(y or ["y"]), tuple(p or ["p"]), tuple(before or []), weights, where, minority, tuple(unknown or [])
    )
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"metrics: the folder {out} cannot be made: {error.strerror or error}") from error
    budgets = BUDGETS if budget is None else budget
    report = evaluate_table(
        table, columns, out=out, overwrite=overwrite, n_bins=bins, budgets=budgets, threshold=threshold
    )
    _print(report)
    for note in report.notes:
        print(f"note: {note}")
    for file in report.files:
        print(file)


def _print(report: TableReport) -> None:
    """Prints every measure, the rare class's behind the others."""
    console = Screen(width=None if Screen().is_terminal else 120)
    states = ["value"] if report.before is None else ["before", "after"]
    shown = Table()
    shown.add_column("measure")
    for state in states:
        shown.add_column(state, justify="right")
    models = [report.values] if report.before is None else [report.before, report.values]
    for name in dict.fromkeys(name for model in models for name in model):
        shown.add_row(name, *(f"{model[name]:.4f}" if name in model else "" for model in models))
    console.print(shown, highlight=False)
    rare = [found for found in (report.rare_before, report.rare) if found is not None]
    for state, found in zip(states, rare, strict=False):
        console.print(detection_table(found.detection, "" if state == "value" else state), highlight=False)
    if rare:
        of_rare = Table()
        for name in ("P(rare)", *states):
            of_rare.add_column(name, justify="right" if name in states else "left")
        for row in rare_rows([found.p_rare for found in rare]):
            of_rare.add_row(*row)
        console.print(of_rare, highlight=False)
