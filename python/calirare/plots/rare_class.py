"""Reliability of one class's probability: how often the class occurs where it is given so much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from calirare._util.arrays import check_count
from calirare.metrics import N_BINS, InTheLarge, NoiseFloor, calibration_in_the_large, equal_mass_noise_floor
from calirare.metrics.binning import binomial_interval, equal_mass_bins, equal_mass_statistics
from calirare.metrics.inputs import read_event
from calirare.plots import canvas
from calirare.plots.canvas import DARK, GAP, GREY
from calirare.plots.reliability import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.95  # of the intervals
LEGEND = 5  # entries
RARE = 0.1  # below this share the axes are logarithmic
LEAST = -4.0  # power of ten at which logarithmic axes begin at the lowest


class _Bins(NamedTuple):
    """What one panel shows: the filled bins, how many equal samples each is worth, and the whole."""

    title: str
    mean_p: np.ndarray
    share: np.ndarray
    worth: np.ndarray
    n: int
    error: float
    floor: NoiseFloor
    large: InTheLarge


def rare_reliability_diagram(
    panels: Sequence[Panel],
    path: str | Path,
    *,
    n_bins: int = N_BINS,
    n_draws: int = 200,
    event: str = "the rare class",
    title: str | None = None,
) -> Path:
    """Draws how often a class occurs where it is given a probability, in bins of equal numbers of samples.

    Each bin is a point at its mean probability and observed share with the share's binomial interval (Clopper and
    Pearson), beside the diagonal; the diamond is the mean of all. A bin without the class is a hollow triangle at the
    lower edge. Where the class is below a tenth in a panel both axes are logarithmic: a rare class's probabilities
    crowd near 0. Titles give `metrics.equal_mass_ece`, the same expected if calibrated, and
    `metrics.calibration_in_the_large`.

    Args:
        panels: title, y_true of 0 and 1, p, weights each, see `Panel`; side by side, up to three in a row.
        path: where to write; the folder must exist.
        n_bins: bins of equal numbers; equal probabilities stay together.
        n_draws: draws for the values expected if calibrated.
        event: what the class is called on the axes.
        title: a line above all panels.

    Raises:
        TypeError: dtype is wrong.
        ValueError: there is no panel, a shape or range is wrong, or a panel has no sample of the class.
    """
    name = "rare_reliability_diagram"
    check_count(name, "n_bins", n_bins)
    if not panels:
        raise ValueError(f"{name}: panels must hold at least one (title, y_true, p), got none")
    binned = [_binned(name, Panel(*panel), n_bins, n_draws) for panel in panels]
    n_columns = min(len(binned), 3)
    n_rows = -(-len(binned) // n_columns)
    legend_columns = 2 if n_columns > 1 else 1
    width = 3.6 * n_columns + 0.55
    heading, extra = canvas.wrapped(title, width - 0.3, 11) if title else ("", 0.0)
    below, above = 0.6 + 0.19 * -(-LEGEND // legend_columns), 0.7 + extra
    height = 3.75 * n_rows - 0.75 + below + above
    figure = canvas.blank(width, height)
    edges = {"left": 0.9 / width, "right": 1 - 0.15 / width, "bottom": below / height}
    grid = figure.add_gridspec(n_rows, n_columns, top=1 - above / height, hspace=0.45, wspace=0.38, **edges)
    low = _lowest(binned)
    for i, bins in enumerate(binned):
        axes = figure.add_subplot(grid[divmod(i, n_columns)])
        _draw_bins(axes, bins, low)
        axes.set_xlabel(f"P({event})")
        if i % n_columns == 0:
            axes.set_ylabel(f"observed share of {event}")
    canvas.shared_legend(figure, legend_columns)
    if title:
        figure.suptitle(heading, y=1 - 0.1 / height, va="top", fontsize=11)
    return canvas.save(figure, path)


def _binned(function: str, panel: Panel, n_bins: int, n_draws: int) -> _Bins:
    data = read_event(f"{function}: panel {panel.title!r}", panel.y_true, panel.p, panel.weights).on_cpu()
    y, p, w = data.labels, data.probabilities, data.weights
    bins = equal_mass_statistics(p, y, n_bins, w)
    filled, worth = bins.weight[0] > 0, bins.count[0]
    if w is not None:
        squares = torch.bincount(equal_mass_bins(p, n_bins, w), weights=w.square(), minlength=n_bins)
        worth = bins.weight[0].square() / torch.where(filled, squares, 1.0)
    return _Bins(
        panel.title,
        bins.confidence[0][filled].numpy(),
        bins.accuracy[0][filled].numpy(),
        worth[filled].numpy(),
        len(y),
        float(bins.error()[0]),
        equal_mass_noise_floor(p, n_bins, n_draws=n_draws, weights=w),
        calibration_in_the_large(y, p, level=LEVEL, weights=w),
    )


def _lowest(panels: Sequence[_Bins]) -> float:
    """Returns where logarithmic axes begin, a power of ten below all that is shown; 0 for linear ones."""
    if min(bins.large.share for bins in panels) >= RARE:
        return 0.0
    shown = np.concatenate([np.concatenate((bins.mean_p, bins.share, 0.5 / bins.worth)) for bins in panels])
    smallest = float(shown[shown > 0].min())
    return float(10.0 ** max(np.floor(np.log10(smallest)), LEAST))


def _draw_bins(axes: Axes, bins: _Bins, low: float) -> None:
    floor = low if low > 0 else -0.02
    ends = binomial_interval(bins.share * bins.worth, bins.worth, LEVEL)
    if low > 0:
        canvas.number_axes(axes, "g")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(lambda value, _: "")
    axes.set_xlim(floor, 1.0 if low > 0 else 1.02)
    axes.set_ylim(floor, 1.0 if low > 0 else 1.02)
    x = np.maximum(bins.mean_p, low)
    some = bins.share > 0
    axes.plot([low, 1], [low, 1], color=GREY, linestyle="--", linewidth=1, label="calibrated")
    points: dict[str, Any] = {"linestyle": "none", "markersize": 5, "clip_on": False, "zorder": 4}
    axes.tick_params(labelsize=8)
    label = "bin of equal numbers: mean P, observed share"
    axes.plot(x[some], bins.share[some], marker="o", color=DARK, label=label, **points)
    bar_label = f"its {LEVEL:.0%} binomial interval"
    axes.vlines(x, np.maximum(ends[0], low), ends[1], color=DARK, linewidth=1.3, alpha=0.55, label=bar_label)
    hollow: dict[str, Any] = {"marker": "v", "markeredgecolor": DARK, "markerfacecolor": "white"}
    axes.plot(x[~some], np.full((~some).sum(), low), label="bin without the class", **hollow, **points)
    large = bins.large
    axes.plot([large.mean_p], [large.share], label="all samples", **canvas.point(GAP, "D", 8, zorder=5))
    ratio = f"predicted / observed = {large.ratio:.3g} ({large.lower:.3g} to {large.upper:.3g})"
    errors = f"ECE = {bins.error:.3f} (expected if calibrated: {bins.floor.mean:.3f})"
    axes.set_title(f"{bins.title}, n = {bins.n:,}\n{errors}\n{ratio}", fontsize=9)
