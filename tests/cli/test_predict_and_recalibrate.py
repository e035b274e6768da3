"""`calirare predict` says what to expect and whether to trust it; `calirare recalibrate` fits maps on fresh labels."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import calirare
from calirare.calibration import are_apart
from calirare.graph import Graph, csr_of_scipy
from calirare.run.verdict import GIVEN
from tests.helpers.command import QUICK, assert_refused, call, succeed
from tests.helpers.tables import tables, written
from tests.helpers.tasks import rare_task

TRAIN = ("--model", "gcn", "--epochs", "30", "--folds", "0", "--decide", "balanced")


@pytest.fixture(scope="module")
def run(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose maps have a prior. Read only."""
    folder = tmp_path_factory.mktemp("runs") / "prior"
    succeed("train", "--dataset", graph_file, *TRAIN, "--out", folder)
    return folder


def file_of(graph: Graph, folder: Path, name: str = "later") -> Path:
    path = folder / f"{name}.npz"
    graph.to_npz(path)
    return path


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """A graph of the same law, all of it labelled."""
    return file_of(dataclasses.replace(rare_task(seed=1), split=None), tmp_path)


@pytest.fixture
def drifted(tmp_path: Path) -> Path:
    """The same with another unit in one column."""
    graph = rare_task(seed=1)
    x = graph.x * torch.tensor([1.0, 1.0, 100.0, 1.0, 1.0, 1.0])
    return file_of(dataclasses.replace(graph, x=x, split=None), tmp_path, "drifted")


def test_predict_says_what_to_expect_and_writes_it(run, later, tmp_path):
    said = succeed("predict", "--run", run, "--graph", later, "--out", tmp_path / "p.csv", silent=True)
    table, told = pd.read_csv(tmp_path / "p.csv"), json.loads((tmp_path / "p.json").read_text())
    assert said.out.startswith(f"mean P(rare) {told['mean_p_rare']:.3g} among 260 nodes; no counts are promised (")
    assert told["caveat"] == "no counts are promised (verdict: not known)"
    assert (told["verdict"], f"alerts: {told['alerts']}; " in said.out) == ("caution", True)
    calibrated = dataclasses.replace(calirare.load(run).score(Graph.read(later)[0]), of_run=GIVEN).summary()
    found = re.match(r"expected (\d+) \((\d+) to (\d+)\) rare among 260 nodes \(90 % interval\)", calibrated)
    assert found, calibrated
    assert [int(x) for x in found.groups()] == [
        round(told[name]) for name in ("expected_rare", "expected_rare_low", "expected_rare_high")
    ]
    assert 260 * told["mean_p_rare"] == pytest.approx(table["p_rare"].sum(), rel=1e-5)
    ends = (told[f"expected_rare{end}"] for end in ("", "_low", "_high"))
    assert (f"P(rare) adds up to {260 * told['mean_p_rare']:.3g}: " in calibrated) == are_apart(
        table["p_rare"].sum(), *ends
    )
    assert told["expected_rare_low"] < told["expected_rare"] < told["expected_rare_high"]
    assert told["alerts"] == int(table["alert"].sum()) > 0
    assert f"alerts: {told['alerts']}, " in calibrated
    assert told["threshold"] == pytest.approx(table["threshold"][0], rel=1e-6)
    assert (told["nodes"], told["decision"], told["prevalence"]) == (260, "balanced", None)
    assert told["drift"]["verdict"] == "ok", said.out
    assert "\ndrift: ok: 6 columns, edges and P(rare)" in said.out
    # What stands beside the table is not overwritten unasked.
    (tmp_path / "p.csv").unlink()
    (tmp_path / "p.parquet").unlink()
    assert "p.json exists already" in assert_refused(
        call("predict", "--run", run, "--graph", later, "--out", tmp_path / "p.csv")
    )


def test_a_drifted_graph_is_not_to_be_trusted_and_fails_where_asked(run, later, drifted, tmp_path):
    said = succeed("predict", "--run", run, "--graph", drifted, "--out", tmp_path / "p.csv")
    assert "do not trust it (see drift)" in " ".join(said.out.split())
    assert "\ndrift: do not trust: feature 2 (" in said.out
    said = call("predict", "--run", run, "--graph", drifted, "--out", tmp_path / "q.csv", "--fail-on-drift")
    assert said.code == 3
    assert said.err == "calirare: --fail-on-drift: the predictions were written, but do not trust them (see drift)\n"
    assert json.loads((tmp_path / "q.json").read_text())["verdict"] == "do not trust"
    assert (tmp_path / "q.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()
    succeed("predict", "--run", run, "--graph", later, "--fail-on-drift", "--out", tmp_path / "r.csv")


def test_python_has_the_report_and_predict_says_a_word(run, drifted, capsys):
    saved, graph = calirare.load(run), Graph.read(drifted)[0]
    scored = saved.score(graph)
    assert scored.verdict == "do not trust"
    notes: list[str] = []
    pd.testing.assert_frame_equal(saved.predict(graph, notes.append), scored.table)
    assert notes == [f"caution: the run's verdict: {scored.of_run}", f"drift: {scored.drift.sentence}"]
    assert repr(scored).startswith("Scored(")


@pytest.mark.parametrize("given", ["0.1", "0.08,0.125"])
def test_predict_takes_a_prevalence(given, run, later, tmp_path):
    out = ("--out", tmp_path / "p.csv")
    said = succeed("predict", "--run", run, "--graph", later, "--prevalence", given, *out)
    told = json.loads((tmp_path / "p.json").read_text())
    assert told["mean_p_rare"] == pytest.approx(0.1, rel=2e-2)
    assert pd.read_csv(tmp_path / "p.csv")["p_rare"].mean() == pytest.approx(told["mean_p_rare"], rel=1e-5)
    assert told["prevalence"]["method"] == "as given"
    interval = r" \(8 % to 12 %\)" if "," in given else ""
    assert re.search(rf"prevalence: 10 %{interval}, as given: P\(rare\) is corrected to it", said.out)
    assert told["drift"]["verdict"] == "ok", "a correction is no drift"


@pytest.mark.slow
def test_the_prevalence_is_estimated_where_classes_are_apart(tmp_path):
    def clear(seed: int, n: int = 260) -> Graph:
        graph = rare_task(n, seed=seed)
        return dataclasses.replace(graph, x=graph.x + 3 * torch.eye(2, 6)[graph.y])

    outcome = calirare.train(clear(0), model="gcn", epochs=30, folds=0)
    graph = clear(4, 600)
    scored = outcome.score(graph, prevalence="estimate")
    told = scored.prevalence
    assert told is not None
    assert told.method == "em"
    assert told.low < float((graph.y == 1).double().mean()) < told.high
    assert scored.mean == pytest.approx(told.share, rel=1e-6)
    assert scored.to_mapping()["prevalence"]["share"] == told.share


def test_a_prevalence_that_cannot_be_identified_is_refused(run, later, tmp_path):
    out = ("--prevalence", "estimate", "--out", tmp_path / "q.csv")
    sentence = assert_refused(call("predict", "--run", run, "--graph", later, *out))
    assert "cannot be identified" in sentence
    assert not (tmp_path / "q.csv").exists()


def part_of(graph: Graph, nodes: torch.Tensor) -> Graph:
    """Returns some nodes of a graph with the edges among them."""
    dense = graph.adjacency.to_dense().numpy()[np.ix_(nodes, nodes)]
    return Graph(csr_of_scipy(sp.csr_matrix(dense)), graph.x[nodes], graph.y[nodes], class_names=graph.class_names)


@pytest.mark.parametrize("text", ["2", "0.2,0.1", "often", "0.1,0.2,0.3"])
def test_a_prevalence_that_is_none_is_refused(text, run, later):
    said = call("predict", "--run", run, "--graph", later, "--prevalence", text)
    assert "--prevalence must be a number in (0, 1), two such numbers in order, or estimate" in assert_refused(said)


def test_an_output_that_cannot_be_is_refused_before_anything_is_scored(run, later, tmp_path, monkeypatch):
    monkeypatch.setattr("calirare.cli.predict.load", lambda folder: pytest.fail("nothing must be read"))
    for out, words in ((tmp_path / "p.txt", "must end in .csv"), (later / "p.csv", "is a file")):
        assert words in assert_refused(call("predict", "--run", run, "--graph", later, "--out", out))


@pytest.mark.slow
def test_recalibrate_mends_what_a_rarer_class_makes_wrong(run, tmp_path):
    graph = rare_task(900, seed=4)
    rare, rest = (graph.y == 1).nonzero().flatten(), (graph.y == 0).nonzero().flatten()
    fresh = file_of(part_of(graph, torch.cat([rest, rare[:60]])), tmp_path, "fresh")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    said = succeed("recalibrate", "--run", run, "--graph", fresh, "--out", tmp_path / "new")
    told = json.loads((tmp_path / "new" / "recalibration.json").read_text())
    old_verdict, after = (told[side]["verdict"] for side in ("before", "after"))
    assert (told["labels"], old_verdict["evidence"]["rare"]) == (690, 60)
    assert old_verdict["answer"] == "not calibrated"
    assert old_verdict["evidence"]["ratio"] > 1.5
    assert after["answer"] == "calibrated"
    assert told["after"]["log_loss"] < told["before"]["log_loss"]
    assert told["after"]["threshold"] < told["before"]["threshold"], "the rule balanced goes by the prevalence"
    assert said.out.startswith("690 fresh labels, 60 of them rare\nbefore: not calibrated: predicted ")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    old, new = calirare.load(run), calirare.load(tmp_path / "new")
    fresh_graph = Graph.read(fresh)[0]
    pd.testing.assert_series_equal(new.predict(fresh_graph)["p_raw"], old.predict(fresh_graph, str)["p_raw"])
    scored = new.score(fresh_graph)
    assert scored.mean == pytest.approx(60 / 690, rel=0.05)
    assert scored.verdict == "ok", "graphs are held against the one with fresh labels"


def test_a_recalibrated_run_has_the_labels_of_an_update_and_no_tables(run, later, tmp_path):
    own, new = shutil.copytree(run, tmp_path / "own"), tmp_path / "new"
    (own / "labels.csv").write_text("node,label\n0,rest\n")
    told = succeed("recalibrate", "--run", own, "--graph", later, "--out", new).out
    assert f"\nSaved to {new}. Next:\n  calirare predict {new} --graph GRAPH --out FOLDER\n" in told
    assert (new / "labels.csv").read_bytes() == (own / "labels.csv").read_bytes()
    said = assert_refused(call("report", "--run", new))
    assert "it has no metrics.json, as it was recalibrated: " in said
    assert "(`calirare report RUN`)" in said


def test_of_the_runs_own_graph_only_labels_that_did_not_train_count(run, finished, graph_file, later, tmp_path):
    said = succeed("recalibrate", "--run", run, "--graph", graph_file, "--out", tmp_path / "new")
    assert "the 150 labels that trained are left out" in said.err
    assert said.out.startswith("110 fresh labels, ")
    said = call("recalibrate", "--run", finished[0], "--graph", later, "--out", tmp_path / "other")
    assert "train with --method jackknife --map prior" in assert_refused(said)


def test_edges_that_the_run_left_out_for_their_time_are_told_of(tmp_path):
    nodes, edges = tables()
    path, run = written(tmp_path, nodes, edges.assign(day=np.arange(len(edges)))), tmp_path / "run"
    data, until = ("--nodes", tmp_path / "nodes.csv"), ("--time", "day", "--as-of", 150)
    succeed("train", "--dataset", path, *data, *until, "--model", "gcn", *QUICK, "--out", run)
    said = call("predict", "--run", run, "--graph", path, *data)
    assert "edges of all times count, but the run left out edges after 150" in said.err
    scored = list[bytes]()
    for options in (until, until[2:]):  # the column of times is the run's
        out = ("--out", tmp_path / "p.csv", "--overwrite")
        said = call("predict", "--run", run, "--graph", path, *data, *options, *out)
        assert (said.code, "all times" in said.err) == (0, False)
        scored.append((tmp_path / "p.csv").read_bytes())
    assert scored[0] == scored[1]
