"""neighbour_means: the mean of each node's neighbours, summed in double whatever is stored."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_like, check_shape
from calirare_ext.as_csr import SparseMatrix
from calirare_ext.propagate import compiled, of_operand


def neighbour_means(a: SparseMatrix, x: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """Returns D^-1 A X, the mean of each row's neighbours weighted by A; D holds the row sums of A.

    A column of means may be ranked or cut at a threshold, where a rounding that depends on the order of the neighbours
    would show: renumbered nodes would get another score. Here it does not.

    Args:
        a: [n, m], float32 or float64, in any form of `as_csr`.
        x: [m, d], dtype and device of `a`; any strides. No derivative is taken.
        edge_weight: of an `edge_index`, [E]; None: ones.

    Returns:
        [n, d], dtype and device of `x`; 0 where a row of A sums to 0.

    Raises:
        TypeError: `a` is no sparse matrix or `x` has another dtype.
        ValueError: shapes or devices do not fit, or `x` requires a gradient.

    Precision: products, sums and the division in float64, rounded to the dtype of `x` once; two runs agree bit for bit.
    Cost: nnz * d multiply-adds; no scratch.

    Example:
        >>> import torch
        >>> from calirare_ext import Csr
        >>> a = Csr.from_dense(torch.tensor([[0.0, 1.0, 3.0], [0.0, 0.0, 0.0]]))
        >>> neighbour_means(a, torch.tensor([[5.0], [2.0], [4.0]]))
        tensor([[3.5000],
                [0.0000]])
    """
    a = of_operand(a, x, edge_weight, "neighbour_means")
    check_like("neighbour_means", "x", x, a.values, "a")
    check_shape("neighbour_means", "x", x, (a.n_cols, None))
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("neighbour_means: x must not require a gradient, which this operator does not track: detach()")
    x = x if x.shape[1] <= 1 or x.stride(1) == 1 else x.contiguous()
    out = x.new_empty(a.n_rows, x.shape[1])
    _C.neighbour_means_out(compiled(a), x, out)
    return out
