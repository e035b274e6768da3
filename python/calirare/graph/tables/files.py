"""Tables as pandas has them, and how a message calls their cells.

The ends of edges are read a block of rows at a time where Arrow can: the names of many edges are never held.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from calirare._util.array_files import MAX_INT, NumpyArray
from calirare._util.errors import FaultsError, InputError
from calirare._util.text_tables import is_text, read_text
from calirare.graph.columns import EPOCH
from calirare.graph.tables.sources import TABLE_SUFFIXES, Source, TableInMemory, batches_of, is_arrow, unnamed_table

UUID_BYTES = 16


# A CSV line counts from 1 and the first is the header.
FIRST_LINE = 2
DATE = r"\d{4}-?\d{2}-?\d{2}|\d{4}-\d{2}|\d{4}"  # a day, month or year without a time, which counts to its end


@dataclass
class Table:
    """A table, and what is wrong or odd in its cells.

    Attributes:
        cells: of pandas, columns with names of text.
        path: where it is from, for messages.
        ids: names of the nodes in its rows, a column of pandas, or None.
        faults: what is wrong, a sentence each.
        notes: what was read in a way that the user may not expect.
    """

    cells: Any
    path: Source | str
    ids: Any = None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fault(self, what: str, wrong: NumpyArray, fix: str) -> None:
        """Adds a fault of rows, bool [n]: `what` comes before the first of them, `fix` behind."""
        at, more = int(np.argmax(wrong)), int(wrong.sum()) - 1
        node = "" if self.ids is None else f" (node {self.ids.iloc[at]})"
        also = f" and {more:,} more" if more else ""
        self.faults.append(f"{self.path}: {what} {row_in_words(at, self.path)}{node}{also}: {fix}")

    def check(self) -> None:
        """Raises a `FaultsError` where there are faults."""
        if self.faults:
            raise FaultsError(self.faults)


def read_table(path: Source, as_text: Callable[[list[str]], Sequence[str]] = list) -> Table:
    """Returns a table; `as_text` chooses the columns of a text file that stay text, by default all."""
    if isinstance(path, TableInMemory) and not is_arrow(path):
        table = path.table.copy(deep=False)
    elif is_arrow(path):
        with reading(path):
            table = read_arrow(path, None)
        # A named index is a column that pandas put aside when the file was written.
        table = table.reset_index(drop=all(name is None for name in table.index.names))
    else:
        assert isinstance(path, Path)
        with reading(path):
            if not is_text(path):
                mend = unnamed_table(path) or "convert it"
                raise InputError(f"{path}: a table must end in {', '.join(TABLE_SUFFIXES)}: {mend}")
            table = read_text(path, as_text)
    table.columns = [str(name) for name in table.columns]
    return Table(table, path)


def read_arrow(path: Source, columns: Sequence[str] | None) -> Any:
    """Returns columns of a table that is no text as a pandas DataFrame; None: all."""
    import pandas as pd
    import pyarrow

    if columns is not None and not columns:
        return pd.DataFrame()
    schema, batches = batches_of(path, columns)
    table = pyarrow.Table.from_batches(batches, schema).to_pandas(split_blocks=True, self_destruct=True)
    release_unused()
    return table


def release_unused() -> None:
    """Gives memory back that Arrow keeps for other tables."""
    with contextlib.suppress(ImportError):
        import pyarrow

        pyarrow.default_memory_pool().release_unused()


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
        mend = "see who may read it" if isinstance(error, PermissionError) else "repair the file or write it again"
        raise InputError(f"{path}: the table cannot be read ({reason}): {mend}") from error


def row_in_words(row: int, path: Source | str) -> str:
    """Returns how a message calls a row."""
    return f"line {row + FIRST_LINE}" if isinstance(path, Path) and is_text(path) else f"row {row}"


def as_names(column: Any) -> Any:
    """Returns the cells of a column as names, None where empty; whole numbers have no point."""
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

    if hasattr(column, "cat"):
        column = column.astype(column.cat.categories.dtype)
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

    times = pd.to_datetime(pd.Series(cells), format="ISO8601", utc=True, errors="coerce")
    return np.asarray(((times - pd.Timestamp(EPOCH, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64))


def times_of(column: Any) -> NumpyArray:
    """Returns a column of numbers, or of dates as days since `EPOCH`, float64; NaN where a cell is neither."""
    numbers = as_float(column)
    return np.array(days_of(column.astype(str)) if np.isnan(numbers).all() else numbers)


def last_day(as_of: str) -> float:
    """Returns the last time that counts as days since `EPOCH`: of a date without a time its end; NaN of no date."""
    import pandas as pd

    with contextlib.suppress(ValueError):
        if re.fullmatch(DATE, as_of):
            return float(np.nextafter(days_of([(pd.Period(as_of) + 1).start_time])[0], -np.inf))
    return float(days_of([as_of])[0])


def as_of_words(as_of: str | None) -> str:
    """Returns how a message calls the last time that counts; digits alone may be a number."""
    return f"the end of {as_of}" if re.fullmatch(r"\d{4}(-\d{2}){1,2}", str(as_of)) else str(as_of)


SEARCHED = 1 << 18, 1 << 20  # rows whose ends are searched together: as many as there are nodes, from and to


def header_of(source: Source) -> list[str] | None:
    """Returns the names of the columns of a table whose rows Arrow reads by blocks; None: it is to be held.

    That is so of text, of a table of pandas, of one without pyarrow, and where pandas put an index aside.
    """
    if not is_arrow(source):
        return None
    with reading(source):
        schema = batches_of(source, None)[0]
    kept = (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(source, Path) else []
    names = [str(name) for name in schema.names]
    return None if any(isinstance(name, str) for name in kept) or len(set(names)) < len(names) else names


def blocks_of(source: Source, columns: Sequence[str], n_nodes: int) -> Iterator[Any]:
    """Yields columns of a table of which `header_of` has the names, as pandas DataFrames of many rows each.

    All rows are one block where numbers are floats: whether digits are lost shows in all of them.
    """
    import pyarrow

    with reading(source):
        schema, batches = batches_of(source, columns)
        floats = any(pyarrow.types.is_floating(field.type) for field in schema)
        kept, rows, least = [], 0, min(max(n_nodes, SEARCHED[0]), SEARCHED[1])
        for batch in batches:
            kept.append(batch)
            rows += batch.num_rows
            if rows >= least and not floats:
                yield pyarrow.Table.from_batches(kept).to_pandas(integer_object_nulls=True)
                kept, rows = [], 0
                release_unused()
        if kept:
            yield pyarrow.Table.from_batches(kept).to_pandas(integer_object_nulls=True)
    release_unused()


def column_names(table: Source) -> list[str]:
    """Returns the names of the columns of a table."""
    names = header_of(table)
    return list(read_table(table).cells.columns) if names is None else names
