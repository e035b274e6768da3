"""What is killed at random moments: commands, streaming, two ranks, a paper's table, a review page."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from calirare._util import ranks as calirare_ranks
from calirare.datasets import synthetic_rare
from calirare.graph import Graph, Split, convolution
from calirare_lab.paper import cells, protocol
from tests.campaigns import reviewing
from tests.campaigns.jobs import JOBS, Job, run_here

LARGE = Job(
    (
        *("train", "--dataset", "{root}/g.npz", "--preset", "paper", "--epochs", "12", "--folds", "0"),
        *("--device", "cpu", "--out", "{run}", "--overwrite"),
    )
)
TABLE = Job(
    (
        *("paper", "table2", "--datasets", "cora", "--label-rates", "20", "--seeds", "2"),
        *("--methods", "uncalibrated,temperature", "--out", "{run}/paper"),
    )
)
N_RANKS, GRACE, PIDS = 2, 2.0, "ranks.txt"


@dataclass(frozen=True)
class Work:
    """Something that is killed.

    Attributes:
        run: of a folder of inputs and one of a run, in this process; returns an exit code.
        lost: what is missing after a kill, beside what `kills.kept` looks at.
        several: processes that end each other, see `ranks`.
    """

    run: Callable[[Path, Path], int]
    lost: Callable[[Path, Path], list[str]] = lambda root, run: []
    several: bool = False


def _command(job: Job) -> Work:
    return Work(lambda root, run: run_here(job, root, run))


def streaming(root: Path, run: Path) -> int:
    """Trains where every graph counts as large: results are made by blocks, which a second start takes up."""
    with mock.patch.object(convolution, "LARGE", 1):
        return run_here(LARGE, root, run)


def table(root: Path, run: Path) -> int:
    """Makes a table of the paper at two seeds, of a small graph in the place of Cora."""
    with tiny_tables():
        return run_here(TABLE, root, run)


@contextmanager
def tiny_tables() -> Iterator[None]:
    """Meanwhile every data set of the paper's tables is a small graph, and intervals come from the fewest draws."""
    small = mock.patch.object(protocol.Place, "load", return_value=_small())
    there = mock.patch.object(protocol, "why_not_run", return_value="")
    with small, there, mock.patch.multiple(cells, N_FLOOR_DRAWS=2, N_BOOTSTRAP_DRAWS=5):
        yield


def _small() -> Graph:
    graph = synthetic_rare(420, seed=3, share=0.25, n_features=6, separation=1.0)
    nodes = torch.randperm(420, generator=torch.Generator().manual_seed(0))
    return graph.with_split(Split(nodes[:40], nodes[40:190], nodes[190:], "small"))


def ranks(root: Path, run: Path) -> int:
    """Starts `streaming` as two processes, as torchrun does: where one ends badly the others are told to end too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"WORLD_SIZE": N_RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free.getsockname()[1]}
    place |= {"TORCHELASTIC_RUN_ID": "campaign", "GLOO_SOCKET_IFNAME": "lo"}
    alive = {_rank(root, run, place, rank) for rank in range(N_RANKS)}
    (root / PIDS).write_text(" ".join(map(str, sorted(alive))))
    code = 0
    told = None
    while alive:
        for process in list(alive):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                alive.remove(process)
                code = max(code, abs(os.waitstatus_to_exitcode(status)))
        if code and told is None:
            told = time.monotonic()
        if told is not None and time.monotonic() - told > GRACE:
            told = float("inf")
            for process in alive:
                os.kill(process, signal.SIGTERM)
        time.sleep(0.005)
    return code


def _rank(root: Path, run: Path, place: dict[str, object], rank: int) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.environ.update({name: str(value) for name, value in (place | {"RANK": rank, "LOCAL_RANK": rank}).items()})
        calirare_ranks.PARENT = os.getppid()  # type: ignore[attr-defined] # as of a process that was started, not forked
        said = root / f"said-{rank}"
        said.mkdir(exist_ok=True)
        code = _streaming_said(root, run, said)
    finally:
        os._exit(code)


def _streaming_said(root: Path, run: Path, said: Path) -> int:
    words = tuple(word.format(root=root, run=run) for word in LARGE.words)
    with mock.patch.object(convolution, "LARGE", 1):
        return run_here(Job(words), said, run)


WORKS = {name: _command(job) for name, job in JOBS.items()} | {
    "paper": Work(table),
    "streaming": Work(streaming),
    "ranks": Work(ranks, several=True),
    "review": Work(reviewing.answer_all, reviewing.lost),
}
