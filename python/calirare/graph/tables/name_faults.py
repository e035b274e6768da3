"""What is wrong with names of nodes: digits that floats have lost, and names that only look like another."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from calirare.graph.tables.files import Table, as_float, as_names, is_empty, mixed_types, readable, row_in_words
from calirare.graph.tables.sources import Source

EXACT = 2.0**53  # below it every whole number is a float of 64 bits


# What programs write for a float of 16 digits or more; and a spreadsheet for 12 or more, of which it keeps six.
WRITTEN_FLOAT = r"[-+]?(?:\d(?:\.\d+)?[eE]\+?\d\d|\d{16,}\.\d*)"
SPREADSHEET = r"\d(?:\.\d{1,5})?E\+\d\d"
POINT = re.compile(r"(\d)\.0+$")
DASHES, QUOTES = "\u2010\u2011\u2012\u2013\u2014\u2212", "\u2018\u2019"  # that programs for text put in
AS_TYPED = str.maketrans(dict.fromkeys(DASHES, "-") | dict.fromkeys(QUOTES, "'"))
MOST_COMPARED = 1000  # unknown names of a table


def names_of_nodes(table: Table, name: str) -> Any:
    """Returns the names of the nodes of a node table, each there once, a column of pandas."""
    column = table.cells[name]
    empty = is_empty(column)
    if empty.any():
        what = f"every node must have a name, but {name!r} is empty in"
        table.fault(what, empty, "fill it in or remove the row")
    lost = lost_digits(column, table.path, text=True)
    table.faults += lost
    twice = (column.duplicated() & column.notna()).to_numpy()
    if twice.any() and not lost:
        what = f"the node table lists node {column.iloc[np.argmax(twice)]} more than once, again in"
        table.fault(what, twice, "keep one row of it")
    types = mixed_types(column)
    if types:
        table.faults.append(
            f"{table.path}: names of the nodes must be of one type, but {name!r} mixes {types}: make them text"
        )
    return as_names(column) if column.dtype.kind == "f" or column.dtype == object else column


def lost_digits(column: Any, path: Source | str, *, text: bool = False) -> list[str]:
    """Returns the fault that names of nodes are floats that have lost digits, or none.

    Floats hold whole numbers exactly below 2^53 (of 32 bits 2^24, of 16 bits 2^11): beyond, two names become one. With
    `text` what programs write for such floats counts too; where names are looked up, `why_unknown` says so.
    """
    cells, bits = readable(column), 53
    if cells.dtype.kind == "f":
        bits = int(np.finfo(getattr(cells.dtype, "numpy_dtype", cells.dtype)).nmant) + 1
        wrong = np.abs(cells.to_numpy(dtype=np.float64, na_value=np.nan)) >= 2.0**bits
    elif text and cells.dtype.kind == "O":
        wrong = _written_floats(cells).to_numpy(dtype=bool)
    else:
        return []
    places = np.flatnonzero(wrong)
    if not len(places):
        return []
    at = int(places[0])
    return [
        f"{path}: names of nodes must not be floats, which lose digits (whole numbers are exact only below 2^{bits}), "
        f"but column {str(column.name)!r} holds {column.iloc[at]} in {row_in_words(at, path)}: read or write it as "
        "text or int64"
    ]


def _written_floats(names: Any) -> Any:
    """Returns which names are what programs write for a float that has lost digits, a column of bool."""
    text = names.where(names.notna(), "").astype(str)
    written, rounded = text.str.fullmatch(WRITTEN_FLOAT), text.str.fullmatch(SPREADSHEET)
    if not (written | rounded).any():
        return written
    numbers = as_float(text.where(written, ""))
    # Without a point or sign, 1e17 may be one of other names.
    plain = text.str.fullmatch(r"\d[eE]\d\d") & bool(np.isnan(as_float(text[text != ""])).any())
    return (written & (np.abs(numbers) >= EXACT) & ~plain) | (rounded & (np.abs(numbers) >= 1e11))


def why_unknown(name: str, known: Iterable[object]) -> str:
    """Returns why a name may be none of the known ones and how to fix it; "" where none of them is like it."""
    import pandas as pd

    if _written_floats(pd.Series([name])).any():
        return "it is a float, which loses digits (whole numbers are exact only below 2^53): write it as text or int64"
    look = _look(name)
    twin = next((str(each) for each in known if _look(str(each)) == look), None)
    if twin is None:
        return ""
    return f"it looks like node {twin!r} but is {name!a}, not {twin!a}: write names in one way"


def look_alikes(names: Any, known: Any) -> Any:
    """Returns the names that look like a known one, both columns of text without gaps."""
    return names[names.map(_look).isin(known.map(_look))]


def why_any_unknown(names: Iterable[str], known: Any) -> str:
    """Returns what a note on unknown names says of one that is lost by mistake, among the first of them, else ""."""
    import pandas as pd

    first = pd.Series(list(islice(names, MOST_COMPARED)), dtype=object)
    odd = first[_written_floats(first)] if len(first) else first
    odd = odd if len(odd) else look_alikes(first, known)
    return f", such as {odd.iloc[0]!r}; {why_unknown(odd.iloc[0], known)}" if len(odd) else ""


def _look(name: str) -> str:
    """Returns a name as a person sees it: in one Unicode form, of small letters, without zeros in front or a point."""
    if not name.isascii():
        plain = unicodedata.normalize("NFKC", name).translate(AS_TYPED)
        name = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    return POINT.sub(r"\1", " ".join(name.split()).casefold().lstrip("0"))
