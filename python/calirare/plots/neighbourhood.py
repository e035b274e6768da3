"""A node among its neighbours: coloured by P(rare), edges as wide as what they add to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calirare._util.errors import without_middle
from calirare.plots import canvas
from calirare.plots.canvas import DARK, GAP, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 7.2, 6.6  # inches
LONGEST = 16  # characters of a name
WIDEST = 5.0  # points, of the edge that counts most
SHADES = "cividis"  # rises in lightness, for readers of any colour vision and in grey
MARKERS = {None: "o", "rest": "s", "rare": "D"}


@dataclass(frozen=True)
class Spot:
    """A node of the picture.

    Attributes:
        name: what it is called.
        p_rare: its P(rare), in [0, 1]; NaN where it is not scored.
        label: "rare" or "rest" where the detector learned its label, else None; of many classes the one that is drawn
            is "rare".
        effect: what the edge to the node in the middle adds to its log-odds; 0 of that one itself.
    """

    name: str
    p_rare: float
    label: str | None
    effect: float = 0.0


def neighbourhood_diagram(
    middle: Spot,
    around: Sequence[Spot],
    path: str | Path,
    *,
    between: Sequence[tuple[int, int]] = (),
    title: str = "",
    of: str = "rare",
    rest: str = "rest",
) -> Path:
    """Draws a node among neighbours; edges that raise its log-odds are full lines, those that lower it dashed.

    Args:
        middle: the node.
        around: its neighbours, in the order in which they stand, clockwise from the top.
        path: where to write; the folder must exist.
        between: pairs of places in `around` that have an edge, drawn thin.
        title: the line above the picture.
        of: the class whose probability colours the nodes.
        rest: what other labels are called.

    Raises:
        ValueError: the path is of an unknown format.
    """
    title, above = canvas.wrapped(title or middle.name, WIDTH - 0.6, 10)
    figure = canvas.blank(WIDTH, HEIGHT + above)
    top = 1 - (above + 0.15) / (HEIGHT + above)
    axes = figure.add_axes((0.02, 0.13, 0.85, top - 0.13))
    axes.set_xlim(-2.5, 2.5)
    axes.set_ylim(-1.25, 1.25)
    axes.axis("off")
    figure.text(0.5, 1 - 0.1 / (HEIGHT + above), title, ha="center", va="top", fontsize=10)
    angles = [math.pi / 2 - 2 * math.pi * (i + 0.5) / len(around) for i in range(len(around))]  # clockwise from the top
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    for a, b in between:
        xs, ys = zip(places[a], places[b], strict=True)
        axes.plot(xs, ys, color="#BBBBBB", linewidth=0.6, zorder=1)
    most = max((abs(spot.effect) for spot in around), default=0.0) or 1.0
    for (x, y), spot in zip(places, around, strict=True):
        width = 0.6 + (WIDEST - 0.6) * abs(spot.effect) / most
        colour, line = (GAP, "-") if spot.effect >= 0 else (DARK, (0, (2.2, 1.2)))
        axes.plot([0, x], [0, y], color=colour, linestyle=line, linewidth=width, zorder=2)
    shades = _draw_spots(axes, [((0.0, 0.0), middle), *zip(places, around, strict=True)])
    for (x, y), spot in zip(places, around, strict=True):  # name and effect, away from the middle
        side = "left" if x > 0.01 else "right" if x < -0.01 else "center"
        text = f"{_short(spot.name)}  {f'{spot.effect:+.2f}' if round(spot.effect, 2) else '0.00'}"
        axes.text(1.12 * x, 1.13 * y, text, ha=side, va="center", fontsize=8, zorder=6)
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1}
    axes.text(0, -0.19, _short(middle.name), ha="center", va="top", fontsize=9, weight="bold", zorder=6, bbox=paper)
    bar = figure.colorbar(shades, cax=figure.add_axes((0.89, 0.3, 0.022, 0.45)))
    unscored = any(math.isnan(spot.p_rare) for spot in around)
    bar.set_label(f"P({_short(of)}); white: not scored" if unscored else f"P({_short(of)})", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    _legend(axes, of, rest)
    return canvas.save(figure, path)


def _draw_spots(axes: Axes, spots: Sequence[tuple[tuple[float, float], Spot]]) -> Any:
    """Draws nodes by marker and shade, the first one larger; returns what a bar of colours is made of."""
    from matplotlib import colormaps

    shades = None
    for kind, marker in MARKERS.items():
        chosen = [(i, at, spot) for i, (at, spot) in enumerate(spots) if spot.label == kind]
        drawn = axes.scatter(
            [at[0] for _, at, _ in chosen],
            [at[1] for _, at, _ in chosen],
            c=[spot.p_rare for _, _, spot in chosen],
            s=[420 if i == 0 else 190 for i, _, _ in chosen],
            marker=marker,
            cmap=colormaps[SHADES].with_extremes(bad="white"),
            plotnonfinite=True,
            vmin=0,
            vmax=1,
            edgecolors="black",
            linewidths=1.8 if kind else 0.8,
            zorder=5,
        )
        shades = drawn if shades is None or chosen else shades
    return shades


def _legend(axes: Axes, of: str, rest: str) -> None:
    """Says what lines and markers mean."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=GAP, linewidth=3, label=f"edge raises P({_short(of)})"),
        Line2D([], [], color=DARK, linewidth=3, linestyle=(0, (2.2, 1.2)), label="edge lowers it"),
    ]
    words = ((None, "no label"), ("rest", f"labelled, {_short(rest)}"), ("rare", f"labelled, {_short(of)}"))
    for kind, label in words:
        width = 1.8 if kind else 0.8
        look = canvas.point(GREY, MARKERS[kind], 8, markeredgecolor="black", markeredgewidth=width)
        lines.append(Line2D([], [], label=label, **look))
    figure = axes.get_figure()
    assert figure is not None
    title = "width and number: what the edge adds to the log-odds (+0.7 doubles the odds)"
    figure.legend(handles=lines, loc="lower center", ncol=3, fontsize=8, frameon=False, title=title, title_fontsize=8)


def _short(name: str) -> str:
    """Returns a name that fits."""
    return without_middle(name, LONGEST)
