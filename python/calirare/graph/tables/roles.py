"""Which columns of two tables hold the names of nodes, the ends of edges, labels and the split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from calirare._util.amounts import listed, meant
from calirare._util.errors import FaultsError
from calirare.graph.options import WEIGHT, TableOptions
from calirare.graph.spelling import is_number
from calirare.graph.tables.files import as_names, column_names, read_table
from calirare.graph.tables.sources import Source, node_table_of, source_of

MOSTLY = 0.9  # of the ends of edges name nodes; the others have no row, which is a fault of its own
END_COLUMNS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))


def has_ends(names: Iterable[str]) -> bool:
    """Returns whether two of some columns are called as the ends of edges usually are."""
    lower = {name.lower() for name in names}
    return any(set(pair) <= lower for pair in END_COLUMNS)


def ends_of(
    names: list[str], wanted: tuple[str | None, str | None], path: Source | str
) -> tuple[tuple[str, str], list[str]]:
    """Returns the two columns that hold the ends of the edges, or what is wrong with those that are `wanted`."""
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


def with_found_columns(
    edges: Source, nodes: Source, options: TableOptions, faults: Sequence[str]
) -> tuple[TableOptions, tuple[str, ...]]:
    """Returns options with columns that are known by their cells, and notes on them.

    They are the only two columns of the edge table whose cells name nodes (by a column of text, where nobody has named
    that of the names), and the only column of the node table with another name in every row and the ends of edges among
    them; one end in ten may lack a row. Where several are so, the user must say which: a FaultsError, with the faults
    found before.
    """
    import pandas as pd

    ids = options.id or node_roles(column_names(nodes), options, nodes, []).ids
    notes = list[str]()
    columns, wrong = ends_of(column_names(edges), options.ends, edges)
    if (any(options.ends) or any(map(is_number, column_names(edges)))) if wrong else ids is not None:
        return options, ()
    table, edge_table = read_table(nodes).cells, read_table(edges).cells
    full = [name for name in table.columns if len(table) and table[name].notna().all()]
    # Of text a name may be there twice, which is a fault of its own.
    least_unique = {name: 1.0 if is_number(str(table[name].iloc[0])) else MOSTLY for name in full}
    unique = [name for name in full if table[name].nunique() >= least_unique[name] * len(table)]
    names = {name: as_names(table[name]) for name in (unique if ids is None else [ids] if ids in table else [])}
    if wrong:
        others = (options.weight or WEIGHT, options.relation, options.time)
        whole = [name for name in edge_table if name not in others and edge_table[name].notna().all()]
        cells = {name: as_names(edge_table[name]) for name in whole if len(edge_table)}
        known = {name: each for name, each in names.items() if ids is not None or not is_number(each.iloc[0])}
        naming = [{end: cells[end].isin(each).mean() for end in cells} for each in known.values()]
        pairs = set[tuple[str, ...]]()
        for least in (1.0, MOSTLY):
            named = (tuple(end for end, share in shares.items() if share >= least) for shares in naming)
            pairs = pairs or {each for each in named if len(each) == 2}
        if len(pairs) != 1:
            return options, ()
        columns = cast(tuple[str, str], pairs.pop())
        options = replace(options, source_column=columns[0], target_column=columns[1])
        notes.append(
            f"edges: from column {columns[0]!r} to column {columns[1]!r}, the two whose cells name nodes "
            "(--source-column and --target-column name others)"
        )
    ends = pd.concat([as_names(edge_table[column].dropna()) for column in columns]).drop_duplicates()
    rows = pd.Series(range(len(table))).astype(str)
    fits = {name: ends.isin(known).mean() for name, known in names.items()}
    least = 1.0 if ends.isin(rows).all() else max([MOSTLY, *fits.values()])
    found = [name for name, share in fits.items() if share >= least]
    if ids is not None or len(found) != 1 or not len(ends):
        return options, tuple(notes)
    if ends.isin(rows).all() and not (names[found[0]] == rows).all():
        fault = (
            f"{nodes}: the edges may refer to nodes by their row numbers or by column {found[0]!r}, both fit: say that "
            "it is the column (command line: --id COLUMN), or add a column 'node' with the row numbers"
        )
        raise FaultsError([*faults, fault])
    return replace(options, id=found[0]), (*notes, f"nodes: the edges refer to them by column {found[0]!r}")


def id_column_of(edges: str | Path, nodes: str | Path | None, wanted: str | None) -> str | None:
    """Returns the column that another graph had its names in where the node table has it, else None."""
    if wanted is None:
        return None
    table = node_table_of(source_of(edges)) if nodes is None else source_of(nodes)
    return wanted if wanted in column_names(table) else None


ID_COLUMNS, LABEL_COLUMNS, SPLIT_COLUMNS = ("node", "id"), ("label", "y"), ("split",)


class NodeRoles(NamedTuple):
    """Columns of a node table that are no features; None for one that is not there."""

    ids: str | None
    label: str | None
    split: str | None
    time: str | None


def node_roles(names: list[str], options: TableOptions, path: Source | str, faults: list[str]) -> NodeRoles:
    """Returns which columns of a node table are no features; those that are left out play no part."""
    names = [name for name in names if name not in options.drop_columns]
    unnamed = [i for i, name in enumerate(names) if str(name).startswith("Unnamed: ")]
    if unnamed:
        faults.append(
            f"{path}: every column must have a name, but column {unnamed[0] + 1} has none: name it, or remove it if it "
            "numbers the rows (pandas: index=False) or comes from a separator at the end of the header"
        )
    ids = column_with_role(names, options.id, () if options.id else ID_COLUMNS, "names of the nodes", path, faults)
    label = options.label if options.need_label or options.label in names else None
    split = column_with_role(names, None, SPLIT_COLUMNS, "split", path, faults)
    time = options.time if options.time in names else None
    return NodeRoles(ids, column_with_role(names, label, LABEL_COLUMNS, "labels", path, faults), split, time)


def column_with_role(
    names: list[str], wanted: str | None, usual: tuple[str, ...], what: str, path: Source | str, faults: list[str]
) -> str | None:
    """Returns the one column with a role: the one wanted, else the one with a usual name, else None."""
    if wanted is not None and wanted not in names:
        other = "name another, or none (--unweighted)" if what == "weights" else meant(wanted, names)
        faults.append(f"{path}: there is no column {wanted!r}; the columns are {listed(names)}: {other}")
        return None
    found = [name for name in names if name == wanted or str(name).lower() in usual]
    if wanted is not None and "x" in (str(name).lower() for name in names):  # a coordinate next to it, no label
        found = [name for name in found if name == wanted or str(name).lower() != "y"]
    if len(found) > 1:
        faults.append(
            f"{path}: one column must hold the {what}, got {' and '.join(map(repr, found))}: leave the others out "
            "(command line: --drop-columns), or rename what is something else"
        )
    return found[0] if found else None
