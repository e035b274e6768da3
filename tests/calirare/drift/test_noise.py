"""Bounds by chance: what two samples of one law stay below, and how dependence widens them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from calirare.drift import Finding, Noise, design_effect, neighbourhoods, patches
from calirare.drift.columns import ReferenceCategories, ReferenceNumbers
from calirare.drift.neighbourhoods import communities
from calirare_ext import Csr

NOISE = Noise(1)  # one test at 5 %
REPEATS = 300
MOST = 27  # of 300 at 5 %, a binomial number exceeds it with probability 1e-3


def ring(sizes: list[int], bridge: bool = True) -> Csr:
    """Cliques of some sizes, each tied to the next by one edge where bridged."""
    n, edges, start = sum(sizes), [], 0
    for size in sizes:
        edges += [(i, j) for i in range(start, start + size) for j in range(start, start + size) if i != j]
        if bridge and start:
            edges += [(start - 1, start), (start, start - 1)]
        start += size
    rows, columns = torch.tensor(sorted(edges)).T
    return Csr.from_coo(rows, columns, None, (n, n))


def compared(reference: np.ndarray, current: np.ndarray, categories: int | None = None) -> dict[str, Finding]:
    """What another sample of a column, one patch each, differs by."""
    patch = np.arange(len(reference))
    if categories is None:
        found = ReferenceNumbers.of(reference, patch).compare("", current, NOISE)
    else:
        found = ReferenceCategories.of(reference, patch, categories).compare("", current, NOISE)
    return {each.what: each for each in found}


def test_columns_of_one_law_stay_below_their_bounds_and_shifted_ones_do_not():
    rng = np.random.default_rng(0)
    beyond = {"distance": 0, "beyond the range": 0, "gaps": 0}
    for _ in range(REPEATS):
        then, now = rng.standard_normal((2, 200))
        then[rng.random(200) < 0.1], now[rng.random(200) < 0.1] = np.nan, np.nan
        for what, found in compared(then, now).items():
            beyond[what] += found.difference > found.critical
    assert max(beyond.values()) <= MOST, beyond
    shifted = compared(then, now + 1)["distance"]
    assert shifted.current > shifted.critical
    assert compared(then, now + 9)["beyond the range"].current == 1


def test_categories_of_one_law_stay_below_their_bounds_and_others_do_not():
    rng = np.random.default_rng(1)
    p = (1 / np.arange(1, 41)) / (1 / np.arange(1, 41)).sum()
    beyond = {"distance": 0, "new categories": 0, "gaps": 0}
    for _ in range(REPEATS):
        then, now = rng.choice(40, (2, 300), p=p).astype(float)
        for what, found in compared(then, now, 40).items():
            beyond[what] += found.difference > found.critical
    assert max(beyond.values()) <= MOST, beyond
    assert beyond["distance"] > 0, "or chi-squared would be of no use"
    assert compared(then, 39 - now, 40)["distance"].current > 0.5 > compared(then, 39 - now, 40)["distance"].critical
    new = compared(then, np.full(300, 40.0), 40)
    assert new["new categories"].current == 1 > new["new categories"].critical
    assert new["distance"].critical == 0, "no value is of a known category"


def test_distance_is_that_of_two_samples():
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(2)
    for then, now in (
        (rng.standard_normal(400), rng.standard_normal(300) + 0.3),
        (rng.poisson(2, 400).astype(float), rng.poisson(3, 300).astype(float)),
        (np.repeat([0.0, 1.0], [300, 100]), np.repeat([0.0, 1.0, 2.0], [100, 50, 150])),
    ):
        found = compared(then, now)["distance"].current
        assert found == pytest.approx(ks_2samp(then, now).statistic, rel=0, abs=2 / 513)


def test_how_many_lie_beyond_the_range_is_the_chance_that_the_farthest_are_all_new():
    n, m, tests = 60, 40, 3
    allowed = Noise(tests).beyond(n, m, 1.0) / 2  # on one side
    count = math.floor(allowed) + 1
    all_new = math.prod((m - i) / (n + m - i) for i in range(count))
    assert all_new <= 0.05 / (2 * tests)
    assert Noise(tests).beyond(n, m, 2.0) == 2 * Noise(tests).beyond(n, m, 1.0)


def test_values_that_a_patch_shares_say_as_much_as_one_each():
    rng = np.random.default_rng(3)
    patch = np.repeat(np.arange(50), 20)
    alone, shared = rng.standard_normal(1000), np.repeat(rng.standard_normal(50), 20)
    more = 1 + math.sqrt(2 / 50)  # the standard error that is added
    assert design_effect(alone, patch) < 2
    assert design_effect(shared, patch) == pytest.approx(20 * more * 50 / 49, rel=0.1)
    constant = 0.3 + 1e-16 * rng.integers(0, 2, 1000)  # but for rounding
    assert design_effect(constant, patch) == 1


@pytest.mark.slow
def test_communities_are_the_cliques():
    sizes = [30, 25, 20, 40]
    found = communities(ring(sizes), 4)
    parts = np.split(found, np.cumsum(sizes)[:-1])
    commonest = [int(np.bincount(part).argmax()) for part in parts]
    assert sorted(commonest) == [0, 1, 2, 3]
    # Both ends of a bridge lie between two of them.
    assert all((part != name).sum() <= 2 for part, name in zip(parts, commonest, strict=True))


def test_nodes_without_neighbours_go_anywhere():
    found = communities(Csr.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), None, (300, 300)), 8)
    assert np.bincount(found[2:], minlength=8).min() > 15


def adjacency_of(matrix: sp.spmatrix) -> Csr:
    m = sp.csr_matrix(matrix)
    m.sort_indices()
    indptr, indices = torch.from_numpy(m.indptr.astype(np.int64)), torch.from_numpy(m.indices.astype(np.int32))
    return Csr(indptr, indices, torch.ones(m.nnz), m.shape[1])


def drawn(n: int, edges: int, seed: int = 0) -> sp.spmatrix:
    ends = np.random.default_rng(seed).integers(n, size=(2, edges))
    half = sp.coo_matrix((np.ones(edges), ends), shape=(n, n))
    return half + half.T


def path(n: int) -> sp.spmatrix:
    return sp.diags([np.ones(n - 1), np.ones(n - 1)], [1, -1])


def test_patches_of_a_large_graph_are_connected_or_whole_components(monkeypatch):
    monkeypatch.setattr(neighbourhoods, "SAMPLE", 100)
    matrix = sp.csr_matrix(sp.block_diag([drawn(900, 3000), *[path(4)] * 40]))
    patch = patches(adjacency_of(matrix))
    assert patch.min() >= 0
    assert (patch == patches(adjacency_of(matrix))).all()
    small = patch[900:].reshape(40, 4)
    assert (small == small[:, :1]).all(), "a small component lies in one patch"
    assert len(np.unique(patch)) > 5
