"""Communities: nodes that an edge leaves less often than chance would have it, so that what they share shows."""

from __future__ import annotations

import warnings

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare_ext import Csr

DIRECTIONS, STEPS, ROUNDS = 16, 20, 30  # of subspace iteration, and of k-means


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
