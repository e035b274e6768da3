"""The query in a Spark that the test starts; `make test-engines` brings one."""

from __future__ import annotations

import math

import pandas as pd
import pytest

import calirare
from calirare.export import DIALECTS, Names, query_of
from calirare.export.sql.words import named
from calirare.graph import plain_name
from calirare.run import Scorer
from tests.calirare.export.test_parity import PARITY, QUICK, words
from tests.helpers import spark
from tests.helpers.command import rough_runs
from tests.helpers.warehouse import SECOND, WAYS, error, joined, tables, written

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine():
    if spark.missing():
        pytest.skip(spark.missing())
    with spark.session() as session:
        yield session


@pytest.mark.parametrize("model", ["gcn", "hops", "trees", "forest", "auto"])
def test_spark_scores_a_strangers_tables_as_the_run_does(engine, tmp_path, model):
    nodes, edges = tables()
    graph = calirare.load_dataset(str(written(tmp_path, nodes, edges)), features=str(tmp_path / "nodes.csv"))
    with rough_runs():
        scorer = Scorer.of(calirare.train(graph, model=model, **QUICK))
    names = Names("no`des; --", "e'dges", salt=4 if model == "gcn" else 1)
    query = query_of(scorer, DIALECTS["spark"], names)
    found = spark.in_spark(engine, query, **{names.nodes: nodes, names.edges: edges})
    assert error(scorer, graph, found) <= PARITY


def test_spark_reads_sparse_features_from_a_table_of_their_own(engine):
    graph, features, nodes, edges = words()
    with rough_runs():
        scorer = Scorer.of(calirare.train(graph, model="gcn", scale="tfidf", **QUICK))
    query = query_of(scorer, DIALECTS["spark"], Names(features="features", salt=3))
    found = spark.in_spark(engine, query, nodes=nodes, edges=edges, features=features)
    assert error(scorer, graph, found) <= PARITY


def test_spark_lets_ends_without_a_row_join(engine, tmp_path):
    with rough_runs():
        scorer, graph, frames = joined(tmp_path, "gcn", "kind=two words,a'b", **QUICK)
    found = spark.in_spark(engine, query_of(scorer, DIALECTS["spark"], Names(salt=2)), **frames)
    assert error(scorer, graph, found) <= PARITY


def test_a_name_is_the_plain_name_there_and_nan_is_null(engine):
    cells = ["10.0", "-7.00", "1.50", "10.", "1.0.0", " x ", "TRUE", " "]
    frame = pd.DataFrame({"node": [f"n{i}" for i in range(len(cells))], "c": cells, "v": [math.nan, *range(1, 8)]})
    name = named("n.c", ["10", "-7", "true", "other"], DIALECTS["spark"])
    query = f"SELECT node, {name} AS name, {DIALECTS['spark'].known('n.v')} AS v FROM names n"
    found = spark.in_spark(engine, query, names=frame)
    assert found["name"].fillna("").tolist() == [plain_name(cell) for cell in cells]
    assert found["v"].isna().tolist() == [True] + [False] * 7


def test_large_codes_have_no_exponent_there(engine):
    frame = pd.DataFrame({"node": ["a", "b", "c"], "v": [12345678.0, 2e15, -3e15]})
    name = named("n.v", ["12345678", "2000000000000000"], DIALECTS["spark"])
    found = spark.in_spark(engine, f"SELECT node, {name} AS name FROM n", n=frame)
    assert found["name"].tolist() == ["12345678", "2000000000000000", "-3000000000000000"]


def test_booleans_and_their_words_are_numbers_there(engine):
    frame = pd.DataFrame({"node": ["a", "b", "c"], "v": ["true", "FALSE", "0.5"], "w": [True, False, True]})
    v, w = (DIALECTS["spark"].truth_or_number(name) for name in ("v", "w"))
    found = spark.in_spark(engine, f"SELECT node, {v} AS v, {w} AS w FROM n", n=frame)
    assert (found["v"].tolist(), found["w"].tolist()) == ([1, 0, 0.5], [1, 0, 1])


def test_days_are_read_in_every_way_that_the_run_reads_them(engine):
    frame = pd.DataFrame({"node": [f"n{i:02d}" for i in range(len(WAYS))], "at": list(WAYS)})
    for at in ("at", "CAST(at AS TIMESTAMP)"):
        rows = frame if at == "at" else frame[~frame["at"].str.contains(r"^.{8}\b|[./]|\d{8}")]
        found = spark.in_spark(
            engine, f"SELECT node, {DIALECTS['spark'].days.format(x=at)} AS days FROM times", times=rows
        )
        assert (found["days"] - rows["at"].map(WAYS).to_numpy()).abs().max() < SECOND
