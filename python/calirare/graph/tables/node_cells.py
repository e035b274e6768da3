"""The cells of a node table as numbers, categories and dates: what a column holds is found out, never guessed.

Numbers are read too as programs for people write them: $1,234.50, USD 12.50, 12,50 €, 5 %, and (3.20) for -3.20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import cut
from calirare.graph.columns import Column
from calirare.graph.spelling import BLANK, TRUTH, plain_names
from calirare.graph.tables.files import Table, as_float, as_names, days_of
from calirare.graph.validation import MAX_FEATURE

SECONDS = 86_400  # of a day
ROUNDED = 1e-3  # of the standard deviation of a column: more is lost in float32 than noise
WHAT = {"numeric": "numbers", "date": "dates"}
MOST_LETTERS = 30  # of a cell in a message
MOST = 0.5  # share of a column's cells that make the others faults
DAY_FIRST = r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b.*"  # or the month first: nobody knows


@dataclass(frozen=True)
class NodeCells:
    """The feature columns of a node table.

    Attributes:
        table: takes faults, one of a column, and notes.
        kinds: what columns hold, by their names: their cells are read as that, whatever they look like.
        gaps: whether a value may be missing.
    """

    table: Table
    kinds: Mapping[str, str] = field(default_factory=dict)
    gaps: bool = True

    def read(self, names: Sequence[str]) -> tuple[Tensor, tuple[Column, ...]]:
        """Returns the named columns as float32 [n, d], and what each holds; none where all are finite numbers."""
        values = np.empty((len(self.table.cells), len(names)), dtype=np.float32)
        columns, gaps = list[Column](), False
        for i, name in enumerate(names):
            numbers, column = self.column(name)
            with np.errstate(over="ignore"):
                single = numbers.astype(np.float32)
            values[:, i] = single
            gaps = gaps or bool(np.isnan(single).any())
            self.table.notes += _lost_digits(name, numbers, single, column.kind)
            columns.append(column)
        plain = not gaps and all(column.kind == "numeric" for column in columns)
        return torch.from_numpy(values), () if plain else tuple(columns)

    def column(self, name: str) -> tuple[NumpyArray, Column]:
        """Returns a column as float64 [n] before it is rounded, and what it holds."""
        kind, categories, numbers = self._typed(name, self.table.cells[name])
        empty = np.isnan(numbers)
        far = ~(np.abs(numbers) <= MAX_FEATURE) & ~empty
        if far.any():
            must = f"features must be from {-MAX_FEATURE:g} to {MAX_FEATURE:g}, but column {name!r} holds"
            mend = "fix the cell, or scale the column first (sums of squares would exceed float32)"
            self.table.fault(f"{must} {numbers[np.argmax(far)]:g} in", far, mend)
        elif not self.gaps and empty.any():
            what = f"must have a value for every node, but column {name!r} is empty in"
            self.table.fault(what, empty, "fill it in, remove the node or let it be filled (--impute median)")
        return numbers, Column(str(name), kind, categories)

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
        if kind in "cO":
            wrong = column.map(_is_odd).to_numpy(dtype=bool)
            if wrong.any():
                got = type(column.iloc[np.argmax(wrong)]).__name__
                what = f"column {name!r} must hold a number, a name or a date, got {got} in"
                self.table.fault(what, wrong, "spread it over columns, write it as text, or remove the column")
                return "numeric", (), np.zeros(len(column))
        if wanted is not None:
            return wanted, (), self._as_known(name, column, wanted)
        return _categories(as_names(column)) if hasattr(column, "cat") else self._of_text(name, column)

    def _as_known(self, name: str, column: Any, kind: str) -> NumpyArray:
        """Returns a column of text as the numbers or dates that a run knows it to hold; other cells are faults."""
        cells = text_of(column)
        values = days_of(cells) if kind == "date" else self._numbers(cells.str.lower().map(TRUTH).fillna(cells))
        odd = cells.notna().to_numpy() & np.isnan(values)
        if odd.any():
            cell = cut(str(cells[odd].iloc[0]), MOST_LETTERS)
            what = f"column {name!r} holds {cell!r} where the run has {WHAT[kind]}, in"
            self.table.fault(what, odd, "fix the cell, or leave it empty if the value is unknown")
        return values

    def _numbers(self, cells: Any) -> NumpyArray:
        numbers, note = numbers_of(cells)
        self.table.notes += [note] if note else []
        return numbers

    def _of_text(self, name: str, column: Any) -> tuple[Any, tuple[str, ...], NumpyArray]:
        """Returns kind, categories and numbers of a column of text."""
        cells = text_of(column)
        here = cells.notna().to_numpy()
        truth = cells.str.lower().map(TRUTH)
        if truth[here].notna().all():
            return "numeric", (), as_float(truth)
        if not cells[here].str.fullmatch(r"0\d+").any():
            numbers = self._numbers(cells)
            if self._are(name, cells, numbers, DRESSED, "numbers", "1234.5"):
                return "numeric", (), numbers
        days = days_of(cells)
        if self._are(name, cells, days, DAY_FIRST, "dates", "2024-01-31"):
            return "date", (), days
        if self.table.ids is None and cells[here].is_unique and here.all() and len(cells) > 1:
            mend = "remove it, or name it 'node' or 'id' (command line: --id COLUMN) if it holds the names of the nodes"
            what = f"column {name!r} holds another text in every row, {cells.iloc[0]!r} in"
            self.table.fault(what, here[:1], mend)
        return _categories(cells)

    def _are(self, name: str, cells: Any, values: NumpyArray, odd: str, what: str, such_as: str) -> bool:
        """Returns whether most cells are numbers or dates, written as such or as `odd`; then all others are faults."""
        here, read = cells.notna().to_numpy(), ~np.isnan(values)
        n = int(here.sum())
        if n and read.sum() <= MOST * n:
            read_or_odd = read | cells.str.fullmatch(odd).to_numpy(dtype=bool, na_value=False)
            if read_or_odd.sum() <= MOST * n:
                return False
        wrong = here & ~read
        if wrong.any():
            mend = f"fix the cell ({such_as}), leave it empty if unknown, or read all cells as categories when"
            cell = str(self.table.cells[name].iloc[np.argmax(wrong)])
            what = f"column {name!r} holds {cell!r} among {what} in"
            self.table.fault(what, wrong, f"{mend} training (--one-hot {name})")
        return True


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
    with np.errstate(invalid="ignore"):
        lost = float(np.nanmax(np.abs(numbers - single), initial=0))
        if not lost > 0 or not lost > ROUNDED * np.nanstd(numbers - np.nanmin(numbers)) > 0:
            return []
    by, kept, mend = f"{lost:.2g}", "numbers", f"subtract {np.nanmedian(numbers):.10g} or so from it first"
    if kind == "date":
        by, kept, mend = f"{lost * SECONDS:.2g} s", "days", "write hours since a moment of the table as a number"
    return [
        f"{name!r} is rounded by up to {by}, as {kept} are stored in float32, so rows may become equal; "
        f"{mend}, here and in tables to score"
    ]


def text_of(column: Any) -> Any:
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


def numbers_of(cells: Any) -> tuple[NumpyArray, str]:
    """Returns text as float64 [n], NaN for others, and a note on the first that is written for people, or ""."""
    numbers = as_float(cells)
    odd = cells.notna().to_numpy() & np.isnan(numbers)
    written = written_numbers(cells) if odd.any() else None
    if written is None:
        return numbers, ""
    at = int(np.argmax(odd))
    return written, f"{cells.name!r} is read as numbers, {cells.iloc[at]!r} as {written[at]:.10g}"


def written_numbers(cells: Any) -> NumpyArray | None:
    """Returns text as numbers where it can be read in one way only, float64 [n], NaN where empty; else None.

    Every cell must be a number in that way, and all or none have the same sign of money or per cent: 1,234 alone may be
    a thousand or one and a bit, and nobody knows. A percentage stays as it is written: 5 % is 5.

    Args:
        cells: a column of text, None where empty.
    """
    here = cells.notna().to_numpy()
    text = cells[here]
    first = text.iloc[:LOOKED_AT]
    if not (first.str.fullmatch(DRESSED) | first.str.fullmatch(LOSS)).all():
        return None  # names, most likely, of which there may be millions
    signs = text.str.extract(f"(%|{MONEY})", expand=False).unique()
    if text.str.fullmatch(LOSS).all() or len(signs) != 1:
        return None
    text = text.str.replace(LOSS, r"-\1\2", regex=True).str.replace(f"%|{MONEY}", "", regex=True).str.strip()
    found = list[NumpyArray]()
    for thousands, decimals in WAYS:
        whole = rf"[-+]?{WHITE}?(?:\d+|\d{{1,3}}(?:{thousands}\d{{3}})+)"
        bare = thousands == GROUPED and not isinstance(signs[0], str) and text.str.fullmatch(whole).all()
        if not bare and text.str.fullmatch(rf"{whole}(?:{decimals}\d+)?").all():
            plain = text.str.replace(rf"{thousands}|{WHITE}", "", regex=True).str.replace(decimals, ".", regex=True)
            found.append(np.asarray(plain.astype(np.float64)))
    if not found or any(not np.array_equal(found[0], other) for other in found[1:]):
        return None
    numbers = np.full(len(cells), np.nan)
    numbers[here] = found[0]
    return numbers
