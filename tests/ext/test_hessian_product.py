"""hessian_product and move_logits against the explicit [p, p] matrix and forward-mode autograd."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import field_of_propagated, hessian_product, move_logits, record
from tests.helpers.compare import hessian_product_matches, move_logits_matches
from tests.helpers.problems import NETWORKS, network, normal
from tests.helpers.tolerance import assert_identical

CURVATURES = ["exact", "ggn"]


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("name", NETWORKS)
def test_explicit_matrix(name, curvature, dtype, device):
    tape = network(name, dtype, device).tape
    for b, damping in ((1, 0.0), (3, 0.05), (2, -0.5)):
        vectors = normal(b, tape.n_parameters, seed=b).to(dtype).to(device)
        product = hessian_product(tape, vectors, curvature=curvature, damping=damping)
        hessian_product_matches(product, tape, vectors, curvature, damping)


@pytest.mark.parametrize("name", NETWORKS)
def test_moved_logits(name, dtype, device):
    tape = network(name, dtype, device).tape
    vectors = normal(3, tape.n_parameters, seed=4).to(dtype).to(device)
    moved = move_logits(tape, vectors)
    assert moved.shape == (tape.n_nodes, 3, tape.n_classes)
    move_logits_matches(moved, tape, vectors)


@pytest.mark.parametrize("name", ["one layer", "three layers, four classes", "sparse inputs"])
def test_nothing_to_multiply(name, dtype, device):
    tape = network(name, dtype, device).tape
    none = torch.empty(0, tape.n_parameters, dtype=dtype, device=device)
    for curvature in CURVATURES:
        assert hessian_product(tape, none, curvature=curvature, damping=0.1).shape == none.shape
    assert move_logits(tape, none).shape == (tape.n_nodes, 0, tape.n_classes)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_without_labelled_nodes_only_the_damping_is_left(n_layers, device):
    net = network("every node", torch.float64, device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    field = field_of_propagated(net.field.blocks[0], net.field.inputs, none, n_layers)
    layers = [*net.layers[: n_layers - 1], net.layers[-1]] if n_layers > 1 else [net.layers[0]]
    tape = record(field, layers, none)
    v = normal(2, tape.n_parameters, seed=1).to(device)
    for curvature in CURVATURES:
        assert_identical(hessian_product(tape, v, curvature=curvature, damping=0.5), 0.5 * v, "damping")
    assert move_logits(tape, v).shape == (0, 2, tape.n_classes)


def test_a_bad_number_stays_in_its_row(device):
    """Right-hand sides share matrix products; a NaN in one must not reach another."""
    tape = network("three classes", torch.float64, device).tape
    v = normal(3, tape.n_parameters, seed=1).to(device)
    clean = hessian_product(tape, v)
    v[1, 0] = float("nan")
    spoilt = hessian_product(tape, v)
    assert bool(spoilt[1].isnan().any())
    assert_identical(spoilt[[0, 2]], clean[[0, 2]], "other rows")


def test_no_half_tracked_derivative():
    """The product is not differentiable; a result that pretends to be would drop the part through the tape."""
    tape = network("two layers").tape
    v = normal(1, tape.n_parameters, seed=1).requires_grad_()
    assert not hessian_product(tape, v).requires_grad
    assert not move_logits(tape, v).requires_grad


@pytest.mark.parametrize(
    ("vectors", "curvature", "error", "message"),
    [
        (torch.ones(1, 46), "exact", ValueError, r"vectors must have shape \[any, 47\], got \[1, 46\]"),
        (torch.ones(1, 47).double(), "exact", TypeError, "vectors must be float32 as the tape is, got float64"),
        (torch.ones(1, 47), "fisher", ValueError, "curvature must be one of exact, ggn, got 'fisher'"),
    ],
)
def test_refuses(vectors, curvature, error, message):
    tape = network("two layers", torch.float32).tape
    with pytest.raises(error, match=f"hessian_product: {message}"):
        hessian_product(tape, vectors, curvature=curvature)
    if "curvature" not in message:
        with pytest.raises(error, match=f"move_logits: {message}"):
            move_logits(tape, vectors)
