"""One spelling for names of categories and of classes: 10.0 for 10, True for true, blanks around them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.text_tables import INERT

BLANK = " "  # no other white space
POINT = re.compile(r"([-+]?[0-9]+)\.0+")  # of a whole number: a gap alone makes floats of a column of whole numbers
TRUTH = {"true": "1", "false": "0"}  # and the numbers that stand for them


def is_number(name: str) -> bool:
    """Returns whether a cell is a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True


def plain_name(name: str) -> str:
    """Returns the one spelling of a name; "" is no name.

    Blanks around it are cut, a whole number has no point, true and false have small letters.

    Example:
        >>> [plain_name(name) for name in (" x ", "10.0", "10.50", "v1.0", "007", "True")]
        ['x', '10', '10.50', 'v1.0', '007', 'true']
    """
    name = name.strip(BLANK)
    whole = POINT.fullmatch(name)
    if whole is not None:
        return whole[1]
    return name.lower() if name.lower() in TRUTH else name


def plain_names(cells: Any) -> Any:
    """Returns names, a column of text, in their one spelling, None where there is none."""
    plain = {name: plain_name(name) or None for name in cells.dropna().unique()}
    return cells.map(plain).astype(object)


# The largest whole number that no other one is rounded to in float64: 2^53 is also what 2^53 + 1 becomes.
MAX_WHOLE = 2**53 - 1
NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?(e[-+]?[0-9]+)?")  # 007 is a name


def plain_class(name: str) -> str:
    """Returns the one spelling of a class.

    Blanks around it are cut, a whole number has no point, true is 1 and false is 0 in any capitals. What tables of ours
    put in front of a formula is cut too.

    Example:
        >>> [plain_class(name) for name in (" fraud ", "1.0", "TRUE", "007", "1.5", "'-1")]
        ['fraud', '1', '1', '007', '1.5', '-1']
    """
    name = re.sub(INERT, r"\1", name.strip())
    lower = name.lower()
    if NUMBER.fullmatch(lower):
        value = float(lower)
        return str(int(value)) if value.is_integer() and abs(value) <= MAX_WHOLE else name
    return TRUTH.get(lower, name)


def class_key(name: object) -> str:
    """Returns what two spellings of one class have in common, capitals set aside."""
    return plain_class(str(name)).casefold()


def find_name(wanted: object, names: Sequence[str]) -> int | None:
    """Returns the place of the class that a word means.

    It is the class of that very name, else the only one with the same `class_key`; None: there is none.
    """
    text = str(wanted).strip()
    if text in names:
        return names.index(text)
    key = class_key(text)
    same = [k for k, name in enumerate(names) if class_key(name) == key]
    return same[0] if len(same) == 1 else None


def words_of(values: object) -> tuple[str, ...]:
    """Returns one value or several as words: what `unknown` takes."""
    several = values if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
    return tuple(map(str, several))


def as_option(values: Sequence[str]) -> str:
    """Returns how a command line says that values stand for no label."""
    text = shlex.quote(",".join(values))
    return f"--unknown={text}" if text.strip("'").startswith("-") else f"--unknown {text}"


def spellings_of(column: Any) -> tuple[NumpyArray, list[str]]:
    """Returns the cells of a column of pandas as numbers of their different spellings, int64 [n], and these.

    Blanks around a cell are cut; an empty cell is spelled "".
    """
    cells = column.astype(str).where(column.notna(), "").str.strip()
    numbers, spellings = cells.factorize()
    return np.asarray(numbers, dtype=np.int64), [str(each) for each in spellings]


def is_value(column: Any, wanted: str) -> NumpyArray:
    """Returns which cells of a column of pandas are a value that a user named, bool [n]; an empty cell is none."""
    numbers, spellings = spellings_of(column)
    same = [each != "" and plain_class(each) == plain_class(wanted) for each in spellings]
    return np.asarray(np.array(same, dtype=bool)[numbers])
