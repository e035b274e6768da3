"""The sparse products as operators of torch, calirare::propagate and calirare::propagate_transposed, on plain tensors.

`propagate` goes by them where torch looks on instead of computing: in torch.compile, torch.export and on fake tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from calirare_ext._checks import check_index, check_like, check_shape
from calirare_ext.csr import Csr
from calirare_ext.layouts import product

# The matrix of an indptr, of other tensors with the same memory: an entry goes when the caller's indptr does.
_MATRICES = WeakTensorKeyDictionary()


@torch.library.custom_op("calirare::propagate", mutates_args=())
def propagate_op(indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int, x: Tensor) -> Tensor:
    """Returns A X [n, d] for A [n, n_cols] by the tensors of a `Csr` and x [n_cols, d]; see `propagate`."""
    _check(indptr, indices, values, x, n_cols)
    return times(_matrix(indptr, indices, values, n_cols), x)


@torch.library.custom_op("calirare::propagate_transposed", mutates_args=())
def propagate_transposed_op(indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int, x: Tensor) -> Tensor:
    """Returns A^T X [n_cols, d] for A [n, n_cols] by the tensors of a `Csr` and x [n, d]."""
    _check(indptr, indices, values, x, indptr.shape[0] - 1)
    return times(_matrix(indptr, indices, values, n_cols).transpose(), x)


def times(a: Csr, x: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns A X, in `out` where it is given; nothing is checked and no derivative is tracked."""
    rows_are_contiguous = x.shape[1] <= 1 or x.stride(1) == 1
    x = x if rows_are_contiguous else x.contiguous()
    out = x.new_empty(a.n_rows, x.shape[1]) if out is None else out
    product(a, x, out)
    return out


@propagate_op.register_fake
def _(indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int, x: Tensor) -> Tensor:
    _check(indptr, indices, values, x, n_cols)
    return x.new_empty(indptr.shape[0] - 1, x.shape[1])


@propagate_transposed_op.register_fake
def _(indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int, x: Tensor) -> Tensor:
    _check(indptr, indices, values, x, indptr.shape[0] - 1)
    return x.new_empty(n_cols, x.shape[1])


def _check(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor, n_rows: int) -> None:
    """Raises TypeError or ValueError unless x [n_rows, d] fits the parts; what they hold is looked at by `Csr`."""
    check_like("propagate", "x", x, values, "values")
    check_index("propagate", "indptr", indptr, torch.int64, x.device)
    check_index("propagate", "indices", indices, torch.int32, x.device)
    check_shape("propagate", "values", values, (indices.shape[0],))
    check_shape("propagate", "x", x, (n_rows, None))


def _matrix(indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int) -> Csr:
    """Returns the matrix of the parts, its indices checked; kept with its transpose and layouts as long as `indptr`."""
    version = 0 if values.is_inference() else values._version  # of the indices `Csr` knows itself
    kept, then = _MATRICES.get(indptr, (None, -1))
    unchanged = kept is not None and then == version and kept.n_cols == n_cols
    if unchanged and _same(kept.indices, indices) and _same(kept.values, values):
        kept.check_changes()
        return kept
    made = Csr(indptr.detach(), indices.detach(), values.detach(), n_cols)
    _MATRICES[indptr] = made, version
    return made


def _same(kept: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors are one piece of memory; that of the kept one cannot have been given to another."""
    return kept.data_ptr() == other.data_ptr() and kept.shape == other.shape and kept.dtype == other.dtype


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int, Tensor], output: Tensor) -> None:
    if ctx.needs_input_grad[2]:
        raise ValueError("propagate: values must not require a gradient, derivatives are those of x: detach() them")
    ctx.save_for_backward(*inputs[:3])
    ctx.n_cols = inputs[3]


def _back(ctx: Any, grad: Tensor) -> tuple[None, None, None, None, Tensor]:
    return None, None, None, None, propagate_transposed_op(*ctx.saved_tensors, ctx.n_cols, grad)


def _forth(ctx: Any, grad: Tensor) -> tuple[None, None, None, None, Tensor]:
    return None, None, None, None, propagate_op(*ctx.saved_tensors, ctx.n_cols, grad)


propagate_op.register_autograd(_back, setup_context=_keep)
propagate_transposed_op.register_autograd(_forth, setup_context=_keep)
