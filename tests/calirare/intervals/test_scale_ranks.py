"""Two processes on one job: the answer of one, a death that is told, a start that resumes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from calirare.graph import convolution
from tests.helpers.command import QUICK, call
from tests.helpers.tasks import rare_task

# Every graph counts as large; {death} may end a process at a given point, as a machine that fails would.
PROGRAM = """
import sys
import calirare.graph.convolution
calirare.graph.convolution.LARGE = 1
from calirare.run import outcome as module
from calirare.intervals.streaming import Streaming
module.draw = lambda outcome, folder: None
{death}
from calirare.cli.app import main
main()
"""
DEATH = """
import os, signal
original = Streaming._intervals
def dying(self, job, rows, *rest):
    if self.ranks.rank == 1 and rows.start > 100:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, job, rows, *rest)
Streaming._intervals = dying
"""


def arguments_of(folder: Path, out: str) -> list[str]:
    return ["train", "--dataset", str(folder / "g.npz"), *QUICK, "--device", "cpu", "--out", str(folder / out)]


def start(folder: Path, out: str, ranks: int, death: str = "") -> list[subprocess.CompletedProcess[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(ranks):
        place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in place.items()}
        environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, "-c", PROGRAM.format(death=death), *arguments_of(folder, out)]
        running.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    said = [process.communicate(timeout=120) for process in running]
    return [
        subprocess.CompletedProcess([], process.returncode, *texts)
        for process, texts in zip(running, said, strict=True)
    ]


def table(folder: Path, out: str) -> pd.DataFrame:
    return pd.read_csv(folder / out / "predictions.csv")


@pytest.mark.slow
def test_two_processes_agree_with_one_and_survive_a_death(tmp_path, monkeypatch):
    rare_task().to_npz(tmp_path / "g.npz")
    monkeypatch.setattr(convolution, "LARGE", 1)
    alone = call(*arguments_of(tmp_path, "one"))
    assert alone.code == 0, alone.err
    expected = table(tmp_path, "one")

    first, second = start(tmp_path, "two", 2, DEATH)
    assert second.returncode == -9
    assert first.returncode == 1
    assert "lost another process of the job" in first.stderr
    assert "finished blocks are kept" in first.stderr
    assert not (tmp_path / "two").exists()
    blocks = tmp_path / ".two.blocks"
    finished = {mark.name: mark.stat().st_mtime_ns for mark in blocks.glob("*.done")}
    assert len([name for name in finished if name.startswith("messages")]) == 16
    assert 0 < len([name for name in finished if name.startswith("intervals")]) < 16

    again = start(tmp_path, "two", 2)
    assert [process.returncode for process in again] == [0, 0], again[0].stderr
    assert "resumed" in again[0].stderr
    assert not blocks.exists()
    got = table(tmp_path, "two")
    assert list(got.columns) == list(expected.columns)
    numbers = ["p_raw", "p_rare", "p_balanced", "confidence", "lower", "upper", "uncertainty", "ice", "ice_raw"]
    assert float((got[numbers] - expected[numbers]).abs().to_numpy().max()) < 1e-6
    assert got["split"].fillna("").equals(expected["split"].fillna(""))
    assert got["split"].value_counts()["train"] == 40
