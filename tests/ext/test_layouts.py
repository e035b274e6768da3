"""Layouts: from tiles of A propagate makes the same product as from A, to the last bit."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import Csr, layouts, prepare, propagate
from calirare_ext._backend import _C
from calirare_ext.layouts import compiled, write
from tests.helpers.problems import MATRICES, matrix, normal, random_matrix
from tests.helpers.tolerance import assert_identical

CPU = torch.device("cpu")


def from_tiles(a: Csr, x: torch.Tensor) -> torch.Tensor:
    out = torch.full((a.n_rows, x.shape[1]), 7.0, dtype=x.dtype)
    write(a, "tiles", x, out)
    return out


def plain(a: Csr, x: torch.Tensor) -> torch.Tensor:
    out = torch.full((a.n_rows, x.shape[1]), 7.0, dtype=x.dtype)
    _C.propagate_out(compiled(a), x, out)
    return out


@pytest.mark.parametrize("name", MATRICES)
def test_every_matrix_in_tiles(name, dtype, monkeypatch):
    monkeypatch.setattr(layouts, "TILE_ROWS", 5)
    a = matrix(name, dtype, CPU)
    for width in (0, 1, 3, 16, 61, 160, 1030):
        x = normal(a.n_cols, width, seed=width).to(dtype)
        assert_identical(from_tiles(a, x), plain(a, x), f"width {width}")


def test_threads_strides_and_rows_of_every_length(dtype, threads, monkeypatch):
    monkeypatch.setattr(layouts, "TILE_ROWS", 64)
    draw = torch.Generator().manual_seed(3)
    lengths = (torch.rand(700, generator=draw) ** 3 * 90).long()
    lengths[5] = 0
    rows = torch.repeat_interleave(torch.arange(700), lengths)
    cols = torch.randint(0, 700, (len(rows),), generator=draw)
    values = torch.randn(len(rows), generator=draw, dtype=dtype)
    a = Csr.from_coo(rows, cols, values, (700, 700), sum_duplicates=True)
    width = 37
    wide = normal(700, 2 * width + 3, seed=1).to(dtype)
    for x in (wide[:, :width].contiguous(), wide[:, 1 : 1 + width], wide[:1, :width].expand(700, -1)):
        expected = plain(a, x)
        for count in (1, 2, 3):
            with threads(count):
                assert_identical(from_tiles(a, x), expected, f"{count} threads")
        buffer = torch.full((700, width + 2), 9.0, dtype=dtype)
        write(a, "tiles", x, buffer[:, 1:-1])
        assert_identical(buffer[:, 1:-1], expected, "inside")
        assert bool((buffer[:, [0, -1]] == 9.0).all())


def test_the_choice_comes_with_use_and_changes_no_bit(monkeypatch):
    monkeypatch.setattr(layouts, "LARGE", 1000)
    monkeypatch.setattr(layouts, "TILE_ROWS", 200)
    a = random_matrix(400, 400, 4000, seed=9).to(torch.float32)
    x = normal(400, 16, seed=1).float()
    first = propagate(a, x)
    assert "layouts" not in a._cache
    for _ in range(110):  # 2 + 16 * 4 / 8 nanoseconds per entry each
        assert_identical(propagate(a, x), first, "later product")
    (chosen,) = a._cache["layouts"].values()
    assert chosen in layouts.candidates(a, 16) == ["plain", "tiles"]
    assert ("tiles" in a._cache) == (chosen == "tiles")


class DroppedAtOnce(dict):
    """What is kept of a matrix while another thread finds, at each look, that no layout but its own pays."""

    def __contains__(self, key: object) -> bool:
        there = super().__contains__(key)
        if key == "tiles":
            self.pop(key, None)
        return there

    def get(self, key, default=None):
        value = super().get(key, default)
        if key == "tiles":
            self.pop(key, None)
        return value


def test_tiles_that_another_thread_drops_are_used_all_the_same():
    a = random_matrix(90, 90, 800, seed=7)
    x = normal(90, 1, seed=1)
    from_tiles(a, x)
    object.__setattr__(a, "_cache", DroppedAtOnce(a._cache))
    for _ in range(2):
        assert_identical(from_tiles(a, x), plain(a, x), "tiles")
    assert prepare(a, 1) == "plain"


def test_candidates_by_width_size_and_order(monkeypatch):
    a = random_matrix(400, 400, 4000, seed=9).to(torch.float32)
    assert layouts.candidates(a, 16) == ["plain"]
    monkeypatch.setattr(layouts, "LARGE", 1000)
    monkeypatch.setattr(layouts, "TILE_ROWS", 200)
    assert layouts.candidates(a, 128) == ["plain", "tiles"]
    assert layouts.candidates(a, 129) == ["plain"]
    assert layouts.candidates(a, 0) == ["plain"]
    falling = Csr(torch.tensor([0, 0, 2, 3]), torch.tensor([2, 0, 0], dtype=torch.int32), torch.ones(3), 3)
    assert not layouts._columns_ascend(falling)
    rising = Csr(torch.tensor([0, 0, 2, 3]), torch.tensor([0, 2, 0], dtype=torch.int32), torch.ones(3), 3)
    assert layouts._columns_ascend(rising)
    monkeypatch.setattr(layouts, "MOST_ENTRIES", 2000)
    assert layouts.candidates(a, 1) == ["plain"]


def test_derivatives_through_tiles(monkeypatch):
    a = random_matrix(60, 60, 500, seed=6)
    x = normal(60, 3, seed=1).requires_grad_()
    before = torch.autograd.grad(propagate(a, x).sin().sum(), x)[0]
    monkeypatch.setattr(layouts, "TILE_ROWS", 7)
    for matrix_ in (a, a.transpose()):
        from_tiles(matrix_, normal(60, 3, seed=2))
        matrix_._cache["layouts"] = {layouts._width_class(matrix_, 3): "tiles"}
    assert_identical(torch.autograd.grad(propagate(a, x).sin().sum(), x)[0], before, "gradient")


def test_the_bindings_guard_memory():
    a, x = compiled(Csr.from_dense(torch.eye(3))), torch.ones(3, 1)
    tiles = _C.cut_tiles(a, 2)
    for call, message in (
        (lambda: _C.propagate_tiles_out(tiles, x[:2], x), "x must have 3 rows, got 2"),
        (lambda: _C.propagate_tiles_out(tiles, x, torch.ones(2, 1)), r"out must be \[3, 1\]"),
        (lambda: _C.cut_tiles(a, 0), "tile_rows in"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
