"""Two processes on one job: the answer of one, a death that is told, a start that resumes."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import socket
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import torch

from calirare._util import ranks
from calirare.cli import main
from calirare.graph import Column, convolution
from calirare.intervals.streaming import Streaming
from tests.helpers.command import QUICK, call, rough_runs
from tests.helpers.tasks import rare_task


def in_two_processes(folder: Path, job: str, *, dies: bool = False, how: tuple[str, ...] = QUICK) -> list[int]:
    """Returns the exit codes of two copies of this process, each told its place as a launcher would tell it.

    Where the job `dies`, process 1 does at a given point, as a machine that fails would.
    """
    place, children = {"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}, []
    for rank in (0, 1):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.environ.update({k: str(v) for k, v in (place | {"RANK": rank, "LOCAL_RANK": rank}).items()})
                said = folder / f"{job}.{rank}.err"
                code = _process(arguments_of(folder, "two", how), said, dies=dies and rank == 1)
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _process(arguments: list[str], said: Path, *, dies: bool) -> int:
    """Does the job; returns its exit code."""
    original = Streaming._intervals

    def intervals(self, job, rows, *rest):
        if dies and rows.start > 100:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, job, rows, *rest)

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    ranks.PARENT = os.getppid()  # as of a process that was started, not forked
    sys.argv = ["calirare", *arguments]
    with said.open("w", buffering=1) as err, redirect_stdout(io.StringIO()), redirect_stderr(err), rough_runs():
        try:
            with mock.patch.object(Streaming, "_intervals", intervals):
                main()
        except SystemExit as stop:
            return int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
    return 1


def arguments_of(folder: Path, out: str, how: tuple[str, ...] = QUICK) -> list[str]:
    return ["train", "--dataset", str(folder / "g.npz"), *how, "--device", "cpu", "--out", str(folder / out)]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def table(folder: Path, out: str) -> pd.DataFrame:
    return pd.read_csv(folder / out / "predictions.csv")


def assert_a_death_is_told_and_blocks_are_kept(folder: Path) -> None:
    said = (folder / "0.0.err").read_text()
    assert "lost another process of the job" in said
    assert "finished blocks are kept" in said
    assert not (folder / "two").exists()
    finished = [mark.name for mark in (folder / ".two.blocks").glob("*.done")]
    assert len([name for name in finished if name.startswith("messages")]) == 16
    assert 0 < len([name for name in finished if name.startswith("intervals")]) < 16


@pytest.mark.slow
def test_two_processes_agree_with_one_and_survive_a_death(tmp_path, monkeypatch):
    rare_task().to_npz(tmp_path / "g.npz")
    monkeypatch.setattr(convolution, "LARGE", 1)
    alone = call(*arguments_of(tmp_path, "one"))
    assert alone.code == 0, alone.err
    expected = table(tmp_path, "one")

    assert in_two_processes(tmp_path, "0", dies=True) == [1, -9]
    assert_a_death_is_told_and_blocks_are_kept(tmp_path)
    assert in_two_processes(tmp_path, "1") == [0, 0], (tmp_path / "1.0.err").read_text()
    assert "resumed" in (tmp_path / "1.0.err").read_text()
    assert not (tmp_path / ".two.blocks").exists()
    got = table(tmp_path, "two")
    assert list(got.columns) == list(expected.columns)
    numbers = ["p_raw", "p_rare", "p_balanced", "confidence", "lower", "upper", "uncertainty", "ice", "ice_raw"]
    assert float((got[numbers] - expected[numbers]).abs().to_numpy().max()) < 1e-6
    assert got["split"].fillna("").equals(expected["split"].fillna(""))
    assert got["split"].value_counts()["train"] == 40


@pytest.mark.slow
@pytest.mark.parametrize("large", [True, False])
def test_every_process_maps_categories_gaps_and_scales_alike(large, tmp_path, monkeypatch):
    task = rare_task()
    x = task.x.clone()
    x[::3, 0], x[:, 1] = torch.nan, torch.arange(task.n_nodes) % 3
    kind = Column("kind", "categorical", ("a", "b", "c"))
    columns = (Column("amount"), kind, *(Column(f"c{i}") for i in range(2, x.shape[1])))
    names = tuple(column.name for column in columns)
    dataclasses.replace(task, x=x, columns=columns, feature_names=names).to_npz(tmp_path / "g.npz")
    how = ("--model", "gcn", "--epochs", "12", "--folds", "0")
    if large:
        monkeypatch.setattr(convolution, "LARGE", 1)
    alone = call(*arguments_of(tmp_path, "one", how))
    assert alone.code == 0, alone.err
    assert in_two_processes(tmp_path, "0", how=how) == [0, 0], (tmp_path / "0.1.err").read_text()
    got, expected = table(tmp_path, "two"), table(tmp_path, "one")
    assert float((got["p_rare"] - expected["p_rare"]).abs().max()) < 1e-6
    assert ("too small to share" in (tmp_path / "0.0.err").read_text()) != large
