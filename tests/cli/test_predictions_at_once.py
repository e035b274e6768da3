"""Two predictions at one place, and what an earlier one left there: refused or gone on from, never mixed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from calirare._util import output
from calirare._util.blocks import BlockFiles
from calirare._util.file_locks import is_left_lock, locked
from tests.cli.test_run_folder import FILES
from tests.helpers.command import QUICK, assert_refused, call, succeed
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
    with locked(tmp_path / how[-1], "predict"):
        said = call("predict", "--run", run, "--graph", folder, *how, "--overwrite")
        assert f"another process is writing there (process {os.getpid()} on " in assert_refused(said)
        assert how[-1] in said.err
    assert json.loads((blocks.folder / "job.json").read_text())["job"] == "the first"
    assert not (tmp_path / "s.json").exists()
    succeed("predict", "--run", run, "--graph", folder, *how)
    assert {path.name for path in tmp_path.glob(".*")} <= {".s.blocks"}


def test_scores_and_intervals_of_one_name_are_not_written_at_once(run, folder, tmp_path):
    with locked(tmp_path / "s.csv", "predict"), locked(tmp_path / "s.json", "predict"):
        said = call("predict", "--run", run, "--graph", folder, "--scores-only", "--out", tmp_path / "s.parquet")
    assert "another process is writing there" in assert_refused(said)


def test_what_appeared_before_the_place_was_free_is_not_replaced(run, folder, tmp_path, monkeypatch):
    """The other one ended between the first look and the claim."""
    original = output.locked

    def late(path, what):
        (tmp_path / "s.parquet").write_text("theirs")
        return original(path, what)

    monkeypatch.setattr(output, "locked", late)
    said = call("predict", "--run", run, "--graph", folder, "--scores-only", "--out", tmp_path / "s.parquet")
    assert "exists already" in assert_refused(said)
    assert (tmp_path / "s.parquet").read_text() == "theirs"


def test_what_a_killed_prediction_leaves_stands_in_nobodys_way(quick_run, folder, graph_file):
    lock, half = quick_run / ".predictions_g.parquet.lock", quick_run / ".ab_12xyz.partial"
    half.mkdir()
    lock.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    assert is_left_lock(lock)
    succeed("predict", "--run", quick_run, "--graph", folder, "--scores-only")
    assert not (lock.exists())
    assert not (half.exists())
    lock.touch()
    half.mkdir()
    (half / "p.csv").write_text("half")
    succeed("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite")
    assert {path.name for path in quick_run.iterdir()} == FILES


def test_a_run_that_is_not_there_is_not_made(folder, tmp_path):
    said = call("predict", "--run", tmp_path / "nothing", "--graph", folder, "--scores-only")
    assert "there is no such folder" in assert_refused(said)
    assert not (tmp_path / "nothing").exists()
