"""Label columns of a table of predictions, read as those of node tables are (`calirare.graph.labels_of`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calirare._util.errors import InputError
from calirare.cli.tables.cells import named_column, rows_in_words, some
from calirare.graph import find_name
from calirare.graph.spelling import is_value
from calirare.graph.tables import ReadLabels, Table, labels_of

if TYPE_CHECKING:
    import pandas as pd

OF_CLASS = "p_"  # what stands before the name of a class in the columns of predictions.csv
UNKNOWN = "-1"  # stands for an unknown label in predictions.csv and in node tables


def read_labels(
    frame: pd.DataFrame, name: str, path: Path, unknown: Sequence[str] = (), rare: object = None
) -> ReadLabels:
    """Returns a column of labels, of all rows; arguments as of `labels_of`, whose faults are an InputError."""
    table = Table(named_column(frame, name).to_frame(), path)
    read = labels_of(table, name, unknown, rare, of="row")
    table.check()
    return read


def known_rows(frame: pd.DataFrame, name: str, read: ReadLabels, rare: str) -> pd.DataFrame:
    """Returns the rows whose label is known, at least one, with the numbers they had.

    Labels that are all of the rare class but for -1 are refused: -1 may be the other class there.
    """
    y = _labels_at(frame, read)
    known = y >= 0
    if not known.any():
        raise InputError(
            f"column {name!r} must hold a known label, got -1 (unknown) or an empty cell in "
            f"{rows_in_words(frame, ~known)}: give rows whose class is known"
        )
    if (y[known] == find_name(rare, read.names)).all() and is_value(frame[name][~known], UNKNOWN).any():
        raise InputError(
            f"column {name!r} must hold another known label next to {rare}, got only -1, which stands for an unknown "
            "one: write the other class as 0, or leave these rows out"
        )
    return frame[known]


def class_names(read: ReadLabels, probabilities: Sequence[str]) -> list[str] | None:
    """Returns the names of classes in columns such as "p_fraud", as our tables have them; None: labels are numbers.

    Labels that are no names of columns but numbers of them, from 0 on, are these numbers.
    """
    names = [each.removeprefix(OF_CLASS) for each in probabilities]
    if not all(each.startswith(OF_CLASS) for each in probabilities) or len(set(names)) != len(names):
        return None
    if all(find_name(each, names) is not None for each in read.names):
        return names
    return None if are_places(read, len(names)) else names


def are_places(read: ReadLabels, n: int) -> bool:
    """Returns whether labels are whole numbers from 0 to n - 1."""
    return all(each.isdecimal() and int(each) < n for each in read.names)


def numbers_of(frame: pd.DataFrame, name: str, read: ReadLabels, classes: list[str] | None, n: int) -> np.ndarray:
    """Returns labels as places among classes, int64 [n rows].

    Args:
        frame: the rows, all with a known label.
        name: of the column of labels.
        read: the labels of all rows of the table.
        classes: as the columns of probabilities are called; None: labels are their places from 0 on.
        n: how many classes there are.

    Raises:
        InputError: a label is none of them.
    """
    names = [str(k) for k in range(n)] if classes is None else classes
    place_of = [find_name(each, names) for each in read.names]
    y = _labels_at(frame, read)
    unknown = y < 0
    if unknown.any():
        raise InputError(
            f"column {name!r} must hold a known label in every row, got none in "
            f"{rows_in_words(frame, unknown)}: fill it in or drop the row"
        )
    found = np.array([-1 if at is None else at for at in place_of], dtype=np.int64)[y]
    bad = found < 0
    if bad.any():
        label = read.names[int(y[bad.argmax()])]
        got = f"got {label if label.isdecimal() else repr(label)} in {rows_in_words(frame, bad)}"
        if classes is None:
            raise InputError(
                f"column {name!r} must hold classes 0 to {n - 1}, {got}: number the classes as the probability columns"
            )
        raise InputError(
            f"column {name!r} must hold classes that have a column, {some(names)}, {got}: name its column too (--p, "
            "once for each)"
        )
    return found


def one_against_rest(frame: pd.DataFrame, name: str, read: ReadLabels, rare: str) -> np.ndarray:
    """Returns 1 where the label is the rare class, a number or a name, int64 [n] with at least one 1."""
    y = _labels_at(frame, read)
    is_rare = y == find_name(rare, read.names)
    if is_rare.any():
        return is_rare.astype(np.int64)
    there = [read.names[k] for k in np.unique(y)]
    hint = f"name the rare class (--minority CLASS); values there are {some(there)}"
    if len(there) == 1:
        hint = f"every row has {there[0]} there; give rows of the rare class too, or name it"
    raise InputError(f"no row has class {rare} in column {name!r}: {hint}")


def _labels_at(frame: pd.DataFrame, read: ReadLabels) -> np.ndarray:
    """Returns the labels of rows of the table, -1 where unknown."""
    assert read.y is not None
    return read.y.numpy()[frame.index.to_numpy()]
