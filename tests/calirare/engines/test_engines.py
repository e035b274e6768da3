"""DuckDB and Spark score the nodes of two tables as `calirare predict` scores the graph that the tables make."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import calirare
from calirare import engines
from calirare._util.errors import InputError
from calirare.engines.places import engine_of
from calirare.graph import Graph
from calirare.models.columns import ColumnRows
from tests.helpers.command import assert_refused, call, few_candidates, rough_runs, succeed
from tests.helpers.tasks import rare_task

TINY = 1e-6  # of P, ten times as close as promised
Tables = tuple[pd.DataFrame, pd.DataFrame]
Trained = tuple[calirare.run.SavedRun, Tables]


def accounts(seed: int = 0, n: int = 300, prefix: str = "a") -> Tables:
    """Nodes with names, numbers with gaps, text and labels; edges that are repeated, turned round and loops."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.2).astype(int)
    ends = rng.integers(0, n, (4 * n, 2))
    alike = rng.random(len(ends)) < 0.6
    ends[alike, 1] = [rng.choice(np.flatnonzero(y == y[one])) for one in ends[alike, 0]]
    ends = np.concatenate([ends, ends[:20], ends[20:40, ::-1], np.repeat(np.arange(5), 2).reshape(5, 2)])
    nodes = pd.DataFrame({"node": [f"{prefix}{i}" for i in range(n)], "amount": np.exp(rng.standard_normal(n) + y)})
    nodes["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.standard_normal(n) - y)
    nodes["kind"] = rng.choice(["shop", "person", "bank"], n)
    nodes["label"] = np.where(rng.random(n) < 0.5, y, -1)
    edges = pd.DataFrame(nodes.node.to_numpy()[ends], columns=["source", "target"])
    return nodes, edges.assign(weight=rng.integers(1, 9, len(edges)).astype(float))


def trained(model: str, tables: Tables, folder: Path, **settings: Any) -> calirare.run.SavedRun:
    nodes, edges = tables
    with rough_runs(), few_candidates():
        calirare.train(Graph.from_tables(edges, nodes), model=model, **settings).save(folder)
    return calirare.load(folder)


pytestmark = pytest.mark.filterwarnings("ignore:.*(infer_string|fetch_|pandas >= 3).*")  # of ibis and pyspark


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of the ensemble, which knows nodes by their names, and its tables. Read only."""
    nodes, edges = accounts()
    tables = nodes, edges.drop(columns="weight")
    return trained("auto", tables, tmp_path_factory.mktemp("runs") / "auto", decide="budget", budget=20), tables


@pytest.fixture(scope="module", params=["trees", "gcn", "auto"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Runs of several detectors; that of trees on edges with weights."""
    if request.param == "auto":
        return request.getfixturevalue("auto")
    nodes, edges = accounts()
    tables = (nodes, edges if request.param == "trees" else edges.drop(columns="weight"))
    settings = {"trees": {"folds": 3}, "gcn": {"folds": 0, "epochs": 30}}[request.param]
    return trained(request.param, tables, tmp_path_factory.mktemp("runs") / "run", **settings), tables


def in_duckdb(con: Any, tables: Tables) -> list[Any]:
    return [con.create_table(ibis.util.gen_name("t"), ibis.memtable(table)) for table in tables]


def assert_scored_alike(run: calirare.run.SavedRun, tables: Tables, found: Any) -> None:
    """Checks the scores of an engine by those of the graph in memory."""
    wanted = run.score(Graph.from_tables(tables[1], tables[0], need_label=False), say=lambda note: None)
    with engine_of(found) as engine:
        scores = engine.fetched(found).to_pandas().set_index("node").loc[wanted.table.node]
    for column in ("p_rare", "p_balanced", "p_raw"):
        np.testing.assert_allclose(scores[column], wanted.table[column], rtol=0, atol=TINY)
    assert (scores.alert.to_numpy() == wanted.table.alert.to_numpy()).all()
    assert len(scores) == len(tables[0])


def test_duckdb_scores_as_predict_does(run):
    saved, tables = run
    con = ibis.duckdb.connect()
    assert_scored_alike(saved, tables, engines.score(saved, *in_duckdb(con, tables)))
    later = accounts(seed=1, n=200, prefix="b")
    later = (later[0].drop(columns="label"), later[1][tables[1].columns])
    result, summary = engines.scored(saved, *in_duckdb(con, later))
    assert_scored_alike(saved, later, result)
    wanted = saved.score(Graph.from_tables(later[1], later[0], need_label=False), say=lambda note: None)
    assert summary.alerts == wanted.alerts
    assert summary.expected.expected == pytest.approx(wanted.expected.expected, abs=1e-3)
    kept = con.con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'calirare_%'").fetchall()
    assert kept == [(2,)]  # both results, and nothing that was made on the way


@pytest.mark.spark
def test_spark_scores_as_predict_does(run, spark):
    saved, tables = run
    given = [spark.con.table(spark.view(table)) for table in tables]
    assert_scored_alike(saved, tables, engines.score(saved, *given))


def test_names_of_other_nodes_use_no_labels(auto):
    saved, (nodes, edges) = auto
    other = accounts(seed=2, n=len(nodes))
    tables, notes = (other[0].drop(columns="label"), other[1][edges.columns]), list[str]()
    found = engines.score(saved, *in_duckdb(ibis.duckdb.connect(), tables), notes.append)
    assert_scored_alike(saved, tables, found)
    assert any("seem to be other nodes" in note for note in notes)


@pytest.mark.parametrize("mapped", [False, True])
def test_columns_are_those_that_detectors_read(auto, mapped):
    saved, (nodes, edges) = auto
    nodes = nodes if mapped else nodes.drop(columns=["kind", "age"])
    source = saved if mapped else calirare.Settings()
    found = engines.columns(source, *in_duckdb(ibis.duckdb.connect(), (nodes, edges))).to_pandas().set_index("node")
    graph = Graph.from_tables(edges, nodes)
    rows = ColumnRows(saved.scorer.prepared(graph) if mapped else graph, 2)
    wanted = pd.DataFrame(rows.every().numpy(), index=graph.node_names, columns=list(rows.names))[graph.y.numpy() >= 0]
    pd.testing.assert_frame_equal(
        found.drop(columns="label").loc[wanted.index], wanted, check_names=False, rtol=TINY, check_index_type=False
    )
    assert (found.label.loc[wanted.index].to_numpy() == graph.y.numpy()[graph.y.numpy() >= 0]).all()


def changed(**changes: Any) -> Any:
    def change(nodes: pd.DataFrame, edges: pd.DataFrame) -> Tables:
        return changes.get("nodes", lambda table: table)(nodes), changes.get("edges", lambda table: table)(edges)

    return change


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (changed(nodes=lambda table: table.drop(columns="age")), ("3 features", "and not age")),
        (changed(nodes=lambda table: pd.concat([table, table[:2]])), ("302 rows", "2 repeat one")),
        (changed(nodes=lambda table: table[1:]), ("'a0' has none", "--unknown-ends drop")),
        (changed(nodes=lambda table: table.assign(amount="much")), ("'amount' holds 'much'", "fix the cell")),
        (changed(edges=lambda table: table.assign(weight=-1.0)), ("finite and > 0", "'weight': -1.0")),
        (
            changed(edges=lambda table: table.assign(source2=1).rename(columns={"source": "payer"})),
            ("payer", "--source"),
        ),
    ],
)
def test_wrong_tables_are_refused_with_what_to_do(auto, change, facts):
    saved, tables = auto
    with pytest.raises(InputError) as error:
        engines.score(saved, *in_duckdb(ibis.duckdb.connect(), change(*tables)))
    assert [fact for fact in facts if fact not in str(error.value)] == []


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"directed": True}, "reads directions of edges"),
        ({"edge_columns": ("amount",)}, "features made of edges"),
        ({"self_loops": "keep"}, "self_loops keep"),
    ],
)
def test_runs_that_need_more_than_tables_are_refused_before_any_work(auto, change, fact):
    saved, tables = auto
    data = dataclasses.replace(saved.settings.data, **change)
    settings = dataclasses.replace(saved.settings, data=data)
    other = dataclasses.replace(saved, scorer=dataclasses.replace(saved.scorer, settings=settings))
    with pytest.raises(InputError, match=fact) as error:
        engines.score(other, *in_duckdb(ibis.duckdb.connect(), tables))
    assert "calirare predict --graph" in str(error.value)


def test_a_run_that_knows_nodes_by_numbers_is_refused(tmp_path):
    with rough_runs(), few_candidates():
        calirare.train(rare_task()).save(tmp_path / "run")
    nodes, edges = accounts()
    nodes = nodes.assign(**{f"x{i}": 0.0 for i in range(6)}).drop(columns=["amount", "age", "kind"])
    with pytest.raises(InputError, match="by their numbers"):
        engines.score(calirare.load(tmp_path / "run"), *in_duckdb(ibis.duckdb.connect(), (nodes, edges)))


def test_the_command_writes_scores_into_the_database(auto, tmp_path):
    saved, (nodes, edges) = auto  # which DuckDB finds by these names
    assert len(edges) > len(nodes)
    database = tmp_path / "bank's.duckdb"
    with duckdb.connect(str(database)) as engine:
        engine.execute("CREATE TABLE accounts AS SELECT * FROM nodes")
        engine.execute("CREATE TABLE transfers AS SELECT * FROM edges")
    words = ["predict", saved.folder, "--engine", "duckdb", "--edges", f"{database}::transfers"]
    words += ["--nodes", f"{database}::accounts", "--into", f"{database}::scores"]
    assert "alerts: 7" in succeed(*words, "--budget", "7").out
    assert "--overwrite" in assert_refused(call(*words))
    assert "--into" in assert_refused(call(*words, "--overwrite", "--out", tmp_path / "x.csv"))
    assert "no table nothing" in assert_refused(call(*words, "--overwrite", "--edges", f"{database}::nothing"))
    with duckdb.connect(str(database), read_only=True) as engine:
        assert engine.execute("SELECT count(*), sum(alert::INT) FROM scores").fetchall() == [(len(nodes), 7)]


class SparkTables(NamedTuple):
    """A connection of ibis to a local Spark, and what makes a view of a frame there."""

    con: Any
    view: Callable[[pd.DataFrame], str]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkTables]:
    """A Spark in processes of its own; `make test-engines` installs it."""
    sql = pytest.importorskip("pyspark.sql")
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):
        settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        session = sql.SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()

        def view(frame: pd.DataFrame) -> str:
            name = ibis.util.gen_name("view")
            session.createDataFrame(pa.Table.from_pandas(frame)).createOrReplaceTempView(name)
            return name

        yield SparkTables(ibis.pyspark.connect(session), view)
        session.stop()
