"""Detection in pictures: precision over recall, and how many rare nodes a budget of alerts holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.amounts import amount
from calirare.calibration import BudgetCurve
from calirare.metrics import auprc
from calirare.metrics.inputs import Predictions, read_event
from calirare.plots import canvas
from calirare.plots.canvas import DARK, GAP, GREY, LIGHT
from calirare.plots.reliability import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Colour, line and marker of each curve, distinct in greyscale too; more curves than this cannot be read.
STYLES = ((DARK, "-", "D"), (LIGHT, "--", "o"), (GAP, "-.", "s"))


def precision_recall_diagram(
    panels: Sequence[Panel],
    path: str | Path,
    *,
    threshold: float | None = 0.5,
    title: str | None = None,
) -> Path:
    """Draws precision over recall, with what a threshold makes of it.

    Each curve has a marker where p >= `threshold` is an alert; the dotted line is the prevalence, the precision of a
    random order. `metrics.detection_report` gives intervals.

    Args:
        panels: one to three curves in one picture: name, y_true of 0 and 1, p, weights, see `Panel`.
        path: where to write; the folder must exist.
        threshold: the operating point, in [0, 1]; None draws none.
        title: the line above the picture.

    Raises:
        TypeError: dtype is wrong.
        ValueError: the number of curves, a shape or a range is wrong, or no sample has the class.
    """
    name = "precision_recall_diagram"
    if not 1 <= len(panels) <= len(STYLES):
        raise ValueError(f"{name}: panels must hold one to {len(STYLES)} (name, y_true, p), got {len(panels)}")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"{name}: threshold must lie in [0, 1] or be None, got {threshold}")
    panels = [Panel(*panel) for panel in panels]
    n_lines = len(panels) * (1 if threshold is None else 2) + 1
    figure, axes = canvas.with_legend_below(title or "Precision over recall", n_lines, 0.62)
    for panel, style in zip(panels, STYLES, strict=False):
        data = read_event(f"{name}: panel {panel.title!r}", panel.y_true, panel.p, panel.weights).on_cpu()
        _draw_curve(axes, data, panel.title, style)
        if threshold is not None:
            _draw_operating_point(axes, data, threshold, style)
    prevalence = float(data.mean(data.labels.double()))
    random = f"prevalence {prevalence:.3g}: a random ranking"
    axes.axhline(prevalence, color=GREY, linestyle=":", linewidth=1.2, label=random)
    axes.set_xlim(0, 1.01)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("recall: proportion of the class that is found")
    axes.set_ylabel("precision: proportion of alerts that are right")
    canvas.legend_below(figure)
    return canvas.save(figure, path)


def _draw_curve(axes: Axes, data: Predictions, name: str, style: tuple[str, str, str]) -> None:
    """Draws a curve; between the points that raise the recall average precision is the area below."""
    from sklearn.metrics import precision_recall_curve

    y, p, w = data.labels, data.probabilities, data.weights
    label = f"{name}: AUPRC {float(auprc(y, p, weights=w)):.3f}"
    precision, recall, _ = precision_recall_curve(y, p, sample_weight=w)
    recall, precision = recall[-2::-1], precision[-2::-1]  # from the highest score down, which scikit-learn ends with
    rises = np.diff(recall, prepend=0.0) > 0
    recall, precision = np.append(0.0, recall[rises]), np.append(precision[rises][0], precision[rises])
    axes.plot(recall, precision, drawstyle="steps-pre", color=style[0], linestyle=style[1], linewidth=1.4, label=label)


def _draw_operating_point(axes: Axes, data: Predictions, threshold: float, style: tuple[str, str, str]) -> None:
    """Draws where p >= threshold is an alert; without an alert there is no point, which is noted in the legend."""
    colour, _, marker = style
    weights = np.ones(len(data.labels)) if data.weights is None else data.weights.numpy()
    alert, rare = data.probabilities.numpy() >= threshold, data.labels.numpy() == 1
    look = canvas.point(colour, marker, 7)
    if not weights[alert].sum() > 0:
        axes.plot([], [], label=f"P from {threshold:.4g} on: no alert", **look)
        return
    hits = weights[alert & rare].sum()
    recall, precision = hits / weights[rare].sum(), hits / weights[alert].sum()
    alerts = amount(int(alert.sum()), "alert")
    label = f"P from {threshold:.4g} on: {alerts}, precision {precision:.2f}, recall {recall:.2f}"
    axes.plot([recall], [precision], label=label, zorder=5, clip_on=False, **look)


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
        label = f"the run's decision: {amount(chosen, 'alert')}, {hits:,.3g} correct expected"
        axes.plot([chosen], [hits], color=DARK, marker="D", linestyle="none", markersize=7, label=label, zorder=5)
    axes.plot(curve.alerts, np.minimum(curve.alerts, total), color=LIGHT, linestyle="--", label="every alert correct")
    axes.plot(curve.alerts, curve.alerts * total / n, color=GREY, linestyle=":", label="alerts drawn at random")
    canvas.number_axes(axes, ",.6g")
    axes.set_xlim(1, n)
    axes.set_ylim(min(1.0, total), 1.5 * max(float(curve.high[-1]), 1.0))
    axes.set_xlabel(f"alerts, the likeliest first (of {n:,})")
    axes.set_ylabel("rare ones among them")
    canvas.legend_below(figure)
    return canvas.save(figure, path)
