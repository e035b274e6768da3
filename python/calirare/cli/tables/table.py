"""Measures and pictures for anyone with a table of predictions: a CSV or Parquet file with labels and probabilities."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calirare._util.errors import InputError, NotConvergedError
from calirare._util.output import fresh_files
from calirare.cli.tables import columns as read
from calirare.cli.tables.floors import table_noise_floors
from calirare.metrics import (
    ace,
    calibration_line,
    calibration_report,
    class_statistics,
    confidence_statistics,
    debiased_ece,
    kde_calibration_error,
    sharpness,
    smooth_ece,
)
from calirare.metrics.multilabel_report import multilabel_report

FILES = ("metrics.json", "reliability.png", "classes.png")
# Below this many samples a bin's accuracy can be off by .3 through chance alone.
SMALL_BIN = 10
# Binned errors that are printed with their noise floors.
BINNED = ("ece", "mce", "classwise_ece", "ace")
# Class diagrams beyond this many cannot be read; the picture then shows the first ones and says so.
MAX_CLASS_PANELS = 12
# A picture cannot show more bars, nor fill them with samples.
MAX_BINS = 1000
# The kernel estimate takes time in proportion to the square of the rows: a second at so many.
MAX_KDE_ROWS = 5000


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table mean what.

    Attributes:
        labels: one column of classes, or several columns of 0 and 1 (multi-label).
        probabilities: one column = P(minority), or one per class (in the order of the classes) or label.
        before: the same columns of an earlier model, for before/after pictures; empty for none.
        weights: column of sample weights, or None; a row of weight 0 counts nowhere.
        where: "column=value": only rows with that value, for example "split=test"; None for all.
        minority: the rare class, as it stands in the label column; rows whose label is -1 or empty are left out.
    """

    labels: tuple[str, ...] = ("y",)
    probabilities: tuple[str, ...] = ("p",)
    before: tuple[str, ...] = ()
    weights: str | None = None
    where: str | None = None
    minority: str | int = 1


@dataclass(frozen=True)
class Table:
    """Checked columns.

    Attributes:
        labels: int64 [n], or [n, K] if several label columns were named.
        probabilities: float64 [n] = P(minority) from one column, or [n, C] in the order the columns were named.
        before: the same for the columns of an earlier model, or None.
        weights: float64 [n], > 0 (rows of weight 0 are left out), or None.
        minority: the rare class among `labels`; 1 if there is one probability column.
        unknown: rows left out because their label is not known.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    before: np.ndarray | None
    weights: np.ndarray | None
    minority: int
    unknown: int = 0


@dataclass(frozen=True)
class TableReport:
    """What `evaluate_table` found.

    Attributes:
        values: every measure, plain floats.
        before: the same for the earlier model's columns, or None.
        notes: sentences about what to read with care.
        files: what was written.
    """

    values: dict[str, float]
    before: dict[str, float] | None
    notes: list[str]
    files: list[Path] = field(default_factory=list)


def evaluate_table(
    path: str | Path,
    columns: TableColumns | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    n_bins: int = 15,
    n_draws: int = 200,
    seed: int = 0,
) -> TableReport:
    """Reads a table of predictions, measures their calibration and draws it.

    Args:
        path: .csv, .tsv or .parquet file with one row per sample.
        columns: which columns mean what; None takes "y" and "p".
        out: existing folder for metrics.json, reliability.png (single-label) and classes.png, which appear there
            together when all are written; None writes nothing.
        overwrite: replace such files that are there.
        n_bins: bins of the equal-width measures and of the pictures, 1 to `MAX_BINS`.
        n_draws: draws of the noise floors.
        seed: seed of the noise floors.

    Returns:
        The numbers of `calibration_report` (of `multilabel_report` if several label columns were named), further errors
        (ace, debiased_ece, smooth_ece, kde_ece of up to `MAX_KDE_ROWS` rows, sharpness), the noise floors of the binned
        ones and, for one label column, slope and intercept of the rare class; notes and files.

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
    settings = {"n_bins": n_bins, "n_draws": n_draws, "seed": seed}
    values = _measure(table, table.probabilities, settings)
    earlier = None if table.before is None else _measure(table, table.before, settings)
    notes = _left_out_notes(table) + small_sample_notes(table, n_bins)
    try:
        line = _line(table, table.probabilities)
        line_before = {} if table.before is None else _line(table, table.before)
    except (ValueError, NotConvergedError) as error:
        notes.append(f"no calibration slope ({error})")
    else:
        values |= line
        earlier = None if earlier is None else earlier | line_before
    files: list[Path] = []
    if out is not None:
        content = values if earlier is None else {"before": earlier, "after": values}
        with fresh_files(Path(out), f"metrics: {out}") as partial:
            (partial / FILES[0]).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            _draw(table, columns, partial, n_bins)
            files = [Path(out) / name for name in FILES if (partial / name).is_file()]
    return TableReport(values, earlier, notes, files)


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


def load_table(path: str | Path, columns: TableColumns | None = None) -> Table:
    """Reads and checks a table of predictions.

    Args:
        path: .csv, .tsv or .parquet file with one row per sample.
        columns: which columns mean what; None takes "y" and "p".

    Returns:
        The checked columns.

    Raises:
        InputError: the file or what is in it cannot be used.
    """
    columns = columns or TableColumns()
    frame = read.select_rows(read.read_frame(Path(path)), columns.where)
    if not columns.labels or not columns.probabilities:
        raise InputError("name at least one label column and one probability column")
    wanted = len(columns.probabilities)
    if columns.before and len(columns.before) != wanted:
        raise InputError(f"name as many earlier columns as probability columns: {wanted}, got {len(columns.before)}")
    multilabel = len(columns.labels) > 1
    if multilabel and len(columns.labels) != wanted:
        raise InputError(f"name one probability column per label column: {len(columns.labels)}, got {wanted}")
    rows = len(frame)
    if not multilabel:
        frame = read.known_rows(frame, columns.labels[0], columns.minority)
    p = read.probabilities(frame, columns.probabilities, multilabel=multilabel)
    before = read.probabilities(frame, columns.before, multilabel=multilabel) if columns.before else None
    weights = None if columns.weights is None else read.weights(frame, columns.weights)
    if multilabel:
        y = np.stack([read.classes(frame, name, 2) for name in columns.labels], 1)
        return _weighted_rows(Table(y, p, before, weights, 1), columns)
    if p.ndim == 1:
        y = read.one_against_rest(frame, columns.labels[0], columns.minority)
        return _weighted_rows(Table(y, p, before, weights, 1, rows - len(frame)), columns)
    y = read.classes(frame, columns.labels[0], wanted)
    present = [str(c) for c in np.unique(y)]
    if str(columns.minority) not in present:
        where = f"column {columns.labels[0]!r}: name the rare class; values there are {read.some(present)}"
        raise InputError(f"no row has class {columns.minority} in {where}")
    return _weighted_rows(Table(y, p, before, weights, int(columns.minority), rows - len(frame)), columns)


def _weighted_rows(table: Table, columns: TableColumns) -> Table:
    """Leaves out the rows of weight 0."""
    if table.weights is None:
        return table
    kept = table.weights > 0
    y, p, before, weights = (
        None if values is None else values[kept]
        for values in (table.labels, table.probabilities, table.before, table.weights)
    )
    assert y is not None
    assert p is not None
    if y.ndim == 1 and not (y == table.minority).any():
        raise InputError(
            f"column {columns.weights!r} must hold a weight above 0 in a row of the rare class {columns.minority}, got "
            "zeros only there: weigh one of these rows, or leave the weights out"
        )
    return Table(y, p, before, weights, table.minority, table.unknown)


def _left_out_notes(table: Table) -> list[str]:
    """A sentence about the rows whose label is not known, if there are any."""
    if not table.unknown:
        return []
    return [f"rows left out because their label is not known (-1 or empty): {table.unknown}"]


def small_sample_notes(table: Table, n_bins: int = 15) -> list[str]:
    """Sentences about bins and classes that hold too few samples to say much.

    Args:
        table: checked columns.
        n_bins: bins of the equal-width measures.

    Returns:
        No sentence if there is nothing to say.
    """
    notes = []
    statistics = class_statistics if table.labels.ndim == 2 else confidence_statistics
    count = statistics(table.probabilities, table.labels, n_bins).count.numpy().ravel()
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
        notes.append("every row has the minority class: the measures are about this class alone")
    if table.labels.ndim == 1 and rare < 20 * SMALL_BIN:
        notes.append(f"{rare} samples of the minority class share 20 bins: read ace_minority beside its noise floor")
    return notes


def _measure(table: Table, p: np.ndarray, settings: dict[str, int]) -> dict[str, float]:
    n_bins, n_draws, seed = settings["n_bins"], settings["n_draws"], settings["seed"]
    y, w = table.labels, table.weights
    several = y.ndim == 2
    if several:
        report = multilabel_report(p, y, n_bins=n_bins, n_draws=n_draws, seed=seed, weights=w)
    else:
        report = calibration_report(p, y, minority=table.minority, n_bins=n_bins, n_draws=n_draws, seed=seed, weights=w)
    more = {
        "ace": ace(p, y, weights=w),
        "debiased_ece": debiased_ece(p, y, n_bins, weights=w),
        "smooth_ece": smooth_ece(p, y, weights=w),
        "sharpness": sharpness(p, multilabel=several, weights=w),
    }
    counted = len(y) if w is None else int((w > 0).sum())
    if counted >= 2 and counted**2 * (p.shape[1] if several else 1) <= MAX_KDE_ROWS**2:
        more["kde_ece"] = kde_calibration_error(p, y, kind="confidence", weights=w)
    values = report | {name: float(value) for name, value in more.items()}
    wanted = [name for name in BINNED if f"{name}_noise_floor" not in values]
    floors = table_noise_floors(wanted, p, n_bins, n_draws=n_draws, seed=seed, multilabel=several, weights=w)
    return _with_floors(values, floors)


def _with_floors(values: dict[str, float], floors: dict[str, float]) -> dict[str, float]:
    """Puts each floor behind its measure."""
    out: dict[str, float] = {}
    for name, value in values.items():
        out[name] = value
        if name in floors:
            out[f"{name}_noise_floor"] = floors[name]
    return out


def _line(table: Table, p: np.ndarray) -> dict[str, float]:
    """Slope and intercept of the rare class; nothing for several labels."""
    if table.labels.ndim == 2:
        return {}
    scores = p if p.ndim == 1 else p[:, table.minority]
    line = calibration_line(scores, table.labels == table.minority, weights=table.weights)
    return {"calibration_slope": line.slope, "calibration_intercept": line.intercept}


def _draw(table: Table, columns: TableColumns, out: Path, n_bins: int) -> None:
    """Draws `reliability.png` (single-label) and `classes.png`."""
    from calirare.plots.plots import class_panels, confidence_panel, reliability_diagram

    y = table.labels
    states = [("", columns.probabilities, table.probabilities)]
    if table.before is not None:
        states = [
            ("before: ", columns.before, table.before),
            ("after: ", columns.probabilities, table.probabilities),
        ]
    if y.ndim == 1:
        views = (("all samples", None), ("minority class", table.minority))
        panels = [
            confidence_panel(state + name, p, y, cls=cls, weights=table.weights)
            for name, cls in views
            for state, _, p in states
        ]
        reliability_diagram(panels, out / "reliability.png", n_bins=n_bins, n_columns=2)
    by_state = [
        class_panels(p, y, class_names=[state + name for name in names], weights=table.weights)
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
