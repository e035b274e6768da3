"""masked_gram against the same products in float64, on shapes around its blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calirare_ext import Csr, in_panels, masked_gram
from tests.helpers import mutants
from tests.helpers.compare import masked_gram_matches


def problem(
    m: int, seen: int, r: int, h: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> tuple[Csr, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(m + r)
    dense = torch.randn(m, seen, generator=g) * (torch.rand(m, seen, generator=g) < 0.4)
    dense[m // 2] = 0
    mask = (torch.rand(seen, h, generator=g) < 0.5).to(dtype)
    products, scaled = torch.randn(seen, r, generator=g), torch.randn(r, h, generator=g)
    return Csr.from_dense(dense.to(dtype)).to(device), *(x.to(dtype).to(device) for x in (products, mask, scaled))


@pytest.mark.parametrize(
    ("m", "seen", "r", "h"), [(1, 1, 1, 1), (5, 9, 31, 16), (7, 20, 32, 3), (40, 60, 333, 17), (3, 4, 0, 2)]
)
def test_is_the_composition(m: int, seen: int, r: int, h: int, dtype: torch.dtype, device: torch.device) -> None:
    a, products, mask, scaled = problem(m, seen, r, h, dtype, device)
    found = masked_gram(a, in_panels(products), mask, scaled)
    assert (found.dtype, found.device) == (dtype, products.device)
    masked_gram_matches(found, *problem(m, seen, r, h, dtype))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(masked_gram(a, in_panels(products), mask, scaled), found)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", mutants.MASKED_GRAM)
def test_mutants_are_rejected(name: str, dtype: torch.dtype) -> None:
    parts = problem(40, 60, 333, 17, dtype)
    with pytest.raises(AssertionError, match="masked_gram"):
        masked_gram_matches(mutants.MASKED_GRAM[name](*parts), *parts)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 64), (torch.float64, 32)])
def test_panels_hold_every_column_and_zeros_behind_them(dtype: torch.dtype, width: int) -> None:
    products = torch.randn(5, 70, dtype=dtype)
    panels = in_panels(products)
    assert panels.shape == (-(-70 // width), 5, width)
    columns = torch.cat(list(panels), 1)
    assert torch.equal(columns[:, :70], products)
    assert not columns[:, 70:].any()


def test_what_does_not_fit_is_refused() -> None:
    a, products, mask, scaled = problem(6, 11, 50, 5, torch.float64)
    panels = in_panels(products)
    with pytest.raises(ValueError, match=r"masked_gram: products must have shape \[2, 11, 32\], got \[11, 50\]"):
        masked_gram(a, products, mask, scaled)
    with pytest.raises(ValueError, match=r"masked_gram: products must have shape \[2, 11, 32\], got \[2, 10, 32\]"):
        masked_gram(a, panels[:, :10], mask, scaled)
    with pytest.raises(ValueError, match=r"masked_gram: mask must have shape \[11, 5\]"):
        masked_gram(a, panels, mask[:, :4], scaled)
    with pytest.raises(TypeError, match="masked_gram: mask must be float64 as a is, got float32"):
        masked_gram(a, panels, mask.float(), scaled)
