"""Neighbourhoods that a graph falls into, and the design effect of dependence within them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import differ
from calirare_ext import Csr

# Patches, and nodes in one: few say little about noise, many are no larger than what depends on each other.
FEWEST, MOST, NODES = 16, 64, 64
DIRECTIONS, STEPS, ROUNDS = 16, 20, 30  # of subspace iteration, and of k-means
SAMPLE = 50_000  # nodes that are looked at, where there are more


def communities(adjacency: Csr, number: int, seed: int = 0) -> NumpyArray:
    """Returns the community of each node, int64 [n], below `number`.

    They are clusters (k-means) of the nodes' rows, of length 1, in the leading eigenvectors of the regularised
    adjacency (D + t)^-1/2 (A + t / n) (D + t)^-1/2 with t the mean degree (Amini, Chen, Bickel & Levina 2013; Qin &
    Rohe 2013), by subspace iteration, which need not converge. Nodes without neighbours are put anywhere at random.

    Args:
        adjacency: [n, n], symmetric; weights are not looked at.
        number: of communities, in [1, n].
        seed: of what is random.

    Cost: O(20 * 16 nnz) time.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    n, rng, edges = adjacency.n_rows, np.random.default_rng(seed), _matrix(adjacency)
    degrees = np.diff(edges.indptr).astype(np.float64)
    out = rng.integers(number, size=n)
    if not edges.nnz or number < 2:
        return out
    mean = degrees.mean()
    side = 1 / np.sqrt(degrees + mean)
    edges.data = side[edges.indices] * np.repeat(side, np.diff(edges.indptr))
    basis = rng.standard_normal((n, min(DIRECTIONS, n)))
    for _ in range(STEPS):
        basis = np.linalg.qr(edges @ basis + mean / n * np.outer(side, side @ basis))[0]
    rows = basis[degrees > 0]
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters: some stay empty
        means = KMeans(min(number, len(rows)), n_init=1, max_iter=ROUNDS, random_state=seed)
        out[degrees > 0] = means.fit_predict(rows)
    return out


def patches(adjacency: Csr, seed: int = 0) -> NumpyArray:
    """Returns the patch of each node, int64 [n], below `MOST`.

    Up to `SAMPLE` nodes patches are `communities`. With more nodes they are what is nearest to one of some nodes drawn
    at random, in steps along edges; components without any of these go to patches at random, whole.

    Args:
        adjacency: [n, n], symmetric.
        seed: of numpy's default generator.

    Cost: O(n log n + nnz) time, O(n + nnz) space.
    """
    import scipy.sparse as sp

    n, rng = adjacency.n_rows, np.random.default_rng(seed)
    number = int(np.clip(n // NODES, FEWEST, MOST))
    if n <= SAMPLE:
        return communities(adjacency, max(1, min(number, n // 2)), seed)
    edges, centres = _matrix(adjacency), np.sort(rng.choice(n, min(number, n), replace=False))
    search = {"indices": centres, "unweighted": True, "min_only": True, "return_predecessors": True}
    nearest = sp.csgraph.dijkstra(edges, **search)[2]
    patch = np.searchsorted(centres, nearest)
    left = np.flatnonzero(nearest < 0)
    if len(left):
        number_of, component = sp.csgraph.connected_components(edges[left][:, left], directed=False)
        patch[left] = rng.integers(number, size=number_of)[component]
    return patch


def _matrix(adjacency: Csr) -> Any:
    """Returns edges as a matrix of SciPy's, each 1."""
    import scipy.sparse as sp

    indptr, indices = adjacency.indptr.cpu().numpy(), adjacency.indices.cpu().numpy()
    return sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=(adjacency.n_rows, adjacency.n_rows))


def component_sizes(adjacency: Csr) -> NumpyArray:
    """Returns how many nodes each component has, int64, ascending; nodes without neighbours are no component.

    Args:
        adjacency: [n, n], symmetric.

    Cost: O(n + nnz) time and space.
    """
    import scipy.sparse as sp

    edges = _matrix(adjacency)
    component = sp.csgraph.connected_components(edges, directed=False)[1]
    sizes = np.bincount(component[np.diff(edges.indptr) > 0])
    return np.sort(sizes[sizes > 0])


def drawn(nodes: NumpyArray, seed: int = 0) -> NumpyArray:
    """Returns the nodes, or where there are more, `SAMPLE` of them drawn at random, in their order."""
    return nodes if len(nodes) <= SAMPLE else nodes[some_of(len(nodes), seed)]


def some_of(n: int, seed: int = 0) -> NumpyArray:
    """Returns `SAMPLE` of n places at random, or all of fewer, int64, ascending.

    The stream is its own: that of the seed alone may have drawn something of the graph before, such as its rare nodes.
    """
    if n <= SAMPLE:
        return np.arange(n)
    return np.sort(np.random.default_rng((seed, SAMPLE)).choice(n, SAMPLE, replace=False, shuffle=False))


def edges_of(adjacency: Csr, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
    """Returns both ends of the edges that begin at some nodes, int64."""
    rows = _matrix(adjacency)[nodes]
    return np.repeat(nodes, np.diff(rows.indptr)), rows.indices.astype(np.int64)


def design_effect(values: NumpyArray, patch: NumpyArray) -> float:
    """Returns how many nodes say as much about the mean of a value as one independent node, at least 1.

    It is the variance of the mean with dependence within patches, sum_g (sum_{i in g} (v_i - v))^2 / n^2, over that
    without, sum_i (v_i - v)^2 / n^2; a standard error of it more, since there are not many patches.

    Args:
        values: [n].
        patch: of each node, int64 [n].
    """
    if not len(values):
        return 1.0
    away = values - values.mean()
    alone = float(np.square(away).sum()) if differ(values) else 0.0
    sizes = np.bincount(patch)
    sums = np.bincount(patch, away)
    many = float(len(values)) ** 2 / float(sizes @ sizes.astype(np.float64))  # patches of equal size
    if alone <= 0 or many <= 1:
        return 1.0
    together = float(sums @ sums) / (1 - 1 / many)
    return max(1.0, together / alone * (1 + float(np.sqrt(2 / many))))
