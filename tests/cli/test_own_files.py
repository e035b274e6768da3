"""The files that make a run: nothing else replaces them, and a process killed between two of them leaves a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from calirare import InputError, load
from calirare._util import output
from calirare._util.output import fresh_files
from calirare._util.run_files import LIST, PART, changed_file, listed_files, own_files, seal
from tests.helpers.command import QUICK, assert_refused, call, succeed


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("predict", "--graph", "GRAPH"), "predictions.csv"),
        (("audit",), "predictions.csv"),
        (("audit",), "review.csv"),
        (("explain", "--node", "7"), "metrics.json"),
        (("explain", "--node", "7"), LIST),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_no_command_replaces_a_file_that_makes_the_run(words, name, quick_run, graph_file):
    before = {path.name: path.read_bytes() for path in quick_run.iterdir()}
    words = [graph_file if word == "GRAPH" else word for word in words]
    said = call(*words, "--run", quick_run, "--out", quick_run / name, "--overwrite")
    assert f"{name} is a file that makes the run {quick_run}" in assert_refused(said)
    assert {path.name: path.read_bytes() for path in quick_run.iterdir()} == before


@pytest.mark.slow
def test_metrics_of_a_table_do_not_replace_those_of_a_run(quick_run):
    before = (quick_run / "metrics.json").read_bytes()
    table = quick_run / "predictions.csv"
    said = call("evaluate", table, "--p", "p_rare", "--where", "split=test", "--out", quick_run, "--overwrite")
    assert "metrics.json is a file that makes the run" in assert_refused(said)
    assert (quick_run / "metrics.json").read_bytes() == before


@pytest.mark.slow
def test_what_was_added_later_may_be_replaced_and_goes_with_the_run(quick_run, graph_file):
    out = quick_run / "more.csv"
    for _ in range(2):
        succeed("predict", "--run", quick_run, "--graph", graph_file, "--out", out, "--overwrite")
    assert "more.csv" in listed_files(quick_run)
    assert "more.csv" not in own_files(quick_run)
    succeed("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite")
    assert not out.exists()


class Killed(BaseException):
    """In the place of a signal that nobody can catch."""


@pytest.mark.parametrize("after", range(5))
def test_a_process_killed_while_it_replaces_files_leaves_a_run(after, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("old")
    seal(folder)
    steps = []

    def killed(work):
        def stop(*words: object) -> None:
            if len(steps) == after:
                raise Killed
            steps.append(work)
            work(*words)

        return stop

    with monkeypatch.context() as patch:
        patch.setattr(output.os, "replace", killed(output.os.replace))
        for name in ("announce", "arrived"):
            patch.setattr(output, name, killed(getattr(output, name)))
        try:
            with fresh_files(folder, "test", own=True) as partial:
                for name in ("a", "b", "c"):
                    (partial / name).write_text("new")
        except Killed:
            pass
    assert changed_file(folder) is None
    assert {(folder / name).read_text() for name in ("a", "b")} <= {"old", "new"}
    assert {path.name for path in folder.iterdir() if path.name not in (LIST, PART)} <= set(listed_files(folder))
    with fresh_files(folder, "test", own=True) as partial:
        (partial / "a").write_text("newer")
    assert changed_file(folder) is None
    (folder / "b").write_text("somebody's")
    assert changed_file(folder) == "b"


def test_what_a_killed_process_left_of_the_list_is_in_nobodys_way(quick_run, graph_file):
    (quick_run / PART).write_text("{")
    load(quick_run)
    succeed("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite")
    assert not (quick_run / PART).exists()


@pytest.mark.parametrize(
    "change",
    [{"files": []}, {"files": {"config.yaml": 3}}, {"own": 3}, {"coming": []}, {"format": "calirare files 9"}],
    ids=lambda change: next(iter(change)),
)
def test_a_list_that_is_none_is_said(change, quick_run: Path):
    values = json.loads((quick_run / LIST).read_text())
    (quick_run / LIST).write_text(json.dumps(values | change))
    with pytest.raises(InputError, match=r"files\.json is missing or damaged"):
        load(quick_run)


def test_a_list_of_an_earlier_release_knows_no_own_files(quick_run):
    values = json.loads((quick_run / LIST).read_text())
    (quick_run / LIST).write_text(json.dumps({"format": values["format"], "files": values["files"]}))
    load(quick_run)
    assert own_files(quick_run) == frozenset()
    copy = shutil.copytree(quick_run, quick_run.with_name("copy"))
    assert changed_file(copy) is None
