"""The first layer's share of a two-layer ReLU network's kernel, from products of inputs that are known."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_like, check_shape
from calirare_ext.csr import Csr
from calirare_ext.propagate import compiled, propagate

PANEL_BYTES = 256  # of a row of a panel on the CPU


def in_panels(products: Tensor) -> Tensor:
    """Returns a matrix [r_R, r] as `masked_gram` reads it: panels [b, r_R, w], column u at [u // w, :, u % w].

    On the CPU w is 256 bytes, so that the part of the matrix that a block of rows u needs lies in one piece, with zeros
    behind the last column. On CUDA there is one panel.
    """
    if products.device.type != "cpu":
        return products[None]
    width = PANEL_BYTES // products.element_size()
    rows, columns = products.shape
    panels = products.new_zeros(-(-columns // width), rows, width)
    for block, panel in enumerate(panels):
        part = products[:, block * width : (block + 1) * width]
        panel[:, : part.shape[1]] = part
    return panels


def masked_gram(a: Csr, products: Tensor, mask: Tensor, scaled: Tensor) -> Tensor:
    """Returns (A (G * (mask scaled^T)))^T, one propagation short of the kernel (`calirare.curvature.gram`).

    Args:
        a: A [m, r_R], float32 or float64.
        products: G, products of inputs, `in_panels` [b, r_R, w].
        mask: active units of the one side, [r_R, h].
        scaled: units of the other times their weights, [r, h].

    Returns:
        [r, m], dtype and device of `a`; no derivative is tracked.

    Raises:
        TypeError: a dtype is wrong or differs.
        ValueError: a shape or device does not fit.

    Precision: sums in the dtype of `a`, in a fixed order.
    Cost: on the CPU nnz(A) r (h + 2) multiply-adds, G read once from memory; nothing of its size is made. On CUDA a
    product, a multiplication and a propagation.
    """
    op, like = "masked_gram", a.values
    check_float(op, "a", like)
    check_shape(op, "scaled", scaled, (None, None))
    r, h = scaled.shape
    width = PANEL_BYTES // like.element_size()
    panels = (-(-r // width), a.n_cols, width) if like.device.type == "cpu" else (1, a.n_cols, r)
    for name, x, shape in (
        ("products", products, panels),
        ("mask", mask, (a.n_cols, h)),
        ("scaled", scaled, (r, h)),
    ):
        check_like(op, name, x, like, "a")
        check_shape(op, name, x, shape)
    with torch.no_grad():
        if like.device.type != "cpu":
            return propagate(a, (mask @ scaled.T).mul_(products[0])).T.contiguous()
        out = torch.empty(r, a.n_rows, dtype=like.dtype)
        _C.masked_gram_out(compiled(a), products.contiguous(), _in_rows(mask), _in_rows(scaled), out)
    return out


def _in_rows(x: Tensor) -> Tensor:
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()
