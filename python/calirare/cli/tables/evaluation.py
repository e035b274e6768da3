"""Every measure of a table of predictions, with notes on what to read with care."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calirare._util.errors import InputError, NotConvergedError
from calirare._util.memory import draws_for, resamples_for
from calirare._util.output import fresh_files
from calirare.cli.tables.columns import Table, TableColumns, load_table
from calirare.metrics import (
    BUDGETS,
    calibration_line,
    calibration_report,
    class_statistics,
    classwise_ece,
    confidence_statistics,
    detection_report,
    ece,
    marginal_report,
    mce,
    noise_floor,
    rare_report,
)

FILES = ("metrics.json", "reliability.png", "classes.png", "precision_recall.png", "p_rare.png")
# Below this many samples a bin's accuracy can be off by .3 through chance alone.
SMALL_BIN = 10
# Binned errors that are printed with their noise floors.
BINNED = {"ece": ece, "mce": mce, "classwise_ece": classwise_ece}
# A picture cannot show more bars, nor fill them with samples.
MAX_BINS = 1000


@dataclass(frozen=True)
class TableReport:
    """What `evaluate_table` found.

    Attributes:
        values: every measure, plain floats.
        before: the same for the earlier model's columns, or None.
        notes: sentences about what to read with care.
        rare: how the rare class is found and whether its probability is right; None for several label columns.
        rare_before: the same for the earlier model's columns, or None.
        files: what was written.
    """

    values: dict[str, float]
    before: dict[str, float] | None
    notes: list[str]
    rare: TableRare | None = None
    rare_before: TableRare | None = None
    files: list[Path] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """Returns what metrics.json holds."""
        after = self.values | ({} if self.rare is None else self.rare._asdict())
        if self.before is None:
            return after
        return {
            "before": self.before | ({} if self.rare_before is None else self.rare_before._asdict()),
            "after": after,
        }


def evaluate_table(
    path: str | Path,
    columns: TableColumns | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    n_bins: int = 15,
    n_draws: int = 200,
    seed: int = 0,
    budgets: Sequence[int | float] = BUDGETS,
    threshold: float = 0.5,
) -> TableReport:
    """Reads a table of predictions, measures calibration and detection, and draws them.

    Args:
        path: .csv, .tsv or .parquet file with one row per sample.
        columns: which columns mean what; None takes "y" and "p".
        out: existing folder for metrics.json, classes.png and, for one label column, reliability.png,
            precision_recall.png and p_rare.png, which appear there together when all are written; None writes nothing.
        overwrite: replace such files that are there.
        n_bins: bins of the equal-width measures and of the pictures, 1 to `MAX_BINS`.
        n_draws: draws of the noise floors, at most; of more than 100,000 numbers there are fewer, see `draws_for`.
        seed: seed of the noise floors and resamples.
        budgets: as `metrics.detection_report` takes them.
        threshold: the operating point in precision_recall.png, in [0, 1].

    Returns:
        The numbers of `calibration_report` (of `marginal_report` if several label columns were named), the noise floors
        of the binned errors and, for one label column, slope and intercept of the rare class,
        `metrics.detection_report` and `metrics.rare_report`; notes and files.

    Raises:
        InputError: the file or what is in it cannot be used, or nothing can be written; the sentence says where and
            how to mend it.
    """
    columns = columns or TableColumns()
    if not 1 <= n_bins <= MAX_BINS:
        raise InputError(
            f"metrics: bins must be from 1 to {MAX_BINS}, got {n_bins}: 15 are usual (command line: --bins)"
        )
    if out is not None:
        _check_free(Path(out), overwrite)
    table = load_table(path, columns)
    settings = {"n_bins": n_bins, "n_draws": min(n_draws, draws_for(table.probabilities.size)), "seed": seed}
    notes = _row_notes(table) + small_sample_notes(table, n_bins)
    values, rare = _measured(table, table.probabilities, budgets, settings, notes)
    report = TableReport(values, None, notes, rare)
    if table.before is not None:
        earlier, rare_before = _measured(table, table.before, budgets, settings, notes, " before")
        report = replace(report, before=earlier, rare_before=rare_before)
    if out is None:
        return report
    with fresh_files(Path(out), f"metrics: {out}") as partial:
        (partial / FILES[0]).write_text(json.dumps(report.content(), indent=2) + "\n", encoding="utf-8")
        draw_table(table, columns, partial, n_bins, threshold)
        files = [Path(out) / name for name in FILES if (partial / name).is_file()]
    return replace(report, files=files)


def _check_free(out: Path, overwrite: bool) -> None:
    """Checks that a folder is there and, unless they may be replaced, holds none of the files to write."""
    if not out.is_dir():
        raise InputError(f"the folder {out} does not exist: create it, or name one that does")
    there = [name for name in FILES if (out / name).exists()]
    if there and not overwrite:
        raise InputError(
            f"metrics: {out / there[0]} exists already: take another folder (command line: --out), or pass "
            "overwrite=True (command line: --overwrite)"
        )


def _row_notes(table: Table) -> list[str]:
    """Sentences about the rows whose label is not known, and a rare class that nobody named, if there are any."""
    notes = list(table.notes)
    if table.unknown:
        notes.append(f"rows left out because their label is not known: {table.unknown}")
    if table.taken:
        notes.append(f"the rare class is {table.taken}, that with fewest rows: --minority names another")
    return notes


def small_sample_notes(table: Table, n_bins: int = 15) -> list[str]:
    """Returns sentences about bins and classes that hold too few samples to say much, none if there is nothing to say.

    `n_bins` are those of the equal-width measures.
    """
    notes = []
    statistics = class_statistics if table.labels.ndim == 2 else confidence_statistics
    count = statistics(table.labels, table.probabilities, n_bins).count.numpy().ravel()
    small = (count > 0) & (count < SMALL_BIN)
    if small.any():
        text = f"{int(small.sum())} of {int((count > 0).sum())} bins hold fewer than {SMALL_BIN} samples"
        notes.append(f"{text} ({int(count[small].sum())} in all): read mce and those bars with care")
    if table.weights is not None:
        worth = float(table.weights.sum() ** 2 / np.square(table.weights).sum())
        if worth < len(table.weights) / 2:
            notes.append(f"the weights make {len(table.weights)} rows worth {worth:.0f} of equal weight")
    rare = int((table.labels == table.minority).sum())
    if table.labels.ndim == 1 and rare == len(table.labels):
        notes.append("every row has the minority class: the measures describe only this class")
    if table.labels.ndim == 1 and rare < 20 * SMALL_BIN:
        notes.append(
            f"{rare} samples of the minority class fill 20 bins: compare ace_minority with ace_minority_noise_floor"
        )
    return notes


class TableRare(NamedTuple):
    """How the rare class is found and whether its probability is right; each under its name in metrics.json.

    Attributes:
        detection: `metrics.detection_report`.
        p_rare: `metrics.rare_report`.
    """

    detection: dict[str, Any]
    p_rare: dict[str, float | None]


def _measured(
    table: Table,
    p: np.ndarray,
    budgets: Sequence[int | float],
    settings: dict[str, Any],
    notes: list[str],
    when: str = "",
) -> tuple[dict[str, float], TableRare | None]:
    """Returns every measure of probabilities `p`, each error followed by its value under perfect calibration."""
    y, weights, several = table.labels, table.weights, table.labels.ndim == 2
    report = marginal_report if several else partial(calibration_report, minority=table.minority)
    found, values = report(y, p, weights=weights, **settings), dict[str, float]()
    for name, value in found.items():
        values[name], floor = value, f"{name}_noise_floor"
        if floor in found:
            values[floor] = found[floor]
        elif name in BINNED:
            error = partial(BINNED[name], n_bins=settings["n_bins"], weights=weights)
            drawn: dict[str, Any] = {"n_draws": settings["n_draws"], "seed": settings["seed"]}
            values[floor] = noise_floor(error, p, multilabel=several, **drawn).mean
    if several:
        return values, None
    scores = p if p.ndim == 1 else p[:, table.minority]
    try:
        line = calibration_line(y == table.minority, scores, weights=weights)
        values |= {"calibration_slope": line.slope, "calibration_intercept": line.intercept}
    except (ValueError, NotConvergedError) as error:
        notes.append(f"no calibration slope{when} ({error})")
    given: dict[str, Any] = {"cls": table.minority, "weights": weights}
    try:
        rare = detection_report(y, p, budgets=budgets, n_draws=resamples_for(len(p)), seed=settings["seed"], **given)
    except (TypeError, ValueError) as error:  # the columns are checked: what is left are the budgets
        raise InputError(f"metrics: {error} (command line: --budget)") from error
    return values, TableRare(rare, rare_report(y, p, **given, **settings))


# Class diagrams beyond this many cannot be read; the picture then shows the first ones and says so.
MAX_CLASS_PANELS = 12


def draw_table(table: Table, columns: TableColumns, out: Path, n_bins: int, threshold: float) -> None:
    """Draws `classes.png` and, for one label column, `reliability.png`, `precision_recall.png` and `p_rare.png`."""
    from calirare.plots import class_panels, confidence_panel, reliability_diagram

    y = table.labels
    states = [("", columns.probabilities, table.probabilities)]
    if table.before is not None:
        before = ("before: ", columns.before, table.before)
        states = [before, ("after: ", columns.probabilities, table.probabilities)]
    if y.ndim == 1:
        views = (("all samples", None), ("minority class", table.minority))
        panels = [
            confidence_panel(state + name, y, p, cls=cls, weights=table.weights)
            for name, cls in views
            for state, _, p in states
        ]
        reliability_diagram(panels, out / "reliability.png", n_bins=n_bins, n_columns=2)
        _draw_rare(table, columns, out, n_bins, threshold)
    by_state = [
        class_panels(y, p, class_names=[state + name for name in names], weights=table.weights)
        for state, names, p in states
    ]
    groups = list(zip(*by_state, strict=True))
    panels = [panel for group in groups[:MAX_CLASS_PANELS] for panel in group]
    left_out = len(groups) - MAX_CLASS_PANELS
    reliability_diagram(
        panels,
        out / "classes.png",
        n_bins=n_bins,
        n_columns=2 if len(states) == 2 else min(len(panels), 3),
        title=f"the first {MAX_CLASS_PANELS} of {len(groups)}; {left_out} left out" if left_out > 0 else None,
        x_label="predicted probability",
        y_label="frequency",
    )


def _draw_rare(table: Table, columns: TableColumns, out: Path, n_bins: int, threshold: float) -> None:
    """Draws `precision_recall.png` and `p_rare.png`."""
    from calirare.plots import Panel, precision_recall_diagram, rare_reliability_diagram

    y = (table.labels == table.minority).astype(int)
    states = {"P(rare)": table.probabilities}
    if table.before is not None:
        states = {"before": table.before, "after": table.probabilities}
    panels = [Panel(state, y, p if p.ndim == 1 else p[:, table.minority], table.weights) for state, p in states.items()]
    draws = draws_for(len(y))
    precision_recall_diagram(panels, out / "precision_recall.png", threshold=threshold, n_draws=draws)
    named = table.taken or str(columns.rare)
    event = "the rare class" if named == "1" else named
    rare_reliability_diagram(panels, out / "p_rare.png", n_bins=n_bins, n_draws=draws, event=event)
