"""Groups of nodes from a table of the user's: an investigator, a ring, that are no features of the run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calirare._util.errors import InputError
from calirare.graph import Graph, names_in_words
from calirare.graph.tables import as_names, lost_digits, why_any_unknown
from calirare.run.data_settings import cells_of, read_rows


def read_groups(path: str | Path, column: str, graph: Graph) -> dict[str, str]:
    """Returns what stands in a column of a table for each node that has a row there.

    The nodes are in the other column in which most cells are names of nodes (of a graph without names their numbers).

    Args:
        path: CSV, TSV or Parquet.
        column: the one to group by.
        graph: whose nodes they are.

    Raises:
        InputError: the file cannot be read, has no such column, or no column names nodes.
    """
    table = read_rows(Path(path))
    if column not in table:
        raise InputError(
            f"{path}: there is no column {column!r} to group by: its columns are {names_in_words(table.columns, 10)}"
        )
    known = set(map(str, range(graph.n_nodes) if graph.node_names is None else graph.node_names))
    others = {name: cells_of(as_names(table[name])) for name in table.columns if name != column}
    met = {name: sum(cell in known for cell in cells) for name, cells in others.items()}
    likely = [name for name, n in met.items() if n == max(met.values())]
    for name in likely:
        lost = lost_digits(table[name], path)
        unknown = (cell for cell in others[name] if cell and cell not in known)
        why = why_any_unknown(unknown, pd.Series(sorted(known.difference(others[name])), dtype=object))
        if lost or why:
            raise InputError(
                lost[0] if lost else f"{path}: column {name!r} names no nodes of graph {graph.name!r}{why}"
            )
    best = next(iter(likely), None)
    if best is None or not met[best]:
        raise InputError(f"{path}: no column names nodes of graph {graph.name!r}: take the table that has their names")
    rows = zip(others[best], cells_of(table[column]), strict=True)
    return {node: value for node, value in rows if node in known}
