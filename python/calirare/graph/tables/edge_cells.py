"""The cells of an edge table as numbers of nodes and weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.graph.edges import Naming
from calirare.graph.spelling import plain_names
from calirare.graph.tables.files import (
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
from calirare.graph.tables.node_cells import numbers_of, text_of
from calirare.graph.tables.sources import Source

WHOLE = re.compile("[-+]?[0-9]+")
NO_NUMBER, EMPTY = -1, -2  # of a cell that names no node, of an empty one
MOST_UNKNOWN = 1000  # cells that are kept, for messages


@dataclass
class EdgeCells:
    """An edge table and the nodes it joins.

    Attributes:
        table: of pandas.
        path: where it is from, for messages.
        ids: the names of the nodes, a column of pandas, or None where nodes are numbers.
        n_nodes: rows of the node table.
        blocks: tables of pandas with the ends of the edges, one after the other; gone once they are read.
        drop_unknown: leave out edges of nodes that the node table does not have, unless no edge would be left.
        dropped: a note on those that were, or "".
        later: nodes that the rows after the last time that counts name, and no row before, int64 [m].
        faults: what was found, a sentence each.
        notes: what was read in a way that the user may not expect.
        unknown: the first cells of each end that name no node, at most `MOST_UNKNOWN`.
    """

    table: Any
    path: Source
    ids: Any
    n_nodes: int
    blocks: Iterable[Any]
    drop_unknown: bool = False
    dropped: str = ""
    later: NumpyArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unknown: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def numbers(self, columns: tuple[str, str]) -> NumpyArray:
        """Returns the nodes that the columns of the ends name, int32 [rows, 2], `NO_NUMBER` or `EMPTY` for none."""
        parts = [self._looked_up([block[name] for name in columns]) for block in self.blocks]
        self.blocks = ()
        numbers = np.concatenate(parts) if parts else np.zeros((0, 2), np.int32)
        if not len(self.table.columns):
            self.table = self.table.reindex(range(len(numbers)))
        return numbers

    def ends(self, numbers: NumpyArray, columns: tuple[str, str], until: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        """Returns the ends of the edges that are whole and count, int32 [m, 2], and their rows in the table.

        Args:
            numbers: the ends of all rows.
            columns: of the ends.
            until: which rows count, bool.
        """
        empty, unknown = numbers == EMPTY, (numbers == NO_NUMBER) & until[:, None]
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
                self.dropped += why_any_unknown(chain(*self.unknown), as_names(self.ids))
        elif unknown.any():
            at, end = (int(i) for i in np.argwhere(unknown)[0])
            self.faults.append(self._unknown(self.unknown[end][0], row_in_words(at, self.path) + _more(unknown)))
        kept = (numbers >= 0).all(1) & until
        if not until.all():
            after = np.unique(numbers[~until])
            self.later = np.setdiff1d(after[after >= 0], numbers[kept])
        rows = np.flatnonzero(kept).astype(np.min_scalar_type(-len(kept)), copy=False)
        return (numbers if kept.all() else numbers[rows]), rows

    def _looked_up(self, columns: list[Any]) -> NumpyArray:
        """Returns the ends of a block of edges as numbers of nodes, int32 [b, 2]."""
        for column in columns:
            if types := mixed_types(column):
                self.faults.append(
                    f"{self.path}: ends of edges must be of one type, but {column.name!r} mixes {types}: make them text"
                )
        columns = [readable(column) for column in columns]
        for column in columns:
            self.faults += lost_digits(column, self.path) if column.dtype.kind == "f" else []
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
        names, known = (columns, self.ids) if whole else (map(as_names, columns), as_names(self.ids))
        both = pd.concat(list(names), ignore_index=True)  # one search: for each, a hash table of all nodes is made
        try:
            import pyarrow.compute
        except ImportError:
            return np.split(pd.Index(known.drop_duplicates()).get_indexer(both), 2)
        kind = pyarrow.int64() if whole else pyarrow.large_string()
        cells, nodes = (pyarrow.array(each, kind, from_pandas=True) for each in (both, known))
        found = pyarrow.compute.index_in(cells, value_set=nodes, skip_nulls=True)
        return np.split(found.fill_null(NO_NUMBER).to_numpy(zero_copy_only=False), 2)

    def types(self, column: str | None) -> NumpyArray | None:
        """Returns the types of all rows as text, or None without a column."""
        if column is None:
            return None
        cells = self.table[column]
        empty = is_empty(cells)
        if empty.any():
            self.faults.append(
                f"{self.path}: every edge must have a type, but column {column!r} is empty in "
                f"{row_in_words(int(np.flatnonzero(empty)[0]), self.path)}{_more(empty)}: fill it in or remove the edge"
            )
        return plain_names(cells.astype(str)).to_numpy().astype(str)

    def _unknown(self, node: str, where: str) -> str:
        """Returns what says that a node is not in the node table."""
        if self.ids is None:
            return (
                f"{self.path}: ends of edges must be whole numbers from 0 to {self.n_nodes - 1}, the rows of the node "
                f"table, which has no column 'node' or 'id', got {node!r} in {where}: name the column with the names "
                "of the nodes so (or say which it is: --id), or add the row"
            )
        mend = "add the row, or leave the edge out or let the node join (--unknown-ends drop or add)"
        return (
            f"{self.path}: every end of an edge must have a row in the node table, but node {node!r} has none, named "
            f"in {where}: {why_unknown(node, as_names(self.ids)) or mend}; names: column {str(self.ids.name)!r} (--id)"
        )

    def weights(self, column: str | None) -> NumpyArray | None:
        """Returns the weights of all rows, or None without a column."""
        if column is None:
            return None
        cells = self.table[column]
        if cells.dtype.kind in "iuf":
            return cells.to_numpy(dtype=np.float64, na_value=np.nan)
        numbers, note = numbers_of(text_of(cells))
        self.notes += [note] if note else []
        wrong = np.isnan(numbers)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            self.faults.append(
                f"{self.path}: edge weights must be numbers, but column {column!r} holds {str(cells.iloc[at])!r} in "
                f"{row_in_words(at, self.path)}{_more(wrong)}: fix the cell or name the column of weights (--weight)"
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


def rows_until(table: Any, path: Source, column: str | None, as_of: str | None, faults: list[str]) -> NumpyArray:
    """Returns which rows of an edge table are not after a time, bool.

    Args:
        table: of pandas.
        path: where it is from, for messages.
        column: of the times, numbers or dates in ISO 8601.
        as_of: the last time that counts, a date without a time to its end; None: all rows count.
        faults: takes what is wrong.
    """
    import pandas as pd

    every = np.ones(len(table), dtype=bool)
    if as_of is None:
        return every
    if column is None:
        faults.append(f"{path}: as_of needs the column of times: pass time (command line: --time COLUMN)")
        return every
    cells = table[column]
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind == "i" and WHOLE.fullmatch(str(as_of)):
        return np.asarray(cells.to_numpy() <= int(as_of))  # floats do not tell nanoseconds apart
    times, last = as_float(cells), float(as_float(pd.Series([str(as_of)]))[0])
    if np.isnan(times).all() or np.isnan(last):
        times, last = days_of(cells.astype(str)), last_day(str(as_of))
    wrong = np.isnan(times)
    if np.isnan(last) or wrong.any():
        at = int(np.argmax(wrong))
        faults.append(
            f"{path}: times must be all numbers or all dates such as 2024-01-31, but column {column!r} holds "
            f"{str(cells.iloc[at])!r} in {row_in_words(at, path)} and as_of is {as_of!r}: fix one of them"
        )
    return times <= last


def _more(wrong: NumpyArray) -> str:
    """Returns how many faults there are after the first."""
    n = int(wrong.sum()) - 1
    return f" ({n:,} more)" if n else ""
