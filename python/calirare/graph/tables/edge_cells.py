"""The cells of an edge table as numbers of nodes, weights, and features of the nodes (amounts and times summed up)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare.graph.arrays import Parts
from calirare.graph.columns import Column
from calirare.graph.edges import Naming
from calirare.graph.spelling import plain_names
from calirare.graph.tables.files import (
    Table,
    as_float,
    as_names,
    days_of,
    is_empty,
    last_day,
    mixed_types,
    readable,
    row_in_words,
    times_of,
)
from calirare.graph.tables.name_faults import lost_digits, why_any_unknown, why_unknown
from calirare.graph.tables.node_cells import NodeCells, numbers_of, text_of

WHOLE = re.compile("[-+]?[0-9]+")
NO_NUMBER, EMPTY = -1, -2  # of a cell that names no node, of an empty one
NUMBERS = {"mean": "mean", "sum": "sum", "min": "min", "max": "max"}  # features of a number, and what they are of it
TIMES = {"last": "min", "first": "max"}  # of a time, in days before the newest edge
MOST_UNKNOWN = 1000  # cells that are kept, for messages


@dataclass
class EdgeCells:
    """An edge table and the nodes it joins.

    Attributes:
        table: takes what is wrong; without the ends of the edges where these come in blocks.
        ids: the names of the nodes, a column of pandas, or None where nodes are numbers.
        n_nodes: rows of the node table.
        unknown: the first cells of each end that name no node, at most `MOST_UNKNOWN`.
    """

    table: Table
    ids: Any
    n_nodes: int
    unknown: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def numbers(self, blocks: Iterable[Any], columns: tuple[str, str]) -> NumpyArray:
        """Returns the nodes that the ends name in blocks of rows, int32 [rows, 2], `NO_NUMBER` or `EMPTY` for none."""
        parts = [self._looked_up([block[name] for name in columns]) for block in blocks]
        numbers = np.concatenate(parts) if parts else np.zeros((0, 2), np.int32)
        if not len(self.table.cells.columns):
            self.table.cells = self.table.cells.reindex(range(len(numbers)))
        return numbers

    def whole(self, numbers: NumpyArray, columns: tuple[str, str], until: NumpyArray, *, drop: bool) -> NumpyArray:
        """Returns the rows of edges that count and whose ends are both known, ascending.

        Edges of nodes that the node table does not have are left out by `drop`, unless no edge would be left.
        """
        empty, unknown = numbers == EMPTY, (numbers == NO_NUMBER) & until[:, None]
        if empty.any():
            name = columns[int(np.argwhere(empty)[0][1])]
            what = f"both ends of an edge must be given, but {name!r} is empty in"
            self.table.fault(what, empty.any(1), "fill it in or remove the edge")
        strange = unknown.any(axis=1)
        if drop and not strange[until].all():
            names = "" if self.ids is None else why_any_unknown(chain(*self.unknown), as_names(self.ids))
            note = f"left out, edges of nodes that the node table does not have: {int(strange.sum()):,}{names}"
            self.table.notes += [note] if strange.any() else []
        elif unknown.any():
            self._refuse(self.unknown[int(np.argwhere(unknown)[0][1])][0], strange)
        return np.flatnonzero((numbers >= 0).all(1) & until).astype(np.min_scalar_type(-len(until)), copy=False)

    def _refuse(self, node: str, strange: NumpyArray) -> None:
        """Adds the fault that edges lead to a node which is not in the node table."""
        if self.ids is None:
            what = (
                f"ends of edges must be whole numbers from 0 to {self.n_nodes - 1}, the rows of the node table, which "
                f"has no column 'node' or 'id', got {node!r} in"
            )
            mend = "name the column with the names of the nodes so (or say which it is: --id), or add the row"
        else:
            what = f"every end of an edge must have a row in the node table, but node {node!r} has none, named in"
            mend = why_unknown(node, as_names(self.ids))
            mend = mend or "add the row, or leave the edge out or let the node join (--unknown-ends drop or add)"
            mend += f"; names: column {str(self.ids.name)!r} (--id)"
        self.table.fault(what, strange, mend)

    def _looked_up(self, columns: list[Any]) -> NumpyArray:
        """Returns the ends of a block of edges as numbers of nodes, int32 [b, 2]."""
        path = self.table.path
        for column in columns:
            if types := mixed_types(column):
                self.table.faults.append(
                    f"{path}: ends of edges must be of one type, but {column.name!r} mixes {types}: make them text"
                )
        columns = [readable(column) for column in columns]
        for column in columns:
            self.table.faults += lost_digits(column, path) if column.dtype.kind == "f" else []
        out = np.empty((len(columns[0]), 2), dtype=np.int32)
        for j, (column, numbers) in enumerate(zip(columns, self._searched(columns), strict=True)):
            empty = is_empty(column)
            out[:, j] = np.where(empty, EMPTY, numbers)
            unknown = np.flatnonzero((numbers == NO_NUMBER) & ~empty)[: MOST_UNKNOWN - len(self.unknown[j])]
            self.unknown[j].extend(as_names(column.iloc[unknown]).astype(str))
        return out

    def _searched(self, columns: list[Any]) -> list[NumpyArray]:
        """Returns the numbers of the nodes that columns of cells name, `NO_NUMBER` for none."""
        import pandas as pd

        if self.ids is None:
            return [self._of_rows(column) for column in columns]
        whole = all(column.dtype.kind == "i" for column in (self.ids, *columns))
        names, known = (columns, self.ids) if whole else (list(map(as_names, columns)), as_names(self.ids))
        try:
            import pyarrow.compute
        except ImportError:
            return [pd.Index(known.drop_duplicates()).get_indexer(each) for each in names]
        kind = pyarrow.int64() if whole else pyarrow.large_string()
        # One search: for each, a hash table of all nodes is made.
        cells = pyarrow.chunked_array([pyarrow.array(each, kind, from_pandas=True) for each in names])
        nodes = pyarrow.array(known, kind, from_pandas=True)
        found = pyarrow.compute.index_in(cells, value_set=nodes, skip_nulls=True)
        return np.split(found.fill_null(NO_NUMBER).to_numpy(), 2)

    def _of_rows(self, column: Any) -> NumpyArray:
        numbers = as_float(column)
        right = (numbers >= 0) & (numbers < self.n_nodes) & (numbers == np.floor(numbers))
        return np.where(right, numbers, NO_NUMBER).astype(np.int64)

    def types(self, column: str | None) -> NumpyArray | None:
        """Returns the types of all rows as text, or None without a column."""
        if column is None:
            return None
        cells = self.table.cells[column]
        empty = is_empty(cells)
        if empty.any():
            what = f"every edge must have a type, but column {column!r} is empty in"
            self.table.fault(what, empty, "fill it in or remove the edge")
        return plain_names(cells.astype(str)).to_numpy().astype(str)

    def weights(self, column: str | None) -> NumpyArray | None:
        """Returns the weights of all rows, or None without a column."""
        if column is None:
            return None
        cells = self.table.cells[column]
        if cells.dtype.kind in "iuf":
            return cells.to_numpy(dtype=np.float64, na_value=np.nan)
        numbers, note = numbers_of(text_of(cells))
        self.table.notes += [note] if note else []
        wrong = np.isnan(numbers)
        if wrong.any():
            cell = str(cells.iloc[np.argmax(wrong)])
            what = f"edge weights must be numbers, but column {column!r} holds {cell!r} in"
            self.table.fault(what, wrong, "fix the cell or name the column of weights (--weight)")
        return np.where(wrong, 1.0, numbers)

    def naming(self, rows: NumpyArray) -> Naming:
        """Returns what a message calls nodes and edges; `rows` are those of the edges."""
        name: Callable[[int], str] = str if self.ids is None else (lambda node: str(self.ids.iloc[node]))
        return Naming(name, lambda edge: row_in_words(int(rows[edge]), self.table.path))


def rows_until(table: Table, column: str | None, as_of: str | None) -> NumpyArray:
    """Returns which rows of an edge table are not after a time, bool; a date without a time counts to its end."""
    import pandas as pd

    if column is None:
        if as_of is not None:
            need = "as_of needs the column of times: pass time (command line: --time COLUMN)"
            table.faults.append(f"{table.path}: {need}")
        return np.ones(len(table.cells), dtype=bool)
    cells = table.cells[column]
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind == "i" and WHOLE.fullmatch(str(as_of)):
        return np.asarray(cells.to_numpy() <= int(str(as_of)))  # floats do not tell nanoseconds apart
    times, last = times_of(cells), np.inf
    if as_of is not None:
        last = float(as_float(pd.Series([str(as_of)]))[0])
        if np.isnan(as_float(cells)).all() or np.isnan(last):
            times, last = days_of(cells.astype(str)), last_day(str(as_of))
    wrong = np.isnan(times)
    if np.isnan(last) or wrong.any():
        cell = str(cells.iloc[np.argmax(wrong)])
        also = "" if as_of is None else f"as_of is {as_of!r} and "
        what = (
            f"times must be all numbers or all dates such as 2024-01-31, but {also}column {column!r} holds {cell!r} in"
        )
        table.fault(what, wrong, "fix one of them, or leave --time out")
    return ~(times > last)


def edge_features(
    nodes: Parts, table: Table, names: Sequence[str], rows: NumpyArray, ends: NumpyArray, *, directed: bool
) -> Parts:
    """Returns the features of nodes, extended by columns of an edge table, of rows that count, summed up by node.

    Every row counts at both of its ends, integer [m, 2], repetitions and loops too, but no empty cell. `directed`:
    edges that start at a node and edges that end there make features of their own.
    """
    if not names:
        return {}
    sides = (("out_", ends[:, :1]), ("in_", ends[:, 1:])) if directed else (("", ends),)
    made = dict[str, NumpyArray]()
    for name in names:
        own = replace(table, faults=[])
        cells, column = NodeCells(own).column(name)
        values = cells[rows]
        if column.kind == "date":  # float32 does not tell times of one minute apart, but how long ago they were
            values = np.fmax.reduce(values, initial=np.nan) - values
        if column.kind == "categorical":
            own.faults = [
                f"{table.path}: column {name!r} of the edges must hold numbers or dates to be summed up, got text: "
                "leave it out of --edge-columns (--relation reads types)"
            ]
        table.faults += own.faults
        for side, its in sides:
            found = _by_node(values, its, len(nodes["x"]))
            for word, measure in (TIMES if column.kind == "date" else NUMBERS).items():
                made[f"{name}_{side}{word}"] = found[measure].to_numpy()
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

    both = {"node": ends.ravel(), "value": np.repeat(values, ends.shape[1])}
    made = pd.DataFrame(both).dropna().groupby("node")["value"].agg(["mean", "sum", "min", "max"])
    return made.reindex(range(n_nodes))
