"""receptive_field: what a node's logits depend on, all of it and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare_ext import Csr, ReceptiveField, field_of_propagated, gcn_norm, receptive_field
from tests.helpers.problems import N_NODES, graph, normal, random_matrix
from tests.helpers.tolerance import assert_identical


def reachable(a_hat: Csr, nodes: list[int], steps: int) -> list[int]:
    """Returns the nodes within so many steps, ascending, by walking the dense matrix."""
    reached = set(nodes)
    dense = a_hat.to_dense().cpu()
    for _ in range(steps):
        reached = {int(c) for r in reached for c in dense[r].nonzero()[:, 0]}
    return sorted(reached)


def assert_field(field: ReceptiveField, a_hat: Csr, inputs: torch.Tensor, nodes: list[int], n_layers: int) -> None:
    """Asserts that rows, blocks and inputs are what slicing the dense matrices gives."""
    assert field.n_layers == n_layers
    assert field.nodes.tolist() == nodes
    assert len(field.blocks) == n_layers - 1
    for level in range(n_layers - 1):
        assert field.rows[level].tolist() == reachable(a_hat, nodes, n_layers - 1 - level)
        block = field.blocks[level]
        block.check_structure()
        expected = a_hat.to_dense()[field.rows[level + 1]][:, field.rows[level]]
        assert_identical(block.to_dense(), expected, f"block {level}")
    kept = field.inputs.to_dense() if isinstance(field.inputs, Csr) else field.inputs
    assert_identical(kept, inputs[field.rows[0]], "inputs")


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize(
    "nodes",
    [[4], [13], [0], [5, 0, 13, 2, 7], list(range(N_NODES)), list(reversed(range(N_NODES))), []],
    ids=["one", "isolated", "hub", "some", "all", "all backwards", "none"],
)
def test_against_dense_slices(nodes, n_layers, sparse, dtype, device):
    a_hat = gcn_norm(graph(directed=True)).to(dtype).to(device)
    inputs = normal(N_NODES, 3, seed=1).to(dtype).to(device)
    ids = torch.tensor(nodes, dtype=torch.int64, device=device)
    field = field_of_propagated(a_hat, Csr.from_dense(inputs) if sparse else inputs, ids, n_layers)
    assert_field(field, a_hat, inputs, nodes, n_layers)


@pytest.mark.slow
@given(st.integers(1, 10), st.integers(0, 40), st.integers(1, 4), st.randoms(use_true_random=False))
def test_random_graphs(n, nnz, n_layers, random):
    a = random_matrix(n, n, min(nnz, n * n), random.randrange(10**6))
    nodes, inputs = random.sample(range(n), random.randint(0, n)), normal(n, 2, seed=2)
    field = field_of_propagated(a, inputs, torch.tensor(nodes, dtype=torch.int64), n_layers)
    assert_field(field, a, inputs, nodes, n_layers)


@pytest.mark.parametrize("nodes", [[0, 2], list(range(N_NODES))], ids=["some", "all"])
def test_inputs_of_any_strides_are_kept_by_rows(nodes):
    """The kernels read rows; a transposed feature matrix must not reach them as it is."""
    a_hat, inputs = gcn_norm(graph(directed=True)), normal(3, N_NODES, seed=1).T
    field = field_of_propagated(a_hat, inputs, torch.tensor(nodes), 1)
    assert field.inputs.is_contiguous()
    assert_identical(field.inputs, inputs[nodes], "inputs")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_layers": 0}, ValueError, "n_layers must be at least 1, got 0"),
        ({"a_hat": random_matrix(4, 5, 6, seed=1)}, ValueError, r"a_hat must be square, got shape \[4, 5\]"),
        ({"x": torch.ones(3, 2, dtype=torch.float64)}, ValueError, "x must have 4 rows, one per node, got 3"),
        ({"nodes": torch.tensor([0, 4])}, ValueError, r"nodes must be in \[0, 4\), got 0 to 4"),
        ({"nodes": torch.tensor([2, 2])}, ValueError, "nodes must be distinct, got 2 ids with repetitions"),
        ({"nodes": torch.tensor([True, False, True, False])}, TypeError, "nodes must be int64, got bool"),
    ],
)
def test_refuses(change, error, message):
    x = torch.ones(4, 2, dtype=torch.float64)
    good = {"a_hat": random_matrix(4, 4, 6, seed=1), "x": x, "nodes": torch.tensor([0, 3])}
    receptive_field(**good, n_layers=2)
    with pytest.raises(error, match=f"receptive_field: {message}"):
        receptive_field(**({"n_layers": 2} | good | change))
