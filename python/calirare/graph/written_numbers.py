"""Numbers as programs for people write them: $1,234.50, USD 12.50, 12,50 €, 5 %, and (3.20) for -3.20."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray

LOOKED_AT = 100  # cells that tell a column of names at once
SIGNS = "$€£¥"
CODES = (  # of ISO 4217, those that tables of payments hold most; other three letters may be a name
    "USD|EUR|GBP|JPY|CHF|CNY|RMB|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|TRY|RUB|UAH|BRL|MXN|ARS|CLP|COP|PEN|"
    "ZAR|NGN|KES|GHS|EGP|MAD|SAR|AED|QAR|ILS|KRW|TWD|HKD|SGD|THB|IDR|MYR|PHP|VND|PKR|BDT|LKR"
)
MONEY = f"(?:[{SIGNS}]|{CODES})"
# Themselves: pandas may hand a pattern to Arrow, which knows no such escapes, and no white space but that of ASCII.
BLANKS = " \u00a0\u202f"
BLANK = rf"[\s{BLANKS}]"
WHOLE = rf"\d{{1,3}}(?:\d*|(?:[.,'’{BLANKS}]\d{{3}})*)"
DRESSED = rf"[-+]?{MONEY}?{BLANK}?[-+]?{WHOLE}(?:[.,]\d+)?{BLANK}?(?:%|{MONEY})?"
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
    readings = [_read(text, *way, signed=isinstance(signs[0], str)) for way in WAYS] if len(signs) == 1 else []
    read = [numbers for numbers in readings if numbers is not None]
    if not read or any(not np.array_equal(read[0], other) for other in read[1:]):
        return None
    numbers = np.full(len(cells), np.nan)
    numbers[here] = read[0]
    return numbers


def _read(text: Any, thousands: str, decimals: str, *, signed: bool) -> NumpyArray | None:
    """Returns text as numbers in one way of writing, None where a cell is none."""
    whole = rf"[-+]?{BLANK}?(?:\d+|\d{{1,3}}(?:{thousands}\d{{3}})+)"
    if not text.str.fullmatch(rf"{whole}(?:{decimals}\d+)?").all():
        return None
    if thousands == GROUPED and not signed and text.str.fullmatch(whole).all():
        return None
    plain = text.str.replace(rf"{thousands}|{BLANK}", "", regex=True).str.replace(decimals, ".", regex=True)
    return np.asarray(plain.astype(np.float64))
