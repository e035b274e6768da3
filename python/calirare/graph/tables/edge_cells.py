"""The cells of an edge table as numbers of nodes and weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from calirare._util.amounts import listed
from calirare._util.array_files import NumpyArray
from calirare.graph.edges import Naming
from calirare.graph.spelling import plain_names
from calirare.graph.tables.edge_features import EdgeFeatures, read_edge_features
from calirare.graph.tables.files import (
    MOST_UNKNOWN,
    NO_NUMBER,
    EndColumn,
    as_float,
    as_names,
    days_of,
    is_empty,
    last_day,
    mixed_types,
    readable,
    row_in_words,
)
from calirare.graph.tables.name_faults import lost_digits, why_any_unknown, why_unknown
from calirare.graph.tables.node_cells import written_numbers
from calirare.graph.tables.sources import Source

WHOLE = re.compile("[-+]?[0-9]+")


@dataclass
class EdgeCells:
    """An edge table beside its node table.

    Attributes:
        table: of pandas.
        path: where it is from, for messages.
        ids: the names of the nodes, a column of pandas, or None where nodes are numbers.
        n_nodes: rows of the node table.
        names: of all its columns.
        read: the ends, where they were looked up while the table was read; None: they are columns of `table`.
        drop_unknown: leave out edges of nodes that the node table does not have, unless no edge would be left.
        dropped: a note on those that were, or "".
        later: nodes that the rows after the last time that counts name, and no row before, int64 [m].
        faults: what was found, a sentence each.
        notes: what was read in a way to be told.
    """

    table: Any
    path: Source
    ids: Any
    n_nodes: int
    names: list[str]
    read: tuple[EndColumn, EndColumn] | None = None
    drop_unknown: bool = False
    dropped: str = ""
    later: NumpyArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ends(self, columns: tuple[str, str], until: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """Returns the ends of the edges that are whole and count, int32 or int64 [m, 2], and their rows in the table.

        Args:
            columns: of the ends.
            until: which rows count, bool.
        """
        found = self.read or [self._looked_up(self.table[name]) for name in columns]
        empty, numbers = (np.stack([getattr(end, part) for end in found], axis=1) for part in ("empty", "numbers"))
        unknown = (numbers == NO_NUMBER) & ~empty & until[:, None]
        if empty.any():
            at, end = (int(i) for i in np.argwhere(empty)[0])
            self.faults.append(
                f"{self.path}: both ends of an edge must be given, but {columns[end]!r} is empty in "
                f"{row_in_words(at, self.path)}{_more(empty)}: fill it in or remove the edge"
            )
        strange = unknown.any(axis=1)
        if self.drop_unknown and not strange[until].all():
            self.dropped = f"left out, edges of nodes that the node table does not have: {int(strange.sum()):,}"
            if self.ids is not None:
                self.dropped += why_any_unknown(chain(*(end.unknown for end in found)), as_names(self.ids))
        elif unknown.any():
            at, end = (int(i) for i in np.argwhere(unknown)[0])
            self.faults.append(self._unknown(found[end].unknown[0], row_in_words(at, self.path) + _more(unknown)))
        kept = (numbers != NO_NUMBER).all(1) & until
        if not until.all():
            after = np.unique(numbers[~until])
            self.later = np.setdiff1d(after[after != NO_NUMBER], numbers[kept])
        rows = np.flatnonzero(kept).astype(np.min_scalar_type(-len(kept)), copy=False)
        return (numbers if kept.all() else numbers[rows]), rows

    def _looked_up(self, column: Any) -> EndColumn:
        """Returns a column of ends as numbers of nodes."""
        types = mixed_types(column)
        if types:
            self.faults.append(
                f"{self.path}: ends of edges must be of one type, but {column.name!r} mixes {types}: make them text"
            )
        column = readable(column)
        if column.dtype.kind == "f":
            self.faults += lost_digits(column, self.path)
        empty = is_empty(column)
        numbers = self._of_rows(column) if self.ids is None else self._of_names(column)
        numbers[empty] = NO_NUMBER
        unknown = np.flatnonzero((numbers == NO_NUMBER) & ~empty)[:MOST_UNKNOWN]
        return EndColumn(numbers, empty, tuple(as_names(column.iloc[unknown]).astype(str)))

    def types(self, column: str | None) -> NumpyArray | None:
        """Returns the types of all rows as text, or None without a column."""
        if column is None:
            return None
        if column not in self.table.columns:
            self._absent(column, "--relation")
            return None
        cells = self.table[column]
        empty = is_empty(cells)
        if empty.any():
            self.faults.append(
                f"{self.path}: every edge must have a type, but column {column!r} is empty in "
                f"{row_in_words(int(np.flatnonzero(empty)[0]), self.path)}{_more(empty)}: fill it in or remove the edge"
            )
        return plain_names(cells.astype(str)).to_numpy().astype(str)

    def until(self, column: str | None, as_of: str | None) -> NumpyArray:
        """Returns which rows are not after a time, bool.

        Args:
            column: of the times, numbers or dates in ISO 8601; None: all rows count.
            as_of: the last time that counts, a date without a time to its end; None: all rows count.
        """
        import pandas as pd

        every = np.ones(len(self.table), dtype=bool)
        if as_of is None:
            return every
        if column is None:
            self.faults.append(f"{self.path}: as_of needs the column of times: pass time (command line: --time COLUMN)")
            return every
        if column not in self.table.columns:
            self._absent(column, "--time")
            return every
        given = self.table[column].dtype
        if isinstance(given, np.dtype) and given.kind == "i" and WHOLE.fullmatch(str(as_of)):
            return np.asarray(self.table[column].to_numpy() <= int(as_of))  # floats do not tell nanoseconds apart
        times, last = as_float(self.table[column]), float(as_float(pd.Series([str(as_of)]))[0])
        if np.isnan(times).all() or np.isnan(last):
            times, last = days_of(self.table[column].astype(str)), last_day(str(as_of))
        wrong = np.isnan(times)
        if np.isnan(last) or wrong.any():
            at = int(np.flatnonzero(wrong)[0]) if wrong.any() else 0
            self.faults.append(
                f"{self.path}: times must be all numbers or all dates such as 2024-01-31, but column {column!r} holds "
                f"{str(self.table[column].iloc[at])!r} in {row_in_words(at, self.path)} and as_of is {as_of!r}: "
                "mend one"
            )
        return times <= last

    def carried(self, columns: tuple[str, ...], rows: NumpyArray) -> tuple[EdgeFeatures, list[str]]:
        """Returns what the edges of some rows carry, and notes."""
        for name in columns:
            if name not in self.table.columns:
                self._absent(name, "--edge-columns")
        there = [name for name in columns if name in self.table.columns]
        carried, notes, faults = read_edge_features(self.table, self.path, there, rows)
        self.faults += faults
        return carried, notes

    def _absent(self, column: str, option: str) -> None:
        names = listed(self.names)
        self.faults.append(
            f"{self.path}: there is no column {column!r}; the columns are {names}: name another ({option})"
        )

    def _unknown(self, node: str, where: str) -> str:
        """Returns what says that a node is not in the node table."""
        if self.ids is None:
            return (
                f"{self.path}: ends of edges must be whole numbers from 0 to {self.n_nodes - 1}, the rows of the node "
                f"table, which has no column 'node' or 'id', got {node!r} in {where}: name the column with the names "
                "of the nodes so (or say which it is: --id), or add the row"
            )
        why = why_unknown(node, as_names(self.ids))
        if why:
            return (
                f"{self.path}: nodes must be called the same in both tables, but {node!r} in {where} has no row; {why} "
                f"(names: column {str(self.ids.name)!r}, --id)"
            )
        return (
            f"{self.path}: every end of an edge must have a row in the node table, but node {node!r} has none, named "
            f"in {where}: add the row, or leave the edge out or let the node join (--unknown-ends drop or add); "
            f"names: column {str(self.ids.name)!r} (--id)"
        )

    def weights(self, column: str | None) -> NumpyArray | None:
        """Returns the weights of all rows, or None without a column."""
        if column is None:
            return None
        cells = self.table[column]
        if cells.dtype.kind in "iuf":
            return cells.to_numpy(dtype=np.float64, na_value=np.nan)
        numbers = as_float(cells)
        wrong = np.isnan(numbers)
        written = written_numbers(cells.astype(str)) if wrong.any() and cells.notna().all() else None
        if written is not None:
            at = int(np.flatnonzero(wrong)[0])
            self.notes.append(f"{column!r} is read as numbers, {str(cells.iloc[at])!r} as {written[at]:.10g}")
            return written
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            self.faults.append(
                f"{self.path}: edge weights must be numbers, but column {column!r} holds {str(cells.iloc[at])!r} in "
                f"{row_in_words(at, self.path)}{_more(wrong)}: mend the cell or name the column of weights (--weight)"
            )
        return np.where(wrong, 1.0, numbers)

    def naming(self, rows: NumpyArray) -> Naming:
        """Returns what a message calls nodes and edges; `rows` are those of the edges."""
        name: Callable[[int], str] = str if self.ids is None else (lambda node: str(self.ids.iloc[node]))
        return Naming(name, lambda edge: row_in_words(int(rows[edge]), self.path))

    def _of_rows(self, column: Any) -> NumpyArray:
        numbers = as_float(column)
        right = (numbers >= 0) & (numbers < self.n_nodes) & (numbers == np.floor(numbers))
        return np.where(right, numbers, NO_NUMBER).astype(np.int64)

    def _of_names(self, column: Any) -> NumpyArray:
        import pandas as pd

        ids = self.ids
        if column.dtype.kind not in "iu" or ids.dtype.kind not in "iu":
            column, ids = as_names(column), as_names(ids)
        first = ~ids.duplicated().to_numpy()
        found = pd.Index(ids[first]).get_indexer(column)
        return np.where(found < 0, NO_NUMBER, np.flatnonzero(first)[found]).astype(np.int64)


def _more(wrong: NumpyArray) -> str:
    """Returns how many faults there are beside the first."""
    n = int(wrong.sum()) - 1
    return f" ({n:,} more)" if n else ""
