"""`calirare suggest`: nodes that are worth a label next."""

from __future__ import annotations

from pathlib import Path

from calirare._util.console import Reporter
from calirare.cli.audit import path_to_write, write_found
from calirare.run import load


def run(
    folder: Path,
    graph: str | None = None,
    top: int = 20,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints and writes which nodes without a label are worth one next.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        top: how many nodes.
        out: CSV to write (and a Parquet file of that name); None: `<run>/next.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, or the graph is gone.
    """
    path = path_to_write("suggest", out or folder / "next.csv", overwrite=overwrite)
    with Reporter():
        found = load(folder).next_labels(top, graph)
    write_found("suggest", found, path)
