"""Tables of predictions read into checked columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calirare._util.errors import InputError
from calirare.cli.tables import columns as read


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


def load_table(path: str | Path, columns: TableColumns | None = None) -> Table:
    """Reads and checks a .csv, .tsv or .parquet table with one row per sample; columns None are "y" and "p".

    InputError where the file or what is in it cannot be used.
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
