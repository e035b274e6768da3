"""masked_gram against the same products in float64, on shapes around its blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calirare_ext import Csr, masked_gram
from tests.helpers.tolerance import assert_telling, assert_within, sum_bound


def problem(m: int, seen: int, r: int, h: int, dtype: torch.dtype) -> tuple[Csr, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(m + r)
    dense = torch.randn(m, seen, generator=g) * (torch.rand(m, seen, generator=g) < 0.4)
    dense[m // 2] = 0
    mask = (torch.rand(seen, h, generator=g) < 0.5).to(dtype)
    products, scaled = torch.randn(seen, r, generator=g), torch.randn(r, h, generator=g)
    return Csr.from_dense(dense.to(dtype)), products.to(dtype), mask, scaled.to(dtype)


def expected(a: Csr, products: Tensor, mask: Tensor, scaled: Tensor) -> Tensor:
    return (a.to_dense().double() @ (products.double() * (mask.double() @ scaled.double().T))).T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("m", "seen", "r", "h"), [(1, 1, 1, 1), (5, 9, 31, 16), (7, 20, 32, 3), (40, 60, 333, 17), (3, 4, 0, 2)]
)
def test_is_the_composition(m: int, seen: int, r: int, h: int, dtype: torch.dtype) -> None:
    a, products, mask, scaled = problem(m, seen, r, h, dtype)
    wanted = expected(a, products, mask, scaled)
    magnitude = expected(Csr(a.indptr, a.indices, a.values.abs(), a.n_cols), products.abs(), mask, scaled.abs())
    bound = sum_bound(wanted, seen * (h + 2), magnitude, out=dtype)
    found = masked_gram(a, products, mask, scaled)
    assert found.dtype == dtype
    assert_within(found, wanted, bound)
    if wanted.numel() > 100:
        assert_telling(wanted, bound)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(masked_gram(a, products, mask, scaled), found)
    finally:
        torch.set_num_threads(before)


def test_rows_apart_and_columns_apart() -> None:
    a, products, mask, scaled = problem(6, 11, 50, 5, torch.float64)
    wanted = masked_gram(a, products, mask, scaled)
    apart = torch.randn(11, 70, dtype=torch.float64)
    apart[:, 7:57] = products
    assert torch.equal(masked_gram(a, apart[:, 7:57], mask.T.contiguous().T, scaled.T.contiguous().T), wanted)


def test_what_does_not_fit_is_refused() -> None:
    a, products, mask, scaled = problem(6, 11, 50, 5, torch.float64)
    with pytest.raises(ValueError, match=r"masked_gram: products must have shape \[11, 50\], got \[10, 50\]"):
        masked_gram(a, products[:10], mask, scaled)
    with pytest.raises(ValueError, match=r"masked_gram: mask must have shape \[11, 5\]"):
        masked_gram(a, products, mask[:, :4], scaled)
    with pytest.raises(TypeError, match="masked_gram: mask must be float64 as a is, got float32"):
        masked_gram(a, products, mask.float(), scaled)
