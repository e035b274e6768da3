"""A picture of a run as a page holds it: the file itself, and what can be pointed at in it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import NamedTuple

from calirare.plots import Marks, read_marks


class Picture(NamedTuple):
    """A picture on a page.

    Attributes:
        words: what it shows.
        address: that holds the file itself; None where there is none.
        wide: whether it is of several panels, which a phone shows side by side all the same.
        marks: of its panels, what they tell whoever points at them.
    """

    words: str
    address: str | None
    wide: bool
    marks: tuple[Marks, ...]


def picture_of(path: Path, words: str, wide: bool = True) -> Picture:
    """Returns a picture of a run, arguments as the attributes; the address of a missing one is None."""
    if not path.is_file() or path.stat().st_size == 0:
        return Picture(words, None, wide, ())
    address = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    return Picture(words, address, wide, read_marks(path))
