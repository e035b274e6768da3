"""gcn_forward and record: one pass forward and back, against the dense network and autograd."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from calirare_ext import Csr, field_of_propagated, gcn_forward, hessian_product, node_gradients, record, reference
from tests.helpers.compare import exact_network, exactly, logits_match
from tests.helpers.problems import N_NODES, NETWORKS, network, normal
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound


@pytest.mark.parametrize("name", NETWORKS)
def test_forward_is_the_dense_network(name, dtype, device):
    net = network(name, dtype, device)
    logits_match(gcn_forward(net.field, net.layers), net.tape)
    logits_match(net.tape.logits, net.tape)


@pytest.mark.parametrize("name", ["two layers", "three layers, four classes"])
def test_the_field_leaves_out_nothing(name):
    """Logits of the labelled nodes are those of the whole graph's network."""
    net = network(name)
    whole = network("every node")
    n_layers = len(net.layers)
    a_hat = whole.field.blocks[0]
    everything = field_of_propagated(a_hat, whole.field.inputs, torch.arange(N_NODES), n_layers)
    logits_match(gcn_forward(everything, net.layers)[net.field.nodes], net.tape)


@pytest.mark.parametrize("name", NETWORKS)
def test_derivatives_of_first_and_second_order(name, device):
    net = network(name, torch.float64, device)
    flat = [part.clone().requires_grad_() for layer in net.layers for part in layer]

    def loss(*parts: torch.Tensor) -> torch.Tensor:
        logits = gcn_forward(net.field, list(zip(parts[::2], parts[1::2], strict=True)))
        return F.cross_entropy(logits, net.targets)

    assert gradcheck(loss, flat)
    assert gradgradcheck(loss, flat, fast_mode=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_tape_holds_the_gradient_of_the_loss(name, dtype, device):
    """deltas are d loss / d z_l: with the layers' inputs they make the gradient that autograd finds."""
    net = network(name, dtype, device)
    tape, exact = net.tape, exact_network(net.tape)
    first = tape.field.inputs.to_dense() if isinstance(tape.field.inputs, Csr) else tape.field.inputs
    inputs = [first, *tape.aggregated]
    gradient = torch.cat(
        [torch.cat([(s.T @ delta).flatten(), delta.sum(0)]) for s, delta in zip(inputs, tape.deltas, strict=True)]
    )
    expected = reference.node_gradients(exact.field, exact.layers, exact.targets, exact.weights).mean(0)
    bound = sum_bound(expected, exact.terms + exact.m, exact.absolute_gradients.mean(0), out=dtype)
    assert_within(gradient, expected, bound, "gradient")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_tape_describes_the_network(name):
    net = network(name)
    tape = net.tape
    assert tape.n_parameters == sum(part.numel() for layer in net.layers for part in layer)
    assert (tape.n_nodes, tape.n_classes) == (net.targets.numel(), NETWORKS[name].n_classes)
    assert_identical(tape.probabilities, torch.softmax(tape.logits, 1), "probabilities")
    for mask in tape.masks:
        assert set(mask.unique().tolist()) <= {0.0, 1.0}
    logits = tape.logits.clone().requires_grad_()
    (net.sample_weights * F.cross_entropy(logits, net.targets, reduction="none")).sum().backward()
    magnitude = net.sample_weights[:, None] * (tape.probabilities + 1)
    bound = sum_bound(logits.grad, 2 * tape.n_classes + 16, magnitude, out=torch.float64)
    assert_within(tape.loss_gradient_at_logits(), logits.grad, bound, "gradient at the logits")


def test_a_used_tape_can_be_copied_and_pickled():
    tape = network("two layers").tape
    v = normal(1, tape.n_parameters, seed=1)
    whole, gradients = hessian_product(tape, v), node_gradients(tape).dense()
    for other in (copy.deepcopy(tape), pickle.loads(pickle.dumps(tape))):
        assert_identical(hessian_product(other, v), whole)
        assert_identical(node_gradients(other).dense(), gradients)


def test_saturated_logits_stay_finite(dtype, device):
    """A confident model's probabilities reach 0 and 1; nothing may overflow on the way."""
    net = network("two layers", dtype, device)
    layers = [net.layers[0], (1e4 * net.layers[1][0], net.layers[1][1])]
    tape = record(net.field, layers, net.targets)
    for tensor in (tape.probabilities, *tape.deltas):
        assert bool(torch.isfinite(tensor).all())
    expected = torch.softmax(exactly(tape.logits), 1)
    bound = sum_bound(expected, 2 * tape.n_classes + 16, 1 + exactly(tape.logits).abs() * expected, out=dtype)
    assert_within(tape.probabilities, expected, bound, "probabilities")


W1, B1, W2, B2 = torch.ones(6, 5), torch.ones(5), torch.ones(5, 2), torch.ones(2)
BAD_LAYERS = [
    ([(W1, B1)], ValueError, "layers must be 2 as in the field, got 1"),
    ([(W1[:5], B1), (W2, B2)], ValueError, r"weight 1 must have shape \[6, any\], got \[5, 5\]"),
    ([(W1, B1), (W1, B2)], ValueError, r"weight 2 must have shape \[5, any\], got \[6, 5\]"),
    ([(W1, B1), (W2, B2.half())], TypeError, "bias 2 must be float32 or float64, got float16"),
    ([(W1, None), (W2, B2)], TypeError, "bias 1 must be a tensor, got NoneType"),
]


@pytest.mark.parametrize("name", ["two layers", "sparse inputs"])
@pytest.mark.parametrize(("layers", "error", "message"), BAD_LAYERS)
def test_layers_that_do_not_fit_are_refused(name, layers, error, message):
    net = network(name, torch.float32)
    with pytest.raises(error, match=f"gcn_forward: {message}"):
        gcn_forward(net.field, layers)
    with pytest.raises(error, match=f"record: {message}"):
        record(net.field, layers, net.targets)


def test_record_refuses_inputs_that_name_a_column_twice_in_a_row(device):
    """On a GPU two threads would add to one number of a node's gradient at a time."""
    net = network("sparse inputs", torch.float64, device)
    x = net.field.inputs
    repeated = Csr(
        torch.cat([x.indptr[:2], x.indptr[2:] + 1]),
        torch.cat([x.indices[: x.indptr[2]], x.indices[x.indptr[2] - 1 :]]),
        torch.cat([x.values[: x.indptr[2]], x.values[x.indptr[2] - 1 :]]),
        x.n_cols,
    )
    field = dataclasses.replace(net.field, features=repeated)
    with pytest.raises(
        ValueError, match="record: inputs must name a column once in a row, row 1 of the field names one"
    ):
        record(field, net.layers, net.targets)


@pytest.mark.parametrize(
    ("targets", "weights", "error", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), None, ValueError, r"targets must have shape \[5\], got \[4\]"),
        (torch.tensor([0, 1, 2, 0, 1]), None, ValueError, r"targets must be in \[0, 2\), got 0 to 2"),
        (torch.tensor([0, 1, 1, 0, 1]), torch.ones(4), ValueError, r"sample_weights must have shape \[5\], got \[4\]"),
    ],
)
def test_record_refuses(targets, weights, error, message):
    net = network("two layers")
    with pytest.raises(error, match=f"record: {message}"):
        record(net.field, net.layers, targets, weights)
