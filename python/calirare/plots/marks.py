"""What can be pointed at in a picture: where its points lie, and their numbers in words.

A PNG file holds them as text, in a chunk that whoever shows the picture passes over: the numbers go where it goes, and
cannot be of another one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL.PngImagePlugin import PngInfo

KEY = "calirare marks 1"  # of the chunk, with the number of its format
MOST = 25  # points of a curve that can be pointed at one by one
CROWDED = 3  # times as narrow as on the average a point's strip may be
PLACES = 4  # decimals of a share of a picture that is some 2,000 pixels wide


@dataclass(frozen=True)
class Mark:
    """A point of a picture, places as shares of its width and height from the upper left corner.

    Attributes:
        x: place from left to right, in [0, 1].
        y: place from top to bottom, in [0, 1].
        words: its numbers, a line each.
    """

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Marks:
    """The points of one panel of a picture.

    Attributes:
        title: of the panel.
        box: the panel's left, top, right and bottom, as shares of the picture.
        points: from left to right.
    """

    title: str
    box: tuple[float, float, float, float]
    points: tuple[Mark, ...]

    @property
    def ends(self) -> list[float]:
        """Where the strips begin and end in which each point is the nearest one from left to right, one more each.

        Points that lie on one another have strips beside one another, wide enough to be pointed at.
        """
        left, right, n = self.box[0], self.box[2], len(self.points)
        narrowest = (right - left) / (CROWDED * max(n, 1))
        steps = narrowest * np.arange(1, n)
        between = np.array([(a.x + b.x) / 2 for a, b in pairwise(self.points)])
        ends = np.maximum.accumulate(between - steps).clip(left, right - n * narrowest) + steps
        return [left, *ends.round(PLACES).tolist(), right]


def marks_of(axes: Axes, title: str, x: np.ndarray, y: np.ndarray, words: Sequence[str]) -> Marks:
    """Returns the points of a panel whose limits and place in its picture are final.

    Args:
        axes: the panel.
        title: what a reader who does not see calls it.
        x: places as the axes count, [n]; what lies beyond the axes is put on their edge.
        y: the same from bottom to top, [n].
        words: numbers of each, lines.
    """
    figure = axes.get_figure()
    assert figure is not None
    to_share = figure.transFigure.inverted()
    left, bottom, right, top = to_share.transform_bbox(axes.bbox).extents
    places = to_share.transform(axes.transData.transform(np.column_stack([x, y])))
    across, up = places[:, 0].clip(left, right).round(PLACES), (1 - places[:, 1].clip(bottom, top)).round(PLACES)
    order = np.argsort(across, kind="stable")
    box = tuple(round(float(end), PLACES) for end in (left, 1 - top, right, 1 - bottom))
    points = tuple(Mark(float(across[i]), float(up[i]), words[i]) for i in order)
    return Marks(title, (box[0], box[1], box[2], box[3]), points)


def plain(p: float) -> str:
    """Returns a probability with three digits, written out down to a millionth."""
    return f"{Decimal(f'{p:.3g}'):f}" if p >= 1e-6 else f"{p:.3g}"


def evenly(x: np.ndarray, most: int = MOST) -> np.ndarray:
    """Returns which points of a curve are spread evenly over it, int64, ascending.

    Args:
        x: where they lie, ascending, [n].
        most: how many at most.
    """
    if len(x) <= most:
        return np.arange(len(x))
    wanted = np.linspace(x[0], x[-1], most)
    return np.unique([int(np.abs(x - place).argmin()) for place in wanted])


def text_chunk(panels: Iterable[Marks]) -> PngInfo:
    """Returns what a PNG file is to hold of its points."""
    from PIL.PngImagePlugin import PngInfo

    values = [
        {"title": each.title, "box": each.box, "points": [(m.x, m.y, m.words) for m in each.points]} for each in panels
    ]
    chunk = PngInfo()
    chunk.add_text(KEY, json.dumps(values), zip=True)
    return chunk


def read_marks(path: Path) -> tuple[Marks, ...]:
    """Returns what can be pointed at in a PNG file: nothing where it does not say, or is damaged."""
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG",)) as image:
            stored = image.info.get(KEY)
        return tuple(_marks(each) for each in json.loads(stored)) if isinstance(stored, str) else ()
    except (OSError, ValueError, LookupError, TypeError, SyntaxError, struct.error, RecursionError):
        return ()


def _marks(values: dict[str, Any]) -> Marks:
    """Returns a panel as a file has it; an error of one of several kinds where it is no panel."""
    left, top, right, bottom = map(float, values["box"])
    points = [Mark(float(x), float(y), str(words)) for x, y, words in values["points"]]
    return Marks(str(values["title"]), (left, top, right, bottom), tuple(sorted(points, key=lambda mark: mark.x)))
