"""Two predictions at one place, and what earlier ones left there: refused, gone on from or removed, never mixed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from calirare._util import output
from calirare._util.blocks import BlockFiles
from calirare._util.claims import claimed, is_claimed, is_left_lock
from calirare.graph import GraphOnDisk
from calirare.models import streaming
from tests.cli.test_classes import tables
from tests.helpers.command import QUICK, assert_one_sentence, call
from tests.helpers.tasks import rare_task


@pytest.fixture
def run(trained_quickly: Path) -> Path:
    """A run. Read only."""
    return trained_quickly


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A graph in a folder."""
    dataclasses.replace(rare_task(seed=1), split=None).to_folder(tmp_path / "g")
    return tmp_path / "g"


@pytest.mark.parametrize("how", [("--scores-only", "--out", "s.parquet"), ("--out", "s.csv")])
def test_a_second_prediction_at_one_place_is_refused_and_touches_nothing(run, folder, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BlockFiles(tmp_path / ".s.blocks")
    blocks.start("the first")
    with claimed(tmp_path / how[-1], "predict"):
        said = call("predict", "--run", run, "--graph", folder, *how, "--overwrite")
        assert f"another process is writing there (process {os.getpid()} on " in assert_one_sentence(said)
        assert how[-1] in said.err
    assert blocks.said()["job"] == "the first"
    assert not (tmp_path / "s.json").exists()
    assert call("predict", "--run", run, "--graph", folder, *how).code == 0
    assert {path.name for path in tmp_path.glob(".*")} <= {".s.blocks"}


def test_scores_and_intervals_of_one_name_are_not_written_at_once(run, folder, tmp_path):
    with claimed(tmp_path / "s.csv", "predict"), claimed(tmp_path / "s.json", "predict"):
        said = call("predict", "--run", run, "--graph", folder, "--scores-only", "--out", tmp_path / "s.parquet")
    assert "another process is writing there" in assert_one_sentence(said)


@pytest.mark.slow
def test_nor_are_two_predictions_of_every_class(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edges = ("--features", tmp_path / "nodes.csv", tables(tmp_path))
    quick = ("--task", "classes", "--label-rate", 5, "--model", "gcn", "--epochs", 5, "--folds", 0, "--symmetrize")
    assert call("train", *edges[:2], "--dataset", edges[2], *quick, "--out", tmp_path / "run").code == 0
    for how in (("--scores-only", "--out", "s.parquet"), ("--out", "t.csv")):
        with claimed(tmp_path / how[-1], "predict"):
            said = call("predict", "--run", "run", *edges[:2], "--graph", edges[2], *how)
            assert "another process is writing there" in assert_one_sentence(said)
        assert call("predict", "--run", "run", *edges[:2], "--graph", edges[2], *how).code == 0


def test_what_appeared_before_the_place_was_free_is_not_replaced(run, folder, tmp_path, monkeypatch):
    """The other one ended between the first look and the claim."""
    original = output.claimed

    def late(path, what):
        (tmp_path / "s.parquet").write_text("theirs")
        return original(path, what)

    monkeypatch.setattr(output, "claimed", late)
    said = call("predict", "--run", run, "--graph", folder, "--scores-only", "--out", tmp_path / "s.parquet")
    assert "exists already" in assert_one_sentence(said)
    assert (tmp_path / "s.parquet").read_text() == "theirs"


def test_what_a_killed_prediction_leaves_stands_in_nobodys_way(quick_run, folder, graph_file):
    lock = quick_run / ".predictions_g.parquet.lock"
    lock.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert is_left_lock(lock)
    assert not is_claimed(quick_run / "predictions_g.parquet")
    assert call("predict", "--run", quick_run, "--graph", folder, "--scores-only").code == 0
    assert not lock.exists()
    lock.touch()
    assert call("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite").code == 0
    assert not lock.exists()


def test_blocks_of_another_number_of_processes_that_still_run_are_left_alone(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "ROWS", 50)
    for number in (0, 1):
        BlockFiles(tmp_path / f".s.{number}of2.blocks").start("theirs")
    with claimed(tmp_path / "s.1of2.parquet", "predict"):
        said = call("predict", "--run", run, "--graph", folder, "--scores-only", "--out", tmp_path / "s.parquet")
        assert said.code == 0, said.err
        assert [path.name for path in tmp_path.glob(".*blocks")] == [".s.1of2.blocks"]


def test_tables_of_another_number_of_processes_go_with_overwrite_alone(run, folder, tmp_path):
    old = [tmp_path / f"s.{number}of3.parquet" for number in range(3)]
    others = [tmp_path / name for name in ("s.0of3.csv", "ss.0of3.parquet", "s.x.parquet")]
    for path in (*old, *others):
        path.write_text("old")
    how = ("predict", "--run", run, "--graph", folder, "--scores-only", "--out", tmp_path / "s.parquet")
    assert "s.0of3.parquet exists already" in assert_one_sentence(call(*how))
    assert call(*how, "--overwrite").code == 0
    assert len(pd.read_parquet(tmp_path / "s.parquet")) == 260
    assert [path.exists() for path in (*old, *others)] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("name", ["parts/{rank}", "parts/1"])
def test_a_part_wants_a_process_each(run, folder, name, tmp_path):
    for number in range(2):
        GraphOnDisk.open(folder).part(number, 2).write(tmp_path / f"parts/{number}")
    said = call("predict", "--run", run, "--graph", tmp_path / name, "--scores-only", "--out", tmp_path / "s.parquet")
    text = assert_one_sentence(said)
    assert "holds 130 nodes of a graph of 260: start one process for each part" in text
    assert not list(tmp_path.glob(".*"))


def test_a_part_that_is_all_of_the_graph_needs_no_other(run, folder, tmp_path):
    GraphOnDisk.open(folder).part(0, 1).write(tmp_path / "parts/0")
    graph = tmp_path / "parts/{rank}"
    said = call("predict", "--run", run, "--graph", graph, "--scores-only", "--out", tmp_path / "s.parquet")
    assert said.code == 0, said.err


def test_a_folder_that_is_not_there_is_named(run, tmp_path):
    graph = tmp_path / "parts/{rank}"
    said = call("predict", "--run", run, "--graph", graph, "--scores-only", "--out", tmp_path / "new" / "s.parquet")
    assert f"there is no folder {tmp_path / 'parts/0'}" in assert_one_sentence(said)
    assert not (tmp_path / "new").exists()


def test_a_run_that_is_not_there_is_not_made(folder, tmp_path):
    said = call("predict", "--run", tmp_path / "nothing", "--graph", folder, "--scores-only")
    assert "there is no such folder" in assert_one_sentence(said)
    assert not (tmp_path / "nothing").exists()
