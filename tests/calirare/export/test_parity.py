"""A query says what the run says, on the engines that are here."""

from __future__ import annotations

import dataclasses
import re
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.export import DIALECTS, Names, query_of
from calirare.graph import share_split
from calirare.graph.table_files import days_of
from calirare.run import Scorer
from calirare_ext import Csr
from tests.helpers.command import few_candidates, rough_runs
from tests.helpers.warehouse import (
    ENGINES,
    MOMENTS,
    NAMES,
    SECOND,
    WAYS,
    ZONED_MOMENTS,
    joined,
    parity,
    tables,
    written,
)

PARITY = 1e-5  # of P(rare): what is promised
QUICK = {"epochs": 30, "folds": 2}


def trained(edges, nodes, model, **more):
    graph = calirare.load_dataset(str(edges), features=str(nodes))
    with rough_runs(), few_candidates():
        outcome = calirare.train(graph, model=model, **(QUICK | more))
    return graph, Scorer.of(outcome)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """A stranger's tables, their graph, and a scorer for each model that is asked for."""
    nodes, edges = tables()
    folder = tmp_path_factory.mktemp("tables")
    path, kept = written(folder, nodes, edges), {}

    def of(model):
        if model not in kept:
            kept[model] = trained(path, folder / "nodes.csv", model)
        return *kept[model], nodes, edges

    return of


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["gcn", "trees", "hops", pytest.param("forest", marks=pytest.mark.slow)])
def test_a_query_scores_a_strangers_tables_as_the_run_does(strangers, model, engine):
    graph, scorer, nodes, edges = strangers(model)
    assert parity(scorer, graph, engine, nodes=nodes, edges=edges) <= PARITY


def test_sqlite_joins_every_hop_by_an_index(strangers):
    _, scorer, nodes, edges = strangers("gcn")
    engine = sqlite3.connect(":memory:")
    for name, frame in {"nodes": nodes, "edges": edges}.items():
        frame.to_sql(name, engine, index=False)
    plan = [row[3] for row in engine.execute(f"EXPLAIN QUERY PLAN {query_of(scorer, DIALECTS['sqlite'], NAMES)}")]
    joins = [step for step in plan if re.match(r"(SCAN|SEARCH) [ah]\b", step)]
    assert len(joins) == 4, "two hops of two parts"
    assert sum(step.startswith("SEARCH") for step in joins) == 2, joins


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_the_average_of_all_detectors_too(strangers, engine):
    graph, scorer, nodes, edges = strangers("auto")
    assert parity(scorer, graph, engine, nodes=nodes, edges=edges) <= PARITY


def test_hostile_names_stay_names(strangers):
    graph, scorer, nodes, edges = strangers("gcn")
    names = Names('no"des; --', "e'dges", None, 'i"d', "from", "drop table")
    nodes = nodes.rename(columns={"node": names.id})
    edges = edges.rename(columns={"source": names.source, "target": names.target})
    for engine in ENGINES:
        assert parity(scorer, graph, engine, names, **{names.nodes: nodes, names.edges: edges}) <= PARITY


def test_parts_of_the_query_never_hide_a_table(strangers):
    graph, scorer, nodes, edges = strangers("gcn")
    names = Names("cr_edges", "CR_raw")
    assert parity(scorer, graph, "duckdb", names, **{names.nodes: nodes, names.edges: edges}) <= PARITY


def test_edges_to_nodes_without_a_row_are_left_out(strangers):
    graph, scorer, nodes, edges = strangers("gcn")
    stray = pd.DataFrame({"source": ["n001", "nobody"], "target": ["nobody", None]})
    assert parity(scorer, graph, "duckdb", nodes=nodes, edges=pd.concat([edges, stray])) <= PARITY


@pytest.mark.parametrize(
    ("model", "scored"),
    [("gcn", None), ("trees", "kind=two words,a'b"), pytest.param("hops", None, marks=pytest.mark.slow)],
)
def test_ends_without_a_row_join_and_only_what_is_scored_is_told(tmp_path, model, scored):
    with rough_runs():
        scorer, graph, found = joined(tmp_path, model, scored, **QUICK)
    kinds = scored.partition("=")[2].split(",") if scored else list(found["nodes"].kind.unique())
    assert int(graph.scored.sum()) == found["nodes"].kind.isin(kinds).sum() < graph.n_nodes - 30
    for engine in ENGINES:
        assert parity(scorer, graph, engine, **found) <= PARITY


def test_weights_of_repeated_edges_are_added(strangers, tmp_path):
    _, scorer, nodes, edges = strangers("gcn")
    edges = edges.assign(weight=np.random.default_rng(1).uniform(0.2, 3, len(edges)))
    graph = calirare.load_dataset(str(written(tmp_path, nodes, edges)), features=str(tmp_path / "nodes.csv"))
    names = dataclasses.replace(NAMES, weight="weight")
    for engine in ENGINES:
        assert parity(scorer, graph, engine, names, nodes=nodes, edges=edges) <= PARITY
    with pytest.raises(AssertionError):  # without its weights the graph is another one
        assert parity(scorer, graph, "duckdb", nodes=nodes, edges=edges) <= PARITY


def words(n=50, d=16):
    """Returns a graph with sparse numbers, and its tables.

    No two numbers are alike: a mean of neighbours whose rank is shared by many would hang on its last digit.
    """
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(n, d, generator=generator) < 0.2).float() * (0.5 + 3 * torch.rand(n, d, generator=generator))
    x[3] = 0
    y = (x[:, :6].sum(1) > x[:, 6:14].sum(1)).long()
    pairs = np.unique(np.sort(np.random.default_rng(0).integers(0, n, (150, 2)), 1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    graph = calirare.Graph.from_edges(pairs, Csr.from_dense(x), y, symmetrize=True)
    graph = graph.with_split(share_split(y))
    at = x.nonzero().numpy()
    features = pd.DataFrame({"node": at[:, 0], "feature": at[:, 1], "value": x.numpy()[at[:, 0], at[:, 1]]})
    return graph, features, pd.DataFrame({"node": range(n)}), pd.DataFrame(pairs, columns=["source", "target"])


@pytest.mark.parametrize(
    ("model", "scale"), [("gcn", "auto"), ("gcn", "tfidf"), pytest.param("hops", "none", marks=pytest.mark.slow)]
)
def test_sparse_features_have_a_table_of_their_own(model, scale):
    graph, features, nodes, edges = words()
    with rough_runs():
        outcome = calirare.train(graph, model=model, scale=scale, **QUICK)
    scorer, names = Scorer.of(outcome), Names(features="features")
    for engine in ENGINES:
        assert parity(scorer, graph, engine, names, nodes=nodes, edges=edges, features=features) <= PARITY


def test_sparks_query_is_spread_and_kept_apart(strangers):
    _, scorer, _, _ = strangers("gcn")
    query = query_of(scorer, DIALECTS["spark"], Names("lake.`nodes", "lake.edges", salt=8))
    assert "`lake`.```nodes` n" in query
    assert query.count("pmod(hash(a.u), 8)") == 2
    assert "MATERIALIZED" not in query
    assert "`kind`" in query
    assert r"'a\'b'" in query


@pytest.mark.parametrize("model", ["trees", "hops"])
def test_spark_reads_no_nested_cases_and_computes_shared_parts_once(strangers, model):
    _, scorer, _, _ = strangers(model)
    spark, duckdb = (query_of(scorer, DIALECTS[name], Names()) for name in ("spark", "duckdb"))
    nested = re.compile(r"CASE WHEN (c\d+|COALESCE\(c\d+, [^()]+\)) <=? \S+ THEN CASE")
    assert nested.search(duckdb)
    assert not nested.search(spark)
    assert spark.count("AS ARRAY<DOUBLE>") > 3
    parts = re.findall(r"^(?:WITH )?(cr_\w+)(?:\([^)]*\))? AS \(\n(.*?)\n\)", spark, re.MULTILINE | re.DOTALL)
    for name, body in parts:
        read = sum(len(re.findall(rf"\b{name}\b", other)) for _, other in parts)
        assert ("rand(0) >= 0" in body) == (read > 1), name
    assert "rand" not in duckdb


def test_a_table_of_words_for_a_run_of_columns_is_refused(strangers):
    _, scorer, _, _ = strangers("gcn")
    with pytest.raises(InputError, match="leave --features-table out"):
        query_of(scorer, DIALECTS["duckdb"], Names(features="words"))


def test_relations_of_a_graph_given_in_python_are_refused(strangers, tmp_path):
    nodes, edges = strangers("gcn")[2:]
    path = written(tmp_path, nodes, edges)
    graph = calirare.load_dataset(str(path), features=str(tmp_path / "nodes.csv"), directed=True)
    with rough_runs():
        scorer = Scorer.of(calirare.train(graph, model="hops", **QUICK))
    assert not scorer.settings.data.directed
    with pytest.raises(InputError, match="directions or types"):
        query_of(scorer, DIALECTS["duckdb"], NAMES)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("kind", ["VARCHAR", "TIMESTAMPTZ"])
def test_a_time_with_a_zone_is_in_utc_whatever_the_session_says(zone, kind):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as engine:
        engine.execute(f"SET TimeZone = '{zone}'")
        for text, days in MOMENTS.items():
            if kind == "VARCHAR" or text in ZONED_MOMENTS:
                days_of = DIALECTS["duckdb"].days.format(x=f"CAST('{text}' AS {kind})")
                assert abs(engine.execute(f"SELECT {days_of}").fetchone()[0] - days) < SECOND


def test_booleans_stand_for_the_words_that_engines_read_as_such():
    nodes, edges = tables()
    nodes["kind"] = np.where(nodes.amount > nodes.amount.median(), "Yes", "No")
    graph = calirare.Graph.from_tables(edges, nodes, "label").rare("fraud")
    graph = graph.with_split(share_split(graph.original_y, seed=0))
    with rough_runs():
        scorer = Scorer.of(calirare.train(graph, model="trees", **QUICK))
    for told in (nodes, nodes.assign(kind=nodes.kind == "Yes")):
        assert parity(scorer, graph, "duckdb", nodes=told, edges=edges) <= PARITY


def test_rows_to_score_of_a_graph_read_in_python_are_known_too(tmp_path):
    nodes, edges = tables()
    nodes["label"] = nodes["label"].where(nodes.kind == "two words")
    path = written(tmp_path, nodes, edges)
    graph = calirare.load_dataset(str(path), features=str(tmp_path / "nodes.csv"), scored="kind=two words")
    with rough_runs():
        scorer = Scorer.of(calirare.train(graph, model="gcn", **QUICK))
    assert scorer.settings.data.scored is None
    assert parity(scorer, graph, "duckdb", nodes=nodes, edges=edges) <= PARITY


def kept(nodes: pd.DataFrame) -> pa.Table:
    """Returns a table whose floats are NaN where it has none, not NULL."""
    return pa.table(
        {name: pa.array(cells.to_numpy(), from_pandas=cells.dtype.kind != "f") for name, cells in nodes.items()}
    )


def coded(codes: list[float], n: int = 70) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The stranger's tables with codes that are numbers, some of which are missing."""
    nodes, edges = tables(n)
    rng = np.random.default_rng(4)
    return nodes.assign(code=np.where(rng.random(n) < 0.2, np.nan, rng.choice(codes, n))), edges


def of_codes(nodes: pd.DataFrame, edges: pd.DataFrame, one_hot=("code",)) -> tuple[Scorer, calirare.Graph]:
    """Returns a run of these tables, and its graph."""
    graph = calirare.Graph.from_tables(edges, nodes, "label", one_hot=one_hot).rare("fraud")
    graph = graph.with_split(share_split(graph.original_y, seed=0))
    with rough_runs():
        return Scorer.of(calirare.train(graph, model="gcn", **QUICK)), graph


def test_nan_is_a_missing_value_as_null_is():
    nodes, edges = coded([10.0, 20.0, 30.5])
    scorer, graph = of_codes(nodes, edges)
    table = kept(nodes)
    assert table["gaps"].null_count == table["code"].null_count == 0
    assert parity(scorer, graph, "duckdb", nodes=table, edges=edges) <= PARITY


def test_codes_are_the_same_however_they_are_written():
    nodes, edges = coded([10.0, 20.0, 30.5])
    scorer, graph = of_codes(nodes, edges)
    assert scorer.features.inputs[-1].categories == ("10", "20", "30.5")
    for way in ("{:.1f}", "{:g}", " {:g} "):
        told = nodes.assign(code=[None if np.isnan(code) else way.format(code) for code in nodes["code"]])
        for engine in ENGINES:
            assert parity(scorer, graph, engine, nodes=told, edges=edges) <= PARITY
    for engine in ENGINES:
        assert parity(scorer, graph, engine, nodes=nodes, edges=edges) <= PARITY


@pytest.mark.parametrize("with_text", [False, True])
def test_truth_is_the_same_name_however_it_is_written(with_text):
    nodes, edges = tables()
    known = nodes["amount"] > nodes["amount"].median()
    nodes["known"] = np.where(known, "true", "false")
    if with_text:
        nodes.loc[::5, "known"] = "not asked"
    scorer, graph = of_codes(nodes, edges, ("known",))
    told = nodes.assign(known=nodes["known"].str.upper().where(nodes["known"] != "not asked", " not asked"))
    for engine in ENGINES:
        assert parity(scorer, graph, engine, nodes=told, edges=edges) <= PARITY
    if not with_text:
        for engine in ENGINES:
            assert parity(scorer, graph, engine, nodes=nodes.assign(known=known), edges=edges) <= PARITY


def test_blanks_around_a_name_are_none_of_it():
    nodes, edges = tables()
    nodes["city"] = np.where(np.arange(70) % 4 > 0, nodes["kind"].where(nodes["kind"] != "a'b", "Bern"), None)
    scorer, graph = of_codes(nodes, edges, ())
    told = nodes.assign(city=" " + nodes["city"].fillna(" ") + "  ")
    for engine in ENGINES:
        assert parity(scorer, graph, engine, nodes=told, edges=edges) <= PARITY


def test_large_codes_are_the_same_in_a_column_of_floats():
    nodes, edges = coded([12345678.0, 2e15, 30.5])
    scorer, graph = of_codes(nodes, edges)
    assert "12345678" in scorer.features.inputs[-1].categories
    for engine in ENGINES:
        assert parity(scorer, graph, engine, nodes=nodes, edges=edges) <= PARITY


def test_truth_of_a_column_of_numbers_may_be_text():
    nodes, edges = tables()
    nodes["known"] = nodes["amount"] > nodes["amount"].median()
    scorer, graph = of_codes(nodes, edges, ())
    assert scorer.reference.binary == {"known"}
    for told in (nodes["known"], nodes["known"].map({True: "true", False: "FALSE"}), nodes["known"].astype(float)):
        for engine in ENGINES:
            assert parity(scorer, graph, engine, nodes=nodes.assign(known=told), edges=edges) <= PARITY


def test_numbers_of_nodes_are_the_same_whatever_type_an_end_has(tmp_path):
    nodes, edges = tables()
    numbers = {name: 10 + i for i, name in enumerate(nodes["node"])}
    nodes["node"], edges = nodes["node"].map(numbers), edges.apply(lambda ends: ends.map(numbers))
    edges.loc[::4, "target"] += 500
    path, given = written(tmp_path, nodes, edges), {"features": str(tmp_path / "nodes.csv"), "id": "node"}
    with rough_runs():
        outcome = calirare.train(dataset=str(path), model="gcn", unknown_ends="add", **given, **QUICK)
    told = edges.assign(target=edges["target"].astype(float))
    for engine in ENGINES:
        assert parity(Scorer.of(outcome), outcome.graph, engine, nodes=nodes, edges=told) <= PARITY


@pytest.mark.parametrize("engine", ENGINES)
def test_days_are_read_in_every_way_that_the_run_reads_them(engine):
    frame = pd.DataFrame({"node": [f"n{i:02d}" for i in range(len(WAYS))], "at": list(WAYS)})
    assert np.abs(days_of(frame["at"].str.strip()) - list(WAYS.values())).max() < SECOND
    found = ENGINES[engine](f"SELECT node, {DIALECTS[engine].days.format(x='n.at')} AS days FROM times n", times=frame)
    assert np.abs(found["days"] - list(WAYS.values())).max() < SECOND


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_may_hold_days_without_dashes(strangers, engine):
    graph, scorer, nodes, edges = strangers("gcn")
    told = nodes.assign(day=nodes["day"].where(nodes.index % 3 > 0, nodes["day"].str.replace("-", "")))
    assert parity(scorer, graph, engine, nodes=told, edges=edges) <= PARITY


def test_an_empty_day_is_missing():
    for engine, asked in ENGINES.items():
        query = f"SELECT node, {DIALECTS[engine].days.format(x='n.at')} AS days FROM times n"
        found = asked(query, times=pd.DataFrame({"node": ["a", "b"], "at": ["", "2024-01-31"]}))
        assert found["days"].isna().tolist() == [True, False]
