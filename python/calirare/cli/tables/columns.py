"""A table of predictions, its columns checked; each complaint is an InputError that says where and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calirare._util.errors import InputError
from calirare.cli.tables import cells as read
from calirare.cli.tables import labels as given
from calirare.graph import find_name
from calirare.graph.tables import ReadLabels


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table mean what.

    Attributes:
        labels: one column of classes, or several columns of 0 and 1 (multi-label).
        probabilities: one column = P(minority), or one per class (in the order of the classes) or label.
        before: the same columns of an earlier model, for before/after pictures; empty for none.
        weights: column of sample weights, or None; a row of weight 0 counts nowhere.
        where: "column=value": only rows with that value, for example "split=test"; None for all.
        minority: the rare class, as it stands in the label column; rows whose label is -1 or empty are left out. None:
            1, or where columns of several classes name none so, the class with fewest rows.
        unknown: further labels that stand for none.
    """

    labels: tuple[str, ...] = ("y",)
    probabilities: tuple[str, ...] = ("p",)
    before: tuple[str, ...] = ()
    weights: str | None = None
    where: str | None = None
    minority: str | int | None = None
    unknown: tuple[str, ...] = ()

    @property
    def rare(self) -> str:
        """The rare class as it was named, or 1."""
        return "1" if self.minority is None else str(self.minority)


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
        taken: the rare class where none was named and none is called 1; empty else.
        notes: sentences on how labels were read.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    before: np.ndarray | None
    weights: np.ndarray | None
    minority: int
    unknown: int = 0
    taken: str = ""
    notes: tuple[str, ...] = ()


def load_table(path: str | Path, columns: TableColumns | None = None) -> Table:
    """Reads and checks a .csv, .tsv or .parquet table with one row per sample; columns None are "y" and "p".

    InputError where the file or what is in it cannot be used.
    """
    columns, path = columns or TableColumns(), Path(path)
    if not columns.labels or not columns.probabilities:
        raise InputError("name at least one label column and one probability column")
    wanted, name = len(columns.probabilities), columns.labels[0]
    whole = read.read_frame(path, (*columns.labels, (columns.where or "").partition("=")[0]))
    frame = read.select_rows(whole, columns.where)
    if columns.before and len(columns.before) != wanted:
        raise InputError(f"name as many earlier columns as probability columns: {wanted}, got {len(columns.before)}")
    multilabel = len(columns.labels) > 1
    if multilabel and len(columns.labels) != wanted:
        raise InputError(f"name one probability column per label column: {len(columns.labels)}, got {wanted}")
    rows = len(frame)
    # Of the whole table: rows left out shall not change what labels mean.
    labels = [given.read_labels(whole, each, path, columns.unknown, columns.rare) for each in columns.labels]
    if not multilabel:
        frame = given.known_rows(frame, name, labels[0], columns.rare)
    p = read.probabilities(frame, columns.probabilities, multilabel=multilabel)
    before = read.probabilities(frame, columns.before, multilabel=multilabel) if columns.before else None
    weights = None if columns.weights is None else read.weights(frame, columns.weights)
    if multilabel:
        each = zip(columns.labels, labels, strict=True)
        y = np.stack([given.numbers_of(frame, name, of_one, None, 2) for name, of_one in each], 1)
        return _weighted_rows(Table(y, p, before, weights, 1), columns)
    notes = labels[0].notes()
    if p.ndim == 1:
        y = given.one_against_rest(frame, name, labels[0], columns.rare)
        notes += _common(y, columns)
        return _weighted_rows(Table(y, p, before, weights, 1, rows - len(frame), notes=notes), columns)
    names = given.class_names(labels[0], columns.probabilities)
    notes += () if names is None else _either(labels[0], names)
    y = given.numbers_of(frame, name, labels[0], names, wanted)
    called = [str(c) for c in range(wanted)] if names is None else names
    rare, taken = _rare_class(y, called, columns)
    return _weighted_rows(Table(y, p, before, weights, rare, rows - len(frame), taken, notes), columns)


def _rare_class(y: np.ndarray, called: list[str], columns: TableColumns) -> tuple[int, str]:
    """Returns the number of the rare class, and its name where nobody named one and none is called 1."""
    numbers, counts = np.unique(y, return_counts=True)
    rare = find_name(columns.rare, called)
    if rare is not None and rare in numbers:
        return rare, ""
    if columns.minority is None:
        fewest = int(numbers[counts.argmin()])
        return fewest, called[fewest]
    there = f"name the rare class (--minority CLASS); values there are {read.some([called[c] for c in numbers])}"
    raise InputError(f"no row has class {columns.minority} in column {columns.labels[0]!r}: {there}")


def _common(y: np.ndarray, columns: TableColumns) -> tuple[str, ...]:
    """Returns a note where class 1, which nobody named, is no rare one."""
    if columns.minority is not None or y.mean() <= 1 / 2:
        return ()
    return (f"class {columns.rare}, taken for the rare one, has {y.mean():.0%} of the rows: --minority names another",)


def _either(labels: ReadLabels, names: list[str]) -> tuple[str, ...]:
    """Returns a note where labels that are names of columns could be their places too."""
    if names == [str(place) for place in range(len(names))] or not given.are_places(labels, len(names)):
        return ()
    return (f"labels are read as the columns' names, {read.some(names)}, not as their places from 0 on",)


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
            f"column {columns.weights!r} must hold a weight above 0 in a row of the rare class {columns.rare}, got "
            "zeros only there: weigh one of these rows, or leave the weights out"
        )
    return replace(table, labels=y, probabilities=p, before=before, weights=weights)
