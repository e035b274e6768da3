"""gcn_norm against the formula written out and against PyTorch Geometric."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare_ext import Csr, gcn_norm, reference, row_sums
from tests.helpers.compare import gcn_norm_matches
from tests.helpers.problems import graph, random_matrix
from tests.helpers.tolerance import assert_within, sum_bound


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


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(0, 40), st.integers(0, 10**6))
def test_formula_on_random_graphs(n, nnz, seed):
    adjacency = weighted(seed, n, min(nnz, n * n))
    gcn_norm_matches(gcn_norm(adjacency), adjacency)


def stored_zero_loop() -> Csr:
    """0 - 1 with weight 2, a stored self loop of weight 0 at node 0, and one that is all node 2 has."""
    rows, cols = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 0, 2])
    return Csr.from_coo(rows, cols, torch.tensor([0.0, 2.0, 2.0, 0.0], dtype=torch.float64), (3, 3))


def test_a_stored_self_loop_keeps_its_weight_even_0(device):
    """Node 0 has degree 2, node 1 gets a loop and has degree 3, node 2 has degree 0."""
    a_hat = gcn_norm(stored_zero_loop().to(device)).to_dense().cpu()
    expected = torch.zeros(3, 3, dtype=torch.float64)
    expected[0, 1] = expected[1, 0] = 2 / 6**0.5
    expected[1, 1] = 1 / 3
    assert_within(a_hat, expected, sum_bound(expected, 8, expected, out=torch.float64))


@pytest.mark.parametrize("entry", [-2.0, float("nan")])
def test_negative_row_sums_are_refused(entry, dtype, device):
    """Their square root would spread NaN over the row's neighbours without a word."""
    dense = torch.tensor([[0.0, 1.0, 1.0], [entry, 0.0, 0.5], [1.0, 0.0, 0.0]], dtype=dtype)
    with pytest.raises(
        ValueError, match=r"gcn_norm: adjacency must have row sums >= 0 .*, got (-0.5|nan) in row 1: its"
    ):
        gcn_norm(Csr.from_dense(dense).to(device))
    dense[1, 0] = -0.5  # a sum that stays positive is fine
    assert bool(torch.isfinite(gcn_norm(Csr.from_dense(dense).to(device)).values).all())


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_row_sums(block, dtype, device, monkeypatch):
    monkeypatch.setattr(sys.modules["calirare_ext.row_sums"], "BLOCK_ENTRIES", block)
    a = random_matrix(23, 9, 80, seed=5).to(dtype)
    sums = row_sums(a.to(device))
    exact, magnitude = a.to_dense().double().sum(1), a.to_dense().double().abs().sum(1)
    assert sums.dtype == torch.float64
    assert_within(sums, exact, sum_bound(exact, 9, magnitude, out=torch.float64))


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


def test_refuses_a_matrix_that_is_not_square():
    with pytest.raises(ValueError, match=r"gcn_norm: adjacency must be square, got shape \[3, 4\]"):
        gcn_norm(random_matrix(3, 4, 5, seed=1))


def test_columns_in_any_order_are_refused():
    """Else places of the result are never written, and hold what was in memory."""
    a = Csr(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 0], dtype=torch.int32), torch.ones(3), 2)
    with pytest.raises(ValueError, match="gcn_norm: adjacency must have ascending columns in each row, those of row 0"):
        gcn_norm(a)
