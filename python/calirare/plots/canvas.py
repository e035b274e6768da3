"""The page a picture is drawn on, and the file it ends in.

Drawn with matplotlib's object-oriented interface: no global state, no display, and the same input gives the same bytes
(with the same matplotlib). The colours are Okabe and Ito's, distinct for colour-blind readers and, by lightness and by
marker, in greyscale. The suffix of the path chooses the format: png, pdf or svg.
"""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calirare._util.errors import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK = "#0072B2"
LIGHT = "#E69F00"
GAP = "#D55E00"
GREY = "#5F5F5F"


def blank(width: float, height: float) -> Figure:
    """An empty page of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150)


def wrapped(text: str, width: float, size: float) -> tuple[str, float]:
    """Returns a title in lines that fit so many inches at a font size in points, and their height in inches."""
    lines = textwrap.wrap(text, max(int(width * 72 / (0.62 * size)), 10)) or [""]  # .62: mean width of a letter
    return "\n".join(lines), len(lines) * 1.25 * size / 72


def with_legend_below(title: str, n_lines: int, left: float) -> tuple[Figure, Axes]:
    """Returns a page of one picture with a title and room for so many lines of a legend, and its axes.

    Args:
        title: wrapped where it is long.
        n_lines: lines of the legend, which `legend_below` draws.
        left: room for the labels of the y axis, inches.
    """
    width, below = 5.4, 0.55 + 0.185 * n_lines
    title, above = wrapped(title, width - 0.8, 10)
    height = below + 3.9 + above + 0.25
    figure = blank(width, height)
    edges = {"left": left / width, "right": 1 - 0.2 / width}
    edges |= {"bottom": below / height, "top": 1 - (above + 0.25) / height}
    axes = figure.add_subplot(figure.add_gridspec(1, 1, **edges)[0])
    axes.set_title(title, fontsize=10)
    return figure, axes


def legend_below(figure: Figure) -> None:
    """Draws the legend of a page of `with_legend_below`."""
    figure.legend(loc="lower left", bbox_to_anchor=(0.08, 0.005), fontsize=8, frameon=False, borderaxespad=0.1)


def shared_legend(figure: Figure, columns: int) -> None:
    """Draws one legend for all panels, which have the same, below them."""
    look: dict[str, Any] = {"ncols": columns, "fontsize": 8, "frameon": False, "borderaxespad": 0.1}
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="lower center", **look)


def point(colour: str, marker: str, size: float, **more: Any) -> dict[str, Any]:
    """Returns how a single point is drawn, with a white edge."""
    look = {"color": colour, "marker": marker, "markersize": size, "markeredgecolor": "white", "linestyle": "none"}
    return look | more


def number_axes(axes: Axes, form: str) -> None:
    """Makes both axes logarithmic, with plain numbers in some format."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:{form}}")


def save(figure: Figure, path: str | Path) -> Path:
    """Writes without date or program version, which would make two equal pictures differ.

    A $ in a name is a $, what cannot be printed is escaped, and a letter that the font does not have is a box.

    Args:
        figure: what is drawn.
        path: where to write, the suffix says what.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    path = Path(path)
    formats: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        ".svg": {"Date": None, "Creator": None},
    }
    if path.suffix not in formats:
        raise ValueError(f"plots: path must end in {', '.join(formats)}, got {path.name!r}")
    FigureCanvasAgg(figure)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
    with matplotlib.rc_context({"svg.hashsalt": "calirare"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
        figure.savefig(path, metadata=formats[path.suffix])
    return path
