"""Features and labels of any kind as the tensors a graph holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare.errors import InputError
from calirare_ext import Csr


def as_features(x: Any, where: str) -> Tensor | Csr:
    """Returns features of any kind (Csr, scipy, tensor, array) as float32 [n, d], dense or sparse.

    Args:
        x: the features.
        where: put in front of a message.

    Returns:
        The features, not copied where they already fit.

    Raises:
        InputError: they are not numbers.
    """
    if isinstance(x, Csr):
        return x.to(torch.float32)
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            x = x.coalesce() if x.layout == torch.sparse_coo else x.to_sparse_coo().coalesce()
            rows, cols = x.indices()
            return Csr.from_coo(rows, cols, x.values().float(), (x.shape[0], x.shape[1]))
        if x.is_complex():
            raise InputError(f"{where}: features must be real numbers, got {str(x.dtype).removeprefix('torch.')}")
        return x.detach().float().contiguous()
    if hasattr(x, "tocsr"):
        sparse = x.tocsr().astype(np.float32)
        sparse.sum_duplicates()
        indptr, indices = sparse.indptr.astype(np.int64), sparse.indices.astype(np.int32)
        return Csr(torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(sparse.data), sparse.shape[1])
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{where}: features must be real numbers, got {array.dtype}")
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def as_labels(y: Any, where: str) -> Tensor:
    """Returns labels of any integer or bool type as int64 [n].

    Args:
        y: tensor, array or list [n] or [n, 1].
        where: put in front of a message.

    Returns:
        The labels.

    Raises:
        InputError: they are not whole numbers.
    """
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if array.dtype.kind not in "biu":
        raise InputError(f"{where}: labels must be whole numbers, got {array.dtype}: number the classes from 0")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
