"""Components and patches of a graph, beside SciPy's components."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from calirare.drift import neighbourhoods
from calirare.drift.neighbourhoods import component_sizes, patches
from calirare_ext import Csr


def adjacency_of(matrix: sp.spmatrix) -> Csr:
    m = sp.csr_matrix(matrix)
    m.sort_indices()
    indptr, indices = torch.from_numpy(m.indptr.astype(np.int64)), torch.from_numpy(m.indices.astype(np.int32))
    return Csr(indptr, indices, torch.ones(m.nnz), m.shape[1])


def drawn(n: int, edges: int, seed: int = 0) -> sp.spmatrix:
    ends = np.random.default_rng(seed).integers(n, size=(2, edges))
    half = sp.coo_matrix((np.ones(edges), ends), shape=(n, n))
    return half + half.T


def path(n: int) -> sp.spmatrix:
    return sp.diags([np.ones(n - 1), np.ones(n - 1)], [1, -1])


GRAPHS = {
    "no edge": sp.coo_matrix((7, 7)),
    "one loop": sp.coo_matrix(([1.0], ([3], [3])), shape=(7, 7)),
    "scattered": drawn(300, 100),
    "one large": drawn(300, 900),
    "far across": path(500),
    "two far across": sp.block_diag([path(400), path(300), sp.coo_matrix((5, 5))]),
    "near and far": sp.block_diag([drawn(200, 2000), path(300)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_components_are_scipys(name):
    matrix = sp.csr_matrix(GRAPHS[name])
    of_each = sp.csgraph.connected_components(matrix, directed=False)[1]
    sizes = np.bincount(of_each[np.diff(matrix.indptr) > 0])
    assert component_sizes(adjacency_of(matrix)).tolist() == sorted(sizes[sizes > 0].tolist())


def test_patches_of_a_large_graph_are_connected_or_whole_components(monkeypatch):
    monkeypatch.setattr(neighbourhoods, "SAMPLE", 100)
    matrix = sp.csr_matrix(sp.block_diag([drawn(900, 3000), *[path(4)] * 40]))
    patch = patches(adjacency_of(matrix))
    assert patch.min() >= 0
    assert (patch == patches(adjacency_of(matrix))).all()
    small = patch[900:].reshape(40, 4)
    assert (small == small[:, :1]).all(), "a small component lies in one patch"
    assert len(np.unique(patch)) > 5
