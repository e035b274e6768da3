"""as_csr: every form in which PyTorch and PyTorch Geometric hold a sparse matrix, as the operators read it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calirare_ext._checks import check_float, dtype_name
from calirare_ext.csr import Csr

SparseMatrix = Any  # Csr, edge_index, torch.sparse_csr, torch.sparse_coo or torch_sparse.SparseTensor


def as_csr(
    a: SparseMatrix,
    edge_weight: Tensor | None = None,
    num_nodes: int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    op: str = "as_csr",
) -> Csr:
    """Returns a sparse matrix as `Csr`. The operators call it on what they are given.

    Convert a matrix that multiplies several times once: the conversion of an `edge_index` sorts it.

    Args:
        a: a `Csr`, a `torch.sparse_csr` or `torch.sparse_coo` tensor or a `torch_sparse.SparseTensor`, float32 or
            float64 [n, m], which multiplies as it is (PyG's layers take `adj_t`); or `edge_index`, integers [2, E],
            sources in row 0 and targets in row 1. Row v of its matrix holds the edges into v, so that A X sums what
            sources send to their targets, as PyG's layers do.
        edge_weight: of an `edge_index`, float32 or float64 [E]; None: ones.
        num_nodes: n of an `edge_index`, whose matrix is [n, n]; None: its largest number and 1.
        dtype: of the ones where there are no weights.
        op: what messages begin with.

    Returns:
        The matrix, on the device of `a`; `a` where it is a `Csr`.

    Raises:
        TypeError: `a` is none of these, or a dtype does not fit.
        ValueError: a shape does not fit, a node is out of range, or a derivative of the weights is wanted.

    Example:
        >>> import torch
        >>> as_csr(torch.tensor([[0, 1], [2, 2]])).to_dense()
        tensor([[0., 0., 0.],
                [0., 0., 0.],
                [1., 1., 0.]])
    """
    if isinstance(a, Csr) and edge_weight is None:
        return a
    if isinstance(a, Tensor) and a.layout == torch.strided:
        return _of_edges(a, edge_weight, num_nodes, dtype, op)
    if edge_weight is not None:
        raise ValueError(f"{op}: edge_weight must come with an edge_index, got it with a {type(a).__name__}")
    if isinstance(a, Tensor):
        return _of_sparse(a, op)
    if hasattr(a, "csr") and hasattr(a, "sparse_sizes"):
        indptr, indices, values = a.csr()
        values = torch.ones(indices.numel(), dtype=dtype, device=indices.device) if values is None else values
        return _of_parts(indptr, indices, values, int(a.sparse_sizes()[1]), op)
    raise TypeError(
        f"{op}: the matrix must be a Csr, an edge_index [2, E], a torch.sparse_csr or torch.sparse_coo tensor or a "
        f"SparseTensor, got {type(a).__name__}"
    )


def _of_edges(index: Tensor, weight: Tensor | None, num_nodes: int | None, dtype: torch.dtype, op: str) -> Csr:
    if index.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"{op}: edge_index must be int64, got {dtype_name(index.dtype)} {list(index.shape)}. A dense matrix is "
            "converted by Csr.from_dense"
        )
    if index.dim() != 2 or index.shape[0] != 2:
        raise ValueError(f"{op}: edge_index must have shape [2, E], got {list(index.shape)}")
    most = int(index.max()) if index.numel() else -1
    n = most + 1 if num_nodes is None else num_nodes
    if index.numel() and (int(index.min()) < 0 or most >= n):
        raise ValueError(f"{op}: edge_index must name nodes in [0, {n}), got {int(index.min())} to {most}")
    if weight is None:
        weight = torch.ones(index.shape[1], dtype=dtype, device=index.device)
    check_float(op, "edge_weight", weight)
    if weight.shape != index.shape[1:]:
        raise ValueError(f"{op}: edge_weight must have shape [{index.shape[1]}], got {list(weight.shape)}")
    _check_constant(weight, op)
    return Csr.from_coo(index[1], index[0], weight, (n, n))


def _of_sparse(a: Tensor, op: str) -> Csr:
    if a.dim() != 2 or a.layout not in (torch.sparse_coo, torch.sparse_csr):
        raise ValueError(
            f"{op}: a sparse tensor must be torch.sparse_csr or torch.sparse_coo [n, m], got {dtype_name(a.layout)} "
            f"{list(a.shape)}"
        )
    if a.layout == torch.sparse_csr:
        return _of_parts(a.crow_indices(), a.col_indices(), a.values(), a.shape[1], op)
    if a.dense_dim():
        raise ValueError(f"{op}: a sparse tensor must hold one number per entry, got {a.dense_dim()} dense dimensions")
    _check_constant(a, op)
    together = a.detach().coalesce()
    check_float(op, "the matrix", together.values())
    rows, columns = together.indices()
    return Csr.from_coo(rows, columns, together.values(), (a.shape[0], a.shape[1]))


def _of_parts(indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int, op: str) -> Csr:
    check_float(op, "the matrix", values)
    _check_constant(values, op)
    return Csr(indptr.long().contiguous(), indices.int().contiguous(), values.detach().contiguous(), n_cols)


def _check_constant(values: Tensor, op: str) -> None:
    if values.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{op}: weights of edges must not require a gradient, which is not tracked: detach() them")
