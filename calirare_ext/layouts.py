"""A copy of a large sparse matrix in tiles, for operands larger than the CPU's caches; the same product to the bit.

A matrix that multiplies again and again is worth a copy with its entries by column. Whether it pays depends on the
graph and the processor, so it is timed, once for each class of widths.
"""

from __future__ import annotations

import os
import time
from typing import Literal

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext.csr import Csr

Layout = Literal["plain", "tiles"]

PATIENCE = 1024.0  # nanoseconds per entry on products with A itself: a few times what a copy costs and saves
MOST_ENTRIES = 2**25  # a copy of a larger matrix is never made unasked
LARGE = 2**22  # entries up to which no copy pays
TILE_ROWS = 2**16  # rows of the product that are written together: they and nothing else should stay in cache
WIDEST_TILE = 512  # bytes of a row of X; wider rows are read fast in any order
CLEARLY = 1.03  # a copy must be faster by as much
_ON = os.environ.get("CALIRARE_LAYOUTS", "on") != "off"


def compiled(a: Csr) -> _C.CsrTensors:
    """Returns the compiled face of a CSR matrix, made once and kept."""
    a.check_changes()
    if "compiled" not in a._cache:
        a._cache["compiled"] = _C.CsrTensors(a.indptr, a.indices, a.values, a.n_cols)
    return a._cache["compiled"]


def product(a: Csr, x: Tensor, out: Tensor) -> None:
    """Writes A X into `out` [n, d], from the layout that serves this width best as far as is known."""
    kind = _kept_choice(a, x) if x.device.type == "cpu" else "plain"
    write(a, kind, x, out)


def prepare(a: Csr, width: int) -> Layout:
    """Makes `propagate` choose how it stores A for operands of about this width now, not after some products.

    Without it the choice is made once products with A have taken about as long as the copies will. The product is the
    same to the last bit in every layout. Tiles take half as much memory again as A.

    Args:
        a: any matrix; on a GPU nothing is done.
        width: columns of the operand.

    Returns:
        The name of the layout: "plain" is A itself, "tiles" entries by column in stretches of 65,536 rows.

    Raises:
        ValueError: `width` is negative.
    """
    if width < 0:
        raise ValueError(f"prepare: width must be >= 0, got {width}")
    if a.device.type != "cpu":
        return "plain"
    return _choice(a, torch.ones(a.n_cols, width, dtype=a.dtype))


def factor(a: Csr, width: int, products: int) -> _C.Factor:
    """Returns A as it multiplies operands of a width in compiled code, in the layout that is chosen for it.

    Args:
        a: any matrix.
        width: columns of the operand.
        products: how often it will multiply, about: for many the layout is chosen now.
    """
    kind: Layout | None = "plain"
    if _ON and a.device.type == "cpu" and width > 1:
        kind = a._cache.get("layouts", {}).get(_width_class(a, width))
        if kind is None:
            kind = prepare(a, width) if products * _cost(a, width) >= PATIENCE else "plain"
    return _C.Factor(_tiles(a) if kind == "tiles" else compiled(a))


def _cost(a: Csr, width: int) -> float:
    """Returns nanoseconds of a product per entry, about: an entry takes some 2 and .5 per 4 bytes of a row."""
    return 2 + width * a.values.element_size() / 8


def candidates(a: Csr, width: int) -> list[Layout]:
    """Returns the layouts that may serve operands of this width, A itself first."""
    row_bytes = width * a.values.element_size()
    large = LARGE < a.nnz <= MOST_ENTRIES and a.n_rows >= 2 * TILE_ROWS
    return ["plain", "tiles"] if large and 0 < row_bytes <= WIDEST_TILE and _columns_ascend(a) else ["plain"]


def write(a: Csr, kind: Layout, x: Tensor, out: Tensor) -> None:
    """Writes A X into `out` from one layout, which is made first where need be."""
    if kind == "plain":
        _C.propagate_out(compiled(a), x, out)
    else:
        _C.propagate_tiles_out(_tiles(a), x, out)


def _kept_choice(a: Csr, x: Tensor) -> Layout:
    """Returns the layout of this width: the one chosen before, or A itself until a choice pays."""
    known = a._cache.get("layouts", {}).get(_width_class(a, x.shape[1]))
    if known is not None or not _ON:
        return known or "plain"
    spent = a._cache.get("spent", 0.0)
    if spent < PATIENCE:
        a._cache["spent"] = spent + _cost(a, x.shape[1])
        return "plain"
    return _choice(a, x)


def _width_class(a: Csr, width: int) -> int:
    return -1 if width == 1 else (width * a.values.element_size()).bit_length()


def _choice(a: Csr, x: Tensor) -> Layout:
    """Times the candidates and keeps the fastest; A itself, unless another is clearly faster."""
    kinds = candidates(a, x.shape[1])
    best = dict.fromkeys(kinds, float("inf"))
    if len(kinds) > 1:
        out = x.new_empty(a.n_rows, x.shape[1])
        for kind in kinds * 2:
            write(a, kind, x, out)  # makes the layout, and leaves it in cache
            for _ in range(2):
                begin = time.perf_counter()
                write(a, kind, x, out)
                best[kind] = min(best[kind], time.perf_counter() - begin)
    chosen = min(kinds, key=lambda kind: best[kind] * (1 if kind == "plain" else CLEARLY))
    a._cache.setdefault("layouts", {})[_width_class(a, x.shape[1])] = chosen
    if "tiles" not in a._cache["layouts"].values():
        a._cache.pop("tiles", None)
    return chosen


def _tiles(a: Csr) -> _C.TileTensors:
    """Returns the tiles, made where they are not kept; another thread may drop them from what is kept at any time."""
    kept = a._cache.get("tiles")
    return a._cache.setdefault("tiles", _C.cut_tiles(compiled(a), TILE_ROWS)) if kept is None else kept


def _columns_ascend(a: Csr) -> bool:
    """Returns whether tiles keep the order of each row's sum; computed once and kept."""
    if "columns_ascend" not in a._cache:
        falls = a.indices[1:] < a.indices[:-1]
        starts = a.indptr[1:-1]
        falls[starts[(starts > 0) & (starts < a.nnz)] - 1] = False
        a._cache["columns_ascend"] = not bool(falls.any())
    return a._cache["columns_ascend"]
