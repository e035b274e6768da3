"""Matrices as tensors with names, as a file of tensors holds them; parts of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from calirare_ext import Csr


def named_tensors(name: str, matrix: Tensor | Csr) -> dict[str, Tensor]:
    """Returns a matrix as tensors whose names begin with `name`; `matrix_named` is the way back."""
    if isinstance(matrix, Tensor):
        return {name: matrix}
    return {
        f"{name}.indptr": matrix.indptr,
        f"{name}.indices": matrix.indices,
        f"{name}.values": matrix.values,
        f"{name}.n_cols": torch.tensor(matrix.n_cols),
    }


def matrix_named(tensors: Mapping[str, Tensor], name: str) -> Tensor | Csr:
    """Returns the matrix that `named_tensors` has named so.

    Raises:
        KeyError: it is not there.
    """
    if name in tensors:
        return tensors[name]
    indptr, indices, values = (tensors[f"{name}.{part}"] for part in ("indptr", "indices", "values"))
    return Csr(indptr, indices, values, int(tensors[f"{name}.n_cols"]))


def rows_of(a: Csr, rows: slice) -> Csr:
    """Returns rows [rows.start, rows.stop) of a matrix; nothing is copied but their indptr."""
    indptr = a.indptr[rows.start : rows.stop + 1]
    first, last = int(indptr[0]), int(indptr[-1])
    return Csr.unchecked(indptr - first, a.indices[first:last], a.values[first:last], a.n_cols)
