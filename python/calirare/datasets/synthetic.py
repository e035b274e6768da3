"""Simulated rare-class graphs of any size, with the probabilities that a calibrated model should find."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from calirare.edges import Array
from calirare.errors import InputError
from calirare.graph import Graph
from calirare_ext import Csr

# Exponent of the degree distribution; 2 to 3 is usual for real networks.
DEGREE_EXPONENT = 2.5
# Slope of the log-odds in the neighbourhood score (standard deviation 1) where labels are drawn from a posterior.
LOG_ODDS_SLOPE = 3.0
# Rows of features drawn together, so that little memory is needed beside the features themselves.
CHUNK = 65536


def synthetic_rare(
    n_nodes: int,
    *,
    share: float = 0.1,
    mean_degree: float = 16.0,
    n_features: int = 128,
    homophily: float = 0.8,
    separation: float = 2.0,
    labels: Literal["block", "posterior"] = "block",
    seed: int = 0,
    features_file: str | Path | None = None,
) -> Graph:
    """Returns a degree-corrected block model with overlapping Gaussian features and a rare class.

    Two blocks, the rare one with `share` of the nodes. Expected degrees follow a power law with exponent 2.5 around
    `mean_degree`. Of each edge one end is drawn by expected degree from all nodes and the other, also by degree, from
    the same block with probability `homophily`, else from all nodes. Features are
    N(+-separation/2 * u, I) in the two blocks, u a unit vector: the blocks' means are `separation` standard
    deviations apart.

    With labels="block" the label is the block and `posterior` is P(y = 1 | own features of v), exact; edges and the
    features of neighbours tell more and are **not** in it. With labels="posterior" the label is drawn after features
    and edges, y_v ~ Bernoulli(p_v) independently, with log-odds of p_v linear in the mean of u^T x over v and its
    neighbours, and the intercept such that the mean of p is `share`; `posterior` is then P(y_v = 1 | all features, all
    edges), exact, whatever other labels are known.

    Args:
        n_nodes: number of nodes n, >= 10.
        share: share of the rare class, in (0, 1); at least one node falls in either class.
        mean_degree: directed edges per node aimed at, > 0; repeated edges and self loops are dropped, so that the graph
            has a little fewer.
        n_features: number of features d, >= 1.
        homophily: in [0, 1]; 0 makes edges ignore the blocks.
        separation: distance of the blocks' means in standard deviations, >= 0.
        labels: what the label is, see above.
        seed: of numpy's default generator, >= 0; the same seed gives the same graph.
        features_file: `.npy` file to hold the features, memory-mapped; None keeps them in memory.

    Returns:
        The graph, nodes in random order, without a split, `posterior` known.

    Raises:
        InputError: an argument is out of range.

    Cost: O(n d + m log m) time; about n d 4 bytes for the features and m 40 bytes while the edges are made.
    """
    _check(n_nodes, share, mean_degree, n_features, homophily, separation, labels, seed)
    rng = np.random.default_rng(seed)
    n_rare = min(max(round(share * n_nodes), 1), n_nodes - 1)
    block = np.zeros(n_nodes, dtype=np.int64)
    block[rng.choice(n_nodes, n_rare, replace=False)] = 1
    adjacency = _draw_edges(block, mean_degree, homophily, rng)
    direction = rng.standard_normal(n_features)
    direction /= np.linalg.norm(direction)
    x, score = _draw_features(block, separation, direction, rng, features_file)
    if labels == "block":
        # Log-likelihood ratio of N(s/2 u, I) to N(-s/2 u, I) at x is s u^T x.
        posterior = _sigmoid(separation * score + np.log(n_rare / (n_nodes - n_rare)))
        y = block
    else:
        posterior = _neighbourhood_posterior(adjacency, score, share)
        y = (rng.random(n_nodes) < posterior).astype(np.int64)
        if y.min() == y.max():
            raise InputError(f"synthetic_rare: no node of one class was drawn among {n_nodes}: raise n_nodes or share")
    names = ("rest", "rare")
    return Graph(
        adjacency,
        torch.from_numpy(x),
        torch.from_numpy(y),
        torch.from_numpy(y),
        class_names=names,
        original_class_names=names,
        minority=1,
        name="synthetic",
        posterior=torch.from_numpy(posterior),
        # Symmetric and finite by construction: the checks would take longer than all the rest.
        trusted=True,
    )


def _check(
    n_nodes: int,
    share: float,
    mean_degree: float,
    n_features: int,
    homophily: float,
    separation: float,
    labels: str,
    seed: int,
) -> None:
    """Checks every number."""
    for name, value, fits, range_ in (
        ("n_nodes", n_nodes, n_nodes >= 10, ">= 10"),
        ("share", share, 0 < share < 1, "between 0 and 1"),
        ("mean_degree", mean_degree, 0 < mean_degree < n_nodes, f"between 0 and n_nodes ({n_nodes})"),
        ("n_features", n_features, n_features >= 1, ">= 1"),
        ("homophily", homophily, 0 <= homophily <= 1, "from 0 to 1"),
        ("separation", separation, 0 <= separation < float("inf"), ">= 0 and finite"),
        ("labels", labels, labels in ("block", "posterior"), "block or posterior"),
        ("seed", seed, seed >= 0, ">= 0"),
    ):
        if not fits:
            raise InputError(f"synthetic_rare: {name} must be {range_}, got {value!r}")


def _draw_edges(block: Array, mean_degree: float, homophily: float, rng: np.random.Generator) -> Csr:
    """Returns the adjacency of a degree-corrected block model."""
    import scipy.sparse as sp

    n = len(block)
    n_pairs = round(mean_degree * n / 2)
    # Pareto with this exponent, cut where two hubs would be expected to share more than one edge.
    weight = (1 - rng.random(n)) ** (-1 / (DEGREE_EXPONENT - 1))
    weight = np.minimum(weight, np.sqrt(n * mean_degree))
    # Each node stands in the bag as often as its expected number of ends: a uniform draw is a draw by degree.
    ends = mean_degree * weight / weight.mean()
    copies = np.floor(ends + rng.random(n)).astype(np.int64)
    bag = np.repeat(np.arange(n, dtype=np.int32), copies)
    own = [bag[block[bag] == b] for b in (0, 1)]
    u = bag[rng.integers(len(bag), size=n_pairs)]
    v = bag[rng.integers(len(bag), size=n_pairs)]
    same = rng.random(n_pairs) < homophily
    for b in (0, 1):
        places = np.flatnonzero(same & (block[u] == b))
        if len(places):
            v[places] = own[b][rng.integers(len(own[b]), size=len(places))]
    key = np.minimum(u, v).astype(np.int64) * n + np.maximum(u, v)
    key = key[u != v]
    # np.unique hashes, which takes four times as long as sorting here.
    key.sort()
    key = key[np.append(True, key[1:] != key[:-1])]
    rows = key // n
    cols = key - rows * n
    upper = sp.csr_matrix((np.ones(len(key), dtype=np.float32), (rows, cols)), shape=(n, n))
    a = (upper + upper.T).tocsr()
    a.sort_indices()
    indptr, indices = a.indptr.astype(np.int64), a.indices.astype(np.int32, copy=False)
    return Csr(torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(a.data), n)


def _draw_features(
    block: Array, separation: float, direction: Array, rng: np.random.Generator, path: str | Path | None
) -> tuple[Array, Array]:
    """Returns the features, float32 [n, d], and u^T x, float64 [n]."""
    n, d = len(block), len(direction)
    if path is None:
        x: Array = np.empty((n, d), dtype=np.float32)
    else:
        try:
            x = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
        except OSError as error:
            raise InputError(f"{path}: the file cannot be written ({error.strerror}): choose another") from error
    shift = (np.array([[-0.5], [0.5]]) * separation * direction).astype(np.float32)
    score = np.empty(n)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        part = rng.standard_normal((rows.stop - start, d), dtype=np.float32)
        part += shift[block[rows]]
        score[rows] = part @ direction.astype(np.float32)
        x[rows] = part
    return x, score


def _neighbourhood_posterior(adjacency: Csr, score: Array, share: float) -> Array:
    """Returns p with log-odds linear in the mean score over a node and its neighbours, and mean `share`."""
    counts = np.diff(adjacency.indptr.numpy())
    rows = np.repeat(np.arange(len(score)), counts)
    total = np.bincount(rows, score[adjacency.indices.numpy()], minlength=len(score))
    mean = (score + total) / (1 + counts)
    z = LOG_ODDS_SLOPE * (mean - mean.mean()) / mean.std()
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(z + middle).mean() < share else (low, middle)
    return _sigmoid(z + (low + high) / 2)


def _sigmoid(z: Array) -> Array:
    """Returns 1 / (1 + exp(-z)) without overflow."""
    return np.exp(-np.logaddexp(0, -z))
