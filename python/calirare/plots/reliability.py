"""Reliability diagrams: how often predictions of each confidence are right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from calirare._util.arrays import Array, check_count
from calirare.metrics import N_BINS, BinStatistics
from calirare.metrics.binning import equal_width_statistics
from calirare.metrics.inputs import class_members, confidence_and_correct, read, read_event
from calirare.plots import canvas
from calirare.plots.canvas import DARK, GAP, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = 0.95  # of what a calibrated model would show, in the consistency band


class Panel(NamedTuple):
    """One panel; a plain tuple of the same order does as well.

    Attributes:
        title: the line above it.
        y_true: whether it happened, [n] of 0 and 1.
        p: with what probability, [n] in [0, 1].
        weights: sample weights [n] >= 0, or None.
    """

    title: str
    y_true: Array
    p: Array
    weights: Array | None = None


def confidence_panel(
    title: str, y_true: Array, p: Array, *, cls: int | None = None, weights: Array | None = None
) -> Panel:
    """Returns a panel that compares the accuracy of the predicted class with its probability.

    `y_true` is int [n], `p` [n, C] with rows that sum to one, or [n] = P(class 1); `cls` keeps only samples of this
    true class (the view of `metrics.class_ace`). ValueError for a wrong shape or range, or where no sample has that
    class.
    """
    name = "confidence_panel"
    data = read(name, y_true, p, weights)
    confidence, correct = confidence_and_correct(data)
    members = torch.ones_like(correct, dtype=torch.bool) if cls is None else class_members(name, data, cls)
    weights = None if data.weights is None else data.weights[members]
    return Panel(title, correct[members], confidence[members].detach(), weights)


def class_panels(
    y_true: Array,
    p: Array,
    *,
    class_names: Sequence[str] | None = None,
    weights: Array | None = None,
) -> list[Panel]:
    """Returns one panel per class that compares its frequency with its probability.

    Takes what `metrics.ece` does ([n] = P(class 1): one panel, for class 1). The titles are `class_names`, or "class
    0", ..; ValueError where their number is wrong, too.
    """
    data = read("class_panels", y_true, p, weights)
    if data.kind == "binary":
        columns, hits, numbers = data.probabilities[:, None], data.labels[:, None] == 1, [1]
    else:
        columns, hits, numbers = data.probabilities, data.one_hot(), list(range(data.n_classes))
    names = [f"class {k}" for k in numbers] if class_names is None else list(class_names)
    if len(names) != len(numbers):
        raise ValueError(f"class_panels: class_names must hold {len(numbers)} names, got {len(names)}")
    return [Panel(name, hits[:, i], columns[:, i].detach(), data.weights) for i, name in enumerate(names)]


def reliability_diagram(
    panels: Sequence[Panel],
    path: str | Path,
    *,
    n_bins: int = N_BINS,
    n_columns: int | None = None,
    title: str | None = None,
    x_label: str = "confidence",
    y_label: str = "accuracy",
) -> Path:
    """Draws how often predictions of each confidence are right.

    Each panel shows per bin ((m-1)/M, m/M] a bar up to acc(B_m), the gap to the mean confidence conf(B_m) as a hatched
    box, the diagonal, and the consistency band: the central 95 % of acc(B_m) for a perfectly calibrated
    model with as many samples in the bin (binomial; Broecker and Smith 2007). Below it, the number of samples per bin.
    Weights move the bars, the gaps and the ECE; the band is then that of (sum w)^2 / sum w^2 samples (Kish), and only
    samples with a weight are counted.

    Args:
        panels: made by `confidence_panel` and `class_panels`, or (title, y_true, p) each, see `Panel`; filled row by
            row, so before and after stand side by side with two columns, and the rows may be all nodes and the minority
            class.
        path: where to write; the folder must exist.
        n_bins: M.
        n_columns: None takes two for an even number of panels, else as many as panels up to three.
        title: a line above all panels.
        x_label: what is on the horizontal axis.
        y_label: what is on the vertical axis.

    Raises:
        TypeError: dtype is wrong.
        ValueError: there is no panel, or a shape or range is wrong.
    """
    check_count("reliability_diagram", "n_bins", n_bins)
    if not panels:
        raise ValueError("reliability_diagram: panels must hold at least one (title, y_true, p), got none")
    if n_columns is None:
        n_columns = 2 if len(panels) % 2 == 0 else min(len(panels), 3)
    check_count("reliability_diagram", "n_columns", n_columns)
    panels = [Panel(*panel) for panel in panels]
    statistics = [_panel_statistics(panel, n_bins) for panel in panels]
    n_rows = -(-len(panels) // n_columns)
    # Margins in inches, written down: letting matplotlib measure every label takes longer than drawing them.
    width, height = 3.6 * n_columns + 0.3, 4.1 * n_rows + (0.7 if title else 0.4)
    figure = canvas.blank(width, height)
    edges = {"left": 0.7 / width, "right": 1 - 0.15 / width, "bottom": 0.85 / height}
    top = 1 - (0.85 if title else 0.5) / height
    grid = figure.add_gridspec(n_rows, n_columns, top=top, hspace=0.36, wspace=0.28, **edges)
    first = min(int(torch.nonzero(bins.count[0])[0]) for bins, _ in statistics) / n_bins
    for i, (panel, (bins, trials)) in enumerate(zip(panels, statistics, strict=True)):
        row, column = divmod(i, n_columns)
        cell = grid[row, column].subgridspec(2, 1, height_ratios=[3, 1], hspace=0.1)
        axes = figure.add_subplot(cell[0])
        counts = figure.add_subplot(cell[1], sharex=axes)
        _draw_reliability(axes, bins, trials, y_label, f"gap to {x_label}")
        _draw_counts(counts, bins)
        weighted = "" if panel.weights is None else " weighted"
        size = f"n = {int(bins.count.sum()):,}{weighted}"
        axes.set_title(f"{panel.title}\n{size}, ECE = {float(bins.error()[0]):.3f}", fontsize=10)
        axes.set_xlim(first, 1)
        axes.tick_params(labelbottom=False)
        counts.set_xlabel(x_label)
        if column == 0:
            axes.set_ylabel(y_label)
            counts.set_ylabel("samples")
    canvas.shared_legend(figure, 4 if n_columns > 1 else 2)
    if title:
        figure.suptitle(title, y=1 - 0.12 / height, va="top")
    return canvas.save(figure, path)


def _panel_statistics(panel: Panel, n_bins: int) -> tuple[BinStatistics, np.ndarray]:
    """Returns the sums per bin, and how many samples of equal weight each bin is worth, [M]."""
    data = read_event(f"reliability_diagram: panel {panel.title!r}", panel.y_true, panel.p, panel.weights).on_cpu()
    scores, outcomes, weights = data.probabilities, data.labels, data.weights
    if weights is None:
        bins = equal_width_statistics(scores, outcomes, n_bins)
        return bins, bins.count[0].numpy()
    counted = weights > 0
    scores, outcomes, weights = scores[counted], outcomes[counted], weights[counted] / weights.max()
    bins = equal_width_statistics(scores, outcomes, n_bins, weights)
    squares = equal_width_statistics(scores, outcomes, n_bins, weights.square()).weight[0]
    effective = bins.weight[0].square() / torch.where(squares > 0, squares, 1.0)
    return bins, effective.round().clamp(min=1).numpy()


def _band(bins: BinStatistics, trials: np.ndarray) -> list[np.ndarray]:
    """Returns both ends of the consistency band in each filled bin."""
    from scipy.stats import binom

    filled = bins.count[0].numpy() > 0
    trials, confidence = trials[filled], bins.confidence[0].numpy()[filled]
    return [binom.ppf(q, trials, confidence) / trials for q in ((1 - BAND) / 2, (1 + BAND) / 2)]


def _draw_reliability(axes: Axes, bins: BinStatistics, trials: np.ndarray, bar_label: str, gap_label: str) -> None:
    count, accuracy, confidence = (v[0].numpy() for v in (bins.count, bins.accuracy, bins.confidence))
    n_bins = len(count)
    filled = count > 0
    width = 1 / n_bins
    left = np.arange(n_bins)[filled] * width
    accuracy, confidence, band = accuracy[filled], confidence[filled], _band(bins, trials)
    bar: dict[str, Any] = {"align": "edge", "width": width}
    axes.bar(left, accuracy, color=DARK, edgecolor="white", linewidth=0.6, label=bar_label, **bar)
    axes.bar(
        left,
        np.abs(confidence - accuracy),
        bottom=np.minimum(confidence, accuracy),
        facecolor=(0.835, 0.369, 0.0, 0.25),
        edgecolor=GAP,
        hatch="////",
        linewidth=0.8,
        label=gap_label,
        **bar,
    )
    middle = left + width / 2
    for colour, line, label in (("white", 3.0, "_nolegend_"), ("black", 1.4, f"{BAND:.0%} consistency band")):
        axes.vlines(middle, band[0], band[1], color=colour, linewidth=line, label=label)
        for ends in band:
            axes.hlines(ends, middle - width / 5, middle + width / 5, color=colour, linewidth=line)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfect calibration")
    axes.set_ylim(0, 1)


def _draw_counts(axes: Axes, bins: BinStatistics) -> None:
    count = bins.count[0].numpy()
    n_bins = len(count)
    axes.bar(np.arange(n_bins) / n_bins, count, width=1 / n_bins, align="edge", color=GREY, edgecolor="white")
    largest = count.max()
    axes.set_ylim(0, largest * 1.35)
    for m, number in enumerate(count):
        if number:
            axes.text((m + 0.5) / n_bins, number + 0.04 * largest, _short(number), ha="center", fontsize=5.5)
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))


def _short(number: float) -> str:
    """At most four digits and a letter, so that counts of any size fit a bin: 830, 9999, 16.3k, 1.2M."""
    if number < 9999.5:
        return f"{number:.4g}"
    return f"{number / 1e3:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"
