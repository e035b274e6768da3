"""`calirare predict --scores-only`: a graph in a folder, read by blocks, says what `calirare predict` says of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import calirare
from calirare.graph import Graph
from calirare.models import passes, streams
from calirare.run import score_only, scoring
from tests.helpers.command import assert_refused, call, few_candidates, rough_runs, succeed
from tests.helpers.tasks import rare_task

GCN = ("--model", "gcn", "--epochs", "30", "--folds", "0")


def trained(graph_file: Path, folder: Path, *how: str) -> Path:
    succeed("train", "--dataset", graph_file, *GCN, *how, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def run(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a graph convolution. Read only."""
    return trained(graph_file, tmp_path_factory.mktemp("runs") / "gcn")


def learnt(model: str, folder: Path, **how: int) -> Path:
    """Writes a run of another detector."""
    with rough_runs():
        calirare.train(rare_task(), model=model, **how).save(folder)
    return folder


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of trees. Read only."""
    return learnt("trees", tmp_path_factory.mktemp("runs") / "trees", folds=2)


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """A graph of the same law in a folder."""
    return folder_of(rare_task(seed=1), tmp_path / "later")


def folder_of(graph: Graph, path: Path) -> Path:
    dataclasses.replace(graph, split=None).to_folder(path)
    return path


def scored(run: Path, graph: Path, out: Path, *more: str) -> tuple[pd.DataFrame, dict, str]:
    said = succeed("predict", "--run", run, "--graph", graph, "--scores-only", "--out", out, *more)
    return pd.read_parquet(out), json.loads(out.with_suffix(".json").read_text()), said.out


def test_scores_are_those_of_predict(run, later, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "ROWS", 50)
    monkeypatch.setattr(score_only, "ROWS", 70)
    table, told, said = scored(run, later, tmp_path / "s.parquet")
    plain = call("predict", "--run", run, "--graph", later, "--out", tmp_path / "p.csv")
    wanted, all_told = pd.read_csv(tmp_path / "p.csv"), json.loads((tmp_path / "p.json").read_text())
    assert list(table) == ["node", "p_rare", "p_balanced", "p_raw", "alert"]
    for name in ("p_rare", "p_balanced", "p_raw"):
        np.testing.assert_allclose(table[name], wanted[name], rtol=0, atol=1e-5)
    assert (table["alert"] == wanted["alert"].astype(bool)).all()
    assert said.splitlines()[0] == plain.out.splitlines()[0]  # how many rare nodes to expect
    for name in ("nodes", "alerts", "threshold", "expected_rare_low", "mean_p_rare"):
        assert told[name] == pytest.approx(all_told[name], rel=1e-4), name
    assert "260 random nodes" in told["drift"]["sentence"]
    assert not list(tmp_path.glob(".*blocks"))


def test_a_budget_is_that_of_the_graph_and_a_prevalence_is_kept_to(graph_file, later, tmp_path):
    run = trained(graph_file, tmp_path / "run", "--decide", "budget", "--budget", "17")
    table, told, _ = scored(run, later, tmp_path / "s.parquet", "--prevalence", "0.02")
    assert told["alerts"] == table["alert"].sum() == 17
    assert table["p_rare"][table["alert"]].min() >= table["p_rare"][~table["alert"]].max()
    assert table["p_rare"].mean() == pytest.approx(0.02, rel=0.05)


def test_what_was_stopped_goes_on_with_equal_bytes(run, later, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "ROWS", 50)
    scored(run, later, tmp_path / "whole.parquet")

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scoring, "expected_count", stop)
        found = call("predict", "--run", run, "--graph", later, "--scores-only", "--out", tmp_path / "s.parquet")
        assert found.code == 130
        assert f"finished blocks are kept in {tmp_path / '.s.blocks'}: the same command goes on from there" in found.err
    assert list(tmp_path.glob(".s.blocks/pass2-*.done"))
    assert not (tmp_path / "s.parquet").exists()
    scored(run, later, tmp_path / "s.parquet")
    assert (tmp_path / "s.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["trees", "auto"])
def test_trees_and_the_default_model_are_scored_by_blocks_too(request, model, later, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "ROWS", 50)
    monkeypatch.setattr(streams, "BLOCK", 70)
    with few_candidates():
        run = request.getfixturevalue("trees") if model == "trees" else learnt(model, tmp_path / "run", folds=0)
    table, told, _ = scored(run, later, tmp_path / "s.parquet")
    rare_task(seed=1).to_npz(tmp_path / "later.npz")
    wanted, all_told, _ = scored(run, tmp_path / "later.npz", tmp_path / "m.parquet")
    assert (table["alert"] == wanted["alert"]).all()
    for name in ("p_rare", "p_balanced", "p_raw"):
        np.testing.assert_allclose(table[name], wanted[name], rtol=0, atol=0 if model == "trees" else 1e-6)
    assert told["alerts"] == all_told["alerts"]
    assert told["expected_rare_low"] == pytest.approx(all_told["expected_rare_low"], rel=1e-4)
    assert not list(tmp_path.glob(".*blocks"))


@pytest.mark.parametrize(
    ("more", "said"), [(("--out", "p.csv"), ".parquet"), (("--interval-nodes", "all"), "leave out --interval-nodes")]
)
def test_what_does_not_go_with_it_is_refused(run, later, tmp_path, more, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call("predict", "--run", run, "--graph", later, "--scores-only", *more)
    assert found.code == 2
    assert_refused(found)
    assert said in found.err


def test_a_graph_in_a_file_is_scored_in_memory(run, graph_file, tmp_path):
    said = succeed("predict", "--run", run, "--graph", graph_file, "--scores-only", "--out", tmp_path / "s.parquet")
    assert "the graph is scored in memory, because it is not a graph folder" in said.err
    succeed("predict", "--run", run, "--graph", graph_file, "--out", tmp_path / "p.csv")
    table, wanted = pd.read_parquet(tmp_path / "s.parquet"), pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(table["p_rare"], wanted["p_rare"], rtol=1e-6)
    told, all_told = (json.loads((tmp_path / f"{name}.json").read_text()) for name in "sp")
    assert told["drift"] == all_told["drift"]
    assert told["expected_rare_low"] == all_told["expected_rare_low"]
