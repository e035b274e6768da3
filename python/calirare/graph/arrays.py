"""Features, labels, edges and masks of any kind as the arrays and tensors a graph is made of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import MAX_INT, NumpyArray
from calirare._util.errors import InputError
from calirare_ext import Csr

Parts = dict[str, Any]  # what a graph is made of: keywords of `Graph`, for the modules below it


def as_features(x: Any, where: str) -> Tensor | Csr:
    """Returns features of any kind (Csr, scipy, tensor, array) as float32 [n, d], dense or sparse.

    They have no gradient and are not copied where they already fit; `where` is put in front of a message.

    Raises:
        InputError: they are not a table of real numbers.
    """
    if isinstance(x, Csr):
        x = x.to(torch.float32)
        return Csr(x.indptr, x.indices, x.values.detach(), x.n_cols) if x.values.requires_grad else x
    if isinstance(x, Tensor):
        if x.is_complex():
            raise InputError(f"{where}: features must be real numbers, got {dtype_of(x)}")
        if x.layout != torch.strided:
            entries = as_coo(x, "features", where).coalesce()
            rows, cols = entries.indices()
            return Csr.from_coo(rows, cols, entries.values().float(), (x.shape[0], x.shape[1]))
        return torch.atleast_1d(x.detach().float().contiguous())
    sparse = hasattr(x, "tocsr")
    array = x if sparse else numbers_of(as_array(x, "features", where))
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{where}: features must be real numbers, got {array.dtype}: encode what is none (None and NaN are missing "
            "values), or take Graph.from_tables, which reads categories and dates"
        )
    with np.errstate(over="ignore"):
        if not sparse:
            return _writable(np.atleast_1d(array), np.float32)
        if len(x.shape) != 2:
            raise InputError(f"{where}: features must be a sparse matrix, got shape {x.shape}: reshape them to (n, d)")
        summed = x.tocsr().astype(np.float32)
    summed.sum_duplicates()
    return csr_of_scipy(summed)


def csr_of_scipy(matrix: Any) -> Csr:
    """Returns a scipy CSR matrix, whose columns ascend in each row, as ours."""
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
    return Csr(torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(matrix.data), matrix.shape[1])


def scipy_of_csr(matrix: Csr) -> Any:
    """Returns our matrix, from any device, as one of scipy."""
    import scipy.sparse as sp

    indptr = matrix.indptr.cpu().numpy()
    if matrix.nnz < 1 << 31:  # else scipy makes both of 64 bits
        indptr = indptr.astype(np.int32)
    parts = (matrix.values.cpu().numpy(), matrix.indices.cpu().numpy(), indptr)
    return sp.csr_array(parts, shape=matrix.shape)


def _writable(array: NumpyArray, dtype: type[np.generic]) -> Tensor:
    """Returns an array as a tensor; what must not be written to, such as a column of pandas, is copied."""
    return torch.from_numpy(np.require(array, dtype, ["C_CONTIGUOUS", "WRITEABLE"]))


def as_labels(y: Any, where: str) -> Tensor:
    """Returns labels [n] or [n, 1] of whole numbers of any type, a tensor, an array or a list, as int64 [n].

    NaN, None and NA of pandas stand for unknown, -1.

    Raises:
        InputError: they are not whole numbers.
    """
    array = numbers_of(as_array(y, "labels", where))
    if array.dtype.kind == "f":
        array = _whole_labels(array, where)
    if array.dtype.kind not in "biu":
        raise InputError(
            f"{where}: labels must be whole numbers, or names of classes as text, got {dtype_of(y)}: number the "
            "classes from 0, or decode their names"
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) > MAX_INT:
        raise InputError(f"{where}: labels must be classes from 0, got {int(array.max())}: number the classes from 0")
    return _writable(as_vector(array), np.int64)


def numbers_of(array: NumpyArray, *, text: bool = False) -> NumpyArray:
    """Returns an array of objects as float64, None and NA of pandas as NaN; where one is no number, as it is.

    With `text` a number may be text, as in a column of pandas before its release 3.
    """
    if array.dtype != object or (not text and any(isinstance(each, str | bytes) for each in array.flat)):
        return array
    import pandas as pd

    with suppress(TypeError, ValueError):
        return np.where(pd.isna(array), np.nan, array).astype(np.float64)
    return array


def as_vector(array: NumpyArray) -> NumpyArray:
    """Returns an array [n, 1] as [n], any other as it is."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def as_time(values: Any, where: str) -> Tensor:
    """Returns times of nodes, numbers or dates of numpy, as float64 [n]: dates as days since 1970, NaN without one.

    Raises:
        InputError: they are neither.
    """
    array = as_vector(as_array(values, "time", where))
    if array.dtype.kind == "M":
        array = np.where(np.isnat(array), np.nan, array.astype("datetime64[us]").astype(np.int64) / 86_400e6)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InputError(f"{where}: time must be one number or date per node, got {array.dtype} {array.shape}")
    return torch.from_numpy(array.astype(np.float64))


def _whole_labels(array: NumpyArray, where: str) -> NumpyArray:
    """Returns labels that are floats as whole numbers, -1 where they are NaN."""
    array = np.where(np.isnan(array), -1, array)
    odd = np.flatnonzero((array != np.floor(array)) | (np.abs(array) > MAX_INT // 2))
    if len(odd):
        raise InputError(
            f"{where}: labels must be whole numbers, NaN or -1 where unknown, got {array.flat[odd[0]]:g} at node "
            f"{odd[0]}: number the classes from 0"
        )
    return array.astype(np.int64)


def as_array(values: Any, what: str, where: str) -> NumpyArray:
    """Returns numbers of any kind (dense tensor on any device, array, pandas column, list) as an array.

    Floats narrower than float32 become float32; what a masked array hides is None; an array is not copied. A message
    calls the numbers `what`.

    Raises:
        InputError: a tensor is sparse, or lists have rows of different lengths.
    """
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise InputError(f"{where}: {what} must be dense, got a sparse tensor: call to_dense()")
        values = values.detach().cpu()
        narrow = values.is_floating_point() and values.element_size() < 4
        return (values.float() if narrow else values).numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        array = np.asarray(values.data).astype(object)
        array[np.ma.getmaskarray(values)] = None
        return array
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{where}: {what} must be an array, got a list whose rows differ in length") from error


def as_coo(matrix: Tensor, what: str, where: str) -> Tensor:
    """Returns a sparse tensor of any layout in coordinates, without gradient; repeated entries are still there."""
    entries = matrix.detach().to_sparse_coo()
    if entries.sparse_dim() != 2 or entries.dense_dim():
        raise InputError(
            f"{where}: {what} must be a sparse matrix of single numbers, got {entries.sparse_dim()} sparse and "
            f"{entries.dense_dim()} dense dimensions: make it one with to_dense().to_sparse()"
        )
    return entries


def dtype_of(values: Any) -> str:
    """Returns how a message calls the type of numbers."""
    dtype = values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype
    return str(dtype).removeprefix("torch.")


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
    """Returns the matrix that `named_tensors` has named so; KeyError where it is not there."""
    if name in tensors:
        return tensors[name]
    indptr, indices, values = (tensors[f"{name}.{part}"] for part in ("indptr", "indices", "values"))
    return Csr(indptr, indices, values, int(tensors[f"{name}.n_cols"]))


def rows_of(a: Csr, rows: slice) -> Csr:
    """Returns rows [rows.start, rows.stop) of a matrix; nothing is copied but their indptr."""
    indptr = a.indptr[rows.start : rows.stop + 1]
    first, last = int(indptr[0]), int(indptr[-1])
    return Csr.unchecked(indptr - first, a.indices[first:last], a.values[first:last], a.n_cols)
