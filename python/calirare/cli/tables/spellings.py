"""What a person calls a value of a table, however pandas has read it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.text_tables import INERT

if TYPE_CHECKING:
    import pandas as pd


def is_value(values: pd.Series, wanted: str) -> np.ndarray:
    """Whether each value is the one that a person wrote; an empty cell is none."""
    numbers = values.dtype.kind in "biuf"
    place, each = (values if numbers else values.map(str)).factorize()  # an empty number has no place
    same = np.array([plain(str(value)) == plain(wanted) or same_number(value, wanted) for value in each], dtype=bool)
    return values.notna().to_numpy() & np.append(same, False)[place]


def plain(text: str) -> str:
    """Returns one spelling of a value: a gap turns whole numbers into 1.0, pandas reads true and false as 1 and 0."""
    truth = {"true": "1", "false": "0"}.get(text.lower())
    return truth or re.sub(r"^(-?\d+)\.0+$", r"\1", text)


def name_of_class(value: object, names: Collection[str]) -> str:
    """Returns a label as its class is called, without what tables of ours put in front of a formula.

    A number is the one class that is written so in another way: a column of 007 and 1e5 alone is read as numbers.
    """
    name = plain(str(value))
    alike = [each for each in names if same_number(value, each)] if name not in names else []
    return alike[0] if len(alike) == 1 else name if name in names else plain(re.sub(INERT, r"\1", str(value)))


def same_number(value: object, wanted: str) -> bool:
    """Returns whether a value that was read as a number is the number that a text is."""
    try:
        return not isinstance(value, str) and float(wanted) == value
    except ValueError:
        return False
