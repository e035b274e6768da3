"""What every operator keeps: equal bits in two runs, on more threads and at any strides; what lies beside its `out`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from calirare_ext import (
    block_cg,
    confidence_bins,
    gcn_norm,
    hessian_product,
    jackknife_interval,
    move_logits,
    neighbour_means,
    node_gradients,
    propagate,
    solve_inverse_hvp,
)
from calirare_ext._backend import _C
from calirare_ext.propagate import compiled
from tests.helpers.problems import LAYOUTS, SAMPLES, graph, matrix, network, normal, random_matrix
from tests.helpers.tolerance import assert_identical


def tape_of(x: Tensor, name: str = "three layers, four classes"):
    return network(name, x.dtype, x.device).tape


def vectors(x: Tensor) -> Tensor:
    return normal(5, tape_of(x).n_parameters, seed=1).to(x)


def intervals(scores: Tensor) -> tuple[Tensor, ...]:
    return tuple(jackknife_interval(scores, normal(scores.shape[1], seed=2).abs().to(scores), 0.05, 0.95))


def kernel_of_gradients(inputs: Tensor | object, like: Tensor) -> tuple[Tensor, ...]:
    """The kernel of `node_gradients` on factors of 40 nodes, three entries each."""
    m, h = 40, 9
    nodes, delta = (torch.arange(3 * m) * 7 % 50).int(), normal(3 * m, h, seed=2)
    out = torch.empty(m, 21 * h, dtype=like.dtype, device=like.device)
    places = (torch.arange(0, 3 * m + 1, 3).to(like.device), nodes.to(like.device))
    _C.node_gradients_out(*places, delta.to(like), inputs, out)
    return (out,)


def sparse_gradients(like: Tensor) -> tuple[Tensor, ...]:
    rows = random_matrix(50, 20, 300, seed=1).to(like.dtype).to(like.device)
    return kernel_of_gradients(_C.CsrTensors(rows.indptr, rows.indices, rows.values, 20), like)


LARGE = random_matrix(500, 500, 9000, seed=7)
# Of an empty tensor of the dtype on the device; enough work to be spread over threads.
SPREAD: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "propagate": lambda like: (propagate(LARGE.to(like.dtype).to(like.device), normal(500, 67, seed=8).to(like)),),
    "neighbour_means": lambda like: (
        neighbour_means(LARGE.to(like.dtype).to(like.device), normal(500, 67, seed=8).to(like)),
    ),
    "block_cg": lambda like: (
        block_cg(lambda v: v * torch.linspace(1, 30, 700).to(like), normal(7, 700, seed=23).to(like), tolerance=1e-5).x,
    ),
    "jackknife_interval": lambda like: intervals(normal(300, 41, seed=1).to(like)),
    "node_gradients, dense": lambda like: kernel_of_gradients(
        random_matrix(50, 20, 300, seed=1).to_dense().to(like), like
    ),
    "node_gradients, sparse": sparse_gradients,
}
AGAIN = SPREAD | {
    "gcn_norm": lambda like: (gcn_norm(graph(directed=True).to(like.dtype).to(like.device)).values,),
    "hessian_product": lambda like: (hessian_product(tape_of(like), vectors(like)),),
    "move_logits": lambda like: (move_logits(tape_of(like), vectors(like)),),
    "solve_inverse_hvp": lambda like: tuple(
        solve_inverse_hvp(
            tape_of(like), node_gradients(tape_of(like)).dense(), curvature="ggn", damping=0.01, tolerance=1e-4
        )
    ),
    "long rows": lambda like: intervals(SAMPLES["long"]()[0].to(like)),
}


@pytest.mark.parametrize("name", AGAIN)
def test_two_runs_agree_bit_for_bit(name, dtype, device):
    like = torch.empty(0, dtype=dtype, device=device)
    for again, first in zip(AGAIN[name](like), AGAIN[name](like), strict=True):
        assert_identical(again, first, name)


@pytest.mark.parametrize("name", SPREAD)
def test_threads_agree_bit_for_bit(name, dtype, threads):
    like, found = torch.empty(0, dtype=dtype), []
    for count in (1, 2, 3):
        with threads(count):
            found.append(SPREAD[name](like))
    for other in found[1:]:
        for several, one in zip(other, found[0], strict=True):
            assert_identical(several, one, name)


def test_threads_change_no_bin(threads):
    p, y = torch.softmax(normal(50_000, 4, seed=1), 1), torch.arange(50_000) % 4
    found = []
    for count in (1, 2, 3):
        with threads(count):
            found.append(confidence_bins(p, y, 15, weights=normal(50_000, seed=2).abs())[0])
    assert_identical(found[1], found[0])
    assert_identical(found[2], found[0])


def edges(x: Tensor):
    return matrix("directed weights", x.dtype, x.device)


STRIDED: dict[str, tuple[Callable[[Tensor], Tensor | tuple[Tensor, ...]], tuple[int, int]]] = {
    **{f"propagate, {width}": (lambda x: propagate(edges(x), x), (23, width)) for width in (1, 5, 16, 33, 130)},
    **{f"neighbour_means, {width}": (lambda x: neighbour_means(edges(x), x), (23, width)) for width in (1, 5, 33, 130)},
    "jackknife_interval": (intervals, (17, 140)),
    "hessian_product": (lambda v: hessian_product(tape_of(v, "three classes"), v), (4, 53)),
    "move_logits": (lambda v: move_logits(tape_of(v, "three classes"), v), (4, 53)),
    "block_cg": (lambda rhs: block_cg(lambda v: v * torch.linspace(1, 5, 9).to(v), rhs, tolerance=1e-5).x, (4, 9)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", STRIDED)
def test_strides_do_not_matter(name, layout, dtype, device):
    work, shape = STRIDED[name]
    x = normal(*shape, seed=3).to(dtype).to(device)
    got, wanted = work(LAYOUTS[layout](x)), work(x)
    for one, other in zip(*((part,) if isinstance(part, Tensor) else part for part in (got, wanted)), strict=True):
        if device.type == "cpu" or dtype == torch.float32:
            assert_identical(one, other, layout)
        else:  # a GPU's lanes share a row as its strides allow, and the order of the sums is seen in their last bit
            torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("binding", ["propagate_out", "neighbour_means_out"])
def test_out_keeps_what_lies_between_its_rows(binding, dtype, device):
    a = matrix("directed weights", dtype, device)
    x = normal(a.n_cols, 7, seed=1).to(dtype).to(device)
    buffer = torch.full((a.n_rows, 12), 9.0, dtype=dtype, device=device)
    getattr(_C, binding)(compiled(a), x, buffer[:, 3:10])
    wanted = {"propagate_out": propagate, "neighbour_means_out": neighbour_means}[binding](a, x)
    assert_identical(buffer[:, 3:10], wanted, "inside")
    assert bool((buffer[:, :3] == 9.0).all())
    assert bool((buffer[:, 10:] == 9.0).all())
