"""`calirare evaluate`: calibration and detection of anyone's table of predictions."""

from __future__ import annotations

from pathlib import Path

from calirare._util.console import screen
from calirare._util.measure_tables import detection_head, detection_rows, rare_rows, table_of
from calirare.cli.tables import TableColumns, TableReport, evaluate_table
from calirare.metrics import BUDGETS, N_BINS


def run(
    table: Path,
    y: str = "y",
    p: list[str] | None = None,
    before: list[str] | None = None,
    *,
    weights: str | None = None,
    where: str | None = None,
    rare_class: str | None = None,
    unknown: list[str] | None = None,
    bins: int = N_BINS,
    budget: list[int | float] | None = None,
    threshold: float = 0.5,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints every measure of a table and, with `out`, writes metrics.json and the pictures there.

    Args:
        table: CSV, TSV or Parquet file.
        y: column of the labels.
        p: columns of the probabilities; None: p.
        before: the same columns of an earlier model.
        weights: column of sample weights.
        where: "column=value": only these rows.
        rare_class: the rare class; None: 1, or where columns of several classes name none so, that with fewest rows.
        unknown: labels that stand for no label, beside an empty cell and -1.
        bins: bins of the equal-width measures and of the pictures.
        budget: how many samples are looked at, each a number or a share; None: 1 % and 100.
        threshold: P(rare class) above which is an alert, in the picture.
        out: folder to write to; made if it is not there; None writes nothing.
        overwrite: replace such files that are in the folder.

    Raises:
        InputError: the file, a column or the folder cannot be used.
    """
    columns = TableColumns(y, tuple(p or ["p"]), tuple(before or []), weights, where, rare_class, tuple(unknown or []))
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
    console, states = screen(120), report.measures
    names = dict.fromkeys(name for each in states.values() for name in each.values)
    rows = [
        [name, *(f"{each.values[name]:.4f}" if name in each.values else "" for each in states.values())]
        for name in names
    ]
    console.print(table_of(["measure", *states], rows))
    for state, each in states.items():
        title = None if state == "value" else state
        console.print(table_of(detection_head(each.detection), detection_rows(each.detection), title))
    console.print(table_of(["P(rare)", *states], rare_rows([each.p_rare for each in states.values()])))
