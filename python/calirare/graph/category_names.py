"""Names of categories without what differs between programs alone: 10.0 for 10, True for true, blanks around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

BLANK = " "  # no other white space
POINT = re.compile(r"([-+]?[0-9]+)\.0+")  # of a whole number: a gap alone makes floats of a column of whole numbers
TRUTH = {"true": "1", "false": "0"}  # and the numbers that stand for them


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


def places_of_names(names: Sequence[str]) -> dict[str, int]:
    """Returns the place of each category by its name and by the one spelling of it.

    Graphs and runs of earlier releases may have two names of one spelling, "10" and "10.0": the plain one is found by
    it, else the first.
    """
    places: dict[str, int] = {}
    for i, name in enumerate(names):
        places.setdefault(plain_name(name), i)
    return places | {name: i for i, name in enumerate(names)}
