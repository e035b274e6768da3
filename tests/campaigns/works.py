"""What is killed at random moments: commands, streaming, a paper's table, a review page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from calirare.datasets import synthetic_rare
from calirare.graph import Graph, Split, convolution
from calirare_lab.paper import cells, protocol
from tests.campaigns import reviewing
from tests.campaigns.jobs import JOBS, Job, run_here

LARGE = (
    *("train", "--dataset", "{root}/g.npz", "--preset", "paper", "--epochs", "12", "--folds", "0", "--no-report"),
    *("--device", "cpu", "--out", "{run}", "--overwrite"),
)
TABLE = (
    *("paper", "table2", "--datasets", "cora", "--label-rates", "20", "--seeds", "2"),
    *("--methods", "uncalibrated,temperature", "--out", "{run}/paper"),
)


@dataclass(frozen=True)
class Work:
    """Something that is killed.

    Attributes:
        run: of a folder of inputs and one of a run, in this process; returns an exit code.
        lost: what is missing after a kill, beside what `kills.kept` looks at.
    """

    run: Callable[[Path, Path], int]
    lost: Callable[[Path, Path], list[str]] = lambda root, run: []


def _command(job: Job) -> Work:
    return Work(lambda root, run: run_here(job, root, run))


def streaming(root: Path, run: Path) -> int:
    """Trains where every graph counts as large: results are made by blocks."""
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


WORKS = {name: _command(job) for name, job in JOBS.items()} | {
    "paper": Work(table),
    "streaming": Work(streaming),
    "review": Work(reviewing.answer_all, reviewing.lost),
}
