"""Labelled nodes of a graph, some of their labels made wrong on purpose."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from detection.sets import SETS as GRAPHS
from detection.sets import named, renamed
from detection.tasks import Task

from calirare import Graph
from calirare.datasets import synthetic_rare
from calirare.graph import Split

N_LABELS, MIN_RARE = 300, 20
NOISES = ("none", "random 5", "random 10", "random 20", "by class 5", "by class 10", "by class 20")


def simulated(separation: float, homophily: float) -> Task:
    graph = synthetic_rare(1500, seed=7, n_features=16, share=0.15, separation=separation, homophily=homophily)
    return Task(renamed(graph, f"simulated, separation {separation}"))


SETS: dict[str, Callable[[], Task]] = {
    "simulated, easy": partial(simulated, 2.5, 0.5),
    "simulated, hard": partial(simulated, 1.0, 0.5),
    "cora": GRAPHS["cora"],
    "digits": partial(named, "digits"),
    "citeseer": partial(named, "citeseer"),
    "sichuan": GRAPHS["sichuan"],
    "amazon": GRAPHS["amazon"],
    "otc": GRAPHS["otc"],
}
TUNED = ("simulated, easy", "simulated, hard", "cora")  # rules were chosen on these


@dataclass(frozen=True)
class Case:
    """Where a result belongs.

    Attributes:
        set: name of the graph.
        noise: one of `NOISES`: per cent of the labels, drawn at random, that are wrong; or of the rare ones, and as
            many of the rest ("by class").
        split: number of the draw.
    """

    set: str
    noise: str
    split: int

    @property
    def name(self) -> str:
        """For files."""
        return "-".join((self.set, self.noise, str(self.split))).replace(" ", "_").replace(",", "")


@dataclass(frozen=True)
class Drawn:
    """Labelled nodes with their given labels.

    Attributes:
        graph: what is trained on: given labels alone, all of them train.
        nodes: the labelled nodes, int64 [m], ascending.
        given: their labels as given, int64 [m].
        true: as they are.
        test: other nodes with a known label.
        test_true: their labels.
    """

    graph: Graph
    nodes: np.ndarray
    given: np.ndarray
    true: np.ndarray
    test: np.ndarray
    test_true: np.ndarray

    @property
    def flipped(self) -> np.ndarray:
        """Which labels are wrong, bool [m]."""
        return self.given != self.true

    def without(self, removed: np.ndarray) -> Drawn:
        """Returns the same without some of the labels, bool [m]."""
        kept = ~removed
        graph = labelled(self.graph, self.nodes[kept], self.given[kept])
        return dataclasses.replace(
            self, graph=graph, nodes=self.nodes[kept], given=self.given[kept], true=self.true[kept]
        )


def draw(task: Task, case: Case) -> Drawn:
    """Returns the labels of a case: the same nodes for every noise, at least `MIN_RARE` of them rare."""
    rng = np.random.default_rng(zlib.crc32(f"audit {case.set} {case.split}".encode()))
    y = task.y
    known = rng.permutation(np.flatnonzero(y >= 0))
    n = min(N_LABELS, len(known) * 2 // 3)
    while (y[known[:n]] == 1).sum() < MIN_RARE:
        n += 20
    nodes, test = np.sort(known[:n]), np.sort(known[n:])
    true = y[nodes]
    given = noisy(true, case.noise, np.random.default_rng(zlib.crc32(case.name.encode())))
    graph = labelled(task.graph, nodes, given)
    return Drawn(graph, nodes, given, true, test, y[test])


def noisy(true: np.ndarray, noise: str, rng: np.random.Generator) -> np.ndarray:
    """Returns labels of which some are wrong."""
    given = true.copy()
    if noise == "none":
        return given
    kind, rate = noise.rsplit(" ", 1)
    share = int(rate) / 100
    if kind == "random":
        wrong = rng.permutation(len(true))[: round(share * len(true))]
    else:
        n = max(round(share * (true == 1).sum()), 1)
        wrong = np.concatenate([rng.permutation(np.flatnonzero(true == c))[:n] for c in (0, 1)])
    given[wrong] = 1 - given[wrong]
    return given


def labelled(graph: Graph, nodes: np.ndarray, given: np.ndarray) -> Graph:
    """Returns a graph with these labels and no others, all of which train."""
    y = torch.full((graph.n_nodes,), -1, dtype=torch.int64)
    y[torch.from_numpy(nodes)] = torch.from_numpy(given)
    nothing = torch.empty(0, dtype=torch.int64)
    return dataclasses.replace(
        graph,
        y=y,
        original_y=None,
        original_class_names=(),
        posterior=None,
        minority=None,
        class_names=("rest", "rare"),
        split=Split(torch.from_numpy(nodes), nothing, nothing, "audit"),
        trusted=True,
    )
