"""The picture of a profile: nested ranges over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

DEPTHS = 5  # rows drawn; deeper operators are parts of those above them
SHOWN = 1 / 1500  # share of the time below which a range is narrower than a pixel
NAMED = 1 / 16  # share from which a range has room for a name
STAGES = ("#4e9fd1", "#e69f00", "#3fb68e", "#cc79a7", "#8dd3f0", "#e07b39", "#f0e442", "#a08bd6", "#b5cf6b", "#e7969c")
OPERATOR = "#c8c8c8"

Range = tuple[str, float, float, bool]  # name, start and duration in seconds, whether it is a stage


def depths(ranges: Sequence[Range]) -> list[int]:
    """Returns how many of the ranges each one lies in.

    Args:
        ranges: sorted by start, longer ones first.

    Returns:
        A depth from 0 per range.
    """
    open_ends: list[float] = []
    out = []
    for _, start, duration, _ in ranges:
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        out.append(len(open_ends))
        open_ends.append(start + duration)
    return out


def draw_timeline(ranges: Sequence[Range], folder: Path, title: str) -> None:
    """Draws `timeline.png` and `timeline.svg`: one row per depth, stages in colour, operators in grey.

    Args:
        ranges: sorted by start, longer ones first.
        folder: where.
        title: of the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    total = max((start + duration for _, start, duration, _ in ranges), default=1.0)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = list(dict.fromkeys(name for name, _, _, is_stage in ranges if is_stage))
    drawn: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for (name, start, duration, is_stage), depth in zip(ranges, depths(ranges), strict=True):
        if depth < DEPTHS and duration >= SHOWN * total:
            colour = STAGES[names.index(name) % len(STAGES)] if is_stage else OPERATOR
            drawn.setdefault((depth, colour), []).append((start, duration))
            if duration >= NAMED * total:
                axes.text(start + duration / 2, depth + 0.45, name, ha="center", va="center", fontsize=7, clip_on=True)
    for (depth, colour), spans in drawn.items():
        axes.broken_barh(spans, (depth, 0.9), facecolors=colour, edgecolors="white", linewidth=0.3)
    axes.set(xlim=(0, total), ylim=(DEPTHS, 0), xlabel="seconds", ylabel="depth", title=title)
    axes.set_yticks([])
    by_stage = {name: sum(d for n, _, d, s in ranges if s and n == name) for name in names}
    handles = [
        axes.barh(0, 0, color=STAGES[k % len(STAGES)], label=f"{name}, {by_stage[name]:.2f} s")
        for k, name in enumerate(names)
    ]
    handles.append(axes.barh(0, 0, color=OPERATOR, label="operators"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7, frameon=False)
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"timeline.{suffix}", dpi=150)
