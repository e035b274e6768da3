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

import numpy as np
import torch

from calirare._util.amounts import listed
from calirare._util.errors import FaultsError, InputError
from calirare.graph.arrays import Parts
from calirare.graph.columns import NEIGHBOURS, names_in_words, with_neighbours
from calirare.graph.edges import edge_faults, edge_notes, first_edge_times, future_nodes_note
from calirare.graph.options import WEIGHT, EdgeRules, TableColumns, TableOptions
from calirare.graph.relations import relations_of, typed_adjacency
from calirare.graph.tables.edge_cells import EdgeCells, edge_features, rows_until
from calirare.graph.tables.files import (
    Table,
    as_of_words,
    blocks_of,
    column_names,
    header_of,
    read_arrow,
    read_table,
    release_unused,
    times_of,
)
from calirare.graph.tables.labels import ReadLabels, check_parts, labels_of, split_of
from calirare.graph.tables.name_faults import names_of_nodes
from calirare.graph.tables.node_cells import NodeCells
from calirare.graph.tables.roles import (
    column_with_role,
    ends_of,
    has_ends,
    node_roles,
    with_found_columns,
)
from calirare.graph.tables.scored import (
    LISTED,
    Nodes,
    lead_to_nodes_without_rows,
    rows_where,
    with_edge_only_nodes,
)
from calirare.graph.tables.sources import Source, node_table_of, rows_with_labels, source_exists, source_of

NUMERIC = "numeric"
NO_LABELS = ReadLabels(None, ())


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
    try:
        of_nodes = node_table_of(edges) if nodes is None else source_of(nodes)
    except InputError as error:
        hint = rows_with_labels(edges, column_names(edges)) if source_exists(str(edges)) else ""
        raise FaultsError([str(error), f"{edges}: {hint}"] if hint else [str(error)]) from None
    faults, said = list[str](), tuple[str, ...]()
    parts = _read_both(edges, of_nodes, rules, options, faults)
    if faults or _numbers_are_ambiguous(parts):
        found, said = with_found_columns(edges, of_nodes, options, faults)
        if found != options:
            options, faults = found, []
            parts = _read_both(edges, of_nodes, rules, options, faults)
    if faults and options.unknown_ends is None and _lead_out(edges, of_nodes, options):
        faults = []
        parts = _read_both(edges, of_nodes, rules, replace(options, unknown_ends="add"), faults)
    if faults:
        hint = rows_with_labels(edges, column_names(edges))
        if options.label in column_names(edges) and options.label not in column_names(of_nodes):
            swap = f"column {options.label!r} is here: swap the two tables if the rows of this one are nodes"
            hint = f"{swap}; {hint}" if hint else swap
        raise FaultsError([*faults, f"{edges}: {hint}"] if hint else faults)
    if not set(parts["feature_names"]) - {LISTED}:
        parts = with_neighbours(parts)
    elif set(options.kinds or ()) - {LISTED} == {NEIGHBOURS} and NEIGHBOURS not in parts["feature_names"]:
        parts = with_neighbours(parts, "those of the run")
    name = edges.name.split(".")[0] or edges.name
    return parts | {"name": name, "where": str(edges), "notes": (*said, *parts["notes"])}


def _read_both(edges: Source, nodes: Source, rules: EdgeRules, options: TableOptions, faults: list[str]) -> Parts:
    """Returns the parts of the graph of two tables, not all of them where there are faults."""
    found = _read_nodes(nodes, options, faults)
    if found.parts["time"] is not None and options.time not in column_names(edges):
        options = replace(options, time=None)
    if options.unknown_ends == "add" and found.ids is not None:
        names = column_names(edges)
        columns, wrong = ends_of(names, options.ends, edges)
        if not wrong:
            until = None
            if options.as_of is not None and options.time in names:
                # A node that edges lead to only later is not there yet.
                until = rows_until(read_table(edges), options.time, options.as_of)
            found = with_edge_only_nodes(found, edges, columns, faults, until)
    read = _read_edges(edges, found, rules, options, faults)
    if faults:
        return {}
    # After all that takes memory: numpy's text takes four bytes per letter.
    node_names = None if found.ids is None else found.ids.to_numpy().astype(str)
    return found.parts | read | {"notes": (*found.parts["notes"], *read["notes"]), "node_names": node_names}


def _lead_out(edges: Source, nodes: Source, options: TableOptions) -> bool:
    """Returns whether all edges lead from nodes with a row to nodes without one, or the other way."""
    ids = _read_nodes(nodes, options, []).ids
    columns, wrong = ends_of(column_names(edges), options.ends, edges)
    return not wrong and ids is not None and lead_to_nodes_without_rows(edges, columns, ids)


def _numbers_are_ambiguous(parts: Parts) -> bool:
    """Returns whether nodes are called by the numbers of their rows, and a column may number them too."""
    if parts["node_names"] is not None:
        return False
    whole = (column for column in parts["x"].numpy().T if (column == np.floor(column)).all() and column.min() >= 0)
    return any(len(np.unique(column)) == len(column) for column in whole)


def _read_nodes(path: Source, options: TableOptions, faults: list[str]) -> Nodes:
    """Returns what the node table holds."""
    kinds = dict(options.kinds or {}) | dict.fromkeys(options.one_hot, "categorical")

    def as_text(names: list[str]) -> list[str]:
        named = [name for name in node_roles(names, options, path, []) if name is not None]
        named += [name for name in names if f"{name}=" == (options.target_nodes or "")[: len(name) + 1]]
        return [*named, *(name for name in names if kinds.get(name, NUMERIC) != NUMERIC)]

    table = read_table(path, as_text)
    table.faults = faults
    if len(table.cells) == 0:
        raise InputError(f"{path}: the table of nodes has a header but no rows: write one row per node")
    absent = [name for name in options.drop_columns if name not in table.cells.columns]
    if absent and options.need_label:  # a table to score need not have them
        there = listed(table.cells.columns)
        faults.append(f"{path}: there is no column {absent[0]!r} to leave out; the columns are {there}: name another")
    table.cells = table.cells[[name for name in table.cells.columns if name not in options.drop_columns]]
    roles = node_roles(list(table.cells.columns), options, path, faults)
    features = [name for name in table.cells.columns if name not in roles]
    table.ids = None if roles.ids is None else names_of_nodes(table, roles.ids)
    faults += [
        f"{path}: there is no feature column {name!r} to read as names; the features are {listed(features)}"
        for name in options.one_hot
        if name not in features
    ]
    x, columns = NodeCells(table, kinds, options.impute != "error").read(features)
    scored = None if options.target_nodes is None else rows_where(table, options.target_nodes, "--target-nodes")
    notes = [f"nodes: {note}" for note in table.notes]
    found = options.need_label and roles.label is not None and options.label is None
    notes += [f"nodes: labels are column {roles.label!r} (--label)"] if found else []
    if not options.need_label:
        table.faults = []  # of labels and parts, without which the graph can do
    read = NO_LABELS if roles.label is None else labels_of(table, roles.label, options.unknown)
    split = None if roles.split is None else split_of(table, roles.split)
    check_parts(split, read.y, table)
    if not options.need_label and table.faults:
        read, split = NO_LABELS, None
        notes.append(f"nodes: no label is read, nor needed here: {table.faults[0]}")
    parts = {
        "x": x,
        "columns": columns,
        "y": read.y,
        "split": split,
        "class_names": read.names,
        "feature_names": tuple(features),
        "scored": scored,
        "time": None if roles.time is None else torch.from_numpy(times_of(table.cells[roles.time])),
    }
    parts["notes"] = (*notes, *read.notes())
    return Nodes(parts, table.ids)


def _read_edges(path: Source, nodes: Nodes, rules: EdgeRules, options: TableOptions, faults: list[str]) -> Parts:
    """Returns adjacency and relations of the edge table, none where there are faults."""
    names = header_of(path)
    whole = names is None or bool(ends_of(names, options.ends, path)[1])
    if whole:
        text = (options.relation, *options.ends)
        table = read_table(
            path, lambda names: [name for name in names if name in (*text, *ends_of(names, options.ends, path)[0])]
        )
        names = list(table.cells.columns)
    assert names is not None
    columns, wrong = ends_of(names, options.ends, path)
    usual = () if options.weight or options.unweighted else (WEIGHT,)
    weight = column_with_role(names, options.weight, usual, "weights", path, faults)
    others = (weight, options.relation, options.time, *options.edge_columns)
    if not whole:
        table = Table(read_arrow(path, [name for name in dict.fromkeys(others) if name in names]), path)
    guessed = not wrong and not has_ends(columns) and not any(options.ends) and nodes.ids is not None
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
    if wrong and has_ends(nodes.parts["feature_names"]):
        wrong = [f"{path}: this is no edge table, but the node table is one: exchange the two (--dataset is the edges)"]
    faults += wrong
    if wrong or (nodes.ids is None and any("names of the nodes" in fault for fault in faults)):
        return {}
    table.faults = faults
    cells = EdgeCells(table, nodes.ids, nodes.n_nodes)
    blocks = [table.cells] if whole else blocks_of(path, list(dict.fromkeys(columns)), nodes.n_nodes)
    numbers = cells.numbers(blocks, columns)
    if whole:
        table.cells = table.cells[[name for name in table.cells.columns if name in others]].copy()
    del blocks  # names of many nodes
    release_unused()
    until = rows_until(table, options.time, options.as_of)
    at = cells.whole(numbers, columns, until, drop=options.unknown_ends == "drop")
    counted = slice(None) if len(at) == len(until) else at
    ends = numbers[counted]
    after = np.unique(numbers[~until])
    del numbers  # as long as the edges
    weights, types = (
        None if each is None else each[counted] for each in (cells.weights(weight), cells.types(options.relation))
    )
    summed = edge_features(nodes.parts, table, options.edge_columns, at, ends, directed=options.directed)
    naming, taken = cells.naming(at), rules.for_table(weighted=weights is not None)
    if faults:
        with np.errstate(over="ignore"):
            single = None if weights is None else weights.astype(np.float32)
        faults += [f"{path}: {fault}" for fault in edge_faults(ends, single, nodes.n_nodes, taken, naming)]
        return {}
    try:
        adjacency = typed_adjacency(ends, weights, types, nodes.n_nodes, taken, str(path), naming)
    except FaultsError as error:
        faults += error.faults
        return {}
    typed = options.directed or types is not None
    notes = [] if len(until) else ["the table has no rows: no node has a neighbour"]
    if not until.all():
        scored, last = nodes.parts["scored"], as_of_words(options.as_of)
        later = np.setdiff1d(after[after >= 0], ends)
        notes.append(f"left out, edges after {last}: {int((~until).sum()):,}")
        notes += future_nodes_note(later, None if scored is None else scored.numpy(), nodes.n_nodes, last)
    notes += table.notes
    notes += edge_notes(ends, rules, taken, nodes.n_nodes, adjacency.nnz, types, directed=typed)
    if weight is not None and options.weight is None:
        notes.append(f"weights are those of column {weight!r} (--unweighted does not read them)")
    if unread := [name for name in names if name not in (*columns, *others)]:
        which = names_in_words(unread, quote=repr)
        notes += [hint] if (hint := rows_with_labels(path, unread)) else []
        notes.append(f"not read of the table: {which} (--edge-columns sums columns up as features of the nodes)")
    timed: Parts = {}
    if options.time is not None and nodes.parts["time"] is None:
        timed = {"time": first_edge_times(times_of(table.cells[options.time])[at], ends, nodes.n_nodes)}
        until_when = "" if options.as_of else "; it leaves no edge out by itself: say until when (--as-of)"
        notes.append(f"a node's time is that of its first edge, by {options.time!r}{until_when}")
    id_column = None if nodes.ids is None else str(nodes.ids.name)
    found = summed | timed
    return found | {
        "adjacency": adjacency,
        "relations": relations_of(ends, weights, types, nodes.n_nodes, taken) if typed else (),
        "notes": tuple(f"edges: {note}" for note in notes),
        "tables": TableColumns(
            id_column, *columns, weight, options.unknown_ends, options.target_nodes, options.unweighted
        ),
    }
