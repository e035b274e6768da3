"""What a first layer reads, A_hat X at some rows: one matrix, or its two factors and never their product."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from calirare_ext.csr import Csr

DENSE_ABOVE = 0.25  # a product with more non-zeros than this share is faster as a dense matrix


@dataclass(frozen=True, eq=False)
class Factored:
    """The product A X by its factors: A (X W) is made in place of (A X) W.

    Of sparse features A X has several times the entries of X. The product is made only for those who need its entries.

    Attributes:
        a: A_hat at the rows, its columns cut to those they touch, [r, c].
        x: the features there, [c, d]: sparse, dense, or a product themselves.
        whole: a product and its rows (int64 [r]) that this one is; the entries are then taken from it. None: made here.

    Raises:
        TypeError: the factors differ in dtype.
        ValueError: the shapes or devices do not fit.
    """

    a: Csr
    x: Inputs
    whole: tuple[Factored, Tensor] | None = field(default=None, kw_only=True, repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Checks that the factors fit."""
        if self.a.n_cols != self.x.shape[0]:
            raise ValueError(f"Factored: x must have {self.a.n_cols} rows, one per column of a, got {self.x.shape[0]}")
        if self.x.dtype != self.a.dtype:
            raise TypeError(f"Factored: x must be {self.a.dtype} as a is, got {self.x.dtype}")
        if self.x.device != self.a.device:
            raise ValueError(f"Factored: x must be on {self.a.device} as a is, got {self.x.device}")

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out, in copies and files, what was computed from the factors."""
        return {**self.__dict__, "whole": None, "_cache": {}}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the product."""
        return self.a.n_rows, self.x.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the factors."""
        return self.a.dtype

    @property
    def device(self) -> torch.device:
        """Device of the factors."""
        return self.a.device

    def matrix(self) -> Tensor | Csr:
        """Returns the product, dense where it is no longer sparse; made once and kept."""
        if "matrix" not in self._cache:
            if self.whole is None:
                made = product_of(self.a, as_matrix(self.x))
            else:
                made = as_matrix(rows_of_inputs(self.whole[0].matrix(), self.whole[1]))
            self._cache["matrix"] = made
        return self._cache["matrix"]

    def to(self, target: torch.device | str | torch.dtype) -> Factored:
        """Returns the same on another device or in another dtype."""
        return Factored(self.a.to(target), self.x.to(target))


Inputs = Tensor | Csr | Factored


def as_matrix(inputs: Inputs) -> Tensor | Csr:
    """Returns inputs as one matrix, sparse or dense."""
    return inputs.matrix() if isinstance(inputs, Factored) else inputs


def as_dense(inputs: Inputs) -> Tensor:
    """Returns inputs as one dense matrix [r, d]."""
    found = as_matrix(inputs)
    return found.to_dense() if isinstance(found, Csr) else found


def rows_of_inputs(inputs: Inputs, rows: Tensor) -> Inputs:
    """Returns some rows of inputs, in the order given (int64 [k])."""
    if isinstance(inputs, Factored):
        return Factored(inputs.a.select_rows(rows), inputs.x)
    return inputs.select_rows(rows) if isinstance(inputs, Csr) else inputs[rows]


def multiply_adds(inputs: Inputs) -> int:
    """Returns the multiply-adds of `times` per column of W."""
    if isinstance(inputs, Factored):
        return inputs.a.nnz + multiply_adds(inputs.x)
    return inputs.nnz if isinstance(inputs, Csr) else inputs.numel()


def product_of(a: Csr, x: Tensor | Csr, dense_above: float = DENSE_ABOVE) -> Tensor | Csr:
    """Returns A X by scipy; of two sparse matrices sparse, or dense where more than a share of it is not zero."""
    if not isinstance(x, Csr):
        return torch.from_numpy(_scipy(a) @ x.detach().cpu().numpy()).to(x)
    product = _scipy(a) @ _scipy(x)
    product.sort_indices()
    if product.nnz > dense_above * product.shape[0] * product.shape[1]:
        return torch.from_numpy(product.toarray()).to(a.values)
    indptr = torch.from_numpy(product.indptr.astype("int64"))
    indices = torch.from_numpy(product.indices.astype("int32", copy=False))
    return Csr(indptr, indices, torch.from_numpy(product.data), x.n_cols).to(a.device)


def _scipy(matrix: Csr) -> Any:
    import scipy.sparse as sp

    parts = (matrix.values.cpu().numpy(), matrix.indices.cpu().numpy(), matrix.indptr.cpu().numpy())
    return sp.csr_array(parts, shape=matrix.shape)
