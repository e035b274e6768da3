"""`calirare predict`: a saved run says the same of its own graph, and something of another."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from calirare.graph import Graph
from calirare_ext import Csr
from tests.cli.test_tables import write_tables
from tests.helpers.command import QUICK, assert_refused, call, few_candidates, succeed
from tests.helpers.tasks import rare_task

NUMBERS = ["p_raw", "p_rare", "p_balanced", "alert", "threshold", "confidence"]
NUMBERS += ["p_correct", "lower", "upper", "ice", "ice_raw"]
# How far float32 results may move when nodes come in another order: sums of at most 110 terms.
FLOAT32_SLACK = 110 * float(np.finfo(np.float32).eps)


@pytest.fixture
def run(finished):
    return finished[0]


def same_numbers(one: pd.DataFrame, other: pd.DataFrame, slack: float = 0.0) -> None:
    for name in NUMBERS:
        assert (one[name] - other[name]).abs().max() <= slack, name
    assert one["prediction"].tolist() == other["prediction"].tolist()


def test_predict_on_the_runs_graph_gives_the_runs_numbers(run, graph_file, tmp_path):
    said = succeed("predict", "--run", run, "--graph", graph_file, "--out", tmp_path / "new" / "p.csv", silent=True)
    names = ["p.csv", "p.json", "p.parquet"]
    assert sorted(said.out.splitlines()[-3:]) == [str(tmp_path / "new" / name) for name in names]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    table = pd.read_csv(tmp_path / "new" / "p.csv")
    assert table.columns.tolist() == pd.read_csv(run / "predictions.csv").columns.tolist()
    same_numbers(table, pd.read_csv(run / "predictions.csv"))
    same_numbers(pd.read_parquet(tmp_path / "new" / "p.parquet"), pd.read_parquet(run / "predictions.parquet"))


def reordered(graph: Graph, order: torch.Tensor) -> Graph:
    """Returns the graph with node order[i] called i."""
    place = torch.argsort(order)
    rows, cols = place[graph.adjacency.rows()], place[graph.adjacency.indices.long()]
    adjacency = Csr.from_coo(rows, cols, graph.adjacency.values, graph.adjacency.shape)
    names = None if graph.node_names is None else graph.node_names[order.numpy()]
    return Graph(adjacency, graph.x[order], name="reordered", node_names=names)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "auto"], ids=["one", "average"])
def test_predict_knows_another_graph_from_its_own(model, graph_file, tmp_path):
    # The same nodes under other numbers, without labels: each must get the numbers it had.
    run = tmp_path / "run"
    options = ("--model", model, "--epochs", 12, "--folds", 0, "--set", "hidden=4", "--out", run)
    graph = rare_task()
    if model == "auto":  # labels nearby need nodes that are known by name
        graph, graph_file = (
            dataclasses.replace(graph, node_names=np.array([f"n{i}" for i in range(260)])),
            tmp_path / "g.npz",
        )
        graph.to_npz(graph_file)
    with few_candidates():
        succeed("train", "--dataset", graph_file, *options)
    order = torch.from_numpy(np.random.default_rng(0).permutation(260))
    reordered(graph, order).to_npz(tmp_path / "other.npz")
    succeed("predict", "--run", run, "--graph", tmp_path / "other.npz", "--out", tmp_path / "p.csv", silent=True)
    got, own = pd.read_parquet(tmp_path / "p.parquet"), pd.read_parquet(run / "predictions.parquet")
    assert (got["y"] == -1).all()
    own = own.iloc[order.numpy()].reset_index(drop=True)
    for name in set(NUMBERS) & set(own):
        worst = float((got[name] - own[name]).abs().max())
        assert worst <= FLOAT32_SLACK * max(1.0, float(own[name].abs().max())), f"{name}: {worst}"


@pytest.mark.slow
def test_predict_merges_classes_as_the_run_did(tmp_path):
    rare_task(n_classes=3).to_npz(tmp_path / "g.npz")
    run = tmp_path / "run"
    options = ("--rare-class", 2, "--split", "random", "--label-rate", 15)
    succeed("train", "--dataset", tmp_path / "g.npz", *QUICK, *options, "--out", run)
    succeed("predict", "--run", run, "--graph", tmp_path / "g.npz")
    table, own = pd.read_csv(run / "predictions_g.csv"), pd.read_csv(run / "predictions.csv")
    assert table["y"].tolist() == own["y"].tolist()
    rare_task().to_npz(tmp_path / "other.npz")
    said = succeed("predict", "--run", run, "--graph", tmp_path / "other.npz")
    assert "the run's rare class '2' is not among its classes" in said.err
    assert set(pd.read_csv(run / "predictions_other.csv")["y"]) == {-1}


def test_predict_reads_what_train_reads(quick_run, tmp_path):
    own = pd.read_csv(quick_run / "predictions.csv")
    rare_task().to_folder(tmp_path / "folder")
    edges = write_tables(tmp_path)
    for graph, stem in ((tmp_path / "folder", "folder"), (edges, "edges")):
        succeed("predict", "--run", quick_run, "--graph", graph)
        table = pd.read_csv(quick_run / f"predictions_{stem}.csv")
        assert (table["p_raw"] - own["p_raw"]).abs().max() <= FLOAT32_SLACK
    assert table["node"][0] == "p000"
    assert "--root" not in assert_refused(call("predict", "--run", quick_run, "--graph", "none.csv"))


@pytest.fixture
def moved(tmp_path):
    """A run and its graph, both in other places than they were when it was trained."""
    rare_task().to_npz(tmp_path / "task.npz")
    succeed("train", "--dataset", tmp_path / "task.npz", *QUICK, "--out", tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "run")
    (tmp_path / "task.npz").rename(tmp_path / "elsewhere" / "moved.npz")
    return tmp_path / "elsewhere" / "run", tmp_path / "elsewhere" / "moved.npz"


def test_a_run_that_has_moved_predicts_with_intervals_without_its_graph(moved, monkeypatch):
    run, graph = moved
    monkeypatch.chdir(run.parent)
    succeed("predict", "--run", "run", "--graph", "moved.npz", silent=True)
    table, own = pd.read_csv(run / "predictions_moved.csv"), pd.read_csv(run / "predictions.csv")
    same_numbers(table, own)
    assert table[NUMBERS].notna().all().all()
    graph.rename(graph.with_name("gone.npz"))
    rare_task(100).to_npz(run.parent / "other.npz")
    succeed("predict", "--run", run, "--graph", run.parent / "other.npz", silent=True)


def test_a_run_whose_graph_has_moved_is_told_where_it_is(moved):
    run, graph = moved
    assert "task.npz" in assert_refused(call("explain", "--run", run))
    said = succeed("explain", "--run", run, "--graph", graph, "--node", 0, silent=True)
    rare_task(seed=1).to_npz(graph)
    said = assert_refused(call("explain", "--run", run, "--graph", graph, "--node", 0))
    assert "moved.npz has changed since the run was trained on it" in said


def test_predict_that_fails_leaves_nothing(quick_run, graph_file, tmp_path, monkeypatch):
    def half(table: pd.DataFrame, folder: Path, stem: str) -> None:
        (folder / f"{stem}.csv").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("calirare.cli.predict.write_predictions", half)
    out = tmp_path / "deep" / "folder" / "p.csv"
    said = call("predict", "--run", quick_run, "--graph", graph_file, "--out", out)
    assert f"{out} cannot be written: No space left on device" in assert_refused(said)
    assert not (tmp_path / "deep").exists()
    (tmp_path / "file").write_text("")
    said = call("predict", "--run", quick_run, "--graph", graph_file, "--out", tmp_path / "file" / "p.csv")
    assert "cannot be written" in assert_refused(said)
