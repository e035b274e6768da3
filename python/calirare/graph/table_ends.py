"""Ends of edges as numbers of nodes, read a block of rows at a time: the names of many edges are never held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.text_tables import is_text
from calirare.graph.table_files import as_names, held, read_table, reading
from calirare.graph.table_sources import Source, TableInMemory, batches_of

NO_NUMBER = -1  # of a node that is not in the node table
MOST_UNKNOWN = 1000  # cells that are kept, for messages
SEARCHED = 1 << 20  # rows whose ends are searched together
DASHES, BYTES_OF_UUID = (8, 13, 18, 23), 16


class EndColumn(NamedTuple):
    """One end of every edge.

    Attributes:
        numbers: of the nodes, int32 [m], `NO_NUMBER` where the cell is empty or names none.
        empty: which cells are, bool [m].
        unknown: the first cells that name no node, at most `MOST_UNKNOWN`.
    """

    numbers: NumpyArray
    empty: NumpyArray
    unknown: tuple[str, ...]


class EdgeRows(NamedTuple):
    """An edge table whose ends are numbers.

    Attributes:
        table: of pandas, the other columns that are wanted.
        ends: where edges start and end.
    """

    table: Any
    ends: tuple[EndColumn, EndColumn]


def header_of(source: Source) -> list[str] | None:
    """Returns the names of the columns of a table whose rows Arrow reads by blocks; None: it is to be held.

    That is so of text, of a table of pandas, of one without pyarrow, and where pandas put an index aside.
    """
    if isinstance(source, Path) and (is_text(source) or not (source.is_dir() or source.suffix.lower() == ".parquet")):
        return None
    if isinstance(source, TableInMemory) and not hasattr(source.table, "to_batches"):
        return None
    with reading(source):
        schema = batches_of(source, None)[0]
    kept = (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(source, Path) else []
    names = [str(name) for name in schema.names]
    return None if any(isinstance(name, str) for name in kept) or len(set(names)) < len(names) else names


def rows_by_blocks(source: Source, columns: tuple[str, str], others: list[str], ids: Any) -> EdgeRows | None:
    """Returns the rows of an edge table; None where types need all cells of a column, which is to be held then.

    Args:
        source: of which `header_of` has the columns.
        columns: of the ends.
        others: other columns that are wanted.
        ids: the names of the nodes, a column of pandas.
    """
    import pandas as pd
    import pyarrow
    import pyarrow.compute
    from pyarrow import types

    with reading(source):
        schema, batches = batches_of(source, list(dict.fromkeys(columns)))
        kinds = [_kind(schema.field(name).type) for name in columns]
        whole = ids.dtype.kind in "iu" and all(types.is_integer(kind) and kind != pyarrow.uint64() for kind in kinds)
        if not all(map(_is_name, kinds)):
            return None
        known = pyarrow.array(ids, pyarrow.int64()) if whole and ids.dtype != np.uint64 else _text(as_names(ids))
        found = tuple(_Found() for _ in columns)
        for block in _blocks(batches):
            # Both ends at once: for each search a table of all names is made.
            names = [_as(block.column(name), known.type) for name in columns]
            both = pyarrow.chunked_array([chunk for each in names for chunk in each.chunks], known.type)
            numbers = pyarrow.compute.index_in(both, value_set=known, skip_nulls=True)
            numbers = numbers.fill_null(NO_NUMBER).to_numpy().reshape(2, -1)
            for each, some, end in zip(names, numbers, found, strict=True):
                end.add(each, some)
            del block, names, both
            pyarrow.default_memory_pool().release_unused()
        n = sum(len(part) for part in found[0].numbers)
        if not others:
            table = pd.DataFrame(index=range(n))
        elif isinstance(source, Path) and source.is_file():
            table = pd.read_parquet(source, columns=others)
        else:
            table = held(source, others)
    return EdgeRows(table, (found[0].whole(), found[1].whole()))


class _Found:
    """The numbers of one end, of the blocks so far."""

    def __init__(self) -> None:
        self.numbers, self.empty, self.unknown = list[NumpyArray](), list[NumpyArray](), list[str]()

    def add(self, names: Any, numbers: NumpyArray) -> None:
        """Keeps the numbers of a block."""
        empty = _is_empty(names)
        if len(self.unknown) < MOST_UNKNOWN:
            wrong = np.flatnonzero((numbers == NO_NUMBER) & ~empty)[: MOST_UNKNOWN - len(self.unknown)]
            self.unknown += map(str, names.take(wrong).to_pylist())
        self.numbers.append(numbers.astype(np.int32, copy=False))
        self.empty.append(empty)

    def whole(self) -> EndColumn:
        """Returns the numbers of all blocks."""
        if not self.numbers:
            return EndColumn(np.empty(0, np.int32), np.empty(0, bool), ())
        return EndColumn(np.concatenate(self.numbers), np.concatenate(self.empty), tuple(self.unknown))


def _is_empty(names: Any) -> NumpyArray:
    """Returns which names are missing or empty text, bool [n]."""
    import pyarrow.compute
    from pyarrow import types

    missing = np.asarray(names.is_null().to_numpy())
    if not types.is_string(names.type) and not types.is_large_string(names.type):
        return missing
    return missing | pyarrow.compute.fill_null(pyarrow.compute.equal(names, ""), fill_value=False).to_numpy()


def _blocks(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields tables of many rows."""
    import pyarrow

    kept, rows = [], 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        if rows >= SEARCHED:
            yield pyarrow.Table.from_batches(kept)
            kept, rows = [], 0
    if rows:
        yield pyarrow.Table.from_batches(kept)


def _kind(kind: Any) -> Any:
    """Returns the type of the cells: of a dictionary that of its entries, of UUIDs that of their bytes."""
    import pyarrow

    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return kind.storage_type if getattr(kind, "extension_name", "") == "arrow.uuid" else kind


def _is_name(kind: Any) -> bool:
    """Returns whether cells of a type are names one by one."""
    from pyarrow import types

    text = types.is_string(kind) or types.is_large_string(kind) or getattr(types, "is_string_view", types.is_null)(kind)
    return text or types.is_integer(kind) or kind == "fixed_size_binary[16]" or str(kind) == "fixed_size_binary[16]"


def _as(column: Any, kind: Any) -> Any:
    """Returns a column in chunks as names of a type."""
    import pyarrow

    of_cells = _kind(column.type)
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(of_cells)
    if str(of_cells) != "fixed_size_binary[16]":
        return column if column.type == kind else column.cast(kind)
    parts = [uuids_as_text(getattr(chunk, "storage", chunk)) for chunk in column.chunks]
    return pyarrow.chunked_array(parts, type=pyarrow.string()).cast(kind)


def uuids_as_text(column: Any) -> Any:
    """Returns UUIDs, an Arrow array of 16 bytes each, as text in the usual form."""
    import pyarrow

    n, width = len(column), 2 * BYTES_OF_UUID + len(DASHES)
    cells = np.frombuffer(column.buffers()[1], np.uint8)
    cells = cells[column.offset * BYTES_OF_UUID : (column.offset + n) * BYTES_OF_UUID].reshape(n, BYTES_OF_UUID)
    digits = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint8).reshape(256, 2)
    text = np.full((n, width), ord("-"), np.uint8)
    text[:, [i for i in range(width) if i not in DASHES]] = digits[cells].reshape(n, 2 * BYTES_OF_UUID)
    ends = pyarrow.py_buffer(np.arange(0, (n + 1) * width, width, dtype=np.int32)) if n else pyarrow.py_buffer(bytes(4))
    written = pyarrow.StringArray.from_buffers(n, ends, pyarrow.py_buffer(text))
    return pyarrow.compute.if_else(column.is_valid(), written, None)


def _text(names: Any) -> Any:
    """Returns names, a column of pandas, as one Arrow array."""
    import pyarrow

    try:
        return pyarrow.array(names, pyarrow.string(), from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowCapacityError, TypeError):
        return pyarrow.array(names, pyarrow.large_string(), from_pandas=True)


def column_names(table: Source) -> list[str]:
    """Returns the names of the columns of a table."""
    names = header_of(table)
    return [str(name) for name in read_table(table, lambda names: names).columns] if names is None else names
