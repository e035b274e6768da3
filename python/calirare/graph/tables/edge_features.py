"""What the edges of a node carry (amounts, times), summed up as features of the node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare.graph.arrays import Parts
from calirare.graph.columns import Column
from calirare.graph.tables.files import Table
from calirare.graph.tables.node_cells import NodeCells

NUMBERS = {"mean": "mean", "sum": "sum", "min": "min", "max": "max"}  # features of a number, and what they are of it
TIMES = {"last": "min", "first": "max"}  # of a time, in days before the newest edge


class EdgeFeatures(NamedTuple):
    """Columns of an edge table as numbers.

    Attributes:
        values: float32 [m, k], NaN where a cell is empty; times are days before the newest.
        columns: name of each, and its measures by the ends of their names.
    """

    values: NumpyArray
    columns: tuple[tuple[str, dict[str, str]], ...]


def read_edge_features(table: Table, names: Sequence[str], rows: NumpyArray) -> EdgeFeatures:
    """Returns named columns of an edge table, of the rows that count."""
    values, columns = np.empty((len(rows), len(names)), dtype=np.float32), []
    for i, name in enumerate(names):
        own = replace(table, faults=[])
        exact, column = NodeCells(own).column(name)
        exact = exact[rows]
        if column.kind == "date":  # float32 does not tell times of one minute apart, but how long ago they were
            exact = np.fmax.reduce(exact, initial=np.nan) - exact
        with np.errstate(over="ignore"):
            values[:, i] = exact
        if column.kind == "categorical":
            own.faults = [
                f"{table.path}: column {name!r} of the edges must hold numbers or dates to be summed up, got text: "
                "leave it out of --edge-columns (--relation reads types)"
            ]
        table.faults += own.faults
        columns.append((name, TIMES if column.kind == "date" else NUMBERS))
    return EdgeFeatures(values, tuple(columns))


def with_edge_features(nodes: Parts, carried: EdgeFeatures, ends: NumpyArray, table: Table, *, directed: bool) -> Parts:
    """Returns the features of nodes, extended by those of the edges with these ends, integer [m, 2].

    Every row of the edge table counts at both of its ends, repetitions and loops too, but no empty cell. `directed`:
    edges that start at a node and edges that end there make features of their own.
    """
    if not carried.columns:
        return {}
    sides = (("out_", ends[:, :1]), ("in_", ends[:, 1:])) if directed else (("", ends),)
    made = dict[str, NumpyArray]()
    for i, (name, measures) in enumerate(carried.columns):
        for side, its in sides:
            found = _by_node(carried.values[:, i], its, len(nodes["x"]))
            made |= {f"{name}_{side}{word}": found[measure].to_numpy() for word, measure in measures.items()}
    old = nodes["feature_names"]
    table.faults += [
        f"{table.path}: two features would be called {name!r}: rename one column" for name in made if name in old
    ]
    with np.errstate(over="ignore"):
        x = np.column_stack([nodes["x"].numpy(), *(column.astype(np.float32) for column in made.values())])
    columns = (nodes["columns"] or tuple(map(Column, old))) + tuple(map(Column, made))
    plain = all(column.kind == "numeric" for column in columns) and not np.isnan(x).any()
    return {"x": torch.from_numpy(x), "columns": () if plain else columns, "feature_names": (*old, *made)}


def _by_node(values: NumpyArray, ends: NumpyArray, n_nodes: int) -> Any:
    """Returns mean, sum, least and greatest of the values of each node's edges, a DataFrame, NaN for none."""
    import pandas as pd

    both = {"node": ends.ravel(), "value": np.repeat(values, ends.shape[1]).astype(np.float64)}
    made = pd.DataFrame(both).dropna().groupby("node")["value"].agg(["mean", "sum", "min", "max"])
    return made.reindex(range(n_nodes))
