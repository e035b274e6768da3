"""Simulated rare-class graphs of any size, with the probabilities that a calibrated model should find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph import Graph, csr_of_scipy
from calirare_ext import Csr

# Slope of the log-odds in the neighbourhood score (standard deviation 1) where labels are drawn from a posterior.
LOG_ODDS_SLOPE = 3.0
# Rows of features drawn together, so that little memory is needed for more than the features.
CHUNK = 65536


@dataclass(frozen=True)
class BlockModel:
    """A degree-corrected block model of two blocks with overlapping Gaussian features.

    Attributes:
        share: share of the rare block, in (0, 1); at least one node falls in either block.
        mean_degree: directed edges per node aimed at, >= 1; repeated edges and self loops are dropped, so that a graph
            has a little fewer.
        degree_exponent: of the power law of the expected degrees, > 2; 2 to 3 is usual for real networks.
        homophily: in [0, 1]; probability that the second end of an edge is drawn from the block of the first, else it
            is drawn from all nodes.
        n_features: number of features d, >= 1.
        separation: distance of the blocks' means in standard deviations of one feature, >= 0.
        labels: "block" or "posterior", see `synthetic_rare`.

    Raises:
        InputError: a number is out of range.
    """

    share: float = 0.1
    mean_degree: float = 16.0
    degree_exponent: float = 2.5
    homophily: float = 0.8
    n_features: int = 128
    separation: float = 2.0
    labels: Literal["block", "posterior"] = "block"

    def __post_init__(self) -> None:
        """Checks every number."""
        _check("share", self.share, 0 < self.share < 1, "between 0 and 1")
        _check("mean_degree", self.mean_degree, 1 <= self.mean_degree < float("inf"), ">= 1 and finite")
        _check("degree_exponent", self.degree_exponent, 2 < self.degree_exponent < float("inf"), "> 2 and finite")
        _check("homophily", self.homophily, 0 <= self.homophily <= 1, "from 0 to 1")
        _check("n_features", self.n_features, self.n_features >= 1, ">= 1")
        _check("separation", self.separation, 0 <= self.separation < float("inf"), ">= 0 and finite")
        _check("labels", self.labels, self.labels in ("block", "posterior"), "block or posterior")


def _check(name: str, value: object, fits: bool, wanted: str) -> None:
    """Refuses an argument that is out of range."""
    if not fits:
        raise InputError(f"synthetic_rare: {name} must be {wanted}, got {value!r}")


def synthetic_rare(n_nodes: int, *, seed: int = 0, **model: Any) -> Graph:
    """Returns a simulated rare-class graph, nodes in random order, with the probabilities a model should find.

    Expected degrees follow a power law. Of each edge one end is drawn by expected degree from all nodes and the other,
    also by degree, from the same block with probability `homophily`, else from all nodes. Features are
    N(+-separation/2 * u, I) in the two blocks, u a random unit vector.

    With labels="block" the label is the block and `posterior` is P(y = 1 | own features of v), exact; edges and the
    features of neighbours tell more and are **not** in it. With labels="posterior" the label is drawn after features
    and edges, y_v ~ Bernoulli(p_v) independently, with log-odds of p_v linear in the mean of u^T x over v and its
    neighbours, and the intercept such that the mean of p is `share`; `posterior` is then P(y_v = 1 | all features, all
    edges), exact, whatever other labels are known.

    Args:
        n_nodes: number of nodes n, >= 10.
        seed: of numpy's default generator, >= 0; the same seed gives the same graph.
        **model: see `BlockModel`.

    Returns:
        The graph, without a split, `posterior` known.

    Raises:
        InputError: an argument is out of range.

    Cost: O(n d + m log m) time; about n d 4 bytes for the features and about 30 bytes per directed edge while
    the edges are made.
    """
    rules = BlockModel(**model)
    _check("n_nodes", n_nodes, n_nodes >= 10, ">= 10")
    _check("mean_degree", rules.mean_degree, rules.mean_degree < n_nodes, f"below n_nodes, {n_nodes}")
    _check("seed", seed, seed >= 0, ">= 0")
    rng = np.random.default_rng(seed)
    block = np.zeros(n_nodes, dtype=np.int64)
    n_rare = min(max(round(rules.share * n_nodes), 1), n_nodes - 1)
    block[rng.choice(n_nodes, n_rare, replace=False)] = 1
    adjacency = _draw_edges(block, rules, rng)
    x, score = _draw_features(block, rules, rng)
    y, posterior = _draw_labels(block, adjacency, score, rules, rng)
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


def _draw_edges(block: NumpyArray, rules: BlockModel, rng: np.random.Generator) -> Csr:
    """Returns the adjacency of a degree-corrected block model."""
    import scipy.sparse as sp

    n = len(block)
    n_pairs = round(rules.mean_degree * n / 2)
    # Pareto with this exponent, cut where two hubs would be expected to share more than one edge.
    weight = (1 - rng.random(n)) ** (-1 / (rules.degree_exponent - 1))
    weight = np.minimum(weight, np.sqrt(n * rules.mean_degree))
    # Each node stands in the bag as often as its expected number of ends: a uniform draw is a draw by degree.
    ends = rules.mean_degree * weight / weight.mean()
    copies = np.floor(ends + rng.random(n)).astype(np.int64)
    bag = np.repeat(np.arange(n, dtype=np.int32), copies)
    own = [bag[block[bag] == b] for b in (0, 1)]
    u = bag[rng.integers(len(bag), size=n_pairs)]
    v = bag[rng.integers(len(bag), size=n_pairs)]
    same = rng.random(n_pairs) < rules.homophily
    for b in (0, 1):
        places = np.flatnonzero(same & (block[u] == b))
        if len(places):
            v[places] = own[b][rng.integers(len(own[b]), size=len(places))]
    key = np.minimum(u, v).astype(np.int64) * n + np.maximum(u, v)
    key = key[u != v]
    # np.unique hashes, which takes four times as long as sorting here.
    key.sort()
    key = key[np.diff(key, prepend=-1) > 0]
    upper = sp.coo_matrix((np.ones(len(key), np.float32), np.divmod(key, n)), shape=(n, n)).tocsr()
    a = upper + upper.T.tocsr()
    a.sort_indices()
    return csr_of_scipy(a)


def _draw_features(block: NumpyArray, rules: BlockModel, rng: np.random.Generator) -> tuple[NumpyArray, NumpyArray]:
    """Returns the features, float32 [n, d], and u^T x, float64 [n]."""
    n, d = len(block), rules.n_features
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    x: NumpyArray = np.empty((n, d), dtype=np.float32)
    shift = (np.array([[-0.5], [0.5]]) * rules.separation * direction).astype(np.float32)
    score = np.empty(n)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        part = rng.standard_normal((rows.stop - start, d), dtype=np.float32)
        part += shift[block[rows]]
        score[rows] = part @ direction.astype(np.float32)
        x[rows] = part
    return x, score


def _draw_labels(
    block: NumpyArray, adjacency: Csr, score: NumpyArray, rules: BlockModel, rng: np.random.Generator
) -> tuple[NumpyArray, NumpyArray]:
    """Returns the labels, int64 [n], and their probabilities, float64 [n]."""
    if rules.labels == "block":
        # The log-likelihood ratio of N(s/2 u, I) to N(-s/2 u, I) at x is s u^T x.
        n_rare = int(block.sum())
        return block, _sigmoid(rules.separation * score + np.log(n_rare / (len(block) - n_rare)))
    posterior = _neighbourhood_posterior(adjacency, score, rules.share)
    y = (rng.random(len(block)) < posterior).astype(np.int64)
    if y.min() == y.max():
        raise InputError(f"synthetic_rare: no node of one class was drawn among {len(y)}: raise n_nodes or share")
    return y, posterior


def _neighbourhood_posterior(adjacency: Csr, score: NumpyArray, share: float) -> NumpyArray:
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


def _sigmoid(z: NumpyArray) -> NumpyArray:
    """Returns 1 / (1 + exp(-z)) without overflow."""
    return np.exp(-np.logaddexp(0, -z))
