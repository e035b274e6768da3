"""Rounds: train, ask for labels, train again; each time judged on nodes that can never be asked for."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from detection.sets import SETS as GRAPHS
from detection.sets import renamed
from detection.tasks import Task, hidden
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score
from sklearn.metrics import log_loss as loss

import calirare
from calirare import Graph
from calirare.datasets import synthetic_rare
from calirare.graph import csr_of_scipy
from labelling.rules import RULES

N_ROUNDS, BATCH = 20, 5
PER_CLASS, N_RANDOM, MIN_RARE = 5, 40, 2  # labels at the start: of each class, and at random with so many rare ones


def simulated(separation: float, homophily: float, share: float) -> Task:
    graph = synthetic_rare(1500, seed=7, n_features=16, share=share, separation=separation, homophily=homophily)
    return Task(renamed(graph, f"simulated {separation} {homophily}"))


def smaller(name: str, n: int) -> Task:
    """Returns the part of a graph that n of its nodes, drawn at random, make."""
    graph = GRAPHS[name]().graph
    kept = np.sort(np.random.default_rng(0).permutation(graph.n_nodes)[:n])
    places = torch.from_numpy(kept)
    a = graph.adjacency
    matrix = csr_array((a.values.numpy(), a.indices.numpy(), a.indptr.numpy()), shape=(graph.n_nodes, graph.n_nodes))
    assert isinstance(graph.x, torch.Tensor)
    assert graph.y is not None
    part = Graph(csr_of_scipy(matrix[kept][:, kept]), graph.x[places], graph.y[places], name=f"{name}, {n} nodes")
    return Task(dataclasses.replace(part, feature_normalisation=graph.feature_normalisation, trusted=True))


SETS: dict[str, Callable[[], Task]] = {
    "simulated, easy": partial(simulated, 2.5, 0.5, 0.1),
    "simulated, hard": partial(simulated, 1.2, 0.5, 0.1),
    "otc": GRAPHS["otc"],
    "cora": GRAPHS["cora"],
    "sichuan, 2,000 nodes": partial(smaller, "sichuan", 2000),
    "facebook, 2,000 nodes": partial(smaller, "facebook", 2000),
}
TUNED = ("simulated, easy", "simulated, hard")


@dataclass(frozen=True)
class Case:
    """Where a result belongs: name of the graph, of the rule, and number of the draw."""

    set: str
    rule: str
    split: int


@dataclass(frozen=True)
class Start:
    """The first labels of a draw.

    Attributes:
        chosen: trained on, no random sample, int64.
        random: drawn at random, int64.
        pool: nodes that can be asked for.
        test: nodes that never are, half of those with a known label.
    """

    chosen: np.ndarray
    random: np.ndarray
    pool: np.ndarray
    test: np.ndarray


def start(task: Task, name: str, split: int) -> Start:
    """Returns the first labels of a draw, the same for every rule."""
    rng = np.random.default_rng(zlib.crc32(f"next {name} {split}".encode()))
    y = task.y
    known = rng.permutation(np.flatnonzero(y >= 0))
    test, rest = known[: len(known) // 2], known[len(known) // 2 :]
    chosen = np.concatenate([rest[y[rest] == c][:PER_CLASS] for c in (0, 1)])
    rest = rest[~np.isin(rest, chosen)]
    n = N_RANDOM
    while (y[rest[:n]] == 1).sum() < MIN_RARE:
        n += 10
    return Start(np.sort(chosen), np.sort(rest[:n]), np.sort(rest[n:]), np.sort(test))


def played(task: Task, case: Case, model: str, rounds: int = N_ROUNDS) -> dict[str, Any]:
    """Returns AUPRC and log loss of the test nodes after each round, and how many labels there were."""
    first = start(task, case.set, case.split)
    rng = np.random.default_rng(zlib.crc32(f"asked {case}".encode()))
    chosen, pool, y, rows = first.chosen, first.pool, task.y, []
    for turn in range(rounds + 1):
        graph = hidden(task.graph, np.sort(chosen), first.random, "next")
        outcome = calirare.train(
            dataclasses.replace(graph, trusted=True), model=model, seed=case.split, calibrate_on="val"
        )
        p = outcome.probabilities("population")[:, 1].numpy()
        at, true = p[first.test], y[first.test]
        row = {"auprc": average_precision_score(true, at), "log_loss": loss(true, at, labels=[0, 1])}
        rows.append({"labels": len(chosen) + len(first.random), "rare": int((y[chosen] == 1).sum()), **row})
        if turn == rounds or len(pool) < BATCH:
            break
        asked = RULES[case.rule](outcome, pool, BATCH, rng)
        chosen, pool = np.concatenate([chosen, asked]), pool[~np.isin(pool, asked)]
    return {name: [float(row[name]) for row in rows] for name in rows[0]}
