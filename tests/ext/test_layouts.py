"""Layouts: whatever copy of A propagate works from, the product is the same to the last bit."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import Csr, layouts, prepare, propagate
from calirare_ext._backend import _C
from calirare_ext.layouts import _width_class, candidates, compiled, write
from tests.helpers.problems import MATRICES, matrix, normal, random_matrix
from tests.helpers.tolerance import assert_identical

CPU = torch.device("cpu")
ALL = ("sorted", "slices", "tiles")


def plain(a: Csr, x: torch.Tensor) -> torch.Tensor:
    out = torch.full((a.n_rows, x.shape[1]), 7.0, dtype=x.dtype)
    _C.propagate_out(compiled(a), x, out)
    return out


def from_layout(a: Csr, kind: str, x: torch.Tensor) -> torch.Tensor:
    out = torch.full((a.n_rows, x.shape[1]), 7.0, dtype=x.dtype)
    write(a, kind, x, out)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", MATRICES)
def test_every_matrix_in_every_layout(name, kind, dtype, monkeypatch):
    monkeypatch.setattr(layouts, "TILE_ROWS", 5)
    a = matrix(name, dtype, CPU)
    for width in (1,) if kind == "slices" else (0, 1, 3, 16, 61, 160, 1030):
        x = normal(a.n_cols, width, seed=width).to(dtype)
        assert_identical(from_layout(a, kind, x), plain(a, x), f"{kind}, width {width}")


@pytest.mark.parametrize("kind", ALL)
def test_threads_strides_and_rows_of_every_length(kind, dtype, threads, monkeypatch):
    """700 rows: full slices, slices of which only a part is common, and 12 rows that fill none."""
    monkeypatch.setattr(layouts, "TILE_ROWS", 64)
    draw = torch.Generator().manual_seed(3)
    lengths = (torch.rand(700, generator=draw) ** 3 * 90).long()
    lengths[5] = 0
    rows = torch.repeat_interleave(torch.arange(700), lengths)
    cols = torch.randint(0, 700, (len(rows),), generator=draw)
    values = torch.randn(len(rows), generator=draw, dtype=dtype)
    a = Csr.from_coo(rows, cols, values, (700, 700), sum_duplicates=True)
    width = 1 if kind == "slices" else 37
    wide = normal(700, 2 * width + 3, seed=1).to(dtype)
    for x in (wide[:, :width].contiguous(), wide[:, 1 : 1 + width], wide[:1, :width].expand(700, -1)):
        expected = plain(a, x)
        for count in (1, 2, 3):
            with threads(count):
                assert_identical(from_layout(a, kind, x), expected, f"{count} threads")
        buffer = torch.full((700, width + 2), 9.0, dtype=dtype)
        write(a, kind, x, buffer[:, 1:-1])
        assert_identical(buffer[:, 1:-1], expected, "inside")
        assert bool((buffer[:, [0, -1]] == 9.0).all())


@pytest.mark.parametrize("width", [3, 400, 2048])
def test_rows_of_a_rectangle_in_any_order(width, dtype, threads):
    draw = torch.Generator().manual_seed(0)
    dense = torch.randn(50, 31, generator=draw, dtype=dtype) * (torch.rand(50, 31, generator=draw) < 0.1)
    dense[7] = 0
    a, x = Csr.from_dense(dense), normal(31, width, seed=1).to(dtype)
    order, out = torch.randperm(50, generator=draw), torch.full((50, width), 7.0, dtype=dtype)
    for count in (1, 2, 3):
        with threads(count):
            _C.propagate_to(compiled(a.select_rows(order)), x, order, out)
        assert_identical(out, plain(a, x), f"{count} threads")


def test_nan_and_infinity_reach_only_their_rows():
    """No layout fills up with entries of weight 0, which would spread a NaN in row 0 of X."""
    a = random_matrix(90, 90, 400, seed=5).to(torch.float32)
    x = torch.ones(90, 1)
    x[0], x[1] = float("nan"), float("inf")
    for kind in ALL:
        assert torch.equal(from_layout(a, kind, x).isnan(), plain(a, x).isnan())
        assert torch.equal(from_layout(a, kind, x).isinf(), plain(a, x).isinf())


def test_slices_are_not_rows():
    """The comparison above would see entries left in the order of their rows."""
    a = random_matrix(64, 64, 900, seed=2).to(torch.float32)
    order = torch.argsort(a.indptr.diff(), descending=True, stable=True)
    out, x = torch.empty(64, 1), normal(64, 1, seed=1).float()
    _C.propagate_slices_to(compiled(a.select_rows(order)), x, order, out)
    assert float((out - plain(a, x)).abs().max()) > 0.1


def test_the_choice_comes_with_use_and_changes_no_bit():
    a = random_matrix(400, 400, 4000, seed=9).to(torch.float32)
    x = normal(400, 16, seed=1).float()
    first = propagate(a, x)
    assert "layouts" not in a._cache
    for _ in range(110):  # 2 + 16 * 4 / 8 nanoseconds per entry each
        assert_identical(propagate(a, x), first, "later product")
    assert set(a._cache["layouts"].values()) <= {"plain", "sorted"}
    kept = [key for key in a._cache if key in ALL]
    assert kept == [kind for kind in a._cache["layouts"].values() if kind != "plain"]


class DroppedAtOnce(dict):
    """What is kept of a matrix while another thread finds, at each look, that no layout but its own pays."""

    def __contains__(self, key: object) -> bool:
        there = super().__contains__(key)
        if key in ALL:
            self.pop(key, None)
        return there

    def get(self, key, default=None):
        value = super().get(key, default)
        if key in ALL:
            self.pop(key, None)
        return value


@pytest.mark.parametrize("kind", ALL)
def test_a_layout_that_another_thread_drops_is_used_all_the_same(kind):
    a = random_matrix(90, 90, 800, seed=7)
    x = normal(90, 1, seed=1)
    from_layout(a, kind, x)
    object.__setattr__(a, "_cache", DroppedAtOnce(a._cache))
    for _ in range(2):
        assert_identical(from_layout(a, kind, x), plain(a, x), kind)
    assert prepare(a, 1) in ("plain", *ALL)


def test_candidates_by_width_size_and_order(monkeypatch):
    a = random_matrix(400, 400, 4000, seed=9).to(torch.float32)
    assert layouts.candidates(a, 1) == ["plain", "slices", "sorted"]
    assert layouts.candidates(a, 16) == ["plain", "sorted"]
    assert layouts.candidates(a, 17) == ["plain", "sorted"]
    assert layouts.candidates(random_matrix(400, 9, 800, seed=9), 64) == ["plain"]
    assert layouts.candidates(random_matrix(400, 9, 800, seed=9), 2) == ["plain", "sorted"]
    monkeypatch.setattr(layouts, "LARGE", 1000)
    monkeypatch.setattr(layouts, "TILE_ROWS", 200)
    assert layouts.candidates(a, 128) == ["plain", "tiles"]
    assert layouts.candidates(a, 129) == ["plain"]
    falling = Csr(torch.tensor([0, 0, 2, 3]), torch.tensor([2, 0, 0], dtype=torch.int32), torch.ones(3), 3)
    assert not layouts._columns_ascend(falling)
    rising = Csr(torch.tensor([0, 0, 2, 3]), torch.tensor([0, 2, 0], dtype=torch.int32), torch.ones(3), 3)
    assert layouts._columns_ascend(rising)
    monkeypatch.setattr(layouts, "MOST_ENTRIES", 1000)
    assert layouts.candidates(a, 1) == ["plain"]


def test_prepare():
    a = random_matrix(200, 200, 2000, seed=4)
    for width in (0, 1, 16, 100):
        assert prepare(a, width) in layouts.candidates(a, width)
    with pytest.raises(ValueError, match="prepare: width must be >= 0, got -1"):
        prepare(a, -1)


def test_derivatives_through_a_layout():
    a = random_matrix(60, 60, 500, seed=6)
    x = normal(60, 3, seed=1).requires_grad_()
    before = torch.autograd.grad(propagate(a, x).sin().sum(), x)[0]
    for matrix_ in (a, a.transpose()):
        prepare(matrix_, 3)
    assert_identical(torch.autograd.grad(propagate(a, x).sin().sum(), x)[0], before, "gradient")


@pytest.mark.parametrize("name", [name for name, make in MATRICES.items() if make().n_rows == make().n_cols])
def test_community_order_is_a_permutation_of_any_square_matrix(name):
    a = matrix(name, torch.float32, CPU)
    for visits in (0, a.nnz // 2, 8 * a.nnz):
        order = _C.community_order(compiled(a), visits)
        assert torch.equal(order.sort().values, torch.arange(a.n_rows))


def test_communities_stand_together():
    """Twelve groups of 50 nodes, hidden by a shuffle; an edge leaves its group once in ten."""
    draw = torch.Generator().manual_seed(0)
    n, edges = 600, 6000
    group = torch.arange(n) // 50
    ends = torch.randint(0, n, (edges,), generator=draw)
    near = group[ends] * 50 + torch.randint(0, 50, (edges,), generator=draw)
    others = torch.where(torch.rand(edges, generator=draw) < 0.1, torch.randint(0, n, (edges,), generator=draw), near)
    name = torch.randperm(n, generator=draw)
    rows, cols = name[torch.cat([ends, others])], name[torch.cat([others, ends])]
    a = Csr.from_coo(rows, cols, torch.ones(2 * edges), (n, n), sum_duplicates=True)
    hidden = torch.empty(n, dtype=torch.int64)
    hidden[name] = group
    found = hidden[_C.community_order(compiled(a), 8 * a.nnz)]
    assert int((found[1:] != found[:-1]).sum()) <= 30  # 11 at best, 549 in a random order


def test_neighbours_of_a_ring_come_near_each_other():
    name = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    ends = torch.cat([name, name.roll(1)]), torch.cat([name.roll(1), name])
    a = Csr.from_coo(*ends, torch.ones(800), (400, 400))
    place = torch.empty(400, dtype=torch.int64)
    place[_C.community_order(compiled(a), 8 * a.nnz)] = torch.arange(400)
    assert int((place[a.rows()] - place[a.indices.long()]).abs().median()) <= 2
    assert int((a.rows() - a.indices).abs().median()) > 50


def test_the_bindings_guard_memory():
    a, x, places = compiled(Csr.from_dense(torch.eye(3))), torch.ones(3, 1), torch.arange(3)
    tiles = _C.cut_tiles(a, 2)
    for call, message in (
        (lambda: _C.propagate_tiles_out(tiles, x[:2], x), "x must have 3 rows, got 2"),
        (lambda: _C.propagate_tiles_out(tiles, x, torch.ones(2, 1)), r"out must be \[3, 1\]"),
        (lambda: _C.propagate_slices_to(a, torch.ones(3, 2), places, torch.ones(3, 2)), "slices are for one column"),
        (lambda: _C.propagate_slices_to(a, x, places[:2], torch.ones(3, 1)), "one entry per row"),
        (lambda: _C.propagate_to(a, x[:2], places, x), "x must have 3 rows, got 2"),
        (lambda: _C.propagate_to(a, x, places[:2], torch.ones(3, 1)), "one entry per row"),
        (lambda: _C.cut_tiles(a, 0), "tile_rows in"),
        (lambda: _C.community_order(compiled(Csr.from_dense(torch.ones(2, 3))), 1), "a must be square"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.slow
def test_a_product_of_no_columns_follows_no_layout_of_one_column() -> None:
    a = random_matrix(4000, 4000, 40_000, seed=1).to(torch.float32)
    assert prepare(a, 0) == "plain"
    assert "slices" in candidates(a, 1)
    a._cache.setdefault("layouts", {})[_width_class(a, 1)] = "slices"
    assert propagate(a, torch.ones(4000, 0)).shape == (4000, 0)
    assert _width_class(a, 0) != _width_class(a, 1)
