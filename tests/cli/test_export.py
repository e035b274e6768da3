"""`calirare export` as it is typed."""

from __future__ import annotations

import numpy as np

import calirare
from tests.helpers.command import QUICK, assert_one_sentence, call
from tests.helpers.warehouse import error, in_sqlite, tables, written

PARITY = 1e-5


def test_a_run_of_tables_becomes_a_query_that_sqlite_runs(tmp_path):
    nodes, edges = tables()
    nodes = nodes.rename(columns={"node": "account"})
    edges = edges.rename(columns={"source": "from", "target": "to"})
    path, run = written(tmp_path, nodes, edges), tmp_path / "run"
    data = ("--dataset", path, "--features", tmp_path / "nodes.csv", "--id", "account", "--model", "gcn")
    assert call("train", *data, *QUICK, "--scale", "auto", "--target", "population", "--out", run).code == 0
    said = call("export", "--run", run, "--sql", "sqlite", "--source-column", "from", "--target-column", "to")
    assert said.code == 0, said.err
    assert "nodes        nodes, names in 'account'" in said.out
    assert "every edge counts once" in said.out
    query = (run / "score_sqlite.sql").read_text()
    graph = calirare.load_dataset(str(path), features=str(tmp_path / "nodes.csv"), id="account")
    assert error(calirare.load(run).scorer, graph, in_sqlite(query, nodes=nodes, edges=edges)) <= PARITY
    again = call("export", "--run", run, "--sql", "sqlite")
    assert "--overwrite" in assert_one_sentence(again)


def test_columns_that_were_found_in_the_tables_need_not_be_named(tmp_path):
    nodes, edges = tables()
    nodes = nodes.rename(columns={"node": "account no"})
    edges = edges.rename(columns={"source": "payer", "target": "payee"})[["payer", "payee"]]
    edges["Weight"] = np.exp(np.random.default_rng(0).normal(size=len(edges))).round(3)
    path, run = written(tmp_path, nodes, edges), tmp_path / "run"
    ends = ("--source-column", "payer", "--target-column", "payee")
    data = ("--dataset", path, "--features", tmp_path / "nodes.csv", *ends, "--model", "gcn")
    assert call("train", *data, *QUICK, "--scale", "auto", "--target", "population", "--out", run).code == 0
    said = call("export", "--run", run, "--sql", "sqlite")
    assert said.code == 0, said.err
    assert "nodes        nodes, names in 'account no'" in said.out
    assert "edges        edges, 'payer' to 'payee', weights 'Weight'" in said.out
    found = in_sqlite((run / "score_sqlite.sql").read_text(), nodes=nodes, edges=edges)
    said = calirare.load(run).to_frame().sort_values("node", ignore_index=True)
    assert (said.p_rare - found.p_rare).abs().max() <= PARITY


def test_what_cannot_be_written_is_refused(quick_run):
    assert "duckdb, sqlite, postgres, spark" in assert_one_sentence(
        call("export", "--run", quick_run, "--sql", "oracle")
    )
    said = call("export", "--run", quick_run, "--sql", "duckdb", "--out", quick_run / "score.txt")
    assert ".sql" in assert_one_sentence(said)
    said = call("export", "--run", quick_run, "--sql", "duckdb", "--salt", "4")
    assert "--salt is for spark" in assert_one_sentence(said)
