"""Every measure of a table of predictions, with notes on what to read with care."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calirare._util.errors import InputError, NotConvergedError
from calirare._util.memory import draws_for, resamples_for
from calirare._util.output import check_free, fresh_files
from calirare.cli.tables.columns import Table, TableColumns, load_table
from calirare.metrics import (
    BUDGETS,
    N_BINS,
    calibration_line,
    calibration_report,
    classwise_ece,
    confidence_statistics,
    detection_report,
    ece,
    mce,
    noise_floor,
    rare_report,
)
from calirare.metrics.inputs import Metric

FILES = ("metrics.json", "reliability.png", "precision_recall.png", "p_rare.png")
SMALL_BIN = 10  # with fewer samples a bin's accuracy can be off by .3 from sampling alone
BINNED: dict[str, Metric] = {
    "ece": ece,
    "mce": mce,
    "classwise_ece": classwise_ece,
}  # printed with the values expected if calibrated
MAX_BINS = 1000  # a picture cannot show more bars, nor fill them with samples


class Measures(NamedTuple):
    """What was measured of one model's columns; metrics.json has it under these names.

    Attributes:
        values: every measure, plain floats.
        detection: `metrics.detection_report`.
        p_rare: `metrics.rare_report`.
    """

    values: dict[str, float]
    detection: dict[str, Any]
    p_rare: dict[str, float | None]

    def content(self) -> dict[str, Any]:
        """Returns what metrics.json holds of them."""
        return self.values | {"detection": self.detection, "p_rare": self.p_rare}


@dataclass(frozen=True)
class TableReport:
    """What `evaluate_table` found.

    Attributes:
        measures: by "value"; with an earlier model's columns by "before" and "after".
        notes: sentences about what to read with care.
        files: what was written.
    """

    measures: dict[str, Measures]
    notes: list[str]
    files: list[Path] = field(default_factory=list)

    @property
    def values(self) -> dict[str, float]:
        """Every measure of the model, plain floats."""
        return list(self.measures.values())[-1].values

    def content(self) -> dict[str, Any]:
        """Returns what metrics.json holds."""
        found = {state: each.content() for state, each in self.measures.items()}
        return found.get("value", found)


def evaluate_table(
    path: str | Path,
    columns: TableColumns | None = None,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    n_bins: int = N_BINS,
    n_draws: int = 200,
    budgets: Sequence[int | float] = BUDGETS,
    threshold: float = 0.5,
) -> TableReport:
    """Reads a table of predictions, measures calibration and detection, and draws them.

    Args:
        path: .csv, .tsv or .parquet file with one row per sample.
        columns: which columns mean what; None takes "y" and "p".
        out: folder for `FILES`, which appear there together when all are written; made where it is not there; None
            writes nothing.
        overwrite: replace such files that are there.
        n_bins: bins of the equal-width measures and of the pictures, 1 to `MAX_BINS`.
        n_draws: draws for the values expected if calibrated, at most; fewer for large tables, see `draws_for`.
        budgets: as `metrics.detection_report` takes them.
        threshold: the operating point in precision_recall.png, in [0, 1].

    Returns:
        The numbers of `calibration_report`, the binned errors to expect if calibrated, slope and intercept of the rare
        class, `metrics.detection_report` and `metrics.rare_report`; notes and files.

    Raises:
        InputError: the file or what is in it cannot be used, or nothing can be written; the sentence says where and
            how to fix it.
    """
    columns = columns or TableColumns()
    if not 1 <= n_bins <= MAX_BINS:
        raise InputError(f"metrics: --bins must be from 1 to {MAX_BINS}, got {n_bins}: {N_BINS} are usual")
    if out is not None:
        check_free([out / name for name in FILES], "evaluate", overwrite=overwrite)
    table = load_table(path, columns)
    settings = {"n_bins": n_bins, "n_draws": min(n_draws, draws_for(table.probabilities.size)), "seed": 0}
    notes, models = [*table.notes, *_small_sample_notes(table, n_bins)], {"value": table.probabilities}
    if table.before is not None:
        models = {"before": table.before, "after": table.probabilities}
    measures = {state: _measured(table, p, budgets, settings, notes, state) for state, p in models.items()}
    report = TableReport(measures, notes)
    if out is None:
        return report
    with fresh_files(out, f"metrics: {out}") as partial_out:
        (partial_out / FILES[0]).write_text(json.dumps(report.content(), indent=2) + "\n", encoding="utf-8")
        _draw(table, models, partial_out, n_bins, threshold)
    return TableReport(measures, notes, [out / name for name in FILES])


def _small_sample_notes(table: Table, n_bins: int) -> list[str]:
    """Returns sentences about bins and classes that hold too few samples to say much."""
    notes = []
    count = confidence_statistics(table.labels, table.probabilities, n_bins).count.numpy().ravel()
    small = (count > 0) & (count < SMALL_BIN)
    if small.any():
        text = f"{int(small.sum())} of {int((count > 0).sum())} bins hold fewer than {SMALL_BIN} samples"
        notes.append(f"{text} ({int(count[small].sum())} in all): read those bars with care")
    if table.weights is not None:
        worth = float(table.weights.sum() ** 2 / np.square(table.weights).sum())
        if worth < len(table.weights) / 2:
            notes.append(f"the weights make {len(table.weights)} rows worth {worth:.0f} of equal weight")
    rare = int((table.labels == table.minority).sum())
    if rare == len(table.labels):
        notes.append("every row has the minority class: the measures describe only this class")
    if rare < 20 * SMALL_BIN:
        notes.append(
            f"{rare} samples of the minority class in 20 bins: compare ace_minority with ace_minority_noise_floor"
        )
    return notes


def _measured(
    table: Table, p: np.ndarray, budgets: Sequence[int | float], settings: dict[str, Any], notes: list[str], state: str
) -> Measures:
    """Returns every measure of probabilities `p`, each error followed by its value under perfect calibration."""
    y, weights = table.labels, table.weights
    found, values = calibration_report(y, p, minority=table.minority, weights=weights, **settings), dict[str, float]()
    for name, value in found.items():
        values[name], expected = value, f"{name}_noise_floor"
        if expected in found:
            values[expected] = found[expected]
        elif name in BINNED:
            error = partial(BINNED[name], n_bins=settings["n_bins"], weights=weights)
            values[expected] = noise_floor(error, p, n_draws=settings["n_draws"], seed=settings["seed"]).mean
    try:
        line = calibration_line(y == table.minority, _of_rare(table, p), weights=weights)
        values |= {"calibration_slope": line.slope, "calibration_intercept": line.intercept}
    except (ValueError, NotConvergedError) as error:
        notes.append(f"no calibration slope{' before' if state == 'before' else ''} ({error})")
    given: dict[str, Any] = {"cls": table.minority, "weights": weights}
    try:
        rare = detection_report(y, p, budgets=budgets, n_draws=resamples_for(len(p)), seed=settings["seed"], **given)
    except (TypeError, ValueError) as error:  # the columns are checked: what is left are the budgets
        raise InputError(f"metrics: {error} (command line: --budget)") from error
    return Measures(values, rare, rare_report(y, p, **given, **settings))


def _of_rare(table: Table, p: np.ndarray) -> np.ndarray:
    """Returns P(minority) of probabilities, [n]."""
    return p if p.ndim == 1 else p[:, table.minority]


def _draw(table: Table, models: dict[str, np.ndarray], out: Path, n_bins: int, threshold: float) -> None:
    """Draws the pictures of `FILES`."""
    from calirare.plots import (
        Panel,
        confidence_panel,
        precision_recall_diagram,
        rare_reliability_diagram,
        reliability_diagram,
    )

    y, weights = table.labels, table.weights
    states = {state: "" if state == "value" else f"{state}: " for state in models}
    views = (("all samples", None), ("minority class", table.minority))
    panels = [
        confidence_panel(states[state] + name, y, p, cls=cls, weights=weights)
        for name, cls in views
        for state, p in models.items()
    ]
    reliability_diagram(panels, out / "reliability.png", n_bins=n_bins, n_columns=2)
    rare = (y == table.minority).astype(int)
    panels = [
        Panel("P(rare)" if state == "value" else state, rare, _of_rare(table, p), weights)
        for state, p in models.items()
    ]
    draws, event = draws_for(len(y)), "the rare class" if table.event == "1" else table.event
    precision_recall_diagram(panels, out / "precision_recall.png", threshold=threshold)
    rare_reliability_diagram(panels, out / "p_rare.png", n_bins=n_bins, n_draws=draws, event=event)
