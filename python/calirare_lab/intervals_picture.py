"""Jackknife intervals of nodes, sorted by probability."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calirare._util.amounts import amount
from calirare._util.arrays import Array, check_count, to_tensor
from calirare.metrics.inputs import read_event
from calirare.plots import canvas
from calirare.plots.canvas import DARK, GREY, LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def interval_diagram(
    y_true: Array,
    p: Array,
    lower: Array,
    upper: Array,
    path: str | Path,
    *,
    max_nodes: int = 300,
    class_names: tuple[str, str] = ("other classes", "minority class"),
    title: str | None = None,
) -> Path:
    """Draws nodes sorted by probability with their jackknife intervals.

    Args:
        y_true: true classes, int [n] of 0 and 1.
        p: P(class 1), [n], in [0, 1].
        lower: lower ends, [n].
        upper: upper ends, [n], >= lower.
        path: where to write; the folder must exist.
        max_nodes: at most so many nodes are drawn, evenly spaced in the order of probability; the picture says how many
            were left out.
        class_names: names of the rest and of the minority class.
        title: the line above the picture.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    name = "interval_diagram"
    check_count(name, "max_nodes", max_nodes)
    data = read_event(name, y_true, p).on_cpu()
    scores, rare = data.probabilities.double().numpy(), data.labels.numpy() == 1
    low, high = (to_tensor(name, "ends", ends).detach().cpu().double().numpy() for ends in (lower, upper))
    for which, values in (("lower", low), ("upper", high)):
        if values.shape != scores.shape:
            raise ValueError(f"{name}: {which} must have shape {scores.shape}, got {values.shape}")
    if not (low <= high).all() or not np.isfinite(low + high).all():
        raise ValueError(f"{name}: lower and upper must be finite with lower <= upper, got other values")
    order = np.argsort(scores, kind="stable")
    if len(order) > max_nodes:
        order = order[np.round(np.linspace(0, len(order) - 1, max_nodes)).astype(int)]
    figure = canvas.blank(8.0, 4.2)
    axes = figure.add_subplot(figure.add_gridspec(1, 1, left=0.095, right=0.985, bottom=0.13, top=0.92)[0])
    _draw_intervals(axes, low[order], high[order], scores[order], rare[order], class_names)
    shown, total = len(order), len(scores)
    note = f"all {amount(total, 'node')}"
    if shown < total:
        note = f"{shown:,} of {total:,} nodes, evenly spaced by probability; {total - shown:,} left out"
    axes.set_xlabel(f"node, sorted by probability ({note})")
    axes.set_ylabel(f"P({class_names[1]})")
    axes.set_title(title or "Jackknife intervals")
    axes.legend(loc="upper left", fontsize=8)
    return canvas.save(figure, path)


def _draw_intervals(
    axes: Axes, lower: np.ndarray, upper: np.ndarray, p: np.ndarray, rare: np.ndarray, class_names: tuple[str, str]
) -> None:
    position = np.arange(len(p))
    styles: tuple[tuple[np.ndarray, str, dict[str, Any], str], ...] = (
        (~rare, LIGHT, {"marker": "o", "facecolor": "white"}, class_names[0]),
        (rare, DARK, {"marker": "D", "facecolor": DARK}, class_names[1]),
    )
    for layer, (members, colour, marker, name) in enumerate(styles):
        where, inside = position[members], p[members]
        axes.vlines(where, lower[members], upper[members], color=colour, linewidth=1.3, zorder=2 + layer)
        label = f"{name} ({int(members.sum()):,} shown)"
        axes.scatter(where, inside, s=11, edgecolor=colour, linewidth=0.8, label=label, zorder=4 + layer, **marker)
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=0.8, zorder=1)
    axes.margins(x=0.01)
