"""A simulated graph whose nodes have several rare labels."""

from __future__ import annotations

import numpy as np
import torch

from calirare._util.errors import InputError
from calirare.graph import EdgeRules, Split
from calirare.graph.edges import build_adjacency
from calirare_multilabel import MultilabelData

HOMOPHILY = 0.7  # share of the edges drawn inside a label that the first end has
MEAN_DEGREE = 8
SEPARATION = 2.5  # length of each label's mean vector in standard deviations of a feature


def simulated_graph(
    n_nodes: int = 3000, *, n_labels: int = 5, share: float = 0.08, n_features: int = 32, seed: int = 0
) -> MultilabelData:
    """Returns a graph whose nodes carry several overlapping rare labels.

    Labels come from thresholded normal variables with correlation 0.3, label j with share * (1 + j) / 2 of the nodes.
    An edge starts at a random node and ends, with probability `HOMOPHILY`, at another node with one of its labels, else
    anywhere. Features are standard normal plus a mean vector for each label the node has.

    Args:
        n_nodes: n >= 50.
        n_labels: K >= 1.
        share: of the nodes, sets how rare the labels are; the commonest must stay below 1.
        n_features: d >= 1.
        seed: of the graph; the same seed gives the same graph.

    Returns:
        The data, 20 % of the nodes training, 10 % validating, the rest testing.

    Raises:
        InputError: an argument is out of range.
    """
    for name, value, least in (("n_nodes", n_nodes, 50), ("n_labels", n_labels, 1), ("n_features", n_features, 1)):
        if value < least:
            raise InputError(f"simulated graph: {name} must be at least {least}, got {value}")
    shares = share * (1 + np.arange(n_labels)) / 2
    if not 0 < shares[0] <= shares[-1] < 1:
        raise InputError(
            f"simulated graph: the labels' shares must lie in (0, 1), got up to {shares[-1]:g}: change share"
        )
    random = np.random.default_rng(seed)
    latent = np.sqrt(0.7) * random.standard_normal((n_nodes, n_labels))
    latent += np.sqrt(0.3) * random.standard_normal((n_nodes, 1))
    y = latent > np.quantile(latent, 1 - shares, axis=0).diagonal()
    means = random.standard_normal((n_labels, n_features))
    means *= SEPARATION / np.linalg.norm(means, axis=1, keepdims=True)
    x = random.standard_normal((n_nodes, n_features)) + y @ means
    edges = _edges(y, random)
    adjacency = build_adjacency(edges, None, n_nodes, EdgeRules(True, "drop", "drop"), "simulated graph")
    order = torch.from_numpy(random.permutation(n_nodes))
    train, val = n_nodes // 5, n_nodes // 10
    split = Split(order[:train], order[train : train + val], order[train + val :], f"random(seed={seed})")
    names = tuple(f"label {j}" for j in range(n_labels))
    return MultilabelData(
        torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y), split, names, "simulated_graph", adjacency
    )


def _edges(y: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns directed edges [m, 2], about MEAN_DEGREE / 2 starting at each node."""
    n, k = y.shape
    start = random.integers(0, n, n * MEAN_DEGREE // 2)
    end = random.integers(0, n, len(start))
    # Of the labels a node has, one at random: the largest of random keys where the label is there.
    label = np.where(y[start], random.random((len(start), k)), -1).argmax(1)
    inside = y[start].any(1) & (random.random(len(start)) < HOMOPHILY)
    for j in range(k):
        chosen, members = inside & (label == j), np.flatnonzero(y[:, j])
        end[chosen] = members[random.integers(0, len(members), int(chosen.sum()))]
    return np.column_stack([start, end])
