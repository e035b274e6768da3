"""`calirare train` spoils nothing that is there: runs are replaced as a whole or not at all, failures leave nothing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from calirare._util import output
from calirare._util.output import fresh_folder
from calirare.run import outcome as outcome_module
from tests.cli.test_run_folder import FILES
from tests.helpers.command import QUICK, assert_refused, call, succeed


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_not_overwritten_unasked(quick_run, graph_file):
    before = contents(quick_run.parent)
    said = call("train", "--dataset", graph_file, *QUICK, "--seed", 1, "--out", quick_run)
    assert "--overwrite" in assert_refused(said)
    assert contents(quick_run.parent) == before


@pytest.mark.slow
def test_overwrite_replaces_the_whole_run(quick_run, graph_file):
    other = Path(shutil.copy(graph_file, quick_run.parent / "other.npz"))
    succeed("predict", "--run", quick_run, "--graph", other)
    assert (quick_run / "predictions_other.csv").is_file()
    other.unlink()
    succeed("train", "--dataset", graph_file, *QUICK, "--seed", 1, "--out", quick_run, "--overwrite")
    assert {path.name for path in quick_run.iterdir()} == FILES
    assert [path.name for path in quick_run.parent.iterdir()] == ["quick"]
    assert yaml.safe_load((quick_run / "config.yaml").read_text())["seed"] == 1


def test_overwrite_spares_a_folder_that_is_no_run(graph_file, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    before = contents(tmp_path)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "thesis", "--overwrite")
    assert "replaces runs only" in assert_refused(said)
    assert contents(tmp_path) == before
    (tmp_path / "empty").mkdir()
    succeed("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "empty", "--overwrite")


@pytest.mark.parametrize("name", ["predictions_2024.parquet", "review.csv"])
def test_overwrite_spares_files_that_look_like_ours(name, quick_run, graph_file):
    """Of these names, a run writes the last: there they were changed since."""
    with (quick_run / name).open("a") as file:
        file.write("mine")
    before = contents(quick_run)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite")
    expected = f"{name} has been changed since" if name in FILES else f"also holds {name}, which no run wrote"
    assert expected in assert_refused(said)
    assert contents(quick_run) == before


def killed_while_it_overwrites(run: Path, moment: str) -> int:
    """Replaces a run in a copy of this process that is killed at a moment; returns its exit code."""

    def kill(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    number = os.fork()
    if number == 0:
        try:
            if moment == "renames":  # as where the file system cannot exchange two names
                output.exchange = lambda *_: False
                real = os.replace
                os.replace = lambda a, b: kill() if str(a).endswith(".partial") else real(a, b)
            with fresh_folder(run, overwrite=True) as folder:
                (folder / "config.yaml").write_text("new")
                if moment == "writing":
                    kill()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


@pytest.mark.parametrize("moment", ["writing", "renames"])
def test_what_a_killed_process_leaves_is_put_right(moment, quick_run, graph_file):
    before = contents(quick_run)
    assert killed_while_it_overwrites(quick_run, moment) == -signal.SIGKILL
    assert any(path.name.endswith(".partial") for path in quick_run.parent.iterdir())
    if moment == "renames":
        assert not quick_run.exists()
        said = assert_refused(call("predict", "--run", quick_run, "--graph", graph_file))
        assert "a job that replaced it was killed and left it as" in said
    said = call("train", "--dataset", graph_file, *QUICK, "--out", quick_run)
    assert "exists already" in assert_refused(said)
    assert contents(quick_run) == before
    succeed("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite")
    assert [path.name for path in quick_run.parent.iterdir()] == ["quick"]


def test_a_second_process_is_told_who_is_writing(graph_file, tmp_path):
    with fresh_folder(tmp_path / "run", overwrite=False) as partial:
        said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "run")
        assert f"another process is writing there (process {os.getpid()} on " in assert_refused(said)
        assert partial.is_dir()
        (partial / "config.yaml").write_text("")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_behind_a_loop_of_links(graph_file, tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert_refused(call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "a" / "run"))
    assert_refused(call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "a"))


def test_of_two_runs_with_one_out_the_later_is_kept_elsewhere(graph_file, tmp_path, monkeypatch):
    out, real = tmp_path / "run", outcome_module.save_model

    def meanwhile(*arguments):
        out.mkdir()
        (out / "config.yaml").write_text("theirs")
        real(*arguments)

    monkeypatch.setattr(outcome_module, "save_model", meanwhile)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", out)
    assert said.code == 2
    assert contents(out) == {"config.yaml": b"theirs"}
    (kept,) = (path for path in tmp_path.iterdir() if path != out)
    assert f"another was written there while this one was made, which is kept as {kept}" in said.err.splitlines()[-1]
    assert {path.name for path in kept.iterdir()} == FILES
    assert not kept.name.startswith(".")


@pytest.mark.parametrize("out", [".", "", ".."])
def test_out_must_be_a_folder_of_its_own(out, graph_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", out)
    assert "--out must name a folder of its own" in assert_refused(said)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_stays(graph_file, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        said = call("train", "--dataset", graph_file, *QUICK, "--out", out, "--overwrite")
        assert str(out) in assert_refused(said)
    assert contents(tmp_path) == {"file": b"mine"}


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_folder_that_cannot_be_made_leaves_nothing(graph_file, tmp_path, monkeypatch):
    monkeypatch.setattr("calirare._util.file_locks.tempfile.mkdtemp", no_space)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "deep" / "runs" / "a")
    assert "cannot be written: No space left on device" in assert_refused(said)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Root may write everywhere: a test run by root is somebody else for a while, who can reach `folder`."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o555], ids=["closed", "read only"])
def test_a_folder_without_permission(mode, graph_file, tmp_path):
    # Once before, so that everything is imported that somebody else may not read.
    assert call("train", "--dataset", tmp_path / "none.npz", "--out", tmp_path / "run").code == 2
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(mode)
    with unprivileged(tmp_path):
        said = call("train", "--dataset", graph_file, *QUICK, "--out", theirs / "runs" / "a")
    theirs.chmod(0o755)
    assert "cannot be written: Permission denied" in assert_refused(said)
    assert list(theirs.iterdir()) == []
