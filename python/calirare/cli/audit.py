"""`calirare audit`: labels of a saved run that are probably wrong, and nodes that are worth a label next."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from calirare._util.console import Reporter, screen
from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.explain.audit import Audit
from calirare.run import NEXT_BY, NextBy, NextLabels, load, write_predictions


def run(
    folder: Path,
    graph: str | None = None,
    at_least: float = 0.5,
    following: int | None = None,
    by: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints which labels are probably wrong and writes every label with how likely it is wrong; or what to label next.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        at_least: P(wrong) from which a label is flagged.
        following: how many nodes to name that are worth a label next, in place of the audit.
        by: what these are chosen by, see `Outcome.next_labels`.
        out: CSV to write (beside it a Parquet file of that name); None: `<run>/audit.csv`, or `<run>/next.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph is gone, or the labels cannot be audited.
    """
    path = out or folder / ("audit.csv" if following is None else "next.csv")
    if by is not None and following is None:
        raise InputError("audit: --by says what the next labels are chosen by: say how many (--next)")
    if path.suffix != ".csv":
        raise InputError(f"audit: --out must end in .csv, got {path}")
    check_free([path, path.with_suffix(".parquet")], "audit", overwrite=overwrite)
    found: Audit | NextLabels
    with Reporter():
        if following is None:
            found = load(folder).audit(graph, at_least)
        else:
            found = load(folder).next_labels(following, graph, cast(NextBy, by or NEXT_BY[0]))
    with fresh_files(path.parent, f"audit: {path}") as partial:
        names = [file.name for file in write_predictions(found.to_frame(), partial, path.stem)]
    print(found.summary(screen(80).width), end="")
    for name in names:
        print(path.parent / name)
