"""propagate and neighbour_means against dense float64 products: widths, layouts, orders of derivative."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from calirare_ext import Csr, neighbour_means, propagate, reference
from calirare_ext._backend import _C
from calirare_ext.propagate import compiled
from tests.helpers import mutants
from tests.helpers.compare import exact_csr, neighbour_means_match, propagate_matches
from tests.helpers.problems import MATRICES, WIDTHS, far_apart, matrix, normal, random_matrix
from tests.helpers.tolerance import assert_identical

SQUARE_X = torch.ones(3, 2)


PRODUCTS = {propagate: propagate_matches, neighbour_means: neighbour_means_match}
of_both = pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.__name__)


@of_both
@pytest.mark.parametrize("name", MATRICES)
def test_every_matrix_at_every_width(product, name, dtype, device):
    a, matches = matrix(name, dtype, device), PRODUCTS[product]
    for width in WIDTHS:
        x = normal(a.n_cols, width, seed=width).to(dtype).to(device)
        y = product(a, x)
        assert (y.shape, y.dtype, y.device) == ((a.n_rows, width), dtype, x.device)
        matches(y, a, x)
    matches(getattr(reference, product.__name__)(a, x).to(dtype), a, x)


@pytest.mark.slow
def test_an_input_too_large_for_the_cache(dtype, device):
    """Above 8 MB rows are fetched ahead, beyond the ends of rows and never beyond the last entry."""
    a = random_matrix(300, 40_000, 2_000, seed=11).to(dtype).to(device)
    x = normal(a.n_cols, 67, seed=1).to(dtype).to(device)
    propagate_matches(propagate(a, x), a, x)


def test_a_row_that_stands_for_all_rows(dtype, device):
    a = matrix("directed weights", dtype, device)
    x = normal(1, 33, seed=1).to(dtype).to(device)
    propagate_matches(propagate(a, x.expand(a.n_cols, -1)), a, x.expand(a.n_cols, -1))


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 40), st.integers(1, 40), st.integers(0, 10**6))
def test_random_problems(n_rows, n_cols, nnz, width, seed):
    a, x = random_matrix(n_rows, n_cols, min(nnz, n_rows * n_cols), seed), normal(n_cols, width, seed=seed)
    propagate_matches(propagate(a, x), a, x)
    propagate_matches(propagate(a.to(torch.float32), x.float()), a.to(torch.float32), x.float())


@of_both
def test_rows_further_apart_than_2_to_the_31_elements(product, device):
    """Row r of x starts at r * 2^20 elements, beyond what 32 bits can address; 215 columns use every tile width."""
    n, width = 2050, 215
    x = far_apart(n, width, 2**20, torch.float32, device)
    x[n - 1] = torch.arange(width, device=device)
    a = Csr.from_coo(torch.tensor([0, 1]), torch.tensor([n - 1, 0]), torch.ones(2), (2, n)).to(device)
    assert product(a, x).tolist() == [[float(c) for c in range(width)], [0.0] * width]


def test_output_further_apart_than_2_to_the_31_elements(device):
    n, width = 2050, 215
    out = far_apart(n, width, 2**20, torch.float32, device)
    a = Csr.from_coo(torch.tensor([n - 1]), torch.tensor([0]), torch.tensor([2.0]), (n, 1)).to(device)
    _C.propagate_out(compiled(a), torch.arange(width, dtype=torch.float32, device=device)[None], out)
    assert out[n - 1].tolist() == [2.0 * c for c in range(width)]
    assert not bool(out[0].any())


def test_writes_where_it_is_told(device):
    a = matrix("directed weights", torch.float32, device)
    x = normal(a.n_cols, 7, seed=1).float().to(device)
    out = torch.full((a.n_rows, 7), 9.0, device=device)
    assert propagate(a, x, out=out) is out
    assert_identical(out, propagate(a, x), "out")
    traced = torch.full((a.n_rows, 7), 9.0, device=device)
    torch.compile(lambda x, out: propagate(a, x, out=out), backend="eager", fullgraph=True)(x, traced)
    assert_identical(traced, out, "traced")


@pytest.mark.parametrize(
    ("out", "grad", "error", "message"),
    [
        (torch.ones(2, 2), False, ValueError, r"out must have shape \[3, 2\], got \[2, 2\]"),
        (SQUARE_X[:, :2], False, ValueError, "out must be contiguous and share no memory"),
        (torch.ones(3, 2), True, ValueError, "out must be left out where a derivative is wanted"),
    ],
)
def test_refuses_to_write(out, grad, error, message):
    with pytest.raises(error, match=message):
        propagate(GOOD, SQUARE_X.clone().requires_grad_() if grad else SQUARE_X, out=out)


@of_both
def test_nan_and_infinity_pass_through(product, dtype, device):
    a = Csr.from_dense(torch.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=dtype)).to(device)
    x = torch.tensor([[1.0, float("inf")], [float("nan"), 1.0]], dtype=dtype, device=device)
    y = product(a, x).cpu()
    assert y[0].tolist() == [1.0, float("inf")], "no entry there, so the NaN of row 1 is not read"
    assert bool(y[1, 0].isnan())
    assert y[1, 1] == float("inf")


@pytest.mark.parametrize(
    "a",
    [random_matrix(6, 4, 12, seed=1), *(MATRICES[name]() for name in ("repeated entries", "isolated nodes"))],
    ids=["rectangular", "repeated entries", "isolated nodes"],
)
def test_derivatives_of_first_and_second_order(a, device):
    a, x = a.to(device), normal(a.n_cols, 2, seed=1).to(device).requires_grad_()
    assert gradcheck(lambda x: propagate(a, x), x, check_forward_ad=True)
    assert gradgradcheck(lambda x: propagate(a, x).sin(), x, check_fwd_over_rev=True)


class TestFunctorch:
    """torch.func through a sparse product, which torch's own sparse tensors refuse."""

    @pytest.fixture
    def problem(self, device):
        a = matrix("wide", torch.float64, device)
        return a, exact_csr(a).to_dense(), normal(a.n_cols, 3, seed=1).to(device)

    def test_jvp(self, problem):
        a, _, x = problem
        tangent = normal(*x.shape, seed=2).to(x)
        value, moved = torch.func.jvp(lambda x: propagate(a, x), (x,), (tangent,))
        propagate_matches(value, a, x)
        propagate_matches(moved, a, tangent)

    @pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
    def test_jacobian_is_the_matrix(self, problem, transform):
        a, dense, x = problem
        jacobian = transform(lambda column: propagate(a, column[:, None])[:, 0])(x[:, 0])
        assert_identical(jacobian.cpu(), dense, "jacobian")

    @pytest.mark.parametrize(("in_dim", "batch"), [(0, 0), (1, 4), (2, 1), (-1, 4)])
    def test_vmap(self, problem, in_dim, batch):
        a, _, x = problem
        many = (
            torch.stack([i + x for i in range(batch)], in_dim) if batch else x.new_empty(0, *x.shape).movedim(0, in_dim)
        )
        out = torch.func.vmap(lambda x: propagate(a, x), in_dims=in_dim)(many)
        assert out.shape == (batch, a.n_rows, 3)
        for one, x_one in zip(out, many.movedim(in_dim, 0), strict=True):
            propagate_matches(one, a, x_one)


GOOD = Csr.from_dense(torch.eye(3))


@pytest.mark.parametrize(
    ("a", "x", "error", "message"),
    [
        (GOOD, [[1.0]] * 3, TypeError, "propagate: x must be a tensor, got list"),
        (GOOD, torch.ones(3, 1).double(), TypeError, "propagate: x must be float32 as a is, got float64"),
        (GOOD, torch.ones(3, 1).int(), TypeError, "propagate: x must be float32 or float64, got int32"),
        (GOOD, torch.ones(4, 1), ValueError, r"propagate: x must have shape \[3, any\], got \[4, 1\]"),
        (GOOD, torch.ones(3), ValueError, r"propagate: x must have shape \[3, any\], got \[3\]"),
        (GOOD, torch.ones(2, 3, 1), ValueError, r"propagate: x must have shape \[3, any\], got \[2, 3, 1\]"),
        (GOOD, torch.eye(3).to_sparse(), ValueError, r"propagate: x must be dense, got sparse_coo: call to_dense\(\)"),
        (GOOD, torch.ones(3, 1, device="meta"), ValueError, "propagate: x must be on cpu as a is, got meta"),
    ],
)
def test_refuses(a, x, error, message):
    with pytest.raises(error, match=message):
        propagate(a, x)


@pytest.mark.parametrize("x", [torch.ones(4, 0).T, torch.from_numpy(np.zeros((0, 4), dtype=np.float32))])
def test_no_column_of_a_gives_zeros_whatever_the_strides_of_x(x):
    assert propagate(Csr.from_dense(torch.ones(3, 0)), x).tolist() == [[0.0] * 4] * 3


def test_the_binding_guards_memory():
    a, x = compiled(GOOD), torch.ones(3, 4)
    for bad_x, bad_out, message in (
        (x[:2], torch.empty(3, 4), "x must have 3 rows, got 2"),
        (x, torch.empty(3, 3), r"out must be \[3, 4\]"),
        (x, torch.empty(4, 3).T, "out must be a matrix with contiguous rows"),
        (x.T.contiguous().T, torch.empty(3, 4), "x must be a matrix with contiguous rows"),
    ):
        with pytest.raises(ValueError, match=f"propagate: {message}"):
            _C.propagate_out(a, bad_x, bad_out)
    with pytest.raises(TypeError, match="propagate: out must be Float, got Double"):
        _C.propagate_out(a, x, torch.empty(3, 4).double())


def test_follows_the_current_stream(cuda_device):
    """The kernel must wait for what its own stream computes, not for the default stream."""
    a = matrix("hub", torch.float32, cuda_device)
    x = normal(a.n_cols, 64, seed=1).float().to(cuda_device)
    expected = propagate(a, x)
    late = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        y = propagate(a, late)
    stream.synchronize()
    assert_identical(y, expected, "on a side stream")


def test_a_lazily_negated_view_is_refused() -> None:
    x = torch.randn(3, 2, dtype=torch.cfloat).conj().imag
    assert x.is_neg()
    a = Csr.from_dense(torch.eye(3))
    with pytest.raises(ValueError, match="propagate: x must not be a lazily negated view, got one: call resolve_neg"):
        propagate(a, x)
    assert torch.equal(propagate(a, x.resolve_neg()), x.resolve_neg())


@pytest.mark.parametrize("name", mutants.NEIGHBOUR_MEANS)
def test_mutants_are_rejected(name):
    a, x = random_matrix(22, 23, 200, seed=2).to(torch.float32), normal(23, 17, seed=3).float() + 100
    a = Csr(torch.cat([a.indptr[:1], a.indptr]), a.indices, a.values.abs(), a.n_cols)  # row 0 has no neighbours
    neighbour_means_match(neighbour_means(a, x), a, x)
    with pytest.raises(AssertionError, match="neighbour_means"):
        neighbour_means_match(mutants.NEIGHBOUR_MEANS[name](a, x), a, x)


def test_the_order_of_neighbours_does_not_show(device):
    """Numbers of one size: no sum lies within 2^-53 of the middle of two floats here. Single sums do show it."""
    draw = torch.Generator().manual_seed(0)
    rows, cols = torch.arange(200).repeat_interleave(60), torch.randint(0, 500, (12_000,), generator=draw)
    x = normal(500, 24, seed=1).float()
    renumbered = torch.randperm(500, generator=draw)
    moved = torch.empty_like(x)
    moved[renumbered] = x
    values = torch.ones(12_000)
    a = Csr.from_coo(rows, cols, values, (200, 500)).to(device)
    b = Csr.from_coo(rows, renumbered[cols], values, (200, 500)).to(device)
    x, moved = x.to(device), moved.to(device)
    assert_identical(neighbour_means(b, moved), neighbour_means(a, x), "renumbered")
    assert not torch.equal(propagate(b, moved), propagate(a, x))


def test_operands_too_large_for_the_cache(dtype, device):
    """X above 8 MB is fetched ahead, never beyond the last entry; rows of a large output before they are written."""
    draw = torch.Generator().manual_seed(11)
    ends = torch.randint(0, 1500, (6_000,), generator=draw), 24 * torch.randint(0, 1000, (6_000,), generator=draw)
    a = Csr.from_coo(*ends, torch.rand(6_000, generator=draw), (1500, 24_000), sum_duplicates=True).to(dtype).to(device)
    x = normal(a.n_cols, 99, seed=2).to(dtype).to(device)
    y = neighbour_means(a, x)
    used = torch.unique(a.indices.long())
    place = torch.zeros(a.n_cols, dtype=torch.int32, device=device)
    place[used] = torch.arange(len(used), dtype=torch.int32, device=device)
    neighbour_means_match(y, Csr(a.indptr, place[a.indices.long()], a.values, len(used)), x[used])


def test_what_it_refuses():
    a = matrix("self loops", torch.float32, torch.device("cpu"))
    with pytest.raises(TypeError, match=r"neighbour_means: edge_index must be int64, got float32"):
        neighbour_means(a.to_dense(), torch.ones(6, 1))
    with pytest.raises(TypeError, match="neighbour_means: x must be"):
        neighbour_means(a, torch.ones(6, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="neighbour_means: x must"):
        neighbour_means(a, torch.ones(5, 1))
    with pytest.raises(ValueError, match="x must not require a gradient"):
        neighbour_means(a, torch.ones(6, 1, requires_grad=True))
    with torch.no_grad():
        assert neighbour_means(a, torch.ones(6, 1, requires_grad=True)).shape == (6, 1)
    with pytest.raises(ValueError, match=r"out must be \[6, 1\]"):
        _C.neighbour_means_out(compiled(a), torch.ones(6, 1), torch.ones(5, 1))
