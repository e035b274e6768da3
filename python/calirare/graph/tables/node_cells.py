"""The cells of a node table as numbers, categories and dates: what a column holds is found out, never guessed.

Numbers are read too as programs for people write them: $1,234.50, USD 12.50, 12,50 €, 5 %, and (3.20) for -3.20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import cut
from calirare.graph.columns import Column
from calirare.graph.spelling import BLANK, TRUTH, plain_names
from calirare.graph.tables.files import as_float, as_names, days_of, row_in_words
from calirare.graph.tables.sources import Source
from calirare.graph.validation import MAX_FEATURE

SECONDS = 86_400  # of a day


ROUNDED = 1e-3  # of the standard deviation of a column: more is lost in float32 than noise


WHAT = {"numeric": "numbers", "date": "dates"}


MOST_LETTERS = 30  # of a cell in a message


MOST = 0.5  # share of a column's cells that make the others faults


DAY_FIRST = r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b.*"  # or the month first: nobody knows


class NodeCells:
    """The feature columns of a node table.

    Args:
        table: of pandas.
        path: where it is from, for messages.
        ids: the names of the nodes, a column of pandas, or None.
        one_hot: columns whose cells are names of categories, whatever they look like.
        gaps: whether a value may be missing.
        kinds: what a run knows columns to hold, by their names: their cells are read as that, whatever they look like.
    """

    def __init__(
        self,
        table: Any,
        path: Source | str,
        ids: Any,
        one_hot: Sequence[str],
        gaps: bool,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        self.table, self.path, self.ids, self.gaps = table, path, ids, gaps
        self.kinds = dict(kinds or {}) | dict.fromkeys(one_hot, "categorical")
        self.faults: list[str] = []
        self.notes: list[str] = []

    def read(self, names: Sequence[str]) -> tuple[Tensor, tuple[Column, ...]]:
        """Returns the named columns as float32 [n, d], and what each holds; none where all are finite numbers.

        Faults are kept in `faults`, one of a column.
        """
        values = np.empty((len(self.table), len(names)), dtype=np.float32)
        columns = list[Column]()
        for i, name in enumerate(names):
            numbers, column = self.column(name)
            with np.errstate(over="ignore"):
                values[:, i] = numbers
            if column.kind == "date":
                self.notes += _lost_digits(name, numbers, values[:, i], "date")
            columns.append(column)
        plain = all(column.kind == "numeric" for column in columns) and not np.isnan(values).any()
        return torch.from_numpy(values), () if plain else tuple(columns)

    def column(self, name: str) -> tuple[NumpyArray, Column]:
        """Returns a column as float64 [n] before it is rounded, and what it holds; a fault is kept in `faults`."""
        kind, categories, numbers = self._typed(name, self.table[name])
        with np.errstate(over="ignore"):
            single = np.asarray(numbers, dtype=np.float32)
        self._check(name, numbers, single)
        if kind == "numeric":
            self.notes += _lost_digits(name, numbers, single, kind)
        return numbers, Column(str(name), kind, categories)

    def check_range(self, names: Sequence[str], x: Tensor) -> None:
        """Notes numbers, float32 [n, d] of the named columns, that are finite and no features."""
        for name, values in zip(names, x.numpy().T, strict=True):
            far = (np.abs(values) > MAX_FEATURE) & np.isfinite(values)
            if far.any():
                at = int(np.argmax(far))
                must = f"features must be from {-MAX_FEATURE:g} to {MAX_FEATURE:g}, but column {name!r} holds"
                mend = "mend the cell, or scale the column before (a sum of squares would leave float32)"
                self._fault(f"{must} {values[at]:g} in", at, far, mend)

    def _check(self, name: str, numbers: NumpyArray, single: NumpyArray) -> None:
        """Notes an infinite or, where none may be, a missing number."""
        wrong = np.isinf(single) | (np.isnan(single) if not self.gaps else False)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            empty = np.isnan(single[at])
            found = "is empty" if empty else f"holds {numbers[at]}"
            mend = "fill it in, remove the node or let it be filled (--impute median)" if empty else "mend the cell"
            must = "must have a value for every node" if empty else "features must be finite in float32, up to 3.4e38"
            self._fault(f"{must}, but column {name!r} {found} in", at, wrong, mend)

    def _fault(self, what: str, at: int, wrong: NumpyArray, mend: str) -> None:
        node = "" if self.ids is None else f" (node {self.ids.iloc[at]})"
        more = int(wrong.sum()) - 1
        also = f" and {more:,} more" if more else ""
        self.faults.append(f"{self.path}: {what} {row_in_words(at, self.path)}{node}{also}: {mend}")

    def _typed(self, name: str, column: Any) -> tuple[Any, tuple[str, ...], NumpyArray]:
        """Returns kind, categories and numbers of a column."""
        wanted, kind = self.kinds.get(name), column.dtype.kind
        if wanted == "categorical":
            return _categories(as_names(column))
        if kind in "biuf":
            return "numeric", (), column.to_numpy(dtype=np.float64, na_value=np.nan)
        if kind == "M":
            return "date", (), days_of(column)
        if kind == "m":
            return "numeric", (), np.asarray(column.dt.total_seconds() / SECONDS, dtype=np.float64)
        if kind in "cO" and self._many(name, column):
            return "numeric", (), np.zeros(len(column))
        if wanted is not None:
            return wanted, (), self._as_known(name, column, wanted)
        if hasattr(column, "cat"):
            return _categories(as_names(column))
        return self._of_text(name, column)

    def _as_known(self, name: str, column: Any, kind: str) -> NumpyArray:
        """Returns a column of text as the numbers or dates that a run knows it to hold; other cells are faults."""
        cells = _text(column)
        here = cells.notna().to_numpy()
        values = days_of(cells) if kind == "date" else as_float(cells.str.lower().replace(TRUTH))
        odd = here & np.isnan(values)
        written = written_numbers(cells) if kind == "numeric" and odd.any() else None
        if written is not None:
            self._note_written(name, cells, odd, written)
            return written
        if odd.any():
            cell = cut(str(cells[odd].iloc[0]), MOST_LETTERS)
            what = f"column {name!r} holds {cell!r} where the run has {WHAT[kind]}, in"
            self._fault(what, int(np.argmax(odd)), odd, "mend the cell, or leave it empty if nothing is known")
        return values

    def _note_written(self, name: str, cells: Any, odd: NumpyArray, numbers: NumpyArray) -> None:
        """Notes how the first number that is written for people is read."""
        at = int(np.argmax(odd))
        self.notes.append(f"nodes: {name!r} is read as numbers, {cells.iloc[at]!r} as {numbers[at]:.10g}")

    def _of_text(self, name: str, column: Any) -> tuple[Any, tuple[str, ...], NumpyArray]:
        """Returns kind, categories and numbers of a column of text."""
        cells = _text(column)
        here = cells.notna().to_numpy()
        lower = cells[here].str.lower()
        if lower.isin(("true", "false")).all():
            return "numeric", (), cells.str.lower().map(TRUTH).to_numpy(dtype=np.float64)
        if not cells[here].str.fullmatch(r"0\d+").any():
            numbers = as_float(cells)
            odd = here & np.isnan(numbers)
            written = written_numbers(cells) if odd.any() else None
            if written is not None:
                self._note_written(name, cells, odd, written)
                return "numeric", (), written
            if self._are(name, here, numbers, "numbers", f"names when training (--one-hot {name})"):
                return "numeric", (), numbers
            if self._odd(name, cells, DRESSED, ~np.isnan(numbers), "no plain number", "numbers as 1234.5"):
                return _categories(cells)
        days = days_of(cells)
        if self._are(name, here, days, "dates", f"names when training (--one-hot {name})"):
            return "date", (), days
        if self._odd(name, cells, DAY_FIRST, ~np.isnan(days), "day or month first", "dates as 2024-01-31"):
            return _categories(cells)
        if self.ids is None and cells[here].is_unique and here.all() and len(cells) > 1:
            mend = "remove it, or name it 'node' or 'id' (command line: --id COLUMN) if it holds the names of the nodes"
            what = f"column {name!r} holds another text in every row, {cells.iloc[0]!r} in"
            self._fault(what, 0, here[:1], mend)
        return _categories(cells)

    def _many(self, name: str, column: Any) -> bool:
        """Notes and returns whether cells hold something else than one number, name or date, such as lists."""
        wrong = column.map(_is_odd).to_numpy(dtype=bool)
        if wrong.any():
            at = int(np.argmax(wrong))
            what = f"column {name!r} must hold a number, a name or a date, got {type(column.iloc[at]).__name__} in"
            self._fault(what, at, wrong, "spread it over columns, write it as text, or remove the column")
        return bool(wrong.any())

    def _odd(self, name: str, cells: Any, odd: str, plain: NumpyArray, what: str, write: str) -> bool:
        """Notes and returns whether cells are mostly numbers or dates, some in a way that is not read as such."""
        wrong = cells.str.fullmatch(odd).to_numpy(dtype=bool, na_value=False) & ~plain
        if not wrong.any() or (wrong | plain).sum() <= MOST * cells.notna().sum():
            return False
        at = int(np.flatnonzero(wrong)[0])
        mend = f"write {write}, or take the cells as names when training (--one-hot {name})"
        self._fault(f"column {name!r} holds {cells.iloc[at]!r}, {what}, in", at, wrong, mend)
        return True

    def _are(self, name: str, here: NumpyArray, values: NumpyArray, what: str, otherwise: str) -> bool:
        """Returns whether cells are numbers or dates: all of them, or most, and then the others are faults."""
        wrong = here & np.isnan(values)
        share = 1 - wrong.sum() / max(here.sum(), 1)
        if wrong.any() and share > MOST:
            at = int(np.flatnonzero(wrong)[0])
            cell = str(self.table[name].iloc[at])
            mend = f"mend the cell, leave it empty if nothing is known, or take all cells as {otherwise}"
            self._fault(f"column {name!r} holds {cell!r} among {what} in", at, wrong, mend)
        return bool(share > MOST)


def _is_odd(cell: Any) -> bool:
    """Returns whether a cell is a list, a record, a complex number or bytes that are no text."""
    if not isinstance(cell, bytes):
        return isinstance(cell, (list, tuple, dict, set, np.ndarray, complex))
    try:
        return not cell.decode()
    except UnicodeDecodeError:
        return True


def _lost_digits(name: str, numbers: NumpyArray, single: NumpyArray, kind: str) -> list[str]:
    """Returns a note where float32 rounds a column by more than `ROUNDED` of its spread, or none."""
    there = np.isfinite(numbers) & np.isfinite(single)
    if not there.any():
        return []
    numbers = numbers[there]
    lost = float(np.abs(numbers - single[there]).max())
    if not lost > ROUNDED * np.std(numbers - numbers[0]) > 0:
        return []
    by, kept, mend = f"{lost:.2g}", "numbers", f"subtract {np.median(numbers):.10g} or so from it first"
    if kind == "date":
        by, kept, mend = f"{lost * SECONDS:.2g} s", "days", "write hours since a moment of the table as a number"
    return [
        f"nodes: {name!r} is rounded by up to {by}, as {kept} are kept in float32: what tells its rows apart is lost; "
        f"{mend}, here and in tables to score"
    ]


def _text(column: Any) -> Any:
    """Returns the cells of a column as text without blanks around it, None where empty."""
    cells = column.astype(str).str.strip(BLANK)
    return cells.where(column.notna() & (cells != ""), None)


def _categories(cells: Any) -> tuple[Any, tuple[str, ...], NumpyArray]:
    """Returns the numbers of names, NaN where there is none."""
    cells = plain_names(cells)
    here = cells.notna().to_numpy()
    names, codes = np.unique(cells[here].to_numpy().astype(str), return_inverse=True)
    numbers = np.full(len(cells), np.nan)
    numbers[here] = codes
    return "categorical", tuple(str(name) for name in names), numbers


LOOKED_AT = 100  # cells that tell a column of names at once


SIGNS = "$€£¥"


CODES = (  # of ISO 4217, those that tables of payments hold most; other three letters may be a name
    "USD|EUR|GBP|JPY|CHF|CNY|RMB|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|TRY|RUB|UAH|BRL|MXN|ARS|CLP|COP|PEN|"
    "ZAR|NGN|KES|GHS|EGP|MAD|SAR|AED|QAR|ILS|KRW|TWD|HKD|SGD|THB|IDR|MYR|PHP|VND|PKR|BDT|LKR"
)


MONEY = f"(?:[{SIGNS}]|{CODES})"


# Themselves: pandas may hand a pattern to Arrow, which knows no such escapes, and no white space but that of ASCII.
BLANKS = " \u00a0\u202f"


WHITE = rf"[\s{BLANKS}]"


WHOLE = rf"\d{{1,3}}(?:\d*|(?:[.,'’{BLANKS}]\d{{3}})*)"


DRESSED = rf"[-+]?{MONEY}?{WHITE}?[-+]?{WHOLE}(?:[.,]\d+)?{WHITE}?(?:%|{MONEY})?"


LOSS = rf"^({MONEY}?)\(([^-+()]*)\)$"  # less than nothing in accounts; where all are so, names of some kind


# What stands between thousands, and before decimals: in English, in Switzerland, on the continent.
WAYS = ((",", r"\."), ("['’]", r"\."), (f"[.{BLANKS}]", ","))


GROUPED = WAYS[2][0]  # which alone, without decimals or a sign, may as well stand in a telephone number


def written_numbers(cells: Any) -> NumpyArray | None:
    """Returns text as numbers where it can be read in one way only, float64 [n], NaN where empty; else None.

    Every cell must be a number in that way, and all or none have the same sign of money or per cent: 1,234 alone may be
    a thousand or one and a bit, and nobody knows. A percentage stays as it is written: 5 % is 5.

    Args:
        cells: a column of text, None where empty.
    """
    here = cells.notna().to_numpy()
    first = cells[here].iloc[:LOOKED_AT]
    if not (first.str.fullmatch(DRESSED) | first.str.fullmatch(LOSS)).all():
        return None  # names, most likely, of which there may be millions
    losses = cells[here].str.fullmatch(LOSS)
    if losses.all():
        return None
    cells = cells.str.replace(LOSS, r"-\1\2", regex=True) if losses.any() else cells
    signs = cells[here].str.extract(f"(%|{MONEY})", expand=False).unique()
    text = cells[here].str.replace(f"%|{MONEY}", "", regex=True).str.strip()
    readings = [_read_written(text, *way, signed=isinstance(signs[0], str)) for way in WAYS] if len(signs) == 1 else []
    read = [numbers for numbers in readings if numbers is not None]
    if not read or any(not np.array_equal(read[0], other) for other in read[1:]):
        return None
    numbers = np.full(len(cells), np.nan)
    numbers[here] = read[0]
    return numbers


def _read_written(text: Any, thousands: str, decimals: str, *, signed: bool) -> NumpyArray | None:
    """Returns text as numbers in one way of writing, None where a cell is none."""
    whole = rf"[-+]?{WHITE}?(?:\d+|\d{{1,3}}(?:{thousands}\d{{3}})+)"
    if not text.str.fullmatch(rf"{whole}(?:{decimals}\d+)?").all():
        return None
    if thousands == GROUPED and not signed and text.str.fullmatch(whole).all():
        return None
    plain = text.str.replace(rf"{thousands}|{WHITE}", "", regex=True).str.replace(decimals, ".", regex=True)
    return np.asarray(plain.astype(np.float64))
