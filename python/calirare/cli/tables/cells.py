"""The cells of a table of predictions: rows and columns, checked; each complaint says where and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.amounts import listed
from calirare._util.arrays import ROUNDING, countable_weights
from calirare._util.errors import InputError
from calirare.graph.tables import Table, read_table, rows_where, source_of
from calirare.metrics.inputs import ROW_SUM_SLACK

if TYPE_CHECKING:
    import pandas as pd


def read_frame(path: Path, as_text: Collection[str] = ()) -> pd.DataFrame:
    """Reads a table of any kind that node tables come in; rows from 0.

    Columns `as_text` stay text where the file is text, so that 007 is no number.
    InputError where there is no such file, it cannot be read, or it has no rows.
    """
    frame: pd.DataFrame = read_table(source_of(path), lambda names: [each for each in names if each in as_text]).cells
    if frame.empty:
        raise InputError(f"{path} has no rows: give a table with one row per sample")
    return frame


def select_rows(frame: pd.DataFrame, where: str | None, path: Path) -> pd.DataFrame:
    """Returns the rows that `where`, "column=value", names, at least one, with the numbers they had; None: all."""
    if where is None:
        return frame
    table = Table(frame, path)
    chosen = rows_where(table, where, "--where")
    table.check()
    assert chosen is not None
    return frame[chosen.numpy()]


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Returns one column; refused where it is missing, occurs twice, or has gaps."""
    values = named_column(frame, name)
    missing = values.isna().to_numpy()
    if missing.any():
        raise InputError(f"column {name!r} has no value in {rows_in_words(frame, missing)}: fill it or drop the row")
    return values


def numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Returns one column of finite numbers, float64 [n]."""
    import pandas as pd

    values = column(frame, name)
    text = values.astype(str) if values.dtype.kind == "O" else values  # a whole number beyond any float is text here
    found = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64)
    bad = ~np.isfinite(found)
    if bad.any():
        first = values.iloc[int(bad.argmax())]
        mend = ": write a point before decimals" if isinstance(first, str) and re.search(r"\d,\d", first) else ""
        raise InputError(
            f"column {name!r} must hold finite numbers, got {first!r} in {rows_in_words(frame, bad)}{mend}"
        )
    return found


def probabilities(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Returns columns of probabilities: one of P(minority), float64 [n], or one per class, [n, C], rows sum to one."""
    columns = [numbers(frame, name) for name in names]
    for name, values in zip(names, columns, strict=True):
        outside = (values < -ROUNDING) | (values > 1 + ROUNDING)
        _refuse(frame, name, values, outside, "lie in [0, 1]", "give probabilities, not logits")
    columns = [np.clip(values, 0, 1) for values in columns]
    if len(columns) == 1:
        return columns[0]
    p = np.stack(columns, 1)
    bad = np.abs(p.sum(1) - 1) > ROW_SUM_SLACK
    if bad.any():
        got = f"got {p[int(bad.argmax())].sum():g} in {rows_in_words(frame, bad)}"
        raise InputError(f"columns {listed(names)} must sum to 1 in every row, {got}: give one column per class")
    return p


def weights(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Returns one column of sample weights >= 0, not all 0, made countable, float64 [n]."""
    values = numbers(frame, name)
    _refuse(frame, name, values, values < 0, "hold weights >= 0", "correct or drop the row")
    if not values.any():
        raise InputError(f"column {name!r} must hold a weight above 0, got zeros only")
    return countable_weights(values)


def some(values: Sequence[object] | np.ndarray | pd.Index) -> str:
    """Returns the first ten values as text for a message."""
    return listed(list(values)[:10]) + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def named_column(frame: pd.DataFrame, name: str) -> pd.Series:
    """The column of that name, which may have gaps."""
    if name not in frame.columns:
        raise InputError(f"there is no column {name!r}: the table has {some(frame.columns)}")
    values = frame[name]
    if values.ndim > 1:
        raise InputError(f"the column name {name!r} occurs more than once: rename one of them")
    return values


def _refuse(frame: pd.DataFrame, name: str, values: np.ndarray, bad: np.ndarray, must: str, mend: str) -> None:
    if bad.any():
        got = f"got {values[int(bad.argmax())]:.9g} in {rows_in_words(frame, bad)}"
        raise InputError(f"column {name!r} must {must}, {got}: {mend}")


def rows_in_words(frame: pd.DataFrame, bad: np.ndarray) -> str:
    """The first rows as a person counts them, without the header line."""
    positions = np.flatnonzero(bad)
    text = ", ".join(str(int(frame.index[i]) + 1) for i in positions[:3])
    if len(positions) == 1:
        return f"row {text}"
    return f"rows {text}{', ...' if len(positions) > 3 else ''} ({len(positions)} rows)"
