"""Two processes on one job: the answer of one, a death that is told, a start that resumes."""

from __future__ import annotations

import json
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

# Imports once, then forks the processes of both jobs, each told its place as a launcher would tell it. Every graph
# counts as large; in the first job process 1 dies at a given point, as a machine that fails would.
PROGRAM = """
import gc, json, os, signal, sys
import torch.distributed
import calirare.graph.convolution
calirare.graph.convolution.LARGE = 1
import calirare.cli.train, calirare.pipeline, sklearn.metrics, pandas
from calirare.run import outcome as module
from calirare.intervals.streaming import Streaming
module.draw = lambda outcome, folder: None
from calirare.cli.app import main

def dying(self, job, rows, *rest):
    if self.ranks.rank == 1 and rows.start > 100:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, job, rows, *rest)

original = Streaming._intervals
gc.freeze()  # else each copy looks through all that was imported as it ends, for a second
for job, (port, dies) in enumerate(json.loads(sys.argv.pop(1))):
    Streaming._intervals = dying if dies else original
    children = []
    for rank in (0, 1):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(f"{job}.{rank}.err", os.O_WRONLY | os.O_CREAT), 2)
            place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in place.items()})
            main()
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
    if dies:
        sys.stdin.readline()  # until what is left has been looked at
"""


def arguments_of(folder: Path, out: str) -> list[str]:
    return ["train", "--dataset", str(folder / "g.npz"), *QUICK, "--device", "cpu", "--out", str(folder / out)]


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

    jobs = json.dumps([[free_port(), True], [free_port(), False]])
    command = [sys.executable, "-c", PROGRAM, jobs, *arguments_of(tmp_path, "two")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=tmp_path) as both:
        assert both.stdout is not None
        assert json.loads(both.stdout.readline()) == [1, -9]
        assert_a_death_is_told_and_blocks_are_kept(tmp_path)
        out, _ = both.communicate("go on\n", timeout=120)
    assert json.loads(out) == [0, 0], (tmp_path / "1.0.err").read_text()
    assert "resumed" in (tmp_path / "1.0.err").read_text()
    assert not (tmp_path / ".two.blocks").exists()
    got = table(tmp_path, "two")
    assert list(got.columns) == list(expected.columns)
    numbers = ["p_raw", "p_rare", "p_balanced", "confidence", "lower", "upper", "uncertainty", "ice", "ice_raw"]
    assert float((got[numbers] - expected[numbers]).abs().to_numpy().max()) < 1e-6
    assert got["split"].fillna("").equals(expected["split"].fillna(""))
    assert got["split"].value_counts()["train"] == 40
