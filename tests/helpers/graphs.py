"""Small graphs for tests, each valid unless its name says otherwise."""

import numpy as np
import torch

from calirare.graph.graph import Graph
from calirare.graph.splits import Split
from calirare_ext import Csr

# An undirected path 0 - 1 - 2 - 3 with an extra edge 1 - 3, both directions listed, and node 4 alone.
EDGES = np.array([[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2], [1, 3], [3, 1]])
N_NODES = 5


def small_adjacency(weights: list[float] | None = None) -> Csr:
    values = None if weights is None else torch.tensor(weights, dtype=torch.float32)
    rows, cols = torch.from_numpy(EDGES).T
    return Csr.from_coo(rows, cols, values, (N_NODES, N_NODES))


def small_features() -> torch.Tensor:
    return torch.arange(N_NODES * 3, dtype=torch.float32).reshape(N_NODES, 3)


def small_graph(**changes) -> Graph:
    """Five nodes, classes 0 1 2 0 -1 and one training node per class."""
    parts = {
        "adjacency": small_adjacency(),
        "x": small_features(),
        "y": torch.tensor([0, 1, 2, 0, -1]),
        "split": Split(torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([], dtype=torch.int64)),
        "name": "small",
    }
    return Graph(**(parts | changes))


def random_graph(n_nodes: int = 60, n_classes: int = 3, mean_degree: float = 4.0, seed: int = 0, **changes) -> Graph:
    """A uniform random graph with isolated nodes, class-dependent features and every label known."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n_nodes, n_nodes)) < mean_degree / n_nodes, 1)
    y = rng.permutation(np.arange(n_nodes) % n_classes)
    x = (rng.standard_normal((n_nodes, 4)) + y[:, None]).astype(np.float32)
    parts = {
        "adjacency": Csr.from_dense(torch.from_numpy((upper | upper.T).astype(np.float32))),
        "x": torch.from_numpy(x),
        "y": torch.from_numpy(y),
        "name": "random",
    }
    return Graph(**(parts | changes))
