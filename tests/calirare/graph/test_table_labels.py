"""One reader of labels for every table: spellings of a class, and values that stand for no label."""

from __future__ import annotations

import pandas as pd
import pytest

from calirare.graph.spelling import find_name, is_value
from calirare.graph.tables import Table
from calirare.graph.tables.labels import labels_of


def read(cells, unknown=(), rare=None):
    table = Table(pd.DataFrame({"y": cells}, dtype=object), "t.csv")
    return labels_of(table, "y", unknown, rare), table.faults


@pytest.mark.parametrize(
    ("cells", "unknown", "names", "y"),
    [
        (["0", "1", "2", "2.0", 2], ("2",), ("0", "1"), [0, 1, -1, -1, -1]),
        (["0", "1", "?", "n/a"], ("?", "N/A"), ("0", "1"), [0, 1, -1, -1]),
        (["ok", "bad", "Unknown", " unknown"], ("unknown",), ("bad", "ok"), [1, 0, -1, -1]),
        (["0", "1", "-999"], ("-999.0",), ("0", "1"), [0, 1, -1]),
        (["ok", "bad", "-1"], ("-1",), ("bad", "ok"), [1, 0, -1]),
    ],
)
def test_values_that_are_named_stand_for_no_label(cells, unknown, names, y):
    found, faults = read(cells, unknown)
    assert (found.names, found.y.tolist(), faults, found.notes()) == (names, y, [], ())


def test_a_label_that_is_no_class_says_how_to_name_it():
    for cell, option in (("-999", "--unknown=-999"), ("0.5", "--unknown 0.5"), ("nan", "--unknown nan")):
        _, (fault,) = read(["0", "1", cell])
        assert f"holds {cell} in row 2" in fault
        assert fault.endswith(option)


def test_minus_one_is_a_class_where_the_rare_class_is_called_so():
    found, faults = read([1, -1, "-1.0", None], rare="-1")
    assert (found.names, found.y.tolist(), faults) == (("-1", "1"), [1, 0, 0, -1], [])


def test_a_class_is_found_in_another_spelling():
    assert find_name(" fraud", ["ok", "fraud"]) == 1
    assert find_name("true", ["0", "1"]) == 1
    assert find_name("'=a", ["b", "=a"]) == 1
    assert find_name("FRAUD", ["fraud", "Fraud"]) is None
    assert is_value(pd.Series([1.0, None, 2.0]), "1").tolist() == [True, False, False]
    assert is_value(pd.Series(["a ", "A", None]), "a").tolist() == [True, False, False]
