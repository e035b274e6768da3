"""Tables with text, dates and gaps: what each column is taken for, and what is refused."""

import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
import torch

from calirare._util.errors import FaultsError, InputError
from calirare.features.raw_table import read_table
from calirare.graph import Column, Graph, normalize_features
from calirare.graph.matching import features_by_name
from calirare.graph.tables import Table
from calirare.graph.tables.node_cells import NodeCells, written_numbers
from tests.helpers.tables import texts

NODES = """id,amount,city,joined,vip,region,label
a,1.5,Bern,2024-01-01,True,1,0
b,,Oslo,2024-01-02 12:00,False,2,0
c,3,,2024-01-03,,1,1
d,4,Bern,,True,3,
"""
EDGES = "source,target\na,b\nb,c\nc,d\n"


@pytest.fixture
def write(tmp_path):
    return lambda nodes=NODES, edges=EDGES: texts(tmp_path, nodes, edges)


def read(path: Path, **options) -> Graph:
    return Graph.from_edges(path, None, symmetrize=True, **options)


def test_each_column_is_what_its_cells_are(write):
    graph = read(write())
    assert graph.columns == (
        Column("amount"),
        Column("city", "categorical", ("Bern", "Oslo")),
        Column("joined", "date"),
        Column("vip"),
        Column("region"),
    )
    nan = float("nan")
    day = 8766  # 1 January 2024, of 24 years with six leap days
    want = np.array([[1.5, 0, day, 1, 1], [nan, 1, day + 1.5, 0, 2], [3, nan, day + 2, nan, 1], [4, 0, nan, 1, 3]])
    assert np.array_equal(graph.x.numpy(), want.astype(np.float32), equal_nan=True)
    assert graph.feature_names == ("amount", "city", "joined", "vip", "region")
    assert graph.y.tolist() == [0, 0, 1, -1]


def test_columns_that_are_left_out_are_not_read(write):
    path = write(NODES.replace("2024-01-03", "a while ago"))
    with pytest.raises(FaultsError, match="joined"):
        read(path)
    graph = read(path, drop_columns=("joined", "vip"))
    assert graph.feature_names == ("amount", "city", "region")
    with pytest.raises(
        InputError, match=r"no column 'nope' to leave out; the columns are id, amount, .*: name another"
    ):
        read(write(), drop_columns=("nope",))
    assert read(write(), drop_columns=("nope",), need_label=False).n_features == 5  # as another month's table


def test_y_beside_x_is_a_place_where_another_column_has_the_labels(write):
    path = write(NODES.replace("amount", "x").replace("region", "y"))
    graph = Graph.from_edges(path, None, "label", symmetrize=True)
    assert graph.feature_names == ("x", "city", "joined", "vip", "y")
    with pytest.raises(FaultsError, match="one column must hold the labels, got 'y' and 'label'"):
        read(path)
    with pytest.raises(FaultsError, match="one column must hold the labels, got 'y' and 'label'"):
        Graph.from_edges(write(NODES.replace("region", "y")), None, "label", symmetrize=True)


def in_memory(**column) -> Graph:
    nodes = pd.DataFrame({"id": list("abcd"), "label": [0, 0, 1, None]} | column)
    return Graph.from_tables(pd.DataFrame({"source": list("abc"), "target": list("bcd")}), nodes, "label")


def test_durations_are_days():
    graph = in_memory(open=pd.to_timedelta(["1h", "2 days", None, "36h"]))
    assert graph.columns == (Column("open"),)
    assert np.array_equal(graph.x[:, 0].numpy(), np.float32([1 / 24, 2, np.nan, 1.5]), equal_nan=True)


def test_a_number_beyond_the_range_of_squares_is_named_with_its_line(write):
    path = write(NODES.replace("c,3,", "c,1e25,"))
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value) == (
        f"{path.with_name('nodes.csv')}: features must be from -1e+19 to 1e+19, but column 'amount' holds 1e+25 in "
        "line 4 (node c): fix the cell, or scale the column first (sums of squares would exceed float32)"
    )


@pytest.mark.parametrize("cell", [[1.0, 2.0], np.ones(2), {"a": 1}, 1j, b"\xff\x00"])
def test_cells_that_hold_more_than_one_thing_are_refused(cell):
    told = rf"column 'v' must hold a number, a name or a date, got {type(cell).__name__} in row 1 \(node b\) and 2 more"
    with pytest.raises(InputError, match=told):
        in_memory(v=pd.Series([None, cell, cell, cell], dtype=object))


def test_parquet_gives_the_same_columns(write, tmp_path):
    path = write()
    want = read(path)
    table = pd.read_csv(tmp_path / "nodes.csv")
    table["joined"] = pd.to_datetime(table["joined"], format="ISO8601", utc=True)
    table["city"] = table["city"].astype("category")
    table["vip"] = table["vip"].astype("boolean")
    table.to_parquet(tmp_path / "n.parquet")
    got = Graph.from_edges(path, tmp_path / "n.parquet", symmetrize=True)
    assert got.columns == want.columns
    assert np.array_equal(got.x.numpy(), want.x.numpy(), equal_nan=True)


def test_a_table_of_numbers_has_no_columns_to_map(write):
    graph = read(write("id,a,b\np,1,2\nq,3,4\n", "u,v\np,q\n"))
    assert graph.columns == ()
    assert normalize_features(graph).x is graph.x


def test_numbers_are_names_where_wanted(write):
    graph = read(write(NODES.replace(",1,0", ",01,0")), one_hot=("region",))
    assert graph.columns[4] == Column("region", "categorical", ("01", "1", "2", "3"))
    with pytest.raises(
        InputError, match="there is no feature column 'place' to read as names; the features are amount"
    ):
        read(write(), one_hot=("place",))


def test_columns_may_be_named(write):
    path = write("phone,f\n7,1\n8,2\n", "when,caller,called\n1,7,8\n2,8,7\n")
    graph = Graph.from_edges(path, None, id="phone", source_column="caller", target_column="called")
    assert graph.node_names.tolist() == ["7", "8"]
    assert graph.adjacency.to_dense().tolist() == [[0, 1], [1, 0]]
    with pytest.raises(FaultsError, match=r"there is no column 'from'; .*\n.*both ends must be named: pass --source"):
        Graph.from_edges(path, None, id="phone", source_column="from")
    with pytest.raises(InputError, match="there is no column 'mobile'; the columns are phone, f"):
        Graph.from_edges(path, None, id="mobile", source_column="caller", target_column="called")
    with pytest.raises(InputError, match="id must be left out for arrays, they are for tables"):
        Graph.from_edges([[0, 1], [1, 0]], torch.ones(2, 1), id="phone")


def test_dates_that_can_be_read_two_ways_are_refused(write):
    nodes = NODES.replace("2024-01-02 12:00", "02/01/2024").replace("2024-01-01", "01/01/2024")
    nodes = nodes.replace("2024-01-03", "03/01/2024")
    with pytest.raises(InputError, match=r"'joined' holds '01/01/2024' among dates in line 2 .*2024-01-31"):
        read(write(nodes))


@pytest.mark.parametrize("cell", ["1,234", "$12", "5 %", "1 234", "1.234.567", "-1,234.50 €"])
def test_numbers_that_can_be_read_in_more_ways_are_refused_and_can_be_names(cell):
    cells = pd.DataFrame({"amount": [cell, cell, "7", None], "zip": ["00501", "10115", "00501", "1,5"]})
    table = Table(cells, Path("nodes.csv"))
    assert NodeCells(table).read(["amount", "zip"])[1][1].kind == "categorical"
    assert table.faults == [
        f"nodes.csv: column 'amount' holds {cell!r} among numbers in line 2 and 1 more: fix the cell (1234.5), leave "
        "it empty if unknown, or read all cells as categories when training (--one-hot amount)"
    ]
    table = Table(cells, Path("nodes.csv"))
    assert NodeCells(table, {"amount": "categorical"}).read(["amount"])[1][0].kind == "categorical"
    assert not table.faults


def test_empty_cells_are_refused_where_wanted_with_all_other_faults(write):
    nodes = NODES.replace("d,4", "a,4").replace("Bern,2024-01-01", "Bern,soon")
    with pytest.raises(FaultsError) as error:
        read(write(nodes, EDGES + "a,a\n"), impute="error", self_loops="error")
    found = [fault.rpartition("csv: ")[2] for fault in error.value.faults]
    assert [fault.partition(" in line ")[0] for fault in found] == [
        "the node table lists node a more than once, again",
        "must have a value for every node, but column 'amount' is empty",
        "must have a value for every node, but column 'city' is empty",
        "column 'joined' holds 'soon' among dates",
        "must have a value for every node, but column 'joined' is empty",
        "must have a value for every node, but column 'vip' is empty",
        "every end of an edge must have a row in the node table, but node 'd' has none, named",
        "edges must not join a node to itself, but line 5 joins node a to itself: pass self_loops='drop' or 'keep' "
        "(command line: --self-loops drop)",
    ]


PARTLY = {
    "truth": (["true", "false", "unknown"], "true"),
    "prices": (["1.50", "n.a.", "other"], "1.50"),
    "hex": (["1e5", "a3f", "7d1"], "1e5"),
    "numbers": (["+41", "x", "y"], "+41"),
    "long": (["123456789", "A1", "B2"], "123456789"),
    "zeros": (["007", "7", "x"], "007"),
    "days": (["2024-01-01", "A1", "B2"], "2024-01-01"),
    "endless": (["inf", "A1", "B2"], "inf"),
    "one": (["a", "b", "c"], "a"),
}


@pytest.mark.parametrize("name", PARTLY)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_cell_of_a_run_is_the_same_name_in_every_table(name, suffix, tmp_path):
    cells, one = PARTLY[name]
    columns = (Column("c", "categorical", tuple(sorted(cells))),)
    nodes = pd.DataFrame({"id": range(4), "c": [one, one, None, one]})
    pd.DataFrame({"source": [0], "target": [1]}).to_csv(tmp_path / "edges.csv", index=False)
    path = tmp_path / f"nodes{suffix}"
    nodes.to_csv(path, index=False) if suffix == ".csv" else nodes.to_parquet(path, index=False)
    graph = Graph.from_edges(tmp_path / "edges.csv", path, kinds={"c": "categorical", "gone": "date"})
    table = read_table(graph, columns, {}, print)
    place = columns[0].categories.index(one)
    assert np.array_equal(table.column(0), [place, place, np.nan, place], equal_nan=True)


def test_what_a_run_has_as_numbers_is_read_as_numbers():
    kinds = {"v": "numeric"}
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 2]})

    def read_as(cells):
        return Graph.from_tables(edges, pd.DataFrame({"id": range(3), "v": cells}), kinds=kinds)

    for cells, numbers in (
        (["007", "12", None], [7, 12, np.nan]),
        (["true", "FALSE", "3"], [1, 0, 3]),
        (["$1,234.50", "$2.00", None], [1234.5, 2, np.nan]),
        (pd.Categorical(["007", "8", "9"]), [7, 8, 9]),
    ):
        assert np.array_equal(read_as(cells).x[:, 0].numpy(), np.array(numbers, np.float32), equal_nan=True)
    with pytest.raises(InputError, match=r"'v' holds 'x' where the run has numbers, in row 1 \(node 1\) and 1 more"):
        read_as(["1", "x", "y"])
    kinds["v"] = "date"
    assert read_as(["2024", "2024-01-02", None]).x[:2, 0].tolist() == [8766, 8767]
    with pytest.raises(InputError, match=r"'v' holds 'soon' where the run has dates, in row 2"):
        read_as(["2024", "2024-01-02", "soon"])


@pytest.mark.parametrize("how", ["parquet", "arrow", "category", "one_hot", "string"])
def test_text_without_a_letter_is_a_missing_value(how, tmp_path):
    edges = pd.DataFrame({"source": ["a"], "target": ["b"]})
    nodes = pd.DataFrame({"id": list("abcd"), "c": ["", "x", "y", None], "v": ["1", "", "2.5", "7"]})
    options = {"one_hot": ("c",)} if how == "one_hot" else {}
    if how == "parquet":
        nodes.to_parquet(tmp_path / "nodes.parquet")
        graph = Graph.from_tables(edges, pyarrow.parquet.read_table(tmp_path / "nodes.parquet"))
    elif how == "arrow":
        graph = Graph.from_tables(edges, pyarrow.Table.from_pandas(nodes))
    else:
        nodes["c"] = nodes["c"].astype({"one_hot": object}.get(how, how))
        graph = Graph.from_tables(edges, nodes, **options)
    assert graph.columns == (Column("c", "categorical", ("x", "y")), Column("v"))
    want = np.array([[np.nan, 1], [0, np.nan], [1, 2.5], [np.nan, 7]], np.float32)
    assert np.array_equal(graph.x.numpy(), want, equal_nan=True)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_of_categories_have_one_spelling(suffix, tmp_path):
    code = ["10.0", "10", " 10 ", "1.50", "v1.0", "", "  ", None, "True", "true", " x"]
    nodes = pd.DataFrame({"id": range(11), "code": code, "float": [10.0, 20.0, np.nan, 10.0] + [20.5] * 7})
    path = tmp_path / f"nodes{suffix}"
    nodes.to_csv(path, index=False) if suffix == ".csv" else nodes.to_parquet(path)
    pd.DataFrame({"source": [0], "target": [1]}).to_csv(tmp_path / "edges.csv", index=False)
    graph = Graph.from_edges(tmp_path / "edges.csv", path, one_hot=("code", "float"))
    cells = zip(graph.columns, graph.x.numpy().T, strict=True)
    names = [[None if np.isnan(code) else column.categories[int(code)] for code in x] for column, x in cells]
    assert names[0] == ["10", "10", "10", "1.50", "v1.0", None, None, None, "true", "true", "x"]
    assert names[1] == ["10", "20", None, "10"] + ["20.5"] * 7
    record, columns = features_by_name([{"code": cell, "float": 10} for cell in code], graph)
    again = [None if np.isnan(x) else columns[0].categories[int(x)] for x in record[:, 0].tolist()]
    assert again == names[0]
    for cell in (10, 10.0, np.float32(10), "10.0", decimal.Decimal("10.00")):
        assert [each.categories for each in features_by_name({"code": cell, "float": cell}, graph)[1]] == [("10",)] * 2
    assert features_by_name({"code": True, "float": 20.5}, graph)[1][0].categories == ("true",)


RNG = np.random.default_rng(0)
Z = RNG.normal(size=40)


def notes_of(tmp_path, values):
    pd.DataFrame({"node": range(40), "z": values, "label": np.arange(40) % 2}).to_csv(tmp_path / "n.csv", index=False)
    edges = pd.DataFrame({"source": range(39), "target": range(1, 40)})
    edges.to_csv(tmp_path / "e.csv", index=False)
    return [note for note in Graph.from_edges(tmp_path / "e.csv", tmp_path / "n.csv").notes if "rounded" in note]


@pytest.mark.parametrize("values", [Z + 1e8, 600 * Z + 1.7e9, np.round(1000 * Z) + 2.0**40])
def test_columns_that_lose_what_they_tell(tmp_path, values):
    (note,) = notes_of(tmp_path, values)
    assert note.startswith("nodes: 'z' is rounded by up to ")
    assert f"subtract {np.median(values):.10g} or so" in note


@pytest.mark.parametrize(("hours", "told"), [(1, True), (24 * 30, False)])
def test_times_that_float32_does_not_tell_apart(tmp_path, hours, told):
    times = pd.Timestamp("2026-01-01T12:00:07") + pd.to_timedelta(hours * RNG.random(40), "h")
    notes = notes_of(tmp_path, times.strftime("%Y-%m-%d %H:%M:%S"))
    assert [note.startswith("nodes: 'z' is rounded by up to 4") for note in notes] == [True] * told


def test_a_column_known_to_hold_names_is_not_read_as_numbers():
    table = Table(pd.DataFrame({"a": np.arange(4.0), "b": np.arange(4.0)}), "table")
    _, columns = NodeCells(table, {"b": "categorical"}).read(["a", "b"])
    assert [column.kind for column in columns] == ["numeric", "categorical"]


WRITTEN = {
    "English": (["$1,234.50", "$7", None, "$-12.5"], [1234.5, 7, np.nan, -12.5]),
    "codes": (["USD 1,234.50", "USD7", None, "USD -12.50"], [1234.5, 7, np.nan, -12.5]),
    "codes behind": (["12,50 EUR", "1.234,00 EUR", None, "3 EUR"], [12.5, 1234, np.nan, 3]),
    "Swiss": (["1'234", "1'000'000.5", None, "7"], [1234, 1000000.5, np.nan, 7]),
    "thousands": (["1,234", "12.5", None, "1,234,567"], [1234, 12.5, np.nan, 1234567]),
    "continental": (["12,50 €", "1.234,00 €", None, "3 €"], [12.5, 1234, np.nan, 3]),
    "narrow blanks": (["1\u202f234\u00a0€", "56\u00a0€", None, "7 €"], [1234, 56, np.nan, 7]),
    "losses": (["1,234.50", "(5.00)", None, "(1,000.25)"], [1234.5, -5, np.nan, -1000.25]),
    "losses of money": (["$12", "$(5.00)", None, "($7)"], [12, -5, np.nan, -7]),
    "per cent": (["5 %", "12.5%", None, "1\u00a0%"], [5, 12.5, np.nan, 1]),
}
KINDS = ["object", "str", "string[pyarrow]"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WRITTEN)
def test_cells_are_read_whatever_holds_them(way, kind):
    cells, numbers = WRITTEN[way]
    assert np.array_equal(written_numbers(pd.Series(cells, dtype=kind)), numbers, equal_nan=True)


@pytest.mark.parametrize(
    "cells", [["USD 1.50", "EUR 2.50"], ["ABC 123", "ABC 124"], ["USD", "USD 3"], ["1 USD 2"], ["(12)", "(13)"]]
)
def test_names_and_more_than_one_currency_are_no_numbers(cells):
    assert written_numbers(pd.Series(cells)) is None


def test_a_column_of_them_is_numeric_and_a_note_says_so():
    table = Table(pd.DataFrame({"amount": ["1.234,5", "12", None]}), "nodes.csv")
    x, columns = NodeCells(table).read(["amount"])
    assert (columns[0].kind, x[:2, 0].tolist(), table.faults) == ("numeric", [1234.5, 12], [])
    assert table.notes[0].startswith("'amount' is read as numbers, ")
