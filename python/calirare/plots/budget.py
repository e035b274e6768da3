"""Alerts against hits: what a budget buys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.amounts import amount
from calirare.calibration import BudgetCurve
from calirare.plots import canvas
from calirare.plots.canvas import DARK, GAP, GREY, LIGHT
from calirare.plots.marks import Marks, evenly, marks_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 1e-3  # stands for none where axes are logarithmic


def budget_diagram(
    curve: BudgetCurve,
    path: str | Path,
    *,
    rare: np.ndarray | None = None,
    chosen: int | None = None,
    hits: float | None = None,
    title: str | None = None,
) -> Path:
    """Draws how many rare nodes the likeliest alerts hold, with the interval that is promised.

    Args:
        curve: of `calirare.calibration.budget_curve`.
        path: where to write; the folder must exist.
        rare: which nodes are rare in truth, bool [n], where that is known; None draws no such line.
        chosen: number of alerts of the run's own decision; None or 0 draws no marker.
        hits: that are expected of these; None: between the numbers of the curve.
        title: the line above the picture.

    Returns:
        The path.

    Raises:
        InputError: `rare` is not about the curve's nodes.
    """
    n_lines = 3 + (rare is not None) + bool(chosen)
    figure, axes = canvas.with_legend_below(title or "What a budget of alerts buys", n_lines, 0.75)
    n, total = int(curve.alerts[-1]), float(curve.expected[-1])
    band = f"expected, with {curve.coverage:.0%} intervals"
    low = np.maximum(curve.low, LEAST)
    axes.fill_between(curve.alerts, low, np.maximum(curve.high, LEAST), color=DARK, alpha=0.2, linewidth=0)
    axes.plot(curve.alerts, curve.expected, color=DARK, linewidth=1.4, label=band)
    if rare is not None:
        found = curve.observed(rare)
        axes.plot(curve.alerts, np.maximum(found, LEAST), color=GAP, linestyle="-.", linewidth=1.4, label="observed")
    if chosen:
        hits = float(np.interp(chosen, curve.alerts, curve.expected)) if hits is None else hits
        said = f"the run's decision: {amount(chosen, 'alert')}, {hits:,.3g} hits expected"
        axes.plot([chosen], [hits], color=DARK, marker="D", linestyle="none", markersize=7, label=said, zorder=5)
    axes.plot(curve.alerts, np.minimum(curve.alerts, total), color=LIGHT, linestyle="--", label="every alert a hit")
    axes.plot(curve.alerts, curve.alerts * total / n, color=GREY, linestyle=":", label="alerts drawn at random")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1, n)
    axes.set_ylim(min(1.0, total), 1.5 * max(float(curve.high[-1]), 1.0))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda x, _: f"{x:,.6g}")
    axes.set_xlabel(f"alerts, the likeliest first (of {amount(n, 'node')})")
    axes.set_ylabel("rare nodes among them")
    canvas.legend_below(figure)
    return canvas.save(figure, path, [_marks(axes, curve, rare)])


def _marks(axes: Axes, curve: BudgetCurve, rare: np.ndarray | None) -> Marks:
    """Returns what budgets tell whoever points at them, evenly spaced on the logarithmic axis."""
    chosen = evenly(np.log(curve.alerts))
    found = None if rare is None else curve.observed(rare)
    words = []
    for i in chosen:
        of = amount(int(curve.alerts[-1]), "node")
        words.append(
            f"{amount(int(curve.alerts[i]), 'alert')} of {of}\nexpected: {curve.expected[i]:,.3g} rare\n"
            f"{curve.coverage:.0%} interval: {curve.low[i]:,.4g} to {curve.high[i]:,.4g}"
            + ("" if found is None else f"\nobserved: {found[i]:,.6g}")
        )
    title = "Rare nodes among the likeliest alerts"
    return marks_of(axes, title, curve.alerts[chosen], np.maximum(curve.expected[chosen], LEAST), words)
