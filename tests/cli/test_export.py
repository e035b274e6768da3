"""`calirare export` as it is typed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

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


def test_postgres_is_told_not_to_compile_the_query(quick_run, tmp_path):
    said = call("export", "--run", quick_run, "--sql", "postgres", "--out", tmp_path / "score.sql")
    assert "note: say SET jit = off; before it" in said.out
    head = (tmp_path / "score.sql").read_text().splitlines()
    assert head[1].startswith("-- say SET jit = off; before it")
    assert head[2].startswith("WITH ")
    other = call("export", "--run", quick_run, "--sql", "duckdb", "--out", tmp_path / "other.sql")
    assert "jit" not in other.out + (tmp_path / "other.sql").read_text()


def test_what_cannot_be_written_is_refused(quick_run):
    assert "duckdb, sqlite, postgres, spark" in assert_one_sentence(
        call("export", "--run", quick_run, "--sql", "oracle")
    )
    said = call("export", "--run", quick_run, "--sql", "duckdb", "--out", quick_run / "score.txt")
    assert ".sql" in assert_one_sentence(said)
    said = call("export", "--run", quick_run, "--sql", "duckdb", "--salt", "4")
    assert "--salt is for spark" in assert_one_sentence(said)


def test_a_run_becomes_a_model_that_onnxruntime_runs(quick_run, graph_file, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed: models are not written")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: models are not run")
    path = tmp_path / "score.onnx"
    said = call("export", "--run", quick_run, "--onnx", path)
    assert said.code == 0, said.err
    assert "inputs       x [nodes, 6], edge_index [2, edges], every edge both ways\n" in said.out
    saved = calirare.load(quick_run)
    graph, session = calirare.load_dataset(str(graph_file)), runtime.InferenceSession(path)
    assert session.get_modelmeta().custom_metadata_map["run"] == quick_run.name
    ends = np.stack([graph.adjacency.rows().numpy(), graph.adjacency.indices.numpy().astype(np.int64)])
    (p,) = session.run(["p_rare"], {"x": graph.x.numpy(), "edge_index": ends})
    frame = saved.to_frame().sort_values("node", ignore_index=True)
    assert np.abs(p - frame.p_rare.to_numpy()).max() <= PARITY
    assert "--overwrite" in assert_one_sentence(call("export", "--run", quick_run, "--onnx", path))
    assert call("export", "--run", quick_run, "--onnx", path, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "one of the arguments --sql --onnx is required"),
        (("--onnx", "a.onnx", "--sql", "duckdb"), "not allowed with argument"),
        (("--onnx", "score.pb"), "--onnx must end in .onnx, got score.pb"),
        (("--onnx", "a.onnx", "--weight", "w"), "no engine, table or column to name"),
        (("--onnx", "a.onnx", "--nodes-table", "n"), "no engine, table or column to name"),
    ],
    ids=["neither", "both", "suffix", "column", "table"],
)
def test_a_model_that_is_asked_for_wrongly_is_refused(quick_run, words, sentence):
    assert sentence in assert_one_sentence(call("export", "--run", quick_run, *words))


def test_without_the_package_onnx_one_sentence_says_so(quick_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = call("export", "--run", quick_run, "--onnx", tmp_path / "score.onnx")
    assert "pip install 'calirare[onnx]'" in assert_one_sentence(said)
    assert not (tmp_path / "score.onnx").exists()
