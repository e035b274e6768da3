"""`calirare metrics`: calibration of anyone's table of predictions."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from calirare._util.console import Screen
from calirare._util.errors import InputError
from calirare.cli.tables import TableColumns, evaluate_table


def run(
    table: Path,
    y: list[str] | None = None,
    p: list[str] | None = None,
    before: list[str] | None = None,
    *,
    weights: str | None = None,
    where: str | None = None,
    minority: str = "1",
    bins: int = 15,
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
        minority: the rare class.
        bins: bins of the equal-width measures and of the pictures.
        out: folder to write to; made if it is not there; None writes nothing.
        overwrite: replace such files that are in the folder.

    Raises:
        InputError: the file, a column or the folder cannot be used.
    """
    columns = TableColumns(tuple(y or ["y"]), tuple(p or ["p"]), tuple(before or []), weights, where, minority)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"metrics: the folder {out} cannot be made: {error.strerror or error}") from error
    report = evaluate_table(table, columns, out=out, overwrite=overwrite, n_bins=bins)
    shown = Table()
    shown.add_column("measure")
    if report.before is not None:
        shown.add_column("before", justify="right")
    shown.add_column("value" if report.before is None else "after", justify="right")
    for name, value in report.values.items():
        before = [] if report.before is None else [f"{report.before[name]:.4f}"]
        shown.add_row(name, *before, f"{value:.4f}")
    Screen(width=None if Screen().is_terminal else 120).print(shown, highlight=False)
    for note in report.notes:
        print(f"note: {note}")
    for file in report.files:
        print(file)
