"""`calirare metrics`: calibration of anyone's table of predictions."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from calirare._util.errors import InputError
from calirare.cli.tables import TableColumns, evaluate_table


def run_metrics(path: Path, columns: TableColumns, out: Path | None, n_bins: int, *, overwrite: bool = False) -> None:
    """Prints every measure of a table and, with `out`, writes metrics.json and the pictures there.

    `out` is made if it is not there; `n_bins` are those of the equal-width measures and of the pictures. InputError
    where the file, a column or the folder cannot be used.
    """
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"metrics: the folder {out} cannot be made: {error.strerror or error}") from error
    report = evaluate_table(path, columns, out=out, overwrite=overwrite, n_bins=n_bins)
    table = Table()
    table.add_column("measure")
    if report.before is not None:
        table.add_column("before", justify="right")
    table.add_column("value" if report.before is None else "after", justify="right")
    for name, value in report.values.items():
        before = [] if report.before is None else [f"{report.before[name]:.4f}"]
        table.add_row(name, *before, f"{value:.4f}")
    Console(width=None if Console().is_terminal else 120).print(table, highlight=False)
    for note in report.notes:
        print(f"note: {note}")
    for file in report.files:
        print(file)
