"""Tables as pandas has them, how a message calls their cells, and the ends of edges as numbers of nodes.

Ends are read a block of rows at a time where Arrow can: the names of many edges are never held.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from calirare._util.array_files import MAX_INT, NumpyArray
from calirare._util.errors import InputError
from calirare._util.text_tables import is_text, read_text
from calirare.graph.columns import EPOCH
from calirare.graph.tables.sources import TABLE_SUFFIXES, Source, TableInMemory, batches_of, unnamed_table

UUID_BYTES = 16


# A CSV line counts from 1 and the first is the header.
FIRST_LINE = 2


# Dates without a time: the day, month or year counts to its end.
DATES = {"days": r"\d{4}-?\d{2}-?\d{2}", "months": r"\d{4}-\d{2}", "years": r"\d{4}"}


def read_table(path: Source, as_text: Callable[[list[str]], Sequence[str]] = list) -> Any:
    """Returns a table as a pandas DataFrame whose columns have names of text.

    Args:
        path: of the table.
        as_text: chooses the columns of a text file that stay text, of those there are; without it all do.
    """
    table = _read_table(path, as_text)
    table.columns = [str(name) for name in table.columns]
    return table


def _read_table(path: Source, as_text: Callable[[list[str]], Sequence[str]]) -> Any:
    import pandas as pd

    if isinstance(path, TableInMemory) and isinstance(path.table, pd.DataFrame):
        return path.table.copy(deep=False)
    with reading(path):
        if not isinstance(path, Path) or path.is_dir():
            return read_arrow(path, None)
        if is_text(path):
            return read_text(path, as_text)
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(path)
            # A named index is a column that pandas put aside when the file was written.
            return table.reset_index(drop=all(name is None for name in table.index.names))
    raise InputError(f"{path}: a table must end in {', '.join(TABLE_SUFFIXES)}: {unnamed_table(path) or 'convert it'}")


def read_arrow(path: Source, columns: Sequence[str] | None) -> Any:
    """Returns columns of a table that is no text as a pandas DataFrame; None: all."""
    import pyarrow

    schema, batches = batches_of(path, columns)
    return pyarrow.Table.from_batches(batches, schema).to_pandas(split_blocks=True, self_destruct=True)


@contextlib.contextmanager
def reading(path: Source) -> Iterator[None]:
    """Makes one sentence of what is raised while a table is read."""
    if isinstance(path, Path) and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: there is no such file: check the path")
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow: pip install 'calirare[parquet]', or convert to CSV"
        ) from error
    except InputError:
        raise
    # pandas and pyarrow raise many kinds of errors for a damaged file, most of them ValueErrors.
    except (ValueError, OSError, EOFError, ArithmeticError, LookupError, TypeError, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, PermissionError):
            raise InputError(f"{path}: the table cannot be read (Permission denied): see who may read it") from error
        raise InputError(f"{path}: the table cannot be read ({reason}): mend the file or write it again") from error


def row_in_words(row: int, path: Source | str) -> str:
    """Returns how a message calls a row."""
    return f"line {row + FIRST_LINE}" if isinstance(path, Path) and is_text(path) else f"row {row}"


def as_names(column: Any) -> Any:
    """Returns the cells of a column as names, None where empty.

    Whole numbers have no point: a gap alone makes floats of a column of whole numbers.
    """
    column = readable(column)
    if column.dtype.kind == "f":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        whole = (np.abs(numbers) < float(MAX_INT)) & (numbers == np.floor(numbers))
        text = column.astype(str).where(~whole, np.where(whole, numbers, 0).astype(np.int64).astype(str))
    else:
        text = column.astype(str)
    return text.where(column.notna(), None)


def is_empty(column: Any) -> NumpyArray:
    """Returns which cells of a column are missing, bool [n]: nothing, or empty text."""
    import pandas as pd

    missing = np.asarray(column.isna().to_numpy())
    if not (column.dtype == object or isinstance(column.dtype, pd.StringDtype)):
        return missing
    return missing | np.asarray((column == "").to_numpy(dtype=bool, na_value=False))


def readable(column: Any) -> Any:
    """Returns a column with UUIDs of 16 bytes as text, as they are written, and Python's numbers as numbers."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(column, skipna=True) if column.dtype == object else ""
    if kind == "bytes":
        return column.map(lambda cell: str(UUID(bytes=cell)) if len(cell) == UUID_BYTES else cell, na_action="ignore")
    if kind == "decimal":
        return column.map(lambda cell: int(cell) if cell == cell.to_integral_value() else cell, na_action="ignore")
    return column.infer_objects() if kind == "floating" else column


def mixed_types(column: Any) -> str:
    """Returns which types a column of Python objects mixes, "" where all are of one."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(column, skipna=True) if column.dtype == object else ""
    types = {type(cell).__name__ for cell in column[column.notna()]} if kind.startswith("mixed") else set()
    return " and ".join(sorted(types)) if len(types) > 1 else ""


def as_float(column: Any) -> NumpyArray:
    """Returns a column as float64, NaN for what is no number."""
    import pandas as pd

    cells = column if column.dtype.kind in "iuf" else column.astype(str)
    return np.asarray(pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


def days_of(cells: Any) -> NumpyArray:
    """Returns dates (ISO 8601, or of a dtype of dates) as days since `EPOCH`, float64, NaN for what is none."""
    import pandas as pd

    times = pd.to_datetime(cells, format="ISO8601", utc=True, errors="coerce")
    return np.asarray(((times - pd.Timestamp(EPOCH, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64))


def last_day(as_of: str) -> float:
    """Returns the last time that counts as days since `EPOCH`: of a date without a time its end; NaN of no date."""
    import pandas as pd

    cell = pd.Series([as_of])
    unit = next((unit for unit, written in DATES.items() if re.fullmatch(written, as_of)), None)
    first = pd.to_datetime(cell, format="ISO8601", errors="coerce")
    if unit is None or first.isna().any():
        return float(days_of(cell)[0])
    return float(np.nextafter(days_of(first + pd.DateOffset(**{unit: 1}))[0], -np.inf))


def as_of_words(as_of: str | None) -> str:
    """Returns how a message calls the last time that counts; digits alone may be a number."""
    return f"the end of {as_of}" if re.fullmatch(r"\d{4}(-\d{2}){1,2}", str(as_of)) else str(as_of)


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
            table = read_arrow(source, others)
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
    return list(read_table(table).columns) if names is None else names
