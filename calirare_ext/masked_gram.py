"""The first layer's share of a two-layer ReLU network's kernel, from products of inputs that are known."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_like, check_shape
from calirare_ext.csr import Csr
from calirare_ext.propagate import compiled, propagate


def masked_gram(a: Csr, products: Tensor, mask: Tensor, scaled: Tensor) -> Tensor:
    """Returns (A (G * (mask scaled^T)))^T, one propagation short of the kernel (`calirare.leave_one_out.gram`).

    Args:
        a: A [m, r_R], float32 or float64.
        products: G, products of inputs, [r_R, r].
        mask: active units of the one side, [r_R, h].
        scaled: units of the other times their weights, [r, h].

    Returns:
        [r, m], dtype and device of `a`; no derivative is tracked.

    Raises:
        TypeError: a dtype is wrong or differs.
        ValueError: a shape or device does not fit.

    Precision: sums in the dtype of `a`, in a fixed order.
    Cost: on the CPU nnz(A) r (h + 2) multiply-adds, G read once for each entry's row; nothing of its size is made. On
    CUDA a product, a multiplication and a propagation.
    """
    op, like = "masked_gram", a.values
    check_float(op, "a", like)
    check_shape(op, "scaled", scaled, (None, None))
    r, h = scaled.shape
    for name, x, shape in (
        ("products", products, (a.n_cols, r)),
        ("mask", mask, (a.n_cols, h)),
        ("scaled", scaled, (r, h)),
    ):
        check_like(op, name, x, like, "a")
        check_shape(op, name, x, shape)
    with torch.no_grad():
        if like.device.type != "cpu":
            return propagate(a, (mask @ scaled.T).mul_(products)).T.contiguous()
        out = torch.empty(r, a.n_rows, dtype=like.dtype)
        _C.masked_gram_out(compiled(a), _in_rows(products), _in_rows(mask), _in_rows(scaled), out)
    return out


def _in_rows(x: Tensor) -> Tensor:
    return x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()
