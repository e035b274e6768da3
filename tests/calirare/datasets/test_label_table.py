"""Labels in a table of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from tests.helpers.command import QUICK, assert_refused, call, succeed

NODES = "id,amount\n" + "".join(f"a{i},{i % 7 + 5 * (i < 12)}\n" for i in range(60))
EDGES = "source,target\n" + "".join(f"a{i},a{(i + 1) % 60}\n" for i in range(60))
LABELS = "node,label\n" + "".join(f"a{i},{'fraud' if i < 12 else 'fine'}\n" for i in range(40))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "labels.csv").write_text(LABELS)
    return tmp_path


def test_labels_of_another_table_are_those_of_the_nodes(tables):
    (tables / "labels.csv").write_text(LABELS + "a50,?\na51, ? \n")
    graph = load_dataset(tables / "edges.csv", labels_file=tables / "labels.csv", unknown="?")
    assert graph.class_names == ("fine", "fraud")
    assert graph.y.tolist() == [1] * 12 + [0] * 28 + [-1] * 20
    assert graph.feature_names == ("amount",)
    labels = ("--labels-file", tables / "labels.csv", "--unknown", "?")
    succeed("train", "--dataset", tables / "edges.csv", *labels, *QUICK, "--out", tables / "r")
    succeed("suggest", tables / "r", "--top", 3)  # reads the data again


@pytest.mark.parametrize("text", ["customer,label\na3,fraud\na20,fine\n", "id,status\na3,fraud\na20,fine\na3,fraud\n"])
def test_of_two_columns_one_needs_a_name_alone_and_rows_may_be_repeated(text, tables):
    (tables / "labels.csv").write_text(text)
    graph = load_dataset(tables / "edges.csv", labels_file=tables / "labels.csv", split="all", rare_class="fraud")
    assert (int((graph.y == 1).sum()), int((graph.y == 0).sum())) == (1, 1)
    assert int(graph.y[3]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,label\na3,fraud\nnobody,fine\n", "graph 'edges' has no node 'nobody', in line 3: remove the row"),
        (
            "node,label\na3,fraud\na3,fine\n",
            "node 'a3' must have one label, got 'fraud' and 'fine' in line 3: keep one",
        ),
        ("node,when,what\na3,1,fraud\n", "one column must hold the nodes .* got node, when and what: name them so"),
        ("", "the file is empty"),
    ],
)
def test_what_cannot_be_labels_is_refused(text, message, tables):
    (tables / "labels.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_dataset(tables / "edges.csv", labels_file=tables / "labels.csv")


def test_labels_in_two_places_and_in_none_are_told(tables):
    said = call("train", "--dataset", tables / "edges.csv", *QUICK, "--out", tables / "r")
    assert "--labels-file FILE for a table of its own" in assert_refused(said)
    rows = NODES.splitlines()
    (tables / "nodes.csv").write_text("\n".join([rows[0] + ",label", *(row + ",fine" for row in rows[1:])]) + "\n")
    with pytest.raises(InputError, match=r"label 'fraud' is not a class of graph 'edges'. Its classes are fine"):
        load_dataset(tables / "edges.csv", labels_file=tables / "labels.csv")
    graph = load_dataset(tables / "edges.csv", labels_file=tables / "labels.csv", drop_columns=("label",))
    assert int((graph.y == 1).sum()) == 12
    marks = [",label", *(",fraud" if i == 50 else ",fine" for i in range(60))]
    (tables / "nodes.csv").write_text("\n".join(map(str.__add__, rows, marks)) + "\n")
    graph = load_dataset(tables / "edges.csv", labels_file=tables / "labels.csv", rare_class="fraud")
    assert graph.y.tolist() == [1] * 12 + [0] * 38 + [1] + [0] * 9, "the table's labels replace those of the data"
    assert any("40 labels, 40 in place of the data's own" in note for note in graph.notes)
