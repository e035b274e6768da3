"""What is to be found in which graph, which labels may be known before, and how they are drawn."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass

import numpy as np
import torch

from calirare import Graph
from calirare.graph import Split

REGIMES = {
    "scarce": "100 labels, 20 rare and 80 of the rest, none to validate",
    "shot": "20 labels per class to train, 500 random ones to validate (half of what is left where that is less)",
    "forty": "40 % to train, 20 % to validate, 40 % to test, by class",
}
N_SCARCE = (80, 20)  # of the rest, of the rare class
N_SHOT, N_VAL = 20, 500
TRAIN, VAL = 0.4, 0.2  # shares in "forty"; where time decides what is tested, two thirds and one third of the rest


@dataclass(frozen=True)
class Task:
    """A rare-class task.

    Attributes:
        graph: what is trained on, with every label (1 rare, 0 rest, -1 none); methods see it through `Draw.seen`.
        later: the same nodes with what came to pass until they are scored; None: `graph` itself.
        known: nodes whose labels are there to be drawn, ascending; None: every labelled one.
        asked: nodes that are scored, without those drawn; None: every labelled one.
    """

    graph: Graph
    later: Graph | None = None
    known: np.ndarray | None = None
    asked: np.ndarray | None = None

    @property
    def y(self) -> np.ndarray:
        assert self.graph.y is not None
        return self.graph.y.numpy()

    @property
    def scored(self) -> Graph:
        return self.graph if self.later is None else self.later


@dataclass(frozen=True)
class Draw:
    """One split of a task: what a method sees, and the nodes it is judged on.

    Attributes:
        seed: of the draw and of the methods.
        seen: the graph with labels of training and validation nodes alone, and a split without test nodes.
        scored: the graph on which the test nodes are scored, without any label.
        test: nodes it is judged on, ascending.
    """

    seed: int
    seen: Graph
    scored: Graph
    test: np.ndarray

    @property
    def labelled(self) -> np.ndarray:
        """Training and validation nodes, in random order: nothing may follow from the order of a file."""
        assert self.seen.split is not None
        nodes = torch.cat([self.seen.split.train, self.seen.split.val]).numpy()
        return np.random.default_rng(self.seed).permutation(nodes)

    @property
    def y(self) -> np.ndarray:
        assert self.seen.y is not None
        return self.seen.y.numpy()

    @property
    def val(self) -> np.ndarray:
        assert self.seen.split is not None
        return self.seen.split.val.numpy()


def draw(task: Task, regime: str, split: int) -> Draw:
    """Returns split number `split` of a task; its seed is made of name, regime and number."""
    seed = zlib.crc32(f"{task.graph.name} {regime} {split}".encode()) % 2**31
    rng = np.random.default_rng(seed)
    y = task.y
    known = np.flatnonzero(y >= 0) if task.known is None else task.known
    by_class = [rng.permutation(known[y[known] == k]) for k in (0, 1)]
    if regime == "scarce":
        parts = [nodes[:n] for nodes, n in zip(by_class, N_SCARCE, strict=True)], []
    elif regime == "shot":
        left = rng.permutation(np.concatenate([nodes[N_SHOT:] for nodes in by_class]))
        parts = [nodes[:N_SHOT] for nodes in by_class], [left[: min(N_VAL, len(left) // 2)]]
    else:
        whole = TRAIN + VAL if task.known is not None else 1.0
        ends = [(round(TRAIN / whole * len(n)), round((TRAIN + VAL) / whole * len(n))) for n in by_class]
        pairs = list(zip(by_class, ends, strict=True))
        parts = [n[:a] for n, (a, _) in pairs], [n[a:b] for n, (a, b) in pairs]
    train, val = (np.sort(np.concatenate(part)) if part else np.empty(0, dtype=np.int64) for part in parts)
    asked = np.flatnonzero(y >= 0) if task.asked is None else task.asked
    test = np.setdiff1d(asked, np.concatenate([train, val]))
    name = f"{regime}(seed={seed})"
    return Draw(seed, hidden(task.graph, train, val, name), without_labels(task.scored), test)


def hidden(graph: Graph, train: np.ndarray, val: np.ndarray, name: str) -> Graph:
    """Returns the graph with no other labels than those drawn."""
    assert graph.y is not None
    drawn = torch.from_numpy(np.concatenate([train, val]))
    y = torch.full_like(graph.y, -1)
    y[drawn] = graph.y[drawn]
    split = Split(torch.from_numpy(train), torch.from_numpy(val), torch.empty(0, dtype=torch.int64), name)
    return dataclasses.replace(without_labels(graph), y=y, class_names=("rest", "rare"), split=split)


def without_labels(graph: Graph) -> Graph:
    none = {"y": None, "original_y": None, "split": None, "posterior": None, "minority": None}
    return dataclasses.replace(graph, **none, class_names=(), original_class_names=(), trusted=True)
