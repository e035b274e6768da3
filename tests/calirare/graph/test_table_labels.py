"""One reader of labels for every table: spellings of a class, and values that stand for no label."""

from __future__ import annotations

import pandas as pd
import pytest

from calirare import Graph
from calirare._util.errors import InputError
from calirare.graph.spelling import find_name, is_value
from calirare.graph.tables.labels import labels_of

EDGES = pd.DataFrame({"source": [0, 1, 2], "target": [1, 2, 3]})


def read(cells, unknown=(), rare=None):
    faults = []
    return labels_of(pd.Series(cells, name="y", dtype=object), "t.csv", faults, unknown, rare), faults


@pytest.mark.parametrize(
    ("cells", "names", "y"),
    [
        (["fraud", " fraud ", "ok\t", "", None], ("fraud", "ok"), [0, 0, 1, -1, -1]),
        ([2, 2.0, "2", " 2", 0, "-1.0"], ("0", "2"), [1, 1, 1, 1, 0, -1]),
        ([1, "1.0", "x", True, "TRUE"], ("1", "x"), [0, 0, 1, 0, 0]),
        ([True, "false", 1.0, "0"], ("0", "1"), [1, 0, 1, 0]),
        (["1e5", "7"], ("7", "100000"), [1, 0]),
        (["1e5", "007"], ("007", "1e5"), [1, 0]),
    ],
)
def test_spellings_of_one_class_are_one_class(cells, names, y):
    found, faults = read(cells)
    assert (found.names, found.y.tolist(), faults) == (names, y, [])


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


def test_what_may_stand_for_no_label_is_said():
    found, _ = read(["ok", "bad", "?", "unk", "unk"], ("2",))
    classes, absent = found.notes()
    assert "'?' (1 node) and 'unk' (2 nodes)" in classes
    assert "--unknown '?,unk'" in classes
    assert "no label is 2," in absent
    assert "?, bad" in absent


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


def test_tables_take_one_value_or_several():
    nodes = pd.DataFrame({"f": range(4), "label": [0, 1, 2, 3], "split": ["train ", "val", "", "test"]})
    one = Graph.from_tables(EDGES, nodes, "label", unknown=2)
    assert one.y.tolist() == [0, 1, -1, 2]
    assert one.split.train.tolist() == [0]
    nodes["split"] = ["train", "val", "", ""]
    assert Graph.from_tables(EDGES, nodes, "label", unknown=("2", 3)).y.tolist() == [0, 1, -1, -1]
    with pytest.raises(InputError, match="'train' must have a label"):
        Graph.from_tables(EDGES, nodes, "label", unknown=["0"])
