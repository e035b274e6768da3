"""Several processes with a part of a graph each score it as one does; a death is told, and a new start goes on."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare._util.ranks import Ranks
from calirare.datasets import read_graph
from calirare.graph import GraphOnDisk
from calirare.models import halo
from calirare.models.halo import Halo, _check_parts
from calirare_ext import propagate
from tests.helpers.command import call, rough_runs
from tests.helpers.tasks import rare_task

# Imports once, then forks the processes of each job, each told its place as a launcher would tell it, and in a folder
# of its own. Where a job names a stage process 1 dies in it, as a machine that fails would.
PROGRAM = """
import gc, json, os, signal, sys
import torch.distributed
import calirare.cli.predict, calirare.run, lightgbm, pandas, pyarrow.parquet, sklearn.preprocessing, scipy.stats
from calirare._util.blocks import BlockFiles
from calirare.models import halo, stream_run, streaming, streams
from calirare.run import score_only
from calirare.cli.app import main

streaming.ROWS, score_only.ROWS, halo.AT_ONCE, score_only.AT_ONCE = 20, 30, 7, 11  # several blocks and messages
for module in (streams, stream_run):
    module.BLOCK, module.COLUMNS = 30, 4
original = BlockFiles.keep
gc.freeze()  # else each copy looks through all that was imported as it ends, for a second

for job in json.loads(sys.argv[1]):
    def keep(self, stage, first, block):
        if stage == job["dies"] and os.environ["RANK"] == "1" and first >= 20:
            os.kill(os.getpid(), signal.SIGKILL)
        with open("made", "a") as made:
            made.write(f"{stage}\\n")
        original(self, stage, first, block)

    BlockFiles.keep = keep
    children = []
    for rank in range(job["size"]):
        child = os.fork()
        if child == 0:
            os.makedirs(job["name"] + str(rank), exist_ok=True)
            os.chdir(job["name"] + str(rank))
            os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT), 1)
            os.dup2(os.open("err", os.O_WRONLY | os.O_CREAT), 2)
            place = {"RANK": rank, "WORLD_SIZE": job["size"], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": job["port"]}
            os.environ.update({name: str(value) for name, value in place.items()})
            sys.argv[1:] = [each.replace("%r", str(rank)) for each in job["arguments"]]
            main()
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def job(name: str, size: int, graph: Path | str, *more: str, run: str = "run", dies: str = "") -> dict:
    arguments = ["predict", "--run", f"../{run}", "--graph", str(graph), "--scores-only", "--out", "s.parquet", *more]
    return {"name": name, "size": size, "arguments": arguments, "dies": dies, "port": free_port()}


def table(folder: Path, name: str, size: int) -> pd.DataFrame:
    parts = [pd.read_parquet(folder / f"{name}{r}" / f"s.{r}of{size}.parquet") for r in range(size)]
    return pd.concat(parts, ignore_index=True)


def assert_alike(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    assert (found["node"].to_numpy() == wanted["node"].to_numpy()).all()
    assert (found["alert"].to_numpy() == wanted["alert"].to_numpy()).all()
    for name in ("p_rare", "p_balanced", "p_raw"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-6)


def scored_alone(tmp_path: Path, run: str) -> tuple[pd.DataFrame, dict]:
    how = ("--graph", tmp_path / "g", "--scores-only", "--out", tmp_path / f"{run}.parquet")
    alone = call("predict", "--run", tmp_path / run, *how)
    assert alone.code == 0, alone.err
    return pd.read_parquet(tmp_path / f"{run}.parquet"), json.loads((tmp_path / f"{run}.json").read_text())


def made(tmp_path: Path, name: str) -> list[str]:
    """Returns the stage of each block that any process of any start of a job has made."""
    return [stage for file in tmp_path.glob(f"{name}?/made") for stage in file.read_text().splitlines()]


@pytest.mark.slow
def test_processes_agree_with_one_and_survive_a_death(tmp_path):
    graph = dataclasses.replace(rare_task(), split=None)
    rare_task().to_npz(tmp_path / "g.npz")
    graph.to_folder(tmp_path / "g")
    how = ("--model", "gcn", "--epochs", "30", "--folds", "0", "--decide", "budget", "--budget", "20")
    assert call("train", "--dataset", tmp_path / "g.npz", *how, "--out", tmp_path / "run").code == 0
    with rough_runs():
        calirare.train(rare_task(), model="trees", folds=3).save(tmp_path / "trees")
    for rank in range(4):  # one process's part each, which the others cannot see
        GraphOnDisk.open(tmp_path / "g").part(rank, 4).write(tmp_path / f"parts{rank}" / str(rank))
    for rank in range(2):
        GraphOnDisk.open(tmp_path / "g").part(rank, 2).write(tmp_path / f"parts{rank}of2")
    wanted, told = scored_alone(tmp_path, "run")
    by_trees, trees_told = scored_alone(tmp_path, "trees")

    jobs = [
        job("two", 2, "../g"),
        job("parts", 4, "{rank}"),
        job("moved", 2, "../parts{rank}of2", dies="pass2"),
        job("moved", 4, "../parts{rank}/{rank}"),
        job("swapped", 2, "../parts{rank}/{rank}"),
        job("columns", 4, "../parts{rank}/{rank}", run="trees"),
        job("felled", 2, "../g", run="trees", dies="hop2.1"),
        job("felled", 2, "../g", run="trees"),
        job("regrown", 4, "../g", run="trees", dies="logits"),
        job("regrown", 3, "../g", run="trees"),
    ]
    command = [sys.executable, "-c", PROGRAM, json.dumps(jobs)]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    codes = [json.loads(line) for line in done.stdout.splitlines()]
    two, parts, moved, as_four, swapped, columns, felled, grown, regrown, as_three = codes

    assert (two, parts) == ([0, 0], [0, 0, 0, 0])
    assert_alike(table(tmp_path, "two", 2), wanted)
    assert_alike(table(tmp_path, "parts", 4), wanted)
    assert wanted["alert"].sum() == 20
    for name, size in (("two", 2), ("parts", 4)):
        said = json.loads((tmp_path / f"{name}0" / "s.json").read_text())
        assert [part["nodes"] for part in said["parts"]] == [260 // size] * size
        assert said["expected_rare_low"] == pytest.approx(told["expected_rare_low"], rel=1e-5)
        assert said["drift"]["sentence"] == told["drift"]["sentence"]
        assert "alerts: 20" in (tmp_path / f"{name}0" / "out").read_text()
        assert not list(tmp_path.glob(f"{name}?/.*"))

    # What two processes finished four go on from, on disks of their own.
    assert (moved[1], moved[0], as_four) == (-9, 1, [0] * 4)
    assert_alike(table(tmp_path, "moved", 4), wanted)
    assert made(tmp_path, "moved").count("pass1") == 14
    assert not list(tmp_path.glob("moved?/.*"))

    assert 2 in swapped
    assert "the parts must follow on each other" in (tmp_path / "swapped0" / "err").read_text()

    said = json.loads((tmp_path / "columns0" / "s.json").read_text())  # no budget: every process adds up its own nodes
    for name in ("expected_rare", "expected_rare_low", "expected_rare_high", "alerts"):
        assert said[name] == pytest.approx(trees_told[name], rel=1e-9)
    assert (columns, felled[1], felled[0], grown) == ([0] * 4, -9, 1, [0, 0])
    assert "lost another process of the job" in (tmp_path / "felled0" / "err").read_text()
    assert (regrown[1], as_three) == (-9, [0] * 3)
    assert made(tmp_path, "regrown").count("hop1.0") == 16 + 4  # the disk of the fourth is not there any more
    for name, size in (("columns", 4), ("felled", 2), ("regrown", 3)):
        assert table(tmp_path, name, size).equals(by_trees), name


class Threads(Ranks):
    """Processes that are threads of one."""

    meeting, boards = threading.Barrier(2, timeout=60), {}

    def gather_all(self, what):
        self.boards[self.rank] = what
        self.meeting.wait()
        out = [self.boards[rank] for rank in range(self.size)]
        self.meeting.wait()
        return out

    def all_to_all(self, sent, going, coming):
        given = self.gather_all(sent.split(going))
        assert [len(parts[self.rank]) for parts in given] == coming
        return torch.cat([parts[self.rank] for parts in given])


def arrives(rows: torch.Tensor) -> bool:
    """Waits until some rows have come."""
    until = time.monotonic() + 20
    while bool(rows.isnan().all()) and time.monotonic() < until:
        time.sleep(0.001)
    return not bool(rows.isnan().all())


def test_rows_are_sent_while_later_ones_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(halo, "AT_ONCE", 40)
    graph = rare_task()
    graph.to_folder(tmp_path / "g")
    wanted = torch.rand(260, 3)
    seen = threading.Event()  # the second process has rows of the first, which is not done yet

    def work(rank: int) -> None:
        part = GraphOnDisk.open(tmp_path / "g").part(rank, 2)
        edges = part.edges(0, 130)
        near = Halo.of(part, Threads(rank, 2), [edges])
        rows = torch.full((130 + near.size, 3), torch.nan)
        with near.sending(rows) as made:
            for first in range(0, 130, 40):
                rows[first : first + 40][: 130 - first] = wanted[130 * rank + first : 130 * (rank + 1)][:40]
                made(min(first + 40, 130))
                if first == 0:
                    assert seen.wait(20) if rank == 0 else arrives(rows[130:])
                    seen.set()
        assert torch.equal(propagate(near.place(edges), rows), propagate(edges, wanted))

    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(work, rank) for rank in range(2)]:
            done.result()


def test_parts_that_do_not_make_a_graph_are_refused():
    _check_parts([(0, 5, 9, 3), (5, 9, 9, 3)])
    for parts in ([(0, 5, 9, 3), (6, 9, 9, 3)], [(0, 5, 9, 3), (5, 8, 9, 3)], [(0, 5, 9, 3), (5, 9, 9, 4)]):
        with pytest.raises(InputError, match="must follow on each other"):
            _check_parts(parts)


def test_a_part_holds_its_rows_and_is_no_graph(tmp_path):
    graph = rare_task()
    graph.to_folder(tmp_path / "g")
    part = GraphOnDisk.open(tmp_path / "g").part(1, 3)
    part.write(tmp_path / "part")
    found = GraphOnDisk.open(tmp_path / "part")
    first, last = 260 // 3, 520 // 3
    assert (found.first, found.n_nodes, found.n_total) == (first, last - first, 260)
    wanted = graph.adjacency.to_dense()[first:last]
    assert (found.edges(0, last - first).to_dense() == wanted).all()
    assert (found.features(3, 9).x == graph.x[first + 3 : first + 9]).all()
    assert list(found.node_names(0, 2)) == [first, first + 1]
    assert (found.degrees(0, 5) == (wanted[:5] != 0).sum(1)).all()
    with pytest.raises(InputError, match="holds a part of a graph"):
        read_graph(str(tmp_path / "part"))
    with pytest.raises(InputError, match="exists already"):
        part.write(tmp_path / "part")
