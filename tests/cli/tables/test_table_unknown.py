"""Rows of a table whose label nobody knows: left out and told of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calirare._util.errors import InputError
from calirare.cli.tables import TableColumns, load_table


def write(tmp_path, y, **columns):
    frame = pd.DataFrame({"y": y, "p": np.linspace(0.05, 0.95, len(y)), **columns})
    path = tmp_path / "preds.csv"
    frame.to_csv(path, index=False)
    return path


def left_out(table):
    """Returns how many rows a note says were left out."""
    found = [note.rpartition(": ")[2] for note in table.notes if note.startswith("rows left out")]
    return int(found[0]) if found else 0


@pytest.mark.parametrize("unknown", [-1, -1.0, "-1", None])
@pytest.mark.parametrize("probabilities", [("p",), ("rest", "p")])
def test_a_row_without_a_label_counts_nowhere(tmp_path, unknown, probabilities):
    y = [0, 1, 0, 1, 0, 1, unknown, unknown]
    path = write(tmp_path, pd.Series(y, dtype=object), rest=1 - np.linspace(0.05, 0.95, 8), w=[1, 1, 1, 0, 1, 1, 1, 0])
    table = load_table(path, TableColumns(probabilities=probabilities))
    assert (table.labels.tolist(), left_out(table)) == (y[:6], 2)
    weighted = load_table(path, TableColumns(probabilities=probabilities, weights="w"))
    assert (weighted.labels.tolist(), left_out(weighted)) == ([0, 1, 0, 0, 1], 2)


def test_named_classes_have_unknown_ones_too(tmp_path):
    table = load_table(write(tmp_path, ["fraud", "fine", "-1", "", "fine"]), TableColumns(minority="fraud"))
    assert (table.labels.tolist(), left_out(table)) == ([1, 0, 0], 2)


def test_minus_one_may_be_the_rare_class(tmp_path):
    table = load_table(write(tmp_path, [1, -1, 1, 1]), TableColumns(minority="-1"))
    assert (table.labels.tolist(), left_out(table)) == ([0, 1, 0, 0], 0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            [-1, None, -1.0],
            r"'y' must hold a known label, got -1 \(unknown\) or an empty cell in rows 1, 2, 3 \(3 rows\)",
        ),
        ([1, -1, 1], "'y' must hold another known label next to 1, got only -1, .*: write the other class as 0"),
        ([0, -1, 0], "no row has class 1 in column 'y'"),
    ],
)
def test_what_is_left_must_be_judged(tmp_path, y, message):
    with pytest.raises(InputError, match=message) as caught:
        load_table(write(tmp_path, y))
    assert "\n" not in str(caught.value)


def test_columns_called_as_the_classes_are_these_classes_in_any_order(tmp_path):
    columns = {"p_2": [0.2, 0.1, 0.7], "p_0": [0.7, 0.1, 0.2], "p_1": [0.1, 0.8, 0.1]}
    path = write(tmp_path, [0, 1, 2], **columns)
    for order in (("p_0", "p_1", "p_2"), ("p_2", "p_0", "p_1")):
        table = load_table(path, TableColumns(probabilities=order))
        right = table.probabilities[range(3), table.labels]
        assert (right.tolist(), order[table.minority]) == ([0.7, 0.8, 0.7], "p_1")


def test_a_probability_may_be_a_rounding_beyond_one(tmp_path):
    path = write(tmp_path, [0, 1, 0, 1], q=[-1e-9, 1 + 2e-7, 0.5, 1])
    assert load_table(path, TableColumns(probabilities=("q",))).probabilities.tolist() == [0, 1, 0.5, 1]
    path = write(tmp_path, [0, 1, 0, 1], q=[0, 1 + 2e-6, 0.5, 1])
    with pytest.raises(InputError, match=r"lie in \[0, 1\], got 1.000002 in row 2"):
        load_table(path, TableColumns(probabilities=("q",)))


@pytest.mark.parametrize("probabilities", [("p",), ("rest", "p")])
def test_a_value_may_stand_for_no_label(tmp_path, probabilities):
    path = write(tmp_path, [0, 1, 2, 2.0, "unknown"], rest=1 - np.linspace(0.05, 0.95, 5))
    columns = TableColumns(probabilities=probabilities, unknown=("2", "Unknown", "?"))
    table = load_table(path, columns)
    assert (table.labels.tolist(), left_out(table)) == ([0, 1], 3)
    assert table.notes[0].startswith("rows: no label is ?, which --unknown names; the labels are 0 and 1")
    (note,) = [note for note in load_table(path).notes if "read as a class" in note]
    assert "'unknown' (1 row)" in note
