"""node_gradients: each node's own gradient against one reverse pass per node through the dense network."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import Csr, node_gradients
from calirare_ext._backend import _C
from calirare_ext.node_gradients import entry_plans
from tests.helpers.compare import node_gradients_match
from tests.helpers.problems import NETWORKS, far_apart, network, normal
from tests.helpers.tolerance import assert_within, sum_bound


@pytest.mark.parametrize("name", NETWORKS)
def test_loss_gradients(name, dtype, device):
    net = network(name, dtype, device)
    gradients = node_gradients(net.tape)
    rows = gradients.dense()
    assert (rows.shape, rows.dtype) == ((net.tape.n_nodes, net.tape.n_parameters), dtype)
    assert gradients.n_parameters == net.tape.n_parameters
    node_gradients_match(rows, net.tape)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("n_seeds", [0, 1, 3])
def test_any_seeds(name, n_seeds, dtype, device):
    net = network(name, dtype, device)
    seeds = normal(net.tape.n_nodes, n_seeds, net.tape.n_classes, seed=1).to(dtype).to(device)
    rows = node_gradients(net.tape, seeds).dense()
    assert rows.shape == (net.tape.n_nodes * n_seeds, net.tape.n_parameters)
    node_gradients_match(rows, net.tape, seeds)


def test_entries_are_the_receptive_field_of_each_node_and_no_more():
    net = network("three layers, four classes")
    plans = entry_plans(net.field)
    assert entry_plans(net.field) is plans, "computed once per field"
    for level, plan in enumerate(plans):
        reach = torch.eye(net.field.nodes.numel(), dtype=torch.float64)
        for block in reversed(net.field.blocks[level:]):
            reach = reach @ (block.to_dense() != 0).double()
        for i, (first, last) in enumerate(zip(plan.entry_ptr[:-1], plan.entry_ptr[1:], strict=True)):
            assert plan.nodes[first:last].tolist() == reach[i].nonzero()[:, 0].tolist()


@pytest.mark.parametrize("n_hidden", [1, 3, 8, 17, 64, 129])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_kernel_at_odd_widths(n_hidden, sparse, dtype, device):
    """The kernel alone, on factors made by hand: shared rows, a node without entries, a strided output."""
    d, rows = 5, normal(6, 5, seed=1).to(dtype)
    rows[:, 2] = 0.0
    entry_ptr = torch.tensor([0, 3, 3, 4, 8])
    nodes = torch.tensor([0, 5, 2, 2, 1, 0, 3, 4], dtype=torch.int32)
    delta = normal(8, n_hidden, seed=2).to(dtype)
    buffer = torch.full((4, (d + 1) * n_hidden + 5), 9.0, dtype=dtype, device=device)
    out = buffer[:, 2:-3]
    if sparse:
        a = Csr.from_dense(rows).to(device)
        inputs = _C.CsrTensors(a.indptr, a.indices, a.values, a.n_cols)
    else:
        inputs = rows.to(device)
    _C.node_gradients_out(entry_ptr.to(device), nodes.to(device), delta.to(device), inputs, out)
    own, change = rows[nodes.long()].double(), delta.double()
    for i in range(4):
        e = slice(int(entry_ptr[i]), int(entry_ptr[i + 1]))
        expected = torch.cat([(own[e].T @ change[e]).flatten(), change[e].sum(0)])
        magnitude = torch.cat([(own[e].abs().T @ change[e].abs()).flatten(), change[e].abs().sum(0)])
        bound = sum_bound(expected, e.stop - e.start, magnitude, out=dtype)
        assert_within(out[i], expected, bound, f"node {i}")
    assert bool((buffer[:, :2] == 9.0).all())
    assert bool((buffer[:, -3:] == 9.0).all())


def test_output_rows_further_apart_than_2_to_the_31_elements(device):
    n, h = 2050, 2
    out = far_apart(n, 2 * h, 2**20, torch.float32, device)
    entry_ptr, nodes = torch.arange(n + 1, device=device), torch.zeros(n, dtype=torch.int32, device=device)
    delta = torch.ones(n, h, device=device)
    delta[-1] = 3.0
    _C.node_gradients_out(entry_ptr, nodes, delta, torch.tensor([[2.0]], device=device), out)
    assert out[-1].tolist() == [6.0, 6.0, 3.0, 3.0]
    assert out[0].tolist() == [2.0, 2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("seeds", "error", "message"),
    [
        (torch.ones(4, 1, 2), ValueError, r"seeds must have shape \[5, any, 2\], got \[4, 1, 2\]"),
        (torch.ones(5, 1, 3), ValueError, r"seeds must have shape \[5, any, 2\], got \[5, 1, 3\]"),
        (torch.ones(5, 1, 2).double(), TypeError, "seeds must be float32 as the tape is, got float64"),
    ],
)
def test_refuses(seeds, error, message):
    with pytest.raises(error, match=f"node_gradients: {message}"):
        node_gradients(network("two layers", torch.float32).tape, seeds)


def test_the_binding_guards_memory():
    entry_ptr, nodes, delta = torch.tensor([0, 1]), torch.tensor([0], dtype=torch.int32), torch.ones(1, 2)
    inputs, out = torch.ones(1, 3), torch.empty(1, 8)
    _C.node_gradients_out(entry_ptr, nodes, delta, inputs, out)
    for change, error, message in (
        ({"out": torch.empty(1, 7)}, ValueError, r"out must have \(d \+ 1\) h = 8 columns, got 7"),
        ({"out": torch.empty(2, 8)}, ValueError, "out must have one row per node"),
        ({"out": out.double()}, TypeError, "out must be Float, got Double"),
        ({"delta": torch.ones(2, 2)}, ValueError, "delta must be contiguous with one row per entry"),
        ({"nodes": nodes.long()}, TypeError, "entry_ptr must be int64 and nodes int32"),
        (
            {"inputs": torch.ones(2, 3).T[:, :1].expand(3, 3)},
            ValueError,
            "inputs must be a matrix with contiguous rows",
        ),
    ):
        good = {"entry_ptr": entry_ptr, "nodes": nodes, "delta": delta, "inputs": inputs, "out": out}
        with pytest.raises(error, match=f"node_gradients: {message}"):
            _C.node_gradients_out(**(good | change))
