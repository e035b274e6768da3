"""`calirare audit` and `calirare suggest`: labels that are probably wrong, and nodes that are worth a label next."""

from __future__ import annotations

from pathlib import Path

from calirare._util.console import Reporter, screen
from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.explain.audit import Audit
from calirare.run import NextLabels, load, write_predictions


def run(
    folder: Path,
    graph: str | None = None,
    at_least: float = 0.5,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints which labels are probably wrong and writes every label with how likely it is wrong.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        at_least: P(wrong) from which a label is flagged.
        out: CSV to write (and a Parquet file of that name); None: `<run>/audit.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph is gone, or the labels cannot be audited.
    """
    path = path_to_write("audit", out or folder / "audit.csv", overwrite=overwrite)
    with Reporter():
        found = load(folder).audit(graph, at_least)
    write_found("audit", found, path)


def path_to_write(command: str, path: Path, *, overwrite: bool) -> Path:
    """Returns the path of a table that may be written."""
    if path.suffix != ".csv":
        raise InputError(f"{command}: --out must end in .csv, got {path}")
    check_free([path, path.with_suffix(".parquet")], command, overwrite=overwrite)
    return path


def write_found(command: str, found: Audit | NextLabels, path: Path) -> None:
    """Writes and prints what a command found."""
    with fresh_files(path.parent, f"{command}: {path}") as partial:
        names = [file.name for file in write_predictions(found.to_frame(), partial, path.stem)]
    print(found.summary(screen(80).width), end="")
    for name in names:
        print(path.parent / name)
