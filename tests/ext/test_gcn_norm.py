"""gcn_norm against the formula written out and against PyTorch Geometric."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare_ext import Csr, gcn_norm, propagate, reference
from tests.helpers.compare import gcn_norm_matches
from tests.helpers.problems import graph, normal, random_matrix
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound


def weighted(seed: int, n: int = 9, nnz: int = 25) -> Csr:
    """Positive weights, self loops among them, and rows without entries."""
    a = random_matrix(n, n, nnz, seed)
    return Csr(a.indptr, a.indices, a.values.abs(), n)


ADJACENCIES = {
    "no nodes": lambda: Csr.from_dense(torch.zeros(0, 0, dtype=torch.float64)),
    "one node": lambda: Csr.from_dense(torch.zeros(1, 1, dtype=torch.float64)),
    "isolated nodes": lambda: Csr.from_dense(torch.zeros(4, 4, dtype=torch.float64)),
    "self loops alone": lambda: Csr.from_dense(torch.diag(torch.tensor([1.0, 0.5, 3.0], dtype=torch.float64))),
    "directed weights": lambda: graph(directed=True),
    "undirected weights": lambda: graph(directed=False),
    "random": lambda: weighted(1),
}


@pytest.mark.parametrize("name", ADJACENCIES)
def test_formula(name, dtype, device):
    adjacency = ADJACENCIES[name]().to(dtype).to(device)
    a_hat = gcn_norm(adjacency)
    assert (a_hat.shape, a_hat.dtype, a_hat.device) == (adjacency.shape, dtype, adjacency.device)
    gcn_norm_matches(a_hat, adjacency)


@pytest.mark.parametrize("name", ADJACENCIES)
def test_reference_is_the_formula(name):
    adjacency = ADJACENCIES[name]()
    gcn_norm_matches(Csr.from_dense(reference.gcn_norm(adjacency.to_dense())), adjacency)


@given(st.integers(1, 8), st.integers(0, 40), st.integers(0, 10**6))
def test_formula_on_random_graphs(n, nnz, seed):
    adjacency = weighted(seed, n, min(nnz, n * n))
    gcn_norm_matches(gcn_norm(adjacency), adjacency)


def test_by_hand(device):
    """0 - 1 with weight 3; 2 has a self loop of weight 2; 3 is alone. Degrees with loops: 4, 4, 2, 1."""
    dense = torch.zeros(4, 4)
    dense[0, 1] = dense[1, 0] = 3.0
    dense[2, 2] = 2.0
    expected = torch.tensor([[0.25, 0.75, 0, 0], [0.75, 0.25, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert_identical(gcn_norm(Csr.from_dense(dense).to(device)).to_dense().cpu(), expected, "by hand")


def test_does_not_change_its_argument():
    adjacency = graph(directed=True)
    before = adjacency.to_dense()
    gcn_norm(adjacency)
    assert_identical(adjacency.to_dense(), before, "adjacency")


@pytest.fixture(scope="module")
def geometric():
    return pytest.importorskip("torch_geometric.nn.conv.gcn_conv")


@pytest.mark.parametrize("name", sorted(set(ADJACENCIES) - {"no nodes"}))
class TestTorchGeometric:
    """Row r of the adjacency holds the edges into node r, which PyG lists as (source, target)."""

    def test_weights(self, name, geometric):
        adjacency = ADJACENCIES[name]()
        edge_index = torch.stack([adjacency.indices.long(), adjacency.rows()])
        n = adjacency.n_rows
        index, weight = geometric.gcn_norm(edge_index, adjacency.values, n, dtype=torch.float64)
        theirs = Csr.from_coo(index[1], index[0], weight, (n, n)).to_dense()
        bound = sum_bound(theirs, 2 * n + 8, theirs.abs(), out=torch.float64)
        assert_within(gcn_norm(adjacency).to_dense(), theirs, bound, "gcn_norm")

    def test_layer(self, name, geometric):
        adjacency = ADJACENCIES[name]()
        edge_index = torch.stack([adjacency.indices.long(), adjacency.rows()])
        n, d, h = adjacency.n_rows, 5, 3
        x, weight, bias = normal(n, d, seed=2), normal(d, h, seed=3), normal(h, seed=4)
        conv = geometric.GCNConv(d, h).double()
        with torch.no_grad():
            conv.lin.weight.copy_(weight.T)
            conv.bias.copy_(bias)
            theirs = conv(x, edge_index, adjacency.values)
        a_hat = gcn_norm(adjacency)
        magnitude = a_hat.to_dense() @ (x.abs() @ weight.abs()) + bias.abs()
        bound = sum_bound(theirs, 4 * (n + d) + 16, magnitude, out=torch.float64)
        assert_within(propagate(a_hat, x @ weight) + bias, theirs, bound, "GCNConv")


def test_refuses_a_matrix_that_is_not_square():
    with pytest.raises(ValueError, match=r"gcn_norm: adjacency must be square, got shape \[3, 4\]"):
        gcn_norm(random_matrix(3, 4, 5, seed=1))
