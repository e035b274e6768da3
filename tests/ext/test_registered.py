"""propagate as an operator of torch: compiled, exported and fake, on plain tensors, with derivatives of every order."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import calirare_ext.registered as registered
from calirare.models import GCN
from calirare_ext import Csr, Factored, field_of_propagated, gcn_norm, propagate
from tests.helpers.compare import propagate_matches
from tests.helpers.problems import MATRICES, matrix, normal, random_matrix
from tests.helpers.tolerance import assert_identical

FORWARD, TURNED = torch.ops.calirare.propagate, torch.ops.calirare.propagate_transposed


def parts(a: Csr):
    return a.indptr, a.indices, a.values, a.n_cols


class TwoLayers(torch.nn.Module):
    """The network of the documentation: two graph convolutions by `propagate`."""

    def __init__(self, a_hat: Csr, d: int) -> None:
        super().__init__()
        self.a_hat = a_hat
        self.first, self.second = torch.nn.Linear(d, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return propagate(self.a_hat, self.second(F.relu(propagate(self.a_hat, self.first(x)))))


@pytest.fixture
def network(dtype, device):
    torch.manual_seed(0)
    a = square(dtype, device)
    return TwoLayers(a, 5).to(device, dtype), normal(a.n_rows, 5, seed=1).to(device, dtype)


def square(dtype, device) -> Csr:
    """A_hat of a graph of 30 nodes."""
    rows, cols = torch.randint(0, 30, (2, 60), generator=torch.Generator().manual_seed(3))
    ends = torch.cat([rows, cols]), torch.cat([cols, rows])
    ones = torch.ones(120, dtype=dtype)
    return gcn_norm(Csr.from_coo(*ends, ones, (30, 30), sum_duplicates=True)).to(device)


def gradients(model, *inputs):
    """Returns the logits and their squares' gradients in every parameter."""
    torch._dynamo.reset()
    logits = model(*inputs)
    return logits.detach(), torch.autograd.grad(logits.square().sum(), list(model.parameters()))


def same_as_eager(compiled, model, *inputs) -> None:
    want, expected = gradients(model, *inputs)
    logits, grads = gradients(compiled, *inputs)
    assert_identical(logits, want, "logits")
    for name, grad, other in zip(dict(model.named_parameters()), grads, expected, strict=True):
        assert bool(other.any()), name
        assert_identical(grad, other, name)


@pytest.mark.parametrize("name", MATRICES)
def test_the_operators_are_both_products(name, dtype, device):
    a = matrix(name, dtype, device)
    x, back = (normal(n, 3, seed=n).to(device, dtype) for n in (a.n_cols, a.n_rows))
    propagate_matches(FORWARD(*parts(a), x), a, x)
    propagate_matches(TURNED(*parts(a), back), a.transpose(), back)


@pytest.mark.slow
@pytest.mark.parametrize("operator", [FORWARD, TURNED])
def test_torch_finds_the_registration_sound(operator, device):
    a = random_matrix(6, 4, 12, seed=1).to(device)
    x = normal(a.n_cols if operator is FORWARD else a.n_rows, 3, seed=2).to(device)
    torch.library.opcheck(operator.default, (*parts(a), x.T.contiguous().T.detach().requires_grad_()))


@pytest.mark.slow
def test_a_network_compiles_without_a_graph_break(network):
    model, x = network
    same_as_eager(torch.compile(model, fullgraph=True, backend="aot_eager"), model, x)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # a GPU's, which `cuda_device` turns off
@pytest.mark.parametrize("dtype", [torch.float32], ids=["float32"])  # the backends above take both
def test_a_network_compiles_by_inductor(network, monkeypatch):
    # Torch would take what it compiled for other vectors out of its cache: their length is no part of the key.
    cache = Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}_{torch.backends.cpu.get_cpu_capability()}"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    model, x = network
    logits, grads = gradients(torch.compile(model, fullgraph=True), x)
    want, expected = gradients(model, x)
    for one, other in zip((logits, *grads), (want, *expected), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("strict", [False, True])
def test_a_network_is_exported(strict, network):
    model, x = network
    program = torch.export.export(model, (x,), strict=strict)
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert called.count(FORWARD.default) == 2
    assert_identical(program.module()(x), model(x), "exported")


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["dense", "sparse", "factored"])
def test_our_own_network_compiles_on_a_receptive_field(stored):
    a = square(torch.float32, torch.device("cpu"))
    x = random_matrix(30, 7, 60, seed=4).to(torch.float32)
    inputs = {"dense": propagate(a, x.to_dense()), "sparse": x, "factored": Factored(a, x)}[stored]
    field = field_of_propagated(a, inputs, torch.arange(0, 30, 2), 2)
    model = GCN(7, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    same_as_eager(compiled.eval(), model.eval(), field)
    torch.manual_seed(1)
    dropped = compiled.train()(field)
    torch.manual_seed(1)
    assert_identical(dropped, model.train()(field), "with dropout")


def test_fake_tensors_have_the_shape_and_the_device_and_no_numbers(dtype, device):
    a = random_matrix(6, 4, 12, seed=1).to(dtype).to(device)
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = propagate(a, torch.empty(4, 3, dtype=dtype, device=device))
    assert (y.shape, y.dtype, y.device.type) == ((6, 3), dtype, device.type)


GOOD = random_matrix(6, 4, 12, seed=1)
REFUSED = [
    (GOOD, torch.ones(6, 1).double(), ValueError, r"propagate: x must have shape \[4, any\], got \[6, 1\]"),
    (GOOD, torch.ones(4).double(), ValueError, r"propagate: x must have shape \[4, any\], got \[4\]"),
    (GOOD, torch.ones(4, 1), TypeError, "propagate: x must be float64 as values is, got float32"),
]


@pytest.mark.parametrize(("a", "x", "error", "message"), REFUSED)
def test_refuses_in_the_operator_and_where_it_is_traced(a, x, error, message):
    class Product(torch.nn.Module):
        def forward(self, x):
            return propagate(a, x)

    with pytest.raises(error, match=message):
        FORWARD(*parts(a), x)
    with pytest.raises(error, match=message):
        torch.export.export(Product(), (x,))
    with pytest.raises(error, match=message), FakeTensorMode(allow_non_fake_inputs=True):
        propagate(a, torch.empty(x.shape, dtype=x.dtype))


def test_refuses_parts_that_make_no_matrix():
    indptr, indices, values, n_cols = parts(GOOD)
    x = torch.ones(4, 2).double()
    for wrong, error, message in (
        ((indptr.int(), indices, values), TypeError, "propagate: indptr must be int64, got int32"),
        ((indptr, indices.long(), values), TypeError, "propagate: indices must be int32, got int64"),
        ((indptr, indices, values[:-1]), ValueError, r"propagate: values must have shape \[12\], got \[11\]"),
        ((indptr, indices + 1, values), ValueError, r"Csr: indices must be in \[0, 4\), got values from 1 to 4"),
    ):
        with pytest.raises(error, match=message):
            FORWARD(*wrong, n_cols, x)
    with pytest.raises(ValueError, match=r"propagate: x must have shape \[6, any\], got \[4, 2\]"):
        TURNED(indptr, indices, values, n_cols, x)
    with pytest.raises(ValueError, match="propagate: values must not require a gradient"):
        FORWARD(indptr, indices, values.clone().requires_grad_(), n_cols, x)


class TestWhatIsKept:
    """The checked matrix of the tensors and its transpose, as long as the row pointers and never longer."""

    @pytest.fixture
    def tensors(self):
        return [part.clone() for part in parts(GOOD)[:3]]

    @pytest.fixture
    def x(self):
        return normal(6, 2, seed=1)

    def turned(self, tensors, x):
        return TURNED(*tensors, 4, x)

    def test_is_made_once_and_goes_with_the_row_pointers(self, tensors, x):
        self.turned(tensors, x)
        kept, _ = registered._MATRICES[tensors[0]]
        self.turned(tensors, x)
        assert registered._MATRICES[tensors[0]][0] is kept
        end = weakref.ref(kept.transpose())
        kept._cache.clear()  # a matrix and its transpose hold each other
        del kept, tensors[:]
        assert end() is None

    def test_a_column_out_of_range_written_in_place_is_refused(self, tensors, x):
        self.turned(tensors, x)
        tensors[1][0] = 9
        with pytest.raises(ValueError, match=r"Csr: indices must be in \[0, 4\), got values from 0 to 9"):
            self.turned(tensors, x)
