"""Names that floats have cut short or that look like another; labels in other spellings and for none."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from calirare import Graph, InputError, load_dataset
from calirare.datasets.label_table import with_label_table
from calirare.explain import nodes_named
from calirare.graph.spelling import find_name, is_value
from calirare.graph.tables import Table
from calirare.graph.tables.labels import labels_of
from calirare.graph.tables.name_faults import look_alikes, lost_digits, why_unknown
from calirare.run.data_settings import Labels
from calirare.run.explaining import read_node_column

BIG = 10**17
KINDS = ["float64", "Float64", "double[pyarrow]", "float32", "float16"]


def tables(first=BIG):
    """Returns an edge table and a node table of six nodes with names from a number on."""
    ids = np.array([first + k for k in range(6)])
    nodes = pd.DataFrame({"id": ids, "a": range(6), "label": [0, 1] * 3})
    return pd.DataFrame({"source": ids[:-1], "target": ids[1:]}), nodes


@pytest.mark.parametrize("kind", KINDS)
def test_floats_that_are_exact_no_longer_are_no_names(kind):
    bits = {"float32": 24, "float16": 11}.get(kind, 53)
    exact, beyond = (pd.Series([1, 2**bits + more], dtype="float64").astype(kind) for more in (-1, 0))
    assert lost_digits(exact.rename("id"), "t") == []
    (fault,) = lost_digits(beyond.rename("id"), "t")
    assert fault.startswith("t: ")
    for fact in ("lose digits", f"2^{bits}", "column 'id'", "in row 1", "as text or int64"):
        assert fact in fault


@pytest.mark.parametrize(
    ("cells", "lost"),
    [
        (["1.0000000000000002e+17", "7"], True),
        (["1e17"], True),
        (["100000000000000001.0"], True),
        (["1.23457E+11", "a7"], True),
        (["1e17", "a7"], False),
        (["9007199254740993", "1e5", "12.0", "1.5E+10"], False),
        (["1.23456789012E11"], False),
        (["", None], False),
    ],
)
@pytest.mark.parametrize("kind", [object, "str"])
def test_text_that_was_a_float_is_no_name(cells, lost, kind):
    column = pd.Series(cells, dtype=kind, name="id")
    assert bool(lost_digits(column, "t", text=True)) == lost
    assert lost_digits(column, "t") == []


def test_names_of_other_kinds_keep_their_digits():
    edges, nodes = tables()
    above = tables(2**63)
    assert Graph.from_tables(*above).node_names[1] == str(2**63 + 1)
    for cells in (edges.map(Decimal), edges.map(lambda cell: Decimal(f"{cell}.00")), edges.astype("uint64")):
        for table in (cells, pa.Table.from_pandas(cells)):
            assert Graph.from_tables(table, nodes).n_edges == 10
    edges, nodes = tables(1000)
    for kind in KINDS:
        for table in (edges.astype(kind), edges.astype(kind).astype(object)):
            assert Graph.from_tables(table, nodes).n_edges == 10
        assert Graph.from_tables(edges, nodes.astype({"id": kind})).n_edges == 10


def test_every_table_of_names_refuses_floats_that_lost_digits(tmp_path):
    edges, nodes = tables()
    graph = Graph.from_tables(edges, nodes)
    rows = pd.DataFrame({"node": nodes["id"].astype(float), "label": "1"})
    rows.to_parquet(tmp_path / "l.parquet")
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.astype(float).to_csv(tmp_path / "edges.csv", index=False)
    bare = Graph.from_tables(edges, nodes.drop(columns="label"))
    readers = [
        lambda: Graph.from_tables(edges.astype(float), nodes),
        lambda: Graph.from_tables(edges.astype(float).astype(object), nodes),
        lambda: Graph.from_tables(pa.Table.from_pandas(edges.astype(float)), nodes),
        lambda: Graph.from_tables(edges, nodes.astype({"id": float})),
        lambda: Graph.from_tables(edges.astype(float), nodes, unknown_ends="add"),
        lambda: load_dataset(tmp_path / "edges.csv"),
        lambda: load_dataset(tmp_path / "edges.csv", unknown_ends="add"),
        lambda: with_label_table(bare, tmp_path / "l.parquet"),
        lambda: Labels.read(tmp_path / "l.parquet", graph),
        lambda: Labels.forgotten(tmp_path / "l.parquet", graph),
        lambda: read_node_column(tmp_path / "l.parquet", "label", graph),
        lambda: nodes_named(graph, "1e+17"),
        lambda: dataclasses.replace(graph, node_names=nodes["id"].to_numpy(np.float64)),
    ]
    for read in readers:
        with pytest.raises(InputError, match=r"los.* digits.* as text or int64"):
            read()


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Jose\u0301 7", r"'Jose\u0301 7'"),
        ("Jos\u00e9 7\u200b", r"\u200b"),
        ("Jos\u00e9\u00ad 7", r"\xad"),
        ("Jos\u00e9\u00a07", r"\xa0"),
        ("Jos\u00e9 \uff17", r"\uff17"),
        ("JOS\u00c9 7", "JOS"),
        ("Jos\u00e9 7.0", "7.0"),
        ("Jose 7", ""),
    ],
)
def test_a_name_that_looks_like_another_is_found(name, written):
    known = ["Ann", "Jos\u00e9 7"]
    why = why_unknown(name, known)
    assert written in why
    assert ("'Jos\u00e9 7'" in why) == ("one way" in why) == bool(written)
    assert len(look_alikes(pd.Series([name]), pd.Series(known))) == bool(written)


def test_every_table_of_names_says_which_node_looks_the_same(tmp_path):
    nodes = pd.DataFrame({"id": ["Jos\u00e9", "b", "c"], "a": [1, 2, 3]})
    edges = pd.DataFrame({"source": ["Jose\u0301", "c"], "target": ["b", "b"]})
    graph = Graph.from_tables(edges.iloc[1:], nodes)
    pd.DataFrame({"node": ["b", "Jose\u0301"], "label": ["x", "y"]}).to_csv(tmp_path / "l.csv", index=False)
    readers = [
        lambda: Graph.from_tables(edges, nodes),
        lambda: with_label_table(graph, tmp_path / "l.csv"),
        lambda: Labels.read(tmp_path / "l.csv", graph),
        lambda: read_node_column(tmp_path / "l.csv", "label", graph),
    ]
    for read in readers:
        with pytest.raises(InputError, match=r"looks like node 'Jos\u00e9' but is .*one way"):
            read()
    for how in ("add", "drop"):
        notes = Graph.from_tables(edges, nodes, unknown_ends=how).notes
        assert any("looks like node 'Jos\u00e9'" in note for note in notes)


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
