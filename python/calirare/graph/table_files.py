"""Tables in files, CSV or Parquet, and how a message calls their cells."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calirare._util.array_files import MAX_INT, NumpyArray
from calirare._util.errors import InputError
from calirare._util.text_tables import TEXT_SUFFIXES, is_text, read_text
from calirare.graph.columns import EPOCH

TABLE_SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
# A CSV line counts from 1 and the first is the header.
FIRST_LINE = 2


def read_table(path: Path, as_text: Callable[[list[str]], Sequence[str]]) -> Any:
    """Returns a table as a pandas DataFrame; `as_text` chooses the columns of a text file that stay text."""
    import pandas as pd

    if not path.is_file():
        raise InputError(f"{path}: there is no such file: check the path")
    try:
        if is_text(path):
            return read_text(path, as_text)
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(path)
            # A named index is a column that pandas put aside when the file was written.
            return table.reset_index(drop=all(name is None for name in table.index.names))
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow: pip install 'calirare[parquet]', or convert to CSV"
        ) from error
    except InputError:
        raise
    # pandas and pyarrow raise many kinds of errors for a damaged file, most of them ValueErrors.
    except (ValueError, OSError, EOFError, ArithmeticError, LookupError, TypeError, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: the table cannot be read ({reason}): mend the file or write it again") from error
    raise InputError(f"{path}: a table must end in {', '.join(TABLE_SUFFIXES)}: convert it")


def place(row: int, path: Path) -> str:
    """Returns how a message calls a row."""
    return f"line {row + FIRST_LINE}" if is_text(path) else f"row {row}"


def as_names(column: Any) -> Any:
    """Returns the cells of a column as names, None where empty.

    Whole numbers have no point: a gap alone makes floats of a column of whole numbers.
    """
    if column.dtype.kind == "f":
        whole = column.notna() & (column % 1 == 0) & (column.abs() < float(MAX_INT))
        text = column.astype(str).where(~whole, column.where(whole, 0).astype("int64").astype(str))
    else:
        text = column.astype(str)
    return text.where(column.notna(), None)


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
