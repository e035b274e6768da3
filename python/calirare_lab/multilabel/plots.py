"""Pictures of the study and of the experiments."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; line styles and markers tell them apart in greyscale.
STYLE = {
    "copula": ("copula, as printed", "#D55E00", "o", "-"),
    "copula_threshold": ("copula, labels thresholded", "#0072B2", "s", "-"),
    "binned": ("label by label, 15 bins", "#5F5F5F", "^", "--"),
    "kde": ("Beta kernels", "#E69F00", "v", ":"),
    "kde_residual": ("Beta kernels on residuals", "#009E73", "D", ":"),
}
METHOD_STYLE = {
    "bce": ("cross-entropy", "#5F5F5F"),
    "bce_temperature": ("cross-entropy + temperature", "#56B4E9"),
    "focal": ("focal loss", "#E69F00"),
    "cmlcc": ("CMLCC, beta by validation", "#0072B2"),
}
MEASURES = {
    "copula": "canonical error,\ncopula as printed",
    "copula_threshold": "canonical error,\nlabels thresholded",
    "kde_residual": "canonical error,\nBeta kernels",
    "marginal_ece": "marginal ECE",
    "hamming_loss": "Hamming loss",
}

LABEL = 0.14  # of a panel's width, which the label of a tick takes


def draw_study(study: dict[str, Any], path: str | Path, *, p: float = 1) -> Path:
    """Draws mean estimate against sample size, one panel per world, with the truth.

    Args:
        study: of `run_study`, or its JSON.
        path: where to write; the suffix chooses the format.
        p: order of the norm shown.

    Returns:
        The path.
    """
    figure = _figure(13.5, 3.9)
    names = list(study["worlds"])
    for at, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), at + 1)
        cells = [cell for cell in study["cells"] if cell["world"] == name and cell["p"] == p]
        _draw_world(axes, cells)
        title = f"{name.replace('_', ', ')}: {study['worlds'][name]}"
        axes.set_title(_wrapped(title), fontsize=8.5)
        if at == 0:
            axes.set_ylabel(f"estimate of CE per label (p = {p:g})")
            handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    return _save(figure, path)


def _draw_world(axes: Axes, cells: list[dict[str, Any]]) -> None:
    axes.axhline(cells[0]["truth"], color="black", linewidth=1.2, label="truth")
    for estimator, (label, colour, marker, line) in STYLE.items():
        own = sorted((cell for cell in cells if cell["estimator"] == estimator), key=lambda cell: cell["n"])
        if not own:
            continue
        sizes, means = [cell["n"] for cell in own], [cell["mean"] for cell in own]
        axes.errorbar(
            sizes,
            means,
            [cell["deviation"] for cell in own],
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=label,
        )
    _size_axis(axes, sorted({cell["n"] for cell in cells}))
    axes.set_ylim(bottom=min(0.0, cells[0]["truth"]) - 0.004)
    axes.set_xlabel("rows n")
    axes.grid(alpha=0.25)


def _size_axis(axes: Axes, sizes: list[int]) -> None:
    """Makes a logarithmic axis with ticks at the sizes and nowhere else; where they crowd, some have no label."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    shown = _labelled(sizes)
    axes.set_xticks(shown, [_short(n) for n in shown], fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())


def _labelled(sizes: list[int]) -> list[int]:
    """Returns the ends, and between them the sizes that leave room for a label."""
    room = LABEL * math.log(sizes[-1] / sizes[0])
    shown = sizes[:1]
    for n in sizes[1:-1]:
        if math.log(n / shown[-1]) >= room and math.log(sizes[-1] / n) >= room:
            shown.append(n)
    return shown + sizes[1:][-1:]


def _short(n: int) -> str:
    """Returns 4000 as 4k."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if n >= unit:
            return f"{n / unit:.4g}{name}"
    return str(n)


def draw_experiments(summary: dict[str, Any], path: str | Path) -> Path:
    """Draws mean and standard deviation over the seeds of each measure, one panel per measure, grouped by set.

    Args:
        summary: of `summarise`, or its JSON.
        path: where to write; the suffix chooses the format.

    Returns:
        The path.
    """
    figure = _figure(14.5, 3.6)
    sets = list(summary["sets"])
    for at, (measure, title) in enumerate(MEASURES.items()):
        axes = figure.add_subplot(1, len(MEASURES), at + 1)
        for shift, (method, (label, colour)) in enumerate(METHOD_STYLE.items()):
            table = [summary["sets"][name]["methods"][method] for name in sets]
            places = [i + (shift - 1.5) * 0.2 for i in range(len(sets))]
            axes.bar(
                places,
                [row[measure][0] for row in table],
                0.19,
                yerr=[row[measure][1] for row in table],
                color=colour,
                error_kw={"elinewidth": 0.8, "capsize": 1.5},
                label=label,
            )
            floor = f"{measure}_floor"
            if method == "cmlcc" and floor in table[0]:
                for i, row in enumerate(summary["sets"][name]["methods"]["bce"] for name in sets):
                    axes.plot(
                        [i - 0.42, i + 0.42],
                        [row[floor][0]] * 2,
                        color="black",
                        linewidth=1,
                        linestyle=":",
                        label="noise floor" if i == 0 else None,
                    )
        axes.set_xticks(range(len(sets)), sets, fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.grid(axis="y", alpha=0.25)
        if at == 0:
            handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return _save(figure, path)


def _wrapped(text: str, width: int = 34) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: str | Path) -> Path:
    path = Path(path)
    figure.savefig(path, dpi=110, metadata={"Software": None} if path.suffix == ".png" else None)
    return path
