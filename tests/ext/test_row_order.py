"""Row orders: the same product to the last bit, in the rows' own order, and neighbours nearer to each other."""

from __future__ import annotations

import pytest
import torch

from calirare.datasets import synthetic_rare
from calirare_ext import Csr, gcn_norm, propagate, row_order


def scattered_ring(n: int, seed: int = 0) -> Csr:
    """Returns a ring of n nodes whose numbers are shuffled, weights random but symmetric."""
    g = torch.Generator().manual_seed(seed)
    name = torch.randperm(n, generator=g)
    a, b, w = name, name.roll(1), torch.rand(n, generator=g)
    return Csr.from_coo(torch.cat([a, b]), torch.cat([b, a]), torch.cat([w, w]), (n, n))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 1, 3, 16, 61, 160, 2048])
def test_the_product_is_the_same_to_the_last_bit(width: int, dtype: torch.dtype) -> None:
    graph = synthetic_rare(3000 if width < 100 else 300, seed=1, n_features=2)
    a = gcn_norm(graph.adjacency).to(dtype)
    x = torch.randn(a.n_cols, width, dtype=dtype, generator=torch.Generator().manual_seed(0))
    expected = propagate(a, x)
    for kind in ("rcm", "community"):
        assert torch.equal(propagate(a.with_row_order(row_order(a, kind)), x), expected)  # type: ignore[arg-type]
    wide = torch.randn(a.n_cols, 2 * width + 3, dtype=dtype)[:, 1 : 1 + width]  # rows apart from each other
    assert torch.equal(propagate(a.with_row_order(row_order(a)), wide), propagate(a, wide.contiguous()))


def test_any_permutation_rectangles_empty_rows_and_threads() -> None:
    g = torch.Generator().manual_seed(0)
    dense = torch.randn(50, 31, generator=g) * (torch.rand(50, 31, generator=g) < 0.1)
    dense[7] = 0
    a, x = Csr.from_dense(dense), torch.randn(31, 400, generator=g)
    ordered = a.with_row_order(torch.randperm(50, generator=g).to(torch.int32))
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(propagate(ordered, x), propagate(a, x))
    finally:
        torch.set_num_threads(before)


def test_derivatives_and_copies_keep_the_order() -> None:
    a = gcn_norm(scattered_ring(200))
    ordered = a.with_row_order(row_order(a))
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weight = torch.randn(200, 5, generator=torch.Generator().manual_seed(2))
    gradients = [torch.autograd.grad((propagate(m, x).sin() * weight).sum(), x)[0] for m in (a, ordered)]
    assert torch.equal(*gradients)
    assert "row_order" in ordered.transpose()._cache
    double = ordered.to(torch.float64)
    assert torch.equal(propagate(double, weight.double()), propagate(a.to(torch.float64), weight.double()))
    assert "row_order" in double._cache
    assert "row_order" not in a._cache


@pytest.mark.parametrize("kind", ["rcm", "community"])
def test_neighbours_come_near_each_other(kind: str) -> None:
    a = scattered_ring(400)
    order = row_order(a, kind)  # type: ignore[arg-type]
    assert torch.equal(order.sort().values, torch.arange(400))
    place = torch.empty(400, dtype=torch.int64)
    place[order] = torch.arange(400)
    distance = (place[a.rows()] - place[a.indices.long()]).abs().double()
    assert float(distance.median()) <= 2
    assert float((a.rows() - a.indices).abs().double().median()) > 50
    assert torch.equal(row_order(a, kind), order)  # type: ignore[arg-type]


def test_bad_orders_are_refused() -> None:
    a = scattered_ring(10)
    for bad in (torch.arange(9), torch.zeros(10, dtype=torch.int64), torch.arange(1, 11)):
        with pytest.raises(ValueError, match="permutation of 10 rows"):
            a.with_row_order(bad)
    with pytest.raises(ValueError, match="must be square"):
        row_order(Csr.from_dense(torch.ones(2, 3)))
    with pytest.raises(ValueError, match="rcm or community"):
        row_order(a, "best")  # type: ignore[arg-type]
    empty = Csr.from_coo(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), None, (0, 0))
    assert row_order(empty).numel() == 0
