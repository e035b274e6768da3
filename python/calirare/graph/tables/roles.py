"""Which columns of two tables hold the names of nodes, the ends of edges, labels and the split."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calirare._util.amounts import listed
from calirare.graph.options import TableOptions
from calirare.graph.tables.files import (
    as_float,
    as_names,
    column_names,
    days_of,
    read_table,
)
from calirare.graph.tables.sources import Source, node_table_of, source_of

END_COLUMNS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))


def exchanged(features: Iterable[str]) -> bool:
    """Returns whether the columns of a node table are those of an edge table."""
    lower = {name.lower() for name in features}
    return any(set(pair) <= lower for pair in END_COLUMNS)


def ends_of(names: list[str], wanted: tuple[str | None, str | None], path: Source) -> tuple[tuple[str, str], list[str]]:
    """Returns the two columns that hold the ends of the edges, or what is wrong with them.

    Args:
        names: of the columns.
        wanted: the two that the user named, None for one that was not.
        path: of the table.
    """
    pairs = ", ".join(" and ".join(pair) for pair in END_COLUMNS[1:])
    if any(wanted):
        absent = [name for name in wanted if name is not None and name not in names]
        faults = [f"{path}: there is no column {name!r}; the columns are {listed(names)}" for name in absent]
        if None in wanted:
            faults.append(f"{path}: both ends must be named: pass --source-column and --target-column")
        return (str(wanted[0]), str(wanted[1])), faults
    lower = [name.lower() for name in names]
    for pair in END_COLUMNS:
        if set(pair) <= set(lower):
            return (names[lower.index(pair[0])], names[lower.index(pair[1])]), []
    if len(names) == 2 and not any(is_number(name) for name in names):
        return (names[0], names[1]), []
    fault = (
        f"{path}: the first line must name two columns, source and target (or {pairs}), got {listed(names)}: write "
        "a first line with these names, or say which they are (--source-column, --target-column)"
    )
    return ("", ""), [fault]


def is_number(name: str) -> bool:
    """Returns whether a cell is a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True


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

    listed = read_table(edges)
    columns, wrong = ends_of(list(listed.columns), ends, edges)
    if wrong or not len(listed):
        return None
    counts = pd.concat([as_names(listed[column].dropna()) for column in columns]).value_counts()
    table = read_table(nodes)
    rows = pd.Series(range(len(table))).astype(str)
    unique = [name for name in table.columns if table[name].notna().all() and table[name].is_unique]
    named = {name: int(counts[counts.index.isin(as_names(table[name]))].sum()) for name in unique}
    best = max(named, key=named.__getitem__, default=None)
    if best is None:
        return None
    by_rows, whole = int(counts[counts.index.isin(rows)].sum()), int(counts.sum())
    found = IdColumn(best, bool((as_names(table[best]) == rows).all()), by_rows == whole)
    others = [n for name, n in named.items() if name != best]
    if named[best] == whole:
        return found if whole and whole not in others else None
    others += [] if found.rows else [by_rows]
    return found if 2 * named[best] >= max(whole, 4 * max(others, default=0)) else None


def id_column_of(edges: str | Path, nodes: str | Path | None, wanted: str | None) -> str | None:
    """Returns a column of names where the node table has it, else None.

    Args:
        edges: the edge table.
        nodes: the node table; None: that next to it.
        wanted: the column that another graph had its names in; None: there was none.

    Raises:
        InputError: a table is missing or cannot be read.
    """
    if wanted is None:
        return None
    return (
        wanted
        if wanted in column_names(node_table_of(source_of(edges)) if nodes is None else source_of(nodes))
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
    listed = read_table(edges)
    if not ends_of(list(listed.columns), (None, None), edges)[1] or any(map(is_number, listed.columns)):
        return None
    cells = {
        name: as_names(listed[name]) for name in listed.columns if name not in others and listed[name].notna().all()
    }
    cells = {name: column for name, column in cells.items() if len(column) and not _few_numbers(column)}
    table = read_table(nodes)
    of_text, of_numbers = set[tuple[str, str]](), set[tuple[str, str]]()
    for name in table.columns if ids is None else [ids]:
        if len(table) and table[name].notna().all() and table[name].is_unique:
            names = as_names(table[name])
            numbers = is_number(names.iloc[0])
            named = {each: float(column.isin(names).mean()) for each, column in cells.items()}
            naming = [each for each, share in named.items() if share == 1]
            if len(naming) < 2 and not numbers:
                naming = [each for each, share in named.items() if share >= HALF]
            others_of_text = [each for each, column in cells.items() if each not in naming and _may_name_nodes(column)]
            if len(naming) == len(others_of_text) == 1 and (not numbers or naming == [name]):
                naming = [each for each in cells if each in (*naming, *others_of_text)]
            if len(naming) == 2:
                (of_numbers if numbers else of_text).add((naming[0], naming[1]))
    found = of_text or of_numbers
    return found.pop() if len(found) == 1 else None


def _may_name_nodes(cells: Any) -> bool:
    """Returns whether text may be names of nodes: no numbers or dates, neither few different ones nor one per row."""
    several = len(cells) < cells.nunique() ** 2 < len(cells) ** 2
    return bool(several and np.isnan(as_float(cells)).any() and np.isnan(days_of(cells)).any())


def _few_numbers(cells: Any) -> bool:
    """Returns whether text is numbers, of which there are fewer than the root of the number of rows."""
    return cells.nunique() ** 2 < len(cells) and is_number(cells.iloc[0])


ID_COLUMNS, LABEL_COLUMNS, SPLIT_COLUMNS = ("node", "id"), ("label", "y"), ("split",)


class NodeRoles(NamedTuple):
    """Columns of a node table that are no features; None for one that is not there."""

    ids: str | None
    label: str | None
    split: str | None


def are_usual_ends(columns: tuple[str, str]) -> bool:
    """Returns whether the columns of the ends have usual names."""
    return any({name.lower() for name in columns} == set(pair) for pair in END_COLUMNS)


def node_roles(names: list[str], options: TableOptions, path: Source, faults: list[str]) -> NodeRoles:
    """Returns which columns of a node table are no features; those that are left out play no part."""
    names = [name for name in names if name not in options.leave_out]
    unnamed = [i for i, name in enumerate(names) if str(name).startswith("Unnamed: ")]
    if unnamed:
        faults.append(
            f"{path}: every column must have a name, but column {unnamed[0] + 1} has none: name it, or remove it if it "
            "numbers the rows (pandas: index=False) or comes from a separator at the end of the header"
        )
    ids = column_with_role(names, options.id, () if options.id else ID_COLUMNS, "names of the nodes", path, faults)
    label = options.label if options.need_label or options.label in names else None
    split = column_with_role(names, None, SPLIT_COLUMNS, "split", path, faults)
    return NodeRoles(ids, column_with_role(names, label, LABEL_COLUMNS, "labels", path, faults), split)


def column_with_role(
    names: list[str], wanted: str | None, usual: tuple[str, ...], what: str, path: Source, faults: list[str]
) -> str | None:
    """Returns the one column with a role: the one wanted, else the one with a usual name, else None."""
    if wanted is not None and wanted not in names:
        other = "name another, or none (--unweighted)" if what == "weights" else "name another"
        faults.append(f"{path}: there is no column {wanted!r}; the columns are {listed(names)}: {other}")
        return None
    found = [name for name in names if name == wanted or str(name).lower() in usual]
    if wanted is not None and "x" in (str(name).lower() for name in names):  # a coordinate next to it, no label
        found = [name for name in found if name == wanted or str(name).lower() != "y"]
    if len(found) > 1:
        faults.append(
            f"{path}: one column must hold the {what}, got {' and '.join(map(repr, found))}: leave the others out "
            "(command line: --leave-out), or rename what is something else"
        )
    return found[0] if found else None
