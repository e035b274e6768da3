"""A table of predictions, its columns checked; each complaint is an InputError that says where and how to fix it.

Labels are read as those of node tables are (`calirare.graph.tables.labels_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.errors import InputError
from calirare.cli.tables import cells as read
from calirare.graph import find_name
from calirare.graph.spelling import is_value
from calirare.graph.tables import ReadLabels, labels_of
from calirare.graph.tables import Table as RawTable

if TYPE_CHECKING:
    import pandas as pd

OF_CLASS = "p_"  # what stands before the name of a class in the columns of predictions.csv
UNKNOWN = "-1"  # stands for an unknown label in predictions.csv and in node tables


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table mean what.

    Attributes:
        label: the column of classes.
        probabilities: one column = P(minority), or one per class (in the order of the classes).
        before: the same columns of an earlier model, for before/after pictures; empty for none.
        weights: column of sample weights, or None; a row of weight 0 counts nowhere.
        where: "column=value": only rows with that value, for example "split=test"; None for all.
        minority: the rare class, as it stands in the label column; rows whose label is -1 or empty are left out. None:
            1, or where columns of several classes name none so, the class with fewest rows.
        unknown: further labels that stand for none.
    """

    label: str = "y"
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
        labels: int64 [n].
        probabilities: float64 [n] = P(minority) from one column, or [n, C] in the order the columns were named.
        before: the same for the columns of an earlier model, or None.
        weights: float64 [n], > 0 (rows of weight 0 are left out), or None.
        minority: the rare class among `labels`; 1 if there is one probability column.
        event: what it is called.
        notes: sentences on how labels were read, and which rows were left out.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    before: np.ndarray | None
    weights: np.ndarray | None
    minority: int
    event: str
    notes: tuple[str, ...]


def load_table(path: str | Path, columns: TableColumns | None = None) -> Table:
    """Reads and checks a .csv, .tsv or .parquet table with one row per sample; columns None are "y" and "p".

    InputError where the file or what is in it cannot be used.
    """
    columns, path = columns or TableColumns(), Path(path)
    name, wanted = columns.label, len(columns.probabilities)
    if columns.before and len(columns.before) != wanted:
        raise InputError(f"name as many earlier columns as probability columns: {wanted}, got {len(columns.before)}")
    whole = read.read_frame(path, (name, (columns.where or "").partition("=")[0]))
    chosen = read.select_rows(whole, columns.where, path)
    # Of the whole table: rows left out shall not change what labels mean.
    labels = read_labels(whole, name, path, columns.unknown, columns.rare)
    frame, notes = _known_rows(chosen, name, labels, columns.rare), labels.notes()
    if len(frame) < len(chosen):
        notes += (f"rows left out because their label is not known: {len(chosen) - len(frame)}",)
    weights = None
    if columns.weights is not None:
        weights = read.weights(frame, columns.weights)
        frame, weights = frame[weights > 0], weights[weights > 0]
    p = read.probabilities(frame, columns.probabilities)
    before = read.probabilities(frame, columns.before) if columns.before else None
    if wanted == 1:
        y, minority, event = _one_against_rest(frame, name, labels, columns.rare), 1, columns.rare
        if columns.minority is None and y.mean() > 1 / 2:
            notes += (
                f"class 1 is used as the rare class, but has {y.mean():.0%} of the rows: --rare-class names another",
            )
    else:
        names = _class_names(labels, columns.probabilities)
        y = numbers_of(frame, name, labels, names, wanted)
        minority, event = _rare_class(y, names or [str(c) for c in range(wanted)], columns)
        if event != columns.rare:
            notes += (f"the rare class is {event}, that with fewest rows: --rare-class names another",)
    return Table(y, p, before, weights, minority, event, notes)


def _rare_class(y: np.ndarray, called: list[str], columns: TableColumns) -> tuple[int, str]:
    """Returns number and name of the rare class: that with fewest rows where nobody named one and none is called 1."""
    numbers, counts = np.unique(y, return_counts=True)
    rare = find_name(columns.rare, called)
    if rare is not None and rare in numbers:
        return rare, columns.rare
    if columns.minority is None:
        fewest = int(numbers[counts.argmin()])
        return fewest, called[fewest]
    there = f"name the rare class (--rare-class CLASS); values there are {read.some([called[c] for c in numbers])}"
    raise InputError(f"no row has class {columns.minority} in column {columns.label!r}: {there}")


def read_labels(
    frame: pd.DataFrame, name: str, path: Path, unknown: Sequence[str] = (), rare: str | None = None
) -> ReadLabels:
    """Returns a column of labels, of all rows; arguments as of `labels_of`, whose faults are an InputError."""
    table = RawTable(read.named_column(frame, name).to_frame(), path)
    found = labels_of(table, name, unknown, rare, of="row")
    table.check()
    return found


def _known_rows(frame: pd.DataFrame, name: str, labels: ReadLabels, rare: str) -> pd.DataFrame:
    """Returns the rows whose label is known, at least one, with the numbers they had."""
    y = _labels_at(frame, labels)
    known = y >= 0
    if not known.any():
        raise InputError(
            f"column {name!r} must hold a known label, got -1 (unknown) or an empty cell in "
            f"{read.rows_in_words(frame, ~known)}: give rows whose class is known"
        )
    if (y[known] == find_name(rare, labels.names)).all() and is_value(frame[name][~known], UNKNOWN).any():
        raise InputError(
            f"column {name!r} must hold another known label next to {rare}, got only -1, which stands for an unknown "
            "one: write the other class as 0, or leave these rows out"
        )
    return frame[known]


def _class_names(labels: ReadLabels, probabilities: Sequence[str]) -> list[str] | None:
    """Returns the names of classes in columns such as "p_fraud", as our tables have them; None: labels are numbers."""
    names = [each.removeprefix(OF_CLASS) for each in probabilities]
    if not all(each.startswith(OF_CLASS) for each in probabilities) or len(set(names)) != len(names):
        return None
    named = all(find_name(each, names) is not None for each in labels.names)
    counted = all(each.isdecimal() and int(each) < len(names) for each in labels.names)
    return None if counted and not named else names


def numbers_of(frame: pd.DataFrame, name: str, labels: ReadLabels, classes: list[str] | None, n: int) -> np.ndarray:
    """Returns labels as places among classes, int64 [n rows].

    Args:
        frame: the rows, all with a known label.
        name: of the column of labels.
        labels: of all rows of the table.
        classes: as the columns of probabilities are called; None: labels are their places from 0 on.
        n: how many classes there are.

    Raises:
        InputError: a label is none of them.
    """
    places = [find_name(each, classes or [str(k) for k in range(n)]) for each in labels.names]
    y = _labels_at(frame, labels)
    unknown = y < 0
    if unknown.any():
        where = read.rows_in_words(frame, unknown)
        raise InputError(f"column {name!r} must hold a known label, got none in {where}: fill it in or drop the row")
    found = np.array([-1 if at is None else at for at in places], dtype=np.int64)[y]
    bad = found < 0
    if bad.any():
        label = labels.names[int(y[bad.argmax()])]
        got = f"got {label if label.isdecimal() else repr(label)} in {read.rows_in_words(frame, bad)}"
        wanted, how = f"classes 0 to {n - 1}", "number the classes as the probability columns"
        if classes is not None:
            wanted = f"classes that have a column, {read.some(classes)}"
            how = "name its column too (--p, once for each)"
        raise InputError(f"column {name!r} must hold {wanted}, {got}: {how}")
    return found


def _one_against_rest(frame: pd.DataFrame, name: str, labels: ReadLabels, rare: str) -> np.ndarray:
    """Returns 1 where the label is the rare class, a number or a name, int64 [n] with at least one 1."""
    y = _labels_at(frame, labels)
    is_rare = y == find_name(rare, labels.names)
    if is_rare.any():
        return is_rare.astype(np.int64)
    there = read.some([labels.names[k] for k in np.unique(y)])
    raise InputError(
        f"no row has class {rare} in column {name!r}: give rows of it, or name the rare class (--rare-class CLASS); "
        f"values there are {there}"
    )


def _labels_at(frame: pd.DataFrame, labels: ReadLabels) -> np.ndarray:
    """Returns the labels of rows of the table, -1 where unknown."""
    assert labels.y is not None
    return labels.y.numpy()[frame.index.to_numpy()]
