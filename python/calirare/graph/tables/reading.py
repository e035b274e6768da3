"""Graphs from two tables: a list of edges and a list of nodes, see `calirare.graph.tables.sources` for where from.

The edge table has the columns `source` and `target` (or another pair of `END_COLUMNS`, two that the user names, or the
only two whose every cell names a node; a table of two columns may name them as it likes) and optionally `weight`;
other columns are read where `edge_columns` names them, see `edge_features`. The node table has one row
per node: optionally a column `node` or `id` that the edges refer to (otherwise nodes are numbered from 0 in the order
of the rows), optionally `label` or `y` (empty or -1 for unknown) and `split` (train, val, test or empty); every other
column is a feature: numbers, names of categories, or dates, and an empty cell is a missing value. These names may have
capitals. Names of nodes and classes are text and stay as they are written. All faults are said at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calirare._util.amounts import listed
from calirare._util.errors import FaultsError, InputError
from calirare.graph.arrays import Parts
from calirare.graph.columns import NEIGHBOURS, with_neighbours
from calirare.graph.edges import edge_faults, edge_notes, future_nodes_note
from calirare.graph.options import WEIGHT, EdgeRules, TableColumns, TableOptions
from calirare.graph.relations import relations_of, typed_adjacency
from calirare.graph.tables.edge_cells import EdgeCells, rows_until
from calirare.graph.tables.edge_features import not_read, read_edge_features, with_edge_features
from calirare.graph.tables.files import as_of_words, blocks_of, column_names, header_of, read_arrow, read_table
from calirare.graph.tables.labels import check_parts, labels_of, split_of
from calirare.graph.tables.name_faults import names_of_nodes
from calirare.graph.tables.node_cells import NodeCells
from calirare.graph.tables.roles import (
    are_usual_ends,
    column_with_role,
    ends_of,
    exchanged,
    node_roles,
    with_found_columns,
)
from calirare.graph.tables.scored import (
    LISTED,
    lead_to_nodes_without_rows,
    never_labelled,
    scored_rows,
    with_edge_only_nodes,
)
from calirare.graph.tables.sources import Source, node_table_of, source_of

NUMERIC = "numeric"
UNREAD = "nodes: no label is read, nor needed here: {}"


class _Nodes(NamedTuple):
    """What a node table holds."""

    parts: Parts
    ids: Any
    n_nodes: int


def read_tables(
    edges: str | Path | Source, nodes: str | Path | Source | None, rules: EdgeRules, options: TableOptions
) -> Parts:
    """Returns the parts of the graph of an edge table and a node table.

    Args:
        edges: the edge table: a path, or as `source_of` takes it.
        nodes: the node table; None for the file next to it whose name has "nodes" in place of "edges".
        rules: what to do with repeated edges, self loops and missing opposite directions.
        options: which columns mean what.

    Returns:
        The parts: classes in order of their names (numbers by size), and the split of the node table.

    Raises:
        InputError: a table is missing or damaged, or cells do not fit: every kind of fault of both tables is named.
    """
    edges = source_of(edges)
    of_nodes = node_table_of(edges) if nodes is None else source_of(nodes)
    faults, said = list[str](), tuple[str, ...]()
    parts = _read_both(edges, of_nodes, rules, options, faults)
    if faults or parts is None or _numbers_are_ambiguous(parts):
        found, said = with_found_columns(edges, of_nodes, options, faults)
        if found != options:
            options, faults = found, []
            parts = _read_both(edges, of_nodes, rules, options, faults)
    if faults and options.unknown_ends is None and _lead_out(edges, of_nodes, options):
        faults = []
        parts = _read_both(edges, of_nodes, rules, replace(options, unknown_ends="add"), faults)
    if faults or parts is None:
        raise FaultsError(faults)
    if not set(parts["feature_names"]) - {LISTED}:
        parts = with_neighbours(parts)
    elif set(options.kinds or ()) - {LISTED} == {NEIGHBOURS} and NEIGHBOURS not in parts["feature_names"]:
        parts = with_neighbours(parts, "those of the run")
    return parts | {
        "name": edges.name.split(".")[0] or edges.name,
        "where": str(edges),
        "notes": (*said, *parts["notes"]),
    }


def _read_both(
    edges: Source, nodes: Source, rules: EdgeRules, options: TableOptions, faults: list[str]
) -> Parts | None:
    """Returns the parts of the graph of two tables, None where there are faults."""
    found = _read_nodes(nodes, options, faults)
    if options.unknown_ends == "add":
        found = _with_unlisted(edges, found, options, faults)
    read = _read_edges(edges, found, rules, options, faults)
    if read is None:
        return None
    # After all that takes memory: numpy's text takes four bytes per letter.
    notes = (*found.parts["notes"], *read["notes"])
    return (
        found.parts
        | read
        | {"notes": notes, "node_names": None if found.ids is None else found.ids.to_numpy().astype(str)}
    )


def _with_unlisted(edges: Source, found: _Nodes, options: TableOptions, faults: list[str]) -> _Nodes:
    """Returns nodes with those that the edges lead to and that have no row."""
    columns, wrong = ends_of(column_names(edges), (options.source_column, options.target_column), edges)
    if wrong or found.ids is None:
        return found
    until = None
    if options.as_of is not None and options.time in column_names(
        edges
    ):  # a node that edges lead to only later is not there yet
        until = rows_until(read_table(edges), edges, options.time, options.as_of, [])
    parts, ids, note = with_edge_only_nodes(found.parts, found.ids, edges, columns, faults, until)
    notes = (*parts["notes"], f"nodes: {note}") if note else parts["notes"]
    return _Nodes(parts | {"notes": notes}, ids, len(ids))


def _lead_out(edges: Source, nodes: Source, options: TableOptions) -> bool:
    """Returns whether all edges lead from nodes with a row to nodes without one, or the other way."""
    found = _read_nodes(nodes, options, [])
    columns, wrong = ends_of(column_names(edges), (options.source_column, options.target_column), edges)
    return not wrong and found.ids is not None and lead_to_nodes_without_rows(edges, columns, found.ids)


def _numbers_are_ambiguous(parts: Parts) -> bool:
    """Returns whether nodes are called by the numbers of their rows, and a column may number them too."""
    if parts["node_names"] is not None:
        return False
    whole = (column for column in parts["x"].numpy().T if (column == np.floor(column)).all() and column.min() >= 0)
    return any(len(np.unique(column)) == len(column) for column in whole)


def _read_nodes(path: Source, options: TableOptions, faults: list[str]) -> _Nodes:
    """Returns what the node table holds."""

    def as_text(names: list[str]) -> list[str]:
        named = [name for name in node_roles(names, options, path, []) if name is not None]
        named += [name for name in names if f"{name}=" == (options.scored or "")[: len(name) + 1]]
        kinds = options.kinds or {}
        words = [name for name in names if name in options.one_hot or kinds.get(name, NUMERIC) != NUMERIC]
        return [*named, *words]

    table = read_table(path, as_text)
    if len(table) == 0:
        raise InputError(f"{path}: the table of nodes has a header but no rows: write one row per node")
    absent = [name for name in options.leave_out if name not in table.columns]
    if absent and options.need_label:  # a table to score need not have them
        there = listed(table.columns)
        faults.append(f"{path}: there is no column {absent[0]!r} to leave out; the columns are {there}: name another")
    table = table[[name for name in table.columns if name not in options.leave_out]]
    roles = node_roles(list(table.columns), options, path, faults)
    features = [name for name in table.columns if name not in roles]
    ids = None if roles.ids is None else names_of_nodes(table[roles.ids], path, faults)
    faults += [
        f"{path}: there is no feature column {name!r} to read as names; the features are {listed(features)}"
        for name in options.one_hot
        if name not in features
    ]
    cells = NodeCells(table, path, ids, options.one_hot, options.impute != "error", options.kinds)
    x, columns = cells.read(features)
    faults += cells.faults
    unread: list[str] = []  # of labels and parts that nobody asked for
    asked = faults if options.need_label else unread
    read = None if roles.label is None else labels_of(table[roles.label], path, asked, options.unknown)
    y, class_names = (None, ()) if read is None else (read.y, read.names)
    split = None if roles.split is None else split_of(table[roles.split], path, asked)
    check_parts(split, y, path, asked)
    if unread:
        y, class_names, split = None, (), None
    said = () if y is None or read is None else read.notes()
    parts = {
        "x": x,
        "columns": columns,
        "y": y,
        "split": split,
        "class_names": class_names,
        "feature_names": tuple(features),
        "scored": None if options.scored is None else scored_rows(table, options.scored, path, faults),
    }
    parts["notes"] = tuple(filter(None, (*cells.notes, *map(UNREAD.format, unread[:1]), *said, never_labelled(parts))))
    return _Nodes(parts, ids, len(table))


def _read_edges(
    path: Source, nodes: _Nodes, rules: EdgeRules, options: TableOptions, faults: list[str]
) -> Parts | None:
    """Returns adjacency and relations of the edge table, None where there are faults."""
    wanted = (options.source_column, options.target_column)

    def as_text(names: list[str]) -> list[str]:
        return [name for name in (*ends_of(names, wanted, path)[0], options.relation) if name in names]

    names = header_of(path)
    if names is None or ends_of(names, wanted, path)[1]:
        table = read_table(path, as_text)
        names, whole = list(table.columns), True
    else:
        others = (options.relation, options.time, options.weight, *options.edge_columns)
        others += tuple(name for name in names if options.names_weights(name))
        table, whole = read_arrow(path, [name for name in dict.fromkeys(others) if name in names]), False
    columns, wrong = ends_of(names, wanted, path)
    weight = column_with_role(
        names, options.weight, () if options.weight or options.unweighted else (WEIGHT,), "weights", path, faults
    )
    guessed = not wrong and not are_usual_ends(columns) and not any(wanted) and nodes.ids is not None
    if guessed and nodes.ids.astype(str).isin(columns).any():
        wrong = [
            f"{path}: the first line must name the columns, but {' and '.join(map(repr, columns))} are names of "
            "nodes: write a first line with source and target above the edges"
        ]
    named = [("--relation", options.relation), ("--time", options.time)]
    named += [("--edge-columns", name) for name in options.edge_columns]
    wrong += [
        f"{path}: there is no column {name!r}; the columns are {listed(names)}: name another ({option})"
        for option, name in named
        if name is not None and name not in names
    ]
    if wrong and exchanged(nodes.parts["feature_names"]):
        wrong = [f"{path}: this is no edge table, but the node table is one: exchange the two (--dataset is the edges)"]
    if wrong or (nodes.ids is None and any("names of the nodes" in fault for fault in faults)):
        faults += wrong
        return None
    blocks = [table] if whole else blocks_of(path, list(dict.fromkeys(columns)))
    cells = EdgeCells(table, path, nodes.ids, nodes.n_nodes, blocks, options.unknown_ends == "drop")
    numbers = cells.numbers(columns)
    until = rows_until(cells.table, path, options.time, options.as_of, cells.faults)
    ends, at = cells.ends(numbers, columns, until)
    del numbers  # as long as the edges
    weights, types = cells.weights(weight), cells.types(options.relation)
    carried, notes, wrong = read_edge_features(cells.table, path, options.edge_columns, at)
    faults += cells.faults + wrong
    weights = None if weights is None else weights[at]
    naming, asked = cells.naming(at), rules
    rules = asked.for_table(weighted=weights is not None)
    if faults:
        with np.errstate(over="ignore"):
            single = None if weights is None else weights.astype(np.float32)
        faults += [f"{path}: {fault}" for fault in edge_faults(ends, single, nodes.n_nodes, rules, naming)]
        return None
    try:
        some = None if types is None else types[at]
        adjacency = typed_adjacency(ends, weights, some, nodes.n_nodes, rules, str(path), naming)
        typed = options.directed or types is not None
        notes += cells.notes
        notes += edge_notes(ends, asked, rules, nodes.n_nodes, adjacency.nnz, some, directed=typed)
        if weight is not None and options.weight is None:
            notes.append(f"weights are those of column {weight!r} (--unweighted does not read them)")
        used = (*columns, weight, options.relation, options.time, *options.edge_columns)
        if unread := [name for name in names if name not in used]:
            notes.append(not_read(unread))
        if options.time is not None and options.as_of is None:
            notes.append(f"{options.time!r} leaves none out by itself: say until when (--as-of)")
        if not until.all():
            scored, last = nodes.parts["scored"], as_of_words(options.as_of)
            told = future_nodes_note(cells.later, None if scored is None else scored.numpy(), nodes.n_nodes, last)
            notes[:0] = [f"left out, edges after {last}: {int((~until).sum()):,}", *told]
        if len(cells.table) == 0:
            notes.insert(0, "the table has no rows: no node has a neighbour")
        if cells.dropped:
            notes.insert(0, cells.dropped)
        features, wrong = with_edge_features(nodes.parts, carried, ends, directed=options.directed, where=str(path))
        faults += wrong
        return features | {
            "adjacency": adjacency,
            "relations": relations_of(ends, weights, some, nodes.n_nodes, rules) if typed else (),
            "notes": tuple(f"edges: {note}" for note in notes),
            "tables": TableColumns(
                None if nodes.ids is None else str(nodes.ids.name),
                *columns,
                weight,
                options.unknown_ends,
                options.scored,
                options.unweighted,
            ),
        }
    except FaultsError as error:
        faults += error.faults
        return None
