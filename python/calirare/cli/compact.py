"""`calirare compact`: a graph with the changes of its log, as a graph of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.graph import GraphLog


def run(graph: Path, out: Path, log: Path | None = None) -> None:
    """Writes a graph with the changes of its log as a folder.

    Args:
        graph: folder or `.npz` file.
        out: folder of the new graph; it must not be there.
        log: the log's file; None: beside the graph, with its name and `.log`.

    Raises:
        InputError: there is no log, another process holds it, or a file cannot be used.
    """
    path = Path(f"{graph}.log") if log is None else log
    if not path.exists():
        raise InputError(f"compact: there is no log {path}: name it with --log FILE")
    with GraphLog(graph, path) as changes:
        for note in changes.notes:
            print(f"note: {note}", file=sys.stderr)
        after = changes.compact(out)
        done, before = amount(changes.n_changes, "change"), amount(changes.before.n_nodes, "node")
        print(f"{done}: {before} before, {after.n_nodes:,} now")
    print(out)
