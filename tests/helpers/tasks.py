"""Small rare-class tasks that a network can learn, with a split."""

from __future__ import annotations

import numpy as np
import torch

from calirare.graph.graph import Graph
from calirare.graph.splits import Split
from calirare_ext import Csr

N_TRAIN, N_VAL, N_TEST = 40, 110, 100


def rare_task(n_nodes: int = 260, n_classes: int = 2, seed: int = 0, **changes) -> Graph:
    """A block graph with overlapping features, its last class the rarest. Split 40/110/100, the rest unused."""
    rng = np.random.default_rng(seed)
    shares = np.append(np.full(n_classes - 1, 0.7 / (n_classes - 1)), 0.3)
    y = rng.permutation(np.repeat(np.arange(n_classes), np.round(shares * n_nodes).astype(int))[:n_nodes])
    chance = np.where(y[:, None] == y[None, :], 8.0, 1.5) / n_nodes
    upper = np.triu(rng.random((len(y), len(y))) < chance, 1)
    x = rng.standard_normal((len(y), 6)) + 0.8 * np.eye(n_classes, 6)[y]
    order = torch.from_numpy(rng.permutation(len(y)))
    train = torch.cat([order[torch.from_numpy(y[order]) == k][: N_TRAIN // n_classes] for k in range(n_classes)])
    rest = order[~torch.isin(order, train)]
    parts = {
        "adjacency": Csr.from_dense(torch.from_numpy((upper | upper.T).astype(np.float32))),
        "x": torch.from_numpy(x.astype(np.float32)),
        "y": torch.from_numpy(y),
        "split": Split(train, rest[:N_VAL], rest[N_VAL : N_VAL + N_TEST]),
        "name": "task",
    }
    graph = Graph(**(parts | changes))
    return graph.rare(1) if n_classes == 2 and graph.y is not None else graph
