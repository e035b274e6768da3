"""Labels that stand in a table of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.graph import Graph, names_in_words
from calirare.graph.tables import as_names, labels_of, lost_digits, read_table, row_in_words, source_of, why_unknown

NODE, LABEL = ("node", "id"), ("label", "y", "class")
SHOWN = 10  # names of columns in a message


def with_label_table(graph: Graph, path: str | Path, unknown: Sequence[str] = ()) -> Graph:
    """Returns a graph with the labels of a table; nodes without a row keep the label that they have, if any.

    Args:
        graph: the graph; if it has labels, the table's classes must be among its classes.
        path: of a table: a column `node` (or id) with the names of nodes (row numbers where they have none) and one
            `label` (or y, class), or only one other column. Repetitions of a row are one row.
        unknown: values that stand for no label, next to an empty cell and -1.

    Raises:
        InputError: the table cannot be read, a class is not one of the graph's, or a node is unknown or has two labels.
    """
    table = read_table(source_of(path))
    node, label = _columns(list(table.cells.columns), str(path))
    table.faults += lost_digits(table.cells[node], table.path)
    read = labels_of(table, label, unknown)
    table.check()
    assert read.y is not None
    classes, names = read.names, as_names(table.cells[node])
    known = [str(i) for i in range(graph.n_nodes)] if graph.node_names is None else map(str, graph.node_names)
    number = {name: i for i, name in enumerate(known)}
    out = [-1] * graph.n_nodes
    for row, (name, k) in enumerate(zip(names, read.y.tolist(), strict=True)):
        at = number.get(name)
        if at is None:
            mend = why_unknown(str(name), number) or "remove the row, or name the node as the node table does"
            fault = f"graph {graph.name!r} has no node {name!r}, in {row_in_words(row, table.path)}: {mend}"
            raise InputError(f"{path}: {fault}")
        if k >= 0 and out[at] not in (-1, k):
            both = f"{classes[out[at]]!r} and {classes[k]!r} in {row_in_words(row, table.path)}"
            raise InputError(f"{path}: node {name!r} must have one label, got {both}: keep one")
        out[at] = max(out[at], k)
    labels = torch.tensor(out, dtype=torch.int64)
    notes = (*graph.notes, *read._replace(y=labels).notes())
    if graph.y is not None and bool((graph.y >= 0).any()):
        labels, note = _over(graph, labels, classes, str(path))
        notes, classes = (*notes, note), graph.class_names
    return dataclasses.replace(graph, y=labels, class_names=classes, notes=notes, where=str(path))


def _over(graph: Graph, labels: Tensor, classes: Sequence[str] | None, path: str) -> tuple[Tensor, str]:
    """Returns the labels of a table, where there are any, in place of the graph's own, and a note."""
    assert graph.y is not None
    own = graph.class_names or tuple(str(c) for c in range(int(graph.y.max()) + 1))
    names = classes or tuple(str(c) for c in range(int(labels.max()) + 1))
    strange = [name for name in names if name not in own]
    if strange:
        raise InputError(
            f"{path}: label {strange[0]!r} is not a class of graph {graph.name!r}. Its classes are "
            f"{names_in_words(own, SHOWN)}: name the class so, or leave the labels of the data out (--drop-columns)"
        )
    number = torch.tensor([own.index(name) for name in names])
    found = labels >= 0
    changed = int((found & (graph.y >= 0)).sum())
    moved = torch.where(found, number[labels.clamp(min=0)], graph.y)
    return moved, f"{path}: {amount(int(found.sum()), 'label')}, {changed:,} in place of the data's own"


def _columns(names: list[str], path: str) -> tuple[str, str]:
    """Returns the columns of nodes and of labels."""
    nodes = [name for name in names if name.lower() in NODE]
    labels = [name for name in names if name.lower() in LABEL]
    if len(names) == 2 and len(nodes) + len(labels) == 1:  # the other one may be called anything
        other = [name for name in names if name not in (*nodes, *labels)]
        nodes, labels = nodes or other, labels or other
    if len(nodes) != 1 or len(labels) != 1:
        raise InputError(
            f"{path}: one column must hold the nodes ({' or '.join(NODE)}) and one the labels ({', '.join(LABEL)}), "
            f"got {names_in_words(names, SHOWN)}: name them so"
        )
    return nodes[0], labels[0]
