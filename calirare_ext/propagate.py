"""Operator 1, propagate: Y = A X for a sparse A, with derivatives of every order, forward mode and vmap."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from calirare_ext._checks import check_like, check_shape
from calirare_ext.as_csr import SparseMatrix, as_csr
from calirare_ext.csr import Csr
from calirare_ext.layouts import compiled
from calirare_ext.registered import propagate_op, times

__all__ = ["compiled", "propagate"]

PLAIN = (Tensor, torch.nn.Parameter)  # what has numbers: a fake tensor, for one, is another type


def propagate(a: SparseMatrix, x: Tensor, edge_weight: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Returns the sparse product A X, the aggregation step of a graph convolution.

    Computes A_hat X (Kipf & Welling 2017, Eq. 2) when A is `gcn_norm` of a graph. A is a constant: derivatives are
    taken with respect to X, to any order, in reverse and forward mode, and `torch.func.vmap` batches over X.

    Args:
        a: [n, m], float32 or float64, in any form of `as_csr`, `edge_index` among them: its n is then m.
        x: [m, d], dtype and device of `a`; any strides.
        edge_weight: of an `edge_index`, [E]; None: ones.
        out: where to write, [n, d], contiguous, without derivatives: a large operand that is multiplied again and again
            costs as much in new memory as in products.

    Returns:
        [n, d], dtype and device of `x`; `out` where it is given.

    Raises:
        TypeError: `a` is no sparse matrix, or `x` or `out` has another dtype.
        ValueError: shapes or devices do not fit, or `out` is not contiguous, is `x`, or a derivative is wanted.

    Precision: sums over a row in the dtype of `x`, in a fixed order; two runs agree bit for bit.
    Cost: nnz * d multiply-adds; no scratch. A matrix that multiplies again and again gets a copy in the layout that
    serves it best on the CPU (see `prepare`; CALIRARE_LAYOUTS=off in the environment forbids it): same bits.

    Example:
        >>> import torch
        >>> a = Csr.from_dense(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
        >>> propagate(a, torch.tensor([[2.0], [4.0]]))
        tensor([[3.],
                [4.]])
    """
    a = of_operand(a, x, edge_weight, "propagate")
    if torch.compiler.is_compiling() or (isinstance(x, Tensor) and type(x) not in PLAIN):
        traced = propagate_op(a.indptr, a.indices, a.values, a.n_cols, x)
        return traced if out is None else out.copy_(traced)
    check_like("propagate", "x", x, a.values, "a")
    check_shape("propagate", "x", x, (a.n_cols, None))
    if out is not None:
        return _written(a, x, out)
    return _Propagate.apply(x, a) if _watched(x) else _Propagate.forward(x, a)


def of_operand(a: SparseMatrix, x: Tensor, edge_weight: Tensor | None, op: str) -> Csr:
    """Returns A in any form as `Csr`, for a product with x [m, d]."""
    if isinstance(a, Csr) and edge_weight is None:
        return a
    plain = isinstance(x, Tensor) and x.dim() == 2 and x.is_floating_point()
    return as_csr(a, edge_weight, x.shape[0] if plain else None, dtype=x.dtype if plain else torch.float32, op=op)


def _written(a: Csr, x: Tensor, out: Tensor) -> Tensor:
    """Returns A X in `out`."""
    check_like("propagate", "out", out, a.values, "a")
    check_shape("propagate", "out", out, (a.n_rows, x.shape[1]))
    if not out.is_contiguous() or out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
        raise ValueError("propagate: out must be contiguous and share no memory with x, leave it out else")
    if _watched(x) or _watched(out):
        raise ValueError("propagate: out must be left out where a derivative is wanted")
    return times(a, x, out)


def _watched(x: Tensor) -> bool:
    """Returns whether a derivative or a transform may be wanted; if not, 50 us of machinery are saved."""
    if x.requires_grad and torch.is_grad_enabled():
        return True
    return torch._C._are_functorch_transforms_active() or forward_ad.unpack_dual(x).tangent is not None


class _Propagate(torch.autograd.Function):
    """A X as an autograd function; its backward is a propagate again, so every order is there."""

    @staticmethod
    def forward(x: Tensor, a: Csr) -> Tensor:
        return times(a, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Csr], output: Tensor) -> None:
        ctx.a = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        back = ctx.a.transpose()
        return _Propagate.apply(grads[0], back) if _watched(grads[0]) else _Propagate.forward(grads[0], back), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _Propagate.apply(tangents[0], ctx.a)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], x: Tensor, a: Csr) -> tuple[Tensor, int | None]:
        if in_dims[0] is None:
            return _Propagate.apply(x, a), None
        wide = x.movedim(in_dims[0], 1)  # [m, batch, d]: one product serves the whole batch
        columns = wide.reshape(wide.shape[0], wide.shape[1] * wide.shape[2])
        return _Propagate.apply(columns, a).view(a.n_rows, *wide.shape[1:]), 1


# torch asks for it at every call; made once it costs nothing.
_Propagate.forward.__signature__ = inspect.signature(_Propagate.forward)  # type: ignore[attr-defined]
