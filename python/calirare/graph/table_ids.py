"""Which column of a node table holds the names that an edge table refers to, where nobody said so."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from calirare.graph.edge_table import ends_of
from calirare.graph.table_files import as_names, read_table

Ends = tuple[str | None, str | None]


class IdColumn(NamedTuple):
    """A column that may hold the names of the nodes; `rows`: they are the numbers of the rows, from 0."""

    name: str
    rows: bool


def column_of_names(edges: Path, nodes: Path, ends: Ends) -> IdColumn | None:
    """Returns the only column of a node table that has another text in every row and every end of an edge among them.

    None where no column is so, or several are: then the user must say which.

    Args:
        edges: path of the edge table.
        nodes: path of the node table.
        ends: the two columns of the edge table that the user named, None for one that was not.
    """
    import pandas as pd

    listed = read_table(edges, lambda names: names)
    columns, wrong = ends_of([str(name) for name in listed.columns], ends, edges)
    if wrong:
        return None
    listed.columns = [str(name) for name in listed.columns]
    named = pd.concat([as_names(listed[column].dropna()) for column in columns]).unique()
    table = read_table(nodes, lambda names: names)
    found = []
    for name in table.columns:
        column = table[name]
        if column.notna().all() and column.is_unique and pd.Index(named).isin(as_names(column)).all():
            rows = bool((as_names(column) == pd.Series(range(len(table))).astype(str)).all())
            found.append(IdColumn(str(name), rows))
    return found[0] if len(found) == 1 and len(named) else None
