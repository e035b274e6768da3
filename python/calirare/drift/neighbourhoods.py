"""Neighbourhoods that a graph falls into, and how much less its nodes say than as many independent ones."""

from __future__ import annotations

import warnings

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import differ
from calirare_ext import Csr

# Patches, and nodes in one: few say little about noise, many are no larger than what depends on each other.
FEWEST, MOST, NODES = 16, 64, 64
ENDS = 1 << 22  # neighbours looked at together
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
    import scipy.sparse as sp
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    n, rng = adjacency.n_rows, np.random.default_rng(seed)
    indptr, indices = adjacency.indptr.cpu().numpy(), adjacency.indices.cpu().numpy()
    degrees = np.diff(indptr).astype(np.float64)
    out = rng.integers(number, size=n)
    if not len(indices) or number < 2:
        return out
    mean = degrees.mean()
    side = 1 / np.sqrt(degrees + mean)
    edges = sp.csr_matrix((side[indices] * np.repeat(side, np.diff(indptr)), indices, indptr), shape=(n, n))
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

    Up to `SAMPLE` nodes patches are `communities`. Of more they are what is nearest to one of some nodes drawn at
    random: they grow a step along the edges at a time, and components that none of them lies in go to patches at
    random, whole.

    Args:
        adjacency: [n, n], symmetric.
        seed: of numpy's default generator.

    Cost: O(n + nnz) time, O(n) space.
    """
    n, rng = adjacency.n_rows, np.random.default_rng(seed)
    number = int(np.clip(n // NODES, FEWEST, MOST))
    if n <= SAMPLE:
        return communities(adjacency, max(1, min(number, n // 2)), seed)
    indptr, indices = adjacency.indptr.cpu().numpy(), adjacency.indices.cpu().numpy()
    patch = np.full(n, -1, dtype=np.int64)
    front = np.sort(rng.choice(n, min(number, n), replace=False))
    patch[front] = np.arange(len(front))
    place = np.empty(n, dtype=np.int64)
    while len(front):
        front = _grown(patch, front, indptr, indices, place)
    left = np.flatnonzero(patch < 0)
    if len(left):
        component = _components(left, n, indptr, indices)
        patch[left] = rng.integers(number, size=component.max() + 1)[component]
    return patch


def _grown(
    patch: NumpyArray, front: NumpyArray, indptr: NumpyArray, indices: NumpyArray, place: NumpyArray
) -> NumpyArray:
    """Gives the neighbours of the last nodes reached to their patches; returns those that are new.

    `place` [n] is room to work in: who is met twice is told by writing there, not by sorting all who are met.
    """
    reached = []
    degrees = indptr[front + 1] - indptr[front]
    block = np.cumsum(degrees) // ENDS
    for k in np.unique(block):
        part, many = front[block == k], degrees[block == k]
        ends, owner = _ends(part, many, indptr, indices), np.repeat(patch[part], many)
        new = patch[ends] < 0
        ends = ends[new]
        patch[ends] = owner[new]
        every = np.arange(len(ends))
        place[ends] = every
        reached.append(np.sort(ends[place[ends] == every]))
    return np.concatenate(reached)


def _ends(nodes: NumpyArray, degrees: NumpyArray, indptr: NumpyArray, indices: NumpyArray) -> NumpyArray:
    """Returns the neighbours of nodes, one node after the other, int64."""
    starts = np.repeat(indptr[nodes] - (np.cumsum(degrees) - degrees), degrees)
    return indices[starts + np.arange(len(starts))].astype(np.int64)


def component_sizes(adjacency: Csr) -> NumpyArray:
    """Returns how many nodes each component has, int64, ascending; nodes without neighbours are no component.

    Args:
        adjacency: [n, n], symmetric.

    Cost: O(n + nnz) time and space.
    """
    indptr, indices = adjacency.indptr.cpu().numpy(), adjacency.indices.cpu().numpy()
    joined = np.flatnonzero(np.diff(indptr))
    return np.sort(np.bincount(_components(joined, adjacency.n_rows, indptr, indices)))


def _components(left: NumpyArray, n: int, indptr: NumpyArray, indices: NumpyArray) -> NumpyArray:
    """Returns the component of each of the nodes `left`, which no edge leaves, from 0 on."""
    import scipy.sparse as sp

    degrees = indptr[left + 1] - indptr[left]
    place = np.full(n, -1, dtype=np.int64)
    place[left] = np.arange(len(left))
    columns = place[_ends(left, degrees, indptr, indices)]
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    inner = sp.csr_matrix((np.ones(len(columns)), columns, offsets), shape=(len(left), len(left)))
    return sp.csgraph.connected_components(inner, directed=False)[1].astype(np.int64)


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
    indptr = adjacency.indptr.cpu().numpy()
    degrees = indptr[nodes + 1] - indptr[nodes]
    return np.repeat(nodes, degrees), _ends(nodes, degrees, indptr, adjacency.indices.cpu().numpy())


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
    alone = float(away @ away) if differ(values) else 0.0
    sizes = np.bincount(patch)
    sums = np.bincount(patch, away)
    many = float(len(values)) ** 2 / float(sizes @ sizes.astype(np.float64))  # patches of equal size
    if alone <= 0 or many <= 1:
        return 1.0
    together = float(sums @ sums) / (1 - 1 / many)
    return max(1.0, together / alone * (1 + float(np.sqrt(2 / many))))
