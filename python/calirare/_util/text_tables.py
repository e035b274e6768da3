"""Tables in text files, read so that no cell moves, disappears or changes its meaning without a word."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from calirare._util.errors import InputError

ZIP = b"PK\x03\x04"
# What files begin with that are no text, and how to mend it.
NO_TEXT = {
    b"\x1f\x8b": "it is compressed: call it .csv.gz",
    ZIP: "it is a zip archive or a spreadsheet: unpack it, or save it as CSV",
    b"PAR1": "it is Parquet: call it .parquet",
}
FORMULA = r"[=+\-@\t\r]"  # what text that a program for spreadsheets computes begins with
INERT = rf"^'('*{FORMULA})"  # with what tables of ours put in front of it
TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
# The first of them that stands in the header of a .csv, outside of quotes, separates its cells; without one blanks do
# where the header and the row below have as many words, else the table has one column.
SEPARATORS = (",", ";", "\t", "|")
BLANKS = r"\s+"
MOST_ROWS = 200  # of a table that are compared with its first line
USUAL = {"node", "id", "label", "y", "class", "split", "source", "target", "src", "dst", "from", "to", "weight"}
WHOLE, DECIMAL, DATE, TEXT = "whole number", "decimal", "date", "text"
LOOKS = {WHOLE: r"[-+]?\d+", DECIMAL: r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?", DATE: r"\d{4}-\d\d-\d\d.*"}


def is_text(path: Path) -> bool:
    """Returns whether the name of a file says that it is a table in text."""
    return path.name.lower().endswith(TEXT_SUFFIXES)


def check_names(names: Sequence[str], where: str) -> None:
    """Raises InputError where two columns have one name."""
    number = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))  # of the first so called
    twice = next((name for i, name in enumerate(names) if number[name] < i), None)
    if twice is not None:
        row = (
            "" if _kind(twice) == TEXT else ", or, if it is a row, write a line with the names of the columns above it"
        )
        raise InputError(
            f"{where}: every column must have its own name, got {twice!r} twice: rename or remove one{row}"
        )


def read_text(path: Path, as_text: Callable[[list[str]], Sequence[str]] = lambda names: ()) -> Any:
    """Returns a table in text as a pandas DataFrame; only an empty cell is a missing one ("NA" and "None" are text).

    Args:
        path: `.csv` or `.tsv`, either may be `.gz`; a `.csv` may be separated by commas, semicolons, tabs, bars (|)
            or blanks.
        as_text: the columns whose cells stay as they are written, of the columns there are.

    Returns:
        The table; a column without a name is called "Unnamed: i".

    Raises:
        InputError: a row has more cells than the header, two columns have one name, or the text is not in UTF-8.
        ValueError, OSError, EOFError: the file cannot be read; pandas and gzip say why.
    """
    import pandas as pd

    options: dict[str, Any] = {"index_col": False, "keep_default_na": False, "skipinitialspace": True}
    try:
        options["sep"] = _separator(path)
        # Read as a row among others, the header bounds the cells of the first row too, and keeps repeated names.
        header = pd.read_csv(path, header=None, nrows=2, dtype=object, **options).iloc[0]
        names = [str(name) or f"Unnamed: {i}" for i, name in enumerate(header)]
        check_names(names, str(path))
        types = dict.fromkeys(as_text(names), str)
        table = pd.read_csv(path, header=0, names=names, dtype=types, na_values=[""], low_memory=False, **options)
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{path}: the file is empty: write a line with the names of the columns, and rows") from error
    except pd.errors.ParserError as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise
        wanted, line, got = found.groups()
        raise InputError(
            f"{path}: a row must have a cell for each of the {wanted} columns of the header, got {got} cells in line "
            f"{line}: remove the separators too many, or put text that contains one in quotes"
        ) from error
    except UnicodeDecodeError as error:
        with path.open("rb") as file:
            begin = file.read(len(ZIP))
        how = next(
            (how for magic, how in NO_TEXT.items() if begin.startswith(magic)),
            "save it as UTF-8 (in a spreadsheet: CSV UTF-8)",
        )
        raise InputError(
            f"{path}: a table must be text in UTF-8, which byte {error.object[error.start]:#x} is not: {how}"
        ) from error
    if _is_row(names, table):
        raise InputError(
            f"{path}: the first line must name the columns, got {', '.join(names)}, which is like the rows below: "
            "write a line with the names of the columns above it"
        )
    return table


def _is_row(names: Sequence[str], table: Any) -> bool:
    """Returns whether what should name the columns is a row of cells, as those below it."""
    if USUAL & {name.lower() for name in names} or _count_up(names):
        return False
    like, words, other = 0, 0, 0
    for name in names:
        cells = table[name].iloc[:MOST_ROWS].dropna().astype(str)
        if not len(cells) or name.startswith("Unnamed: "):
            continue
        kind, kinds, again = _kind(name), set(map(_kind, cells)), bool((cells == name).any())
        if kind == TEXT and TEXT not in kinds:
            return False
        if kind != TEXT and kinds <= ({DATE} if kind == DATE else {WHOLE, DECIMAL}) and (again or kind != WHOLE):
            like += 1
        elif kind == TEXT and again:
            words += 1
        elif kind == TEXT and not cells.is_unique:
            other += 1
    return like + words >= max(2 * other, 1 if like else 2)


def _kind(cell: str) -> str:
    """Returns what a cell is by its looks."""
    return next((kind for kind, looks in LOOKS.items() if re.fullmatch(looks, cell)), TEXT)


def _count_up(names: Sequence[str]) -> bool:
    """Returns whether names are numbers of columns, or ascending numbers, such as quantiles, and one text."""
    numbers = [float(name) for name in names if _kind(name) in (WHOLE, DECIMAL)]
    n = len(numbers)
    counted = n > 1 and numbers == [numbers[0] + i for i in range(n)] and numbers[0] in (0, 1)
    ascending = n > 1 and all(a < b for a, b in pairwise(numbers)) and all(_kind(name) != DATE for name in names)
    return (counted and n in (len(names), max(n, 3))) or (ascending and n == len(names) - 1)


def _separator(path: Path) -> str:
    name = path.name.lower()
    if name.endswith((".tsv", ".tsv.gz")):
        return "\t"
    with gzip.open(path, "rt", encoding="utf-8") if name.endswith(".gz") else path.open(encoding="utf-8") as file:
        header, row = (re.sub('"[^"]*"?', "_", file.readline()) for _ in range(2))
    if re.fullmatch("sep=.?", header.strip().lstrip("\ufeff").lower()):
        raise InputError(
            f"{path}: the first line must name the columns, got {header.strip()!r}, which spreadsheets write: remove it"
        )
    if not any(separator in header for separator in SEPARATORS) and 1 < len(header.split()) == len(row.split()):
        return BLANKS
    return next((separator for separator in SEPARATORS if separator in header), ",")
