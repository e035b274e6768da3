"""Which columns of two tables hold the names of nodes and the ends of edges, where nobody said so."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calirare.graph.edge_table import ends_of, is_number
from calirare.graph.table_ends import column_names
from calirare.graph.table_files import as_float, as_names, days_of, read_table
from calirare.graph.table_sources import Source, nodes_beside, source_of

Ends = tuple[str | None, str | None]
HALF = 0.5  # of the cells of a column of text: chance does not name so many nodes


class IdColumn(NamedTuple):
    """A column that may hold the names of the nodes.

    Attributes:
        name: of the column.
        rows: its cells are the numbers of the rows, from 0, in their order.
        by_rows: every end of an edge is written as a number of a row too: 007 is none.
    """

    name: str
    rows: bool
    by_rows: bool


def column_of_names(edges: Source, nodes: Source, ends: Ends) -> IdColumn | None:
    """Returns the only column of a node table that has another text in every row and every end of an edge among them.

    Where no column has every end, the one that has at least half of them, and twice as many as any other and as there
    are numbers of rows among them: edges may lead to nodes without a row. None where no column is so, or several are:
    then the user must say which.

    Args:
        edges: path of the edge table.
        nodes: path of the node table.
        ends: the two columns of the edge table that the user named, None for one that was not.
    """
    import pandas as pd

    listed = read_table(edges, lambda names: names)
    columns, wrong = ends_of([str(name) for name in listed.columns], ends, edges)
    if wrong or not len(listed):
        return None
    listed.columns = [str(name) for name in listed.columns]
    counts = pd.concat([as_names(listed[column].dropna()) for column in columns]).value_counts()
    table = read_table(nodes, lambda names: names)
    rows = pd.Series(range(len(table))).astype(str)
    unique = [name for name in table.columns if table[name].notna().all() and table[name].is_unique]
    named = {name: int(counts[counts.index.isin(as_names(table[name]))].sum()) for name in unique}
    best = max(named, key=named.__getitem__, default=None)
    if best is None:
        return None
    by_rows, whole = int(counts[counts.index.isin(rows)].sum()), int(counts.sum())
    found = IdColumn(str(best), bool((as_names(table[best]) == rows).all()), by_rows == whole)
    others = [n for name, n in named.items() if name != best]
    if named[best] == whole:
        return found if whole and whole not in others else None
    others += [] if found.rows else [by_rows]
    return found if 2 * named[best] >= max(whole, 4 * max(others, default=0)) else None


def id_column_of(edges: str | Path, nodes: str | Path | None, wanted: str | None) -> str | None:
    """Returns a column of names where the node table has it, else None.

    Args:
        edges: the edge table.
        nodes: the node table; None: that beside it.
        wanted: the column that another graph had its names in; None: there was none.

    Raises:
        InputError: a table is missing or cannot be read.
    """
    if wanted is None:
        return None
    return (
        wanted
        if wanted in column_names(nodes_beside(source_of(edges)) if nodes is None else source_of(nodes))
        else None
    )


def columns_of_ends(
    edges: Source, nodes: Source, ids: str | None, others: Collection[str | None]
) -> tuple[str, str] | None:
    """Returns the only two columns of an edge table whose every cell names a node, in their order.

    Where no two are so, the only two of which at least half of the cells do, in text: edges may lead to nodes without a
    row, and of text that is no chance. Where one alone is so, that and the only other column of different texts: all
    edges may lead to nodes without a row, such as devices. None where the table names its ends as usual or has no names
    of columns, or where other than two columns are so: then the user must say which. Numbers can be nodes' names by
    chance, but not where both columns are called alike: text goes before them, and numbers of which there are few, such
    as hours or counts, name no node.

    Args:
        edges: path of the edge table.
        nodes: path of the node table.
        ids: column of the node table with the names; None: any that has another text in every row.
        others: columns of the edge table that hold something else.
    """
    listed = read_table(edges, lambda names: names)
    listed.columns = [str(name) for name in listed.columns]
    if not ends_of(list(listed.columns), (None, None), edges)[1] or any(map(is_number, listed.columns)):
        return None
    cells = {
        name: as_names(listed[name]) for name in listed.columns if name not in others and listed[name].notna().all()
    }
    cells = {name: column for name, column in cells.items() if len(column) and not _few_numbers(column)}
    table = read_table(nodes, lambda names: names)
    table.columns = [str(name) for name in table.columns]
    of_text, of_numbers = set[tuple[str, str]](), set[tuple[str, str]]()
    for name in table.columns if ids is None else [ids]:
        if len(table) and table[name].notna().all() and table[name].is_unique:
            names = as_names(table[name])
            numbers = is_number(names.iloc[0])
            named = {each: float(column.isin(names).mean()) for each, column in cells.items()}
            naming = [each for each, share in named.items() if share == 1]
            if len(naming) < 2 and not numbers:
                naming = [each for each, share in named.items() if share >= HALF]
            others_of_text = [each for each, column in cells.items() if each not in naming and _are_names(column)]
            if len(naming) == len(others_of_text) == 1 and (not numbers or naming == [name]):
                naming = [each for each in cells if each in (*naming, *others_of_text)]
            if len(naming) == 2:
                (of_numbers if numbers else of_text).add((naming[0], naming[1]))
    found = of_text or of_numbers
    return found.pop() if len(found) == 1 else None


def _are_names(cells: Any) -> bool:
    """Returns whether text may be names of nodes: no numbers or dates, neither few different ones nor one per row."""
    several = len(cells) < cells.nunique() ** 2 < len(cells) ** 2
    return bool(several and np.isnan(as_float(cells)).any() and np.isnan(days_of(cells)).any())


def _few_numbers(cells: Any) -> bool:
    """Returns whether text is numbers, of which there are fewer than the root of the number of rows."""
    return cells.nunique() ** 2 < len(cells) and is_number(cells.iloc[0])
