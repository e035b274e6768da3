"""Tables from folders of Parquet files, DuckDB databases and memory: the same graph as from files."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets import load_dataset, read_graph
from calirare.graph import Graph
from calirare.graph.tables import is_table, stem_of
from calirare.graph.tables import sources as table_sources

pyarrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow tables need pyarrow")
parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet and Arrow tables need pyarrow")

IDS = ["007", "7", "NA", "q-1", "é"]
NODES = pd.DataFrame({"node": IDS, "age": [1.0, 2, 3, 4, 5], "label": ["ok", "fraud", "ok", None, "fraud"]})
EDGES = pd.DataFrame({"source": IDS[:3], "target": IDS[1:4], "weight": [2.0, 1, 0.5], "kind": ["a", "b", "a"]})
UUIDS = [uuid.UUID(int=i * 7**40) for i in range(5)]


def same(got: Graph, want: Graph) -> None:
    assert torch.equal(got.adjacency.to_dense(), want.adjacency.to_dense())
    assert torch.equal(got.x, want.x)
    assert torch.equal(got.y, want.y)
    assert got.node_names.tolist() == want.node_names.tolist()
    assert got.notes == want.notes


@pytest.fixture
def want(tmp_path) -> Graph:
    NODES.to_csv(tmp_path / "n.csv", index=False)
    EDGES.to_csv(tmp_path / "e.csv", index=False)
    return load_dataset(tmp_path / "e.csv", nodes=tmp_path / "n.csv", rare_class="fraud")


def spark(folder: Path, table: pd.DataFrame, rows: int = 2) -> Path:
    """Writes part files as Spark does."""
    folder.mkdir(parents=True)
    for name in ("_SUCCESS", ".part-0.parquet.crc"):
        (folder / name).write_bytes(b"")
    for i in range(0, len(table), rows):
        table.iloc[i : i + rows].to_parquet(folder / f"part-{i:05d}.snappy.parquet", index=False)
    return folder


def database(path: Path, **tables: pd.DataFrame) -> Path:
    duckdb = pytest.importorskip("duckdb", reason="tables of DuckDB need duckdb")
    with duckdb.connect(str(path)) as engine:
        for name, table in tables.items():
            engine.register("given", table)
            engine.execute(f'CREATE TABLE "{name.replace(chr(34), chr(34) * 2)}" AS SELECT * FROM given')
            engine.unregister("given")
    return path


def test_folders_of_part_files_are_tables(tmp_path, want):
    edges = spark(tmp_path / "edges", EDGES)
    spark(tmp_path / "nodes", NODES, 3)
    same(load_dataset(edges, rare_class="fraud"), want)  # the folder beside it holds the nodes
    got = load_dataset(f"{edges}/", nodes=tmp_path / "n.csv", rare_class="fraud", relation="kind")
    assert [relation.name for relation in got.relations] == ["a", "b"]
    assert stem_of(f"{edges}/") == got.name == "edges"


def test_names_of_folders_are_a_column_of_text(tmp_path, want):
    for kind, rows in NODES.groupby(NODES["label"].fillna("__HIVE_DEFAULT_PARTITION__")):
        spark(tmp_path / "parted" / f"label={kind}", rows.drop(columns="label"))
    got = load_dataset(tmp_path / "e.csv", nodes=tmp_path / "parted", rare_class="fraud")
    assert dict(zip(got.node_names.tolist(), got.y.tolist(), strict=True)) == dict(
        zip(IDS, want.y.tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (EDGES.rename(columns={"kind": "sort"}), "all part files must have the same columns, but 'kind' is in"),
        (EDGES.assign(weight="heavy"), r"a column must be of one type in all part files \("),
        (EDGES.assign(target="x"), "node 'x' has none, named in row 3 and 2 more"),
        (EDGES.assign(source=None), "both ends of an edge must be given, but 'source' is empty in row 3"),
    ],
)
def test_a_fault_of_a_part_file_names_the_folder(tmp_path, want, second, message):
    edges = spark(tmp_path / "edges", EDGES, 3)
    second.to_parquet(edges / "part-2.parquet", index=False)
    with pytest.raises(InputError, match=message) as error:
        load_dataset(edges, nodes=tmp_path / "n.csv", rare_class="fraud")
    assert str(error.value).startswith(str(edges))


def test_a_damaged_part_file_and_an_empty_folder_are_named(tmp_path, want):
    edges = spark(tmp_path / "edges", EDGES)
    (edges / "part-9.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match=r"edges: the table cannot be read \("):
        load_dataset(edges, nodes=tmp_path / "n.csv")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="none: the folder must hold Parquet files"):
        load_dataset(tmp_path / "e.csv", nodes=tmp_path / "none")


def test_a_folder_with_a_graph_stays_a_graph(tmp_path, want):
    want.to_folder(tmp_path / "graph")
    EDGES.to_parquet(tmp_path / "graph" / "part-0.parquet")
    assert not is_table(tmp_path / "graph")
    assert torch.equal(read_graph(tmp_path / "graph")[0].x, want.x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edges", 'x"; DROP TABLE nodes; --', "a//b/../é edges.csv"])
def test_tables_of_duckdb_are_tables_whatever_their_names(tmp_path, want, name):
    path = database(tmp_path / "my.duckdb", **{name: EDGES, "nodes": NODES})
    got = load_dataset(f"{path}::{name}", nodes=f"{path}::nodes", rare_class="fraud")
    same(got, want)
    assert "/" not in stem_of(f"{path}::{name}")
    if name == "edges":
        same(load_dataset(f"{path}::edges", rare_class="fraud"), want)  # nodes stand beside it
        same(load_dataset(f"{path}::main.edges", nodes=tmp_path / "n.csv", rare_class="fraud"), want)


def test_uuids_of_duckdb_meet_those_in_text(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="tables of DuckDB need duckdb")
    nodes = NODES.assign(node=[str(each) for each in UUIDS])
    nodes.to_csv(tmp_path / "n.csv", index=False)
    with duckdb.connect(str(tmp_path / "u.duckdb")) as engine:
        engine.execute("CREATE TABLE plain (source UUID, target UUID)")
        engine.execute("INSERT INTO plain VALUES (?, ?)", [str(UUIDS[0]), str(UUIDS[1])])
        engine.execute("CREATE VIEW edges AS SELECT * FROM plain")
    got = load_dataset(f"{tmp_path}/u.duckdb::edges", nodes=tmp_path / "n.csv", rare_class="fraud")
    assert got.adjacency.indices.tolist() == [1, 0]


def test_what_is_wrong_with_a_database_is_one_sentence(tmp_path, want, monkeypatch):
    duckdb = pytest.importorskip("duckdb", reason="tables of DuckDB need duckdb")
    path = database(tmp_path / "my.duckdb", edges=EDGES, nodes=NODES)
    with duckdb.connect(str(path)) as engine:
        engine.execute("CREATE VIEW thief AS SELECT * FROM read_csv('/etc/passwd')")
    (tmp_path / "junk.duckdb").write_bytes(b"junk" * 5000)
    for name, message in (
        ("my.duckdb::edge", r"my.duckdb::edge: there is no such table; the tables are edges, nodes, thief"),
        ("my.duckdb::thief", "the table cannot be read .*disabled"),
        ("none.duckdb::edges", "none.duckdb: there is no such file"),
        ("junk.duckdb::edges", "junk.duckdb::edges: the table cannot be read"),
    ):
        with pytest.raises(InputError, match=message) as error:
            load_dataset(f"{tmp_path}/{name}", nodes=tmp_path / "n.csv")
        assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"a DuckDB table needs duckdb and pyarrow: pip install 'calirare\[duckdb\]'"):
        load_dataset(f"{path}::edges", nodes=tmp_path / "n.csv")


def test_a_file_of_that_very_name_goes_before_a_table(tmp_path, want):
    path = tmp_path / "x.duckdb::e.csv"
    path.write_text((tmp_path / "e.csv").read_text())
    same(load_dataset(path, nodes=tmp_path / "n.csv", rare_class="fraud"), want)


@pytest.mark.parametrize("kind", ["pandas", "objects", "arrow", "capsule"])
def test_tables_in_memory_are_a_graph(kind, want):
    class Capsule:
        def __init__(self, table):
            self.table = table

        def __arrow_c_stream__(self, schema=None):
            return self.table.__arrow_c_stream__(schema)

    made = {
        "pandas": lambda table: table,
        "objects": lambda table: table.astype(object),
        "arrow": lambda table: pyarrow.Table.from_pandas(table),
        "capsule": lambda table: Capsule(pyarrow.Table.from_pandas(table)),
    }[kind]
    edges, nodes = made(EDGES), made(NODES.astype({"age": float}))
    same(Graph.from_tables(edges, nodes, name="mine").rare("fraud"), want)


WAYS = {
    "text": lambda ids: pyarrow.array([str(each) for each in ids]),
    "large text": lambda ids: pyarrow.array([str(each) for each in ids], pyarrow.large_string()),
    "dictionary": lambda ids: pyarrow.array([str(each) for each in ids]).dictionary_encode(),
    "bytes": lambda ids: pyarrow.array([each.bytes for each in ids], pyarrow.binary(16)),
    "objects": lambda ids: list(ids),
    "objects of bytes": lambda ids: [each.bytes for each in ids],
}


@pytest.mark.parametrize(
    ("of_nodes", "of_edges"), [*zip(WAYS, [*WAYS][1:] + [*WAYS][:1], strict=True), ("text", "bytes")]
)
def test_uuids_are_the_same_names_however_they_are_held(of_nodes, of_edges):
    def table(way: str, **columns) -> object:
        made = pd.DataFrame if way.startswith("objects") else pyarrow.table
        return made({name: WAYS[way](ids) if name != "f" else ids for name, ids in columns.items()})

    nodes, edges = table(of_nodes, node=UUIDS, f=[1.0, 2, 3, 4, 5]), table(of_edges, u=UUIDS[:2], v=UUIDS[3:])
    graph = Graph.from_tables(edges, nodes)
    assert graph.node_names.tolist() == [str(each) for each in UUIDS]
    assert graph.adjacency.to_dense().nonzero().tolist() == [[0, 3], [1, 4], [3, 0], [4, 1]]


def test_names_of_several_types_are_refused():
    mixed, plain = [1, "a", UUIDS[0]], ["1", "a", "b"]
    nodes = pd.DataFrame({"node": pd.Series(mixed, dtype=object), "f": [1.0, 2, 3]})
    edges = pd.DataFrame({"source": plain[:2], "target": plain[1:]})
    with pytest.raises(
        InputError, match="table 'nodes': names of the nodes must be of one type, but 'node' mixes UUID"
    ):
        Graph.from_tables(edges, nodes)
    ends = pd.DataFrame({"source": pd.Series([1, "a"], dtype=object), "target": plain[1:]})
    with pytest.raises(
        InputError, match="table 'edges': ends of edges must be of one type, but 'source' mixes int and"
    ):
        Graph.from_tables(ends, nodes.assign(node=plain))
    with pytest.raises(InputError, match=r"table 'edges': must be a pandas DataFrame, a pyarrow Table or .*, got list"):
        Graph.from_tables([(0, 1)], nodes)


def test_blocks_of_rows_give_the_graph_of_the_whole_table(tmp_path, monkeypatch):
    from calirare.graph.tables import files as table_ends

    rng, n = np.random.default_rng(0), 300
    names = np.array([f"acct-{i:03d}" for i in range(n)])
    nodes = pd.DataFrame({"node": names, "f": rng.random(n)})
    edges = pd.DataFrame({"source": names[rng.integers(0, n, 2000)], "target": names[rng.integers(0, n, 2000)]})
    spark(tmp_path / "edges", edges, 170)
    edges.to_csv(tmp_path / "e.csv", index=False)
    want = Graph.from_tables(edges, nodes)
    nodes.to_parquet(tmp_path / "nodes.parquet")
    monkeypatch.setattr(table_sources, "ROWS", 64)
    monkeypatch.setattr(table_ends, "SEARCHED", (200, 200))
    for path in (tmp_path / "edges", tmp_path / "e.csv"):
        got = Graph.from_edges(path, tmp_path / "nodes.parquet")
        for part in ("indptr", "indices", "values"):
            assert torch.equal(getattr(got.adjacency, part), getattr(want.adjacency, part))
        assert got.notes == want.notes
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)
    assert torch.equal(Graph.from_tables(edges, nodes).adjacency.indices, want.adjacency.indices)


def test_a_database_without_a_table_says_which_there_are(tmp_path):
    path = database(tmp_path / "my.duckdb", edges=EDGES, nodes=NODES)
    for read in (lambda: load_dataset(path), lambda: load_dataset(f"{path}::edges", nodes=path)):
        with pytest.raises(InputError, match=r"say which table .*, such as my.duckdb::edges; there are edges, nodes"):
            read()
