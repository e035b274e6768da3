"""`calirare audit`: labels of a saved run that are probably wrong."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.run import load, write_predictions


def run(
    folder: Path, graph: str | None = None, at_least: float = 0.5, out: Path | None = None, overwrite: bool = False
) -> None:
    """Prints which labels are probably wrong and writes every label with how likely it is wrong.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        at_least: P(wrong) from which a label is flagged.
        out: CSV to write (beside it a Parquet file of that name); None: `<run>/audit.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph is gone, or the labels cannot be audited.
    """
    path = out or folder / "audit.csv"
    saved = load(folder)
    if path.suffix != ".csv":
        raise InputError(f"audit: --out must end in .csv, got {path}")
    check_free([path, path.with_suffix(".parquet")], "audit", overwrite=overwrite)
    found = saved.audit(graph, at_least)
    with fresh_files(path.parent, f"audit: {path}") as partial:
        names = [file.name for file in write_predictions(found.to_frame(), partial, path.stem)]
    console = Console()
    print(found.summary(console.width if console.is_terminal else 80), end="")
    for name in names:
        print(path.parent / name)
