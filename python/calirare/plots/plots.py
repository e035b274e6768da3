"""Pictures: reliability diagrams and jackknife intervals.

Drawn with matplotlib's object-oriented interface: no global state, no display, and the same input gives the same bytes
(with the same matplotlib). The colours are Okabe and Ito's, told apart by colour-blind readers and, by lightness and by
marker, in greyscale. The suffix of the path chooses the format: png, pdf or svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calirare.metrics import BinStatistics
from calirare.metrics._inputs import Array, as_integers, as_scores, as_weights, check_count, read, to_tensor
from calirare.metrics._predictions import class_members, confidence_and_correct, refuse_multilabel
from calirare.metrics.binning import equal_width_statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK = "#0072B2"
LIGHT = "#E69F00"
GAP = "#D55E00"
GREY = "#5F5F5F"

# (title, scores, outcomes), and sample weights where samples do not count alike.
Panel = tuple[str, Array, Array] | tuple[str, Array, Array, Array]


def confidence_panel(
    title: str, probabilities: Array, labels: Array, *, cls: int | None = None, weights: Array | None = None
) -> Panel:
    """A panel that asks whether the predicted class is right as often as its probability says.

    Args:
        title: the panel's title.
        probabilities: [n, C] with rows that sum to one, or [n] = P(class 1).
        labels: int [n].
        cls: keep only samples of this true class (the view of `metrics.class_ace`); None keeps all.
        weights: sample weights [n] >= 0, or None.

    Returns:
        (title, confidence, correct), and the weights if there are any.

    Raises:
        ValueError: shape or range is wrong, or no sample has class `cls`.
    """
    name = "confidence_panel"
    data = refuse_multilabel(name, read(name, probabilities, labels, weights))
    confidence, correct = confidence_and_correct(data)
    members = torch.ones_like(correct, dtype=torch.bool) if cls is None else class_members(name, data, cls)
    panel = title, confidence[members].detach(), correct[members]
    return panel if data.weights is None else (*panel, data.weights[members])


def class_panels(
    probabilities: Array,
    labels: Array,
    *,
    class_names: Sequence[str] | None = None,
    weights: Array | None = None,
) -> list[Panel]:
    """One panel per class, or label: does the class occur as often as its probability says?

    Args:
        probabilities: [n, C] with rows that sum to one, [n] = P(class 1) (one panel, for class 1), or [n, K].
        labels: int [n], or [n, K] of 0 and 1 for multi-label.
        class_names: titles; None gives "class 0", ...
        weights: sample weights [n] >= 0, or None.

    Returns:
        (title, probability of the class, whether it is the true one), and the weights if there are any, per class.

    Raises:
        ValueError: shape or range is wrong, or the number of names is.
    """
    data = read("class_panels", probabilities, labels, weights)
    if data.kind == "binary":
        columns, hits, numbers = data.probabilities[:, None], data.labels[:, None] == 1, [1]
    else:
        columns, hits, numbers = data.probabilities, data.one_hot(), list(range(data.n_classes))
    names = [f"class {k}" for k in numbers] if class_names is None else list(class_names)
    if len(names) != len(numbers):
        raise ValueError(f"class_panels: class_names must hold {len(numbers)} names, got {len(names)}")
    panels = [(name, columns[:, i].detach(), hits[:, i]) for i, name in enumerate(names)]
    return list(panels) if data.weights is None else [(*panel, data.weights) for panel in panels]


def reliability_diagram(
    panels: Sequence[Panel],
    path: str | Path,
    *,
    n_bins: int = 15,
    n_columns: int | None = None,
    band_level: float = 0.95,
    title: str | None = None,
    x_label: str = "confidence",
    y_label: str = "accuracy",
) -> Path:
    """Draws how often predictions of each confidence are right.

    Each panel shows per bin ((m-1)/M, m/M] a bar up to acc(B_m), the gap to the mean confidence conf(B_m) as a hatched
    box, the diagonal, and the consistency band: the central `band_level` range of acc(B_m) for a perfectly calibrated
    model with as many samples in the bin (binomial; Broecker and Smith 2007). Below it, the number of samples per bin.
    Weights move the bars, the gaps and the ECE; the band is then that of (sum w)^2 / sum w^2 samples (Kish), and only
    samples with a weight are counted.

    Args:
        panels: (title, confidence [n] in [0, 1], correct [n] of 0/1) each, and weights [n] if samples do not count
            alike; filled row by row, so before and after stand side by side with two columns, and the rows may be all
            nodes and the minority class. `confidence_panel` and `class_panels` make them.
        path: where to write; the folder must exist.
        n_bins: M.
        n_columns: None takes two for an even number of panels, else as many as panels up to three.
        band_level: in (0, 1).
        title: a line above all panels.
        x_label: what is on the horizontal axis.
        y_label: what is on the vertical axis.

    Returns:
        The path.

    Raises:
        TypeError: dtype is wrong.
        ValueError: there is no panel, or a shape or range is wrong.
    """
    check_count("reliability_diagram", "n_bins", n_bins)
    if not panels:
        raise ValueError("reliability_diagram: panels must hold at least one (title, confidence, correct), got none")
    if not 0 < band_level < 1:
        raise ValueError(f"reliability_diagram: band_level must lie in (0, 1), got {band_level}")
    if n_columns is None:
        n_columns = 2 if len(panels) % 2 == 0 else min(len(panels), 3)
    check_count("reliability_diagram", "n_columns", n_columns)
    statistics = [_panel_statistics(panel, n_bins) for panel in panels]
    n_rows = -(-len(panels) // n_columns)
    # Margins in inches, written down: letting matplotlib measure every label takes longer than drawing them.
    width, height = 3.6 * n_columns + 0.3, 4.1 * n_rows + (0.7 if title else 0.4)
    figure = _figure(width, height)
    edges = {"left": 0.7 / width, "right": 1 - 0.15 / width, "bottom": 0.85 / height}
    top = 1 - (0.85 if title else 0.5) / height
    grid = figure.add_gridspec(n_rows, n_columns, top=top, hspace=0.36, wspace=0.28, **edges)
    first = min(_first_filled(bins) for bins, _ in statistics) / n_bins
    for i, (panel, (bins, trials)) in enumerate(zip(panels, statistics, strict=True)):
        row, column = divmod(i, n_columns)
        cell = grid[row, column].subgridspec(2, 1, height_ratios=[3, 1], hspace=0.1)
        axes = figure.add_subplot(cell[0])
        counts = figure.add_subplot(cell[1], sharex=axes)
        _draw_reliability(axes, bins, trials, band_level, y_label, f"gap to {x_label}")
        _draw_counts(counts, bins)
        weighted = "" if len(panel) == 3 else " weighted"
        size = f"n = {int(bins.count.sum()):,}{weighted}"
        axes.set_title(f"{panel[0]}\n{size}, ECE = {float(bins.error()[0]):.3f}", fontsize=10)
        axes.set_xlim(first, 1)
        axes.tick_params(labelbottom=False)
        counts.set_xlabel(x_label)
        if column == 0:
            axes.set_ylabel(y_label)
            counts.set_ylabel("samples")
        if i == 0:
            handles, labels = axes.get_legend_handles_labels()
    columns = 4 if n_columns > 1 else 2
    figure.legend(handles, labels, loc="lower center", ncols=columns, fontsize=8, frameon=False, borderaxespad=0.1)
    if title:
        figure.suptitle(title, y=1 - 0.12 / height, va="top")
    return _save(figure, path)


def interval_diagram(
    lower: Array,
    upper: Array,
    probability: Array,
    labels: Array,
    path: str | Path,
    *,
    minority: int = 1,
    max_nodes: int = 300,
    class_names: tuple[str, str] = ("other classes", "minority class"),
    title: str | None = None,
) -> Path:
    """Draws nodes sorted by probability with their jackknife intervals.

    Args:
        lower: lower ends, [n].
        upper: upper ends, [n], >= lower.
        probability: P(minority class), [n], in [0, 1].
        labels: true classes, int [n].
        path: where to write; the folder must exist.
        minority: the class drawn dark.
        max_nodes: at most so many nodes are drawn, evenly spaced in the order of probability; the picture says how many
            were left out.
        class_names: names of the rest and of the minority class.
        title: the line above the picture.

    Returns:
        The path.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong.
    """
    name = "interval_diagram"
    check_count(name, "max_nodes", max_nodes)
    p = as_scores(name, "probability", probability).detach().cpu().double().numpy()
    y = as_integers(name, "labels", labels, torch.device("cpu"), None).numpy()
    low, high = (
        to_tensor(name, which, values).detach().cpu().double().numpy()
        for which, values in (("lower", lower), ("upper", upper))
    )
    for which, values in (("lower", low), ("upper", high), ("labels", y)):
        if values.shape != p.shape:
            raise ValueError(f"{name}: {which} must have shape {p.shape}, got {values.shape}")
    if not (low <= high).all() or not np.isfinite(low).all() or not np.isfinite(high).all():
        raise ValueError(f"{name}: lower and upper must be finite with lower <= upper, got other values")
    order = np.argsort(p, kind="stable")
    if len(order) > max_nodes:
        order = order[np.round(np.linspace(0, len(order) - 1, max_nodes)).astype(int)]
    figure = _figure(8.0, 4.2)
    axes = figure.add_subplot(figure.add_gridspec(1, 1, left=0.08, right=0.985, bottom=0.13, top=0.92)[0])
    _draw_intervals(axes, low[order], high[order], p[order], y[order] == minority, class_names)
    shown, total = len(order), len(p)
    note = f"all {total:,} nodes" if shown == total else f"{shown:,} of {total:,} nodes, evenly spaced by probability"
    left_out = "" if shown == total else f"; {total - shown:,} left out"
    axes.set_xlabel(f"node, sorted by probability ({note}{left_out})")
    axes.set_ylabel(f"P({class_names[1]})")
    axes.set_title(title or "Jackknife intervals")
    axes.legend(loc="upper left", fontsize=8)
    return _save(figure, path)


def binomial_quantile(q: float, trials: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Smallest k with P(Binomial(trials, probability) <= k) >= q, without the second it takes to import scipy.stats.

    Args:
        q: in (0, 1).
        trials: whole numbers >= 1, [n].
        probability: in [0, 1], [n].

    Returns:
        float64 [n].
    """
    from scipy.special import bdtr, bdtrik

    inside = np.clip(probability, 1e-300, 1 - 2**-53)
    trials = trials.astype(np.int64)
    k = np.ceil(bdtrik(q, trials, inside))
    below = np.maximum(k - 1, 0)
    k = np.where(bdtr(below, trials, inside) >= q, below, k)
    return np.where(probability <= 0, 0.0, np.where(probability >= 1, trials, k))


def _panel_statistics(panel: Panel, n_bins: int) -> tuple[BinStatistics, np.ndarray]:
    """Returns the sums per bin, and how many samples of equal weight each bin is worth, [M]."""
    name, confidence, correct, *weighted = panel
    scores = as_scores("reliability_diagram", f"confidence of panel {name!r}", confidence).detach().cpu()
    what = f"correct of panel {name!r}"
    outcomes = as_integers("reliability_diagram", what, correct, scores.device, 2)
    if outcomes.shape != scores.shape:
        shapes = f"{tuple(scores.shape)}, got {tuple(outcomes.shape)}"
        raise ValueError(f"reliability_diagram: {what} must have shape {shapes}")
    if not weighted:
        bins = equal_width_statistics(scores, outcomes, n_bins)
        return bins, bins.count[0].numpy()
    weights = as_weights("reliability_diagram", weighted[0], len(scores), scores.device)
    assert weights is not None
    counted = weights > 0
    scores, outcomes, weights = scores[counted], outcomes[counted], weights[counted] / weights.max()
    bins = equal_width_statistics(scores, outcomes, n_bins, weights)
    squares = equal_width_statistics(scores, outcomes, n_bins, weights.square()).weight[0]
    effective = bins.weight[0].square() / torch.where(squares > 0, squares, 1.0)
    return bins, effective.round().clamp(min=1).numpy()


def _first_filled(bins: BinStatistics) -> int:
    return int(torch.nonzero(bins.count[0])[0])


def _draw_reliability(
    axes: Axes, bins: BinStatistics, trials: np.ndarray, band_level: float, bar_label: str, gap_label: str
) -> None:
    count, accuracy, confidence = (v[0].numpy() for v in (bins.count, bins.accuracy, bins.confidence))
    n_bins = len(count)
    filled = count > 0
    width = 1 / n_bins
    left = np.arange(n_bins)[filled] * width
    trials, accuracy, confidence = trials[filled], accuracy[filled], confidence[filled]
    band = [binomial_quantile(q, trials, confidence) / trials for q in ((1 - band_level) / 2, (1 + band_level) / 2)]
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
    for colour, line, label in (("white", 3.0, "_nolegend_"), ("black", 1.4, f"{band_level:.0%} consistency band")):
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


def _draw_intervals(
    axes: Axes,
    lower: np.ndarray,
    upper: np.ndarray,
    probability: np.ndarray,
    rare: np.ndarray,
    class_names: tuple[str, str],
) -> None:
    position = np.arange(len(probability))
    styles: tuple[tuple[np.ndarray, str, dict[str, Any], str], ...] = (
        (~rare, LIGHT, {"marker": "o", "facecolor": "white"}, class_names[0]),
        (rare, DARK, {"marker": "D", "facecolor": DARK}, class_names[1]),
    )
    for layer, (members, colour, marker, name) in enumerate(styles):
        where, inside = position[members], probability[members]
        axes.vlines(where, lower[members], upper[members], color=colour, linewidth=1.3, zorder=2 + layer)
        label = f"{name} ({int(members.sum()):,} shown)"
        axes.scatter(where, inside, s=11, edgecolor=colour, linewidth=0.8, label=label, zorder=4 + layer, **marker)
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=0.8, zorder=1)
    axes.margins(x=0.01)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150)


def _save(figure: Figure, path: str | Path) -> Path:
    """Writes without date or program version, which would make two equal pictures differ; a $ in a name is a $."""
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
    with matplotlib.rc_context({"svg.hashsalt": "calirare"}):
        figure.savefig(path, metadata=formats[path.suffix])
    return path
