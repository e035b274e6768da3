"""neighbour_means: D^-1 A X within one rounding of the dense float64 means, in whatever order neighbours come."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import Csr, neighbour_means, propagate
from calirare_ext._backend import _C
from calirare_ext.propagate import compiled
from tests.helpers import mutants
from tests.helpers.compare import neighbour_means_match
from tests.helpers.problems import matrix, normal, random_matrix
from tests.helpers.tolerance import assert_identical


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
    with pytest.raises(TypeError, match=r"neighbour_means: a must be a calirare_ext\.Csr, got Tensor"):
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
