"""A compressed sparse row matrix: what every sparse operand of the operators is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from calirare_ext._checks import check_storage

MAX_COLUMNS = 2**31 - 1
STEP = 1 << 21  # entries looked at together, in cache


@dataclass(frozen=True, eq=False)
class Csr:
    """A sparse matrix in compressed sparse row form, rows in order, columns ascending within a row.

    The constructor checks dtypes, shapes, devices and every index, so that no product reads or writes elsewhere:
    O(nnz). `Csr.unchecked` leaves the indices out, for a matrix made of a checked one. `check_structure` also checks
    order and values. The operators trust what they are given, and look again where a tensor was changed in place.

    Attributes:
        indptr: int64 [n_rows + 1], starts at 0, never falls; row r holds entries indptr[r] to indptr[r + 1].
        indices: int32 [nnz], the column of each entry, in [0, n_cols).
        values: float32 or float64 [nnz].
        n_cols: number of columns.

    Raises:
        TypeError: a dtype is not one of the above, or n_cols is no whole number.
        ValueError: shapes or devices do not fit, indptr does not rise from 0 to nnz, or an index is out of range.

    Example:
        >>> import torch
        >>> a = Csr.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), (2, 2))
        >>> a.to_dense()
        tensor([[0., 2.],
                [3., 0.]])
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    n_cols: int
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks what memory safety rests on."""
        self._check_kinds()
        self._check_places("Csr")
        self._cache["versions"] = self._versions()

    @classmethod
    def unchecked(cls, indptr: Tensor, indices: Tensor, values: Tensor, n_cols: int) -> Csr:
        """Returns a matrix whose indices the caller answers for: a wrong one reads or writes memory elsewhere."""
        self = object.__new__(cls)
        parts = {"indptr": indptr, "indices": indices, "values": values, "n_cols": n_cols, "_cache": {}}
        for name, value in parts.items():
            object.__setattr__(self, name, value)
        self._check_kinds()
        self._cache["versions"] = self._versions()
        return self

    def _versions(self) -> tuple[int, ...]:
        """Returns what torch counts up when the tensors of indices are changed in place; 0 where it does not count."""
        return tuple(0 if part.is_inference() else part._version for part in (self.indptr, self.indices))

    def check_changes(self) -> None:
        """Checks the indices again where they were changed in place, or nothing is known of them (in a copy)."""
        versions = self._versions()
        if self._cache.get("versions") != versions:
            self._cache.clear()
            self._check_places("Csr")
            self._cache["versions"] = versions

    def _check_kinds(self) -> None:
        """Checks dtypes, shapes and devices, which costs nothing."""
        for name, tensor, dtypes in (
            ("indptr", self.indptr, (torch.int64,)),
            ("indices", self.indices, (torch.int32,)),
            ("values", self.values, (torch.float32, torch.float64)),
        ):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"Csr: {name} must be a tensor, got {type(tensor).__name__}")
            if tensor.dtype not in dtypes:
                wanted = " or ".join(str(d).removeprefix("torch.") for d in dtypes)
                raise TypeError(f"Csr: {name} must be {wanted}, got {str(tensor.dtype).removeprefix('torch.')}")
            if tensor.layout != torch.strided or tensor.dim() != 1 or not tensor.is_contiguous():
                raise ValueError(f"Csr: {name} must be a contiguous vector, got shape {tuple(tensor.shape)}")
            if tensor.device != self.indptr.device:
                raise ValueError(f"Csr: {name} must be on {self.indptr.device}, got {tensor.device}")
            check_storage("Csr", name, tensor)
        if self.indptr.numel() == 0:
            raise ValueError("Csr: indptr must have n_rows + 1 entries, got none")
        if self.indices.numel() != self.values.numel():
            raise ValueError(
                f"Csr: values must have one entry per index, got {self.values.numel()} for {self.indices.numel()}"
            )
        if isinstance(self.n_cols, bool) or not isinstance(self.n_cols, Integral):
            raise TypeError(f"Csr: n_cols must be a whole number, got {type(self.n_cols).__name__}")
        if not 0 <= self.n_cols <= MAX_COLUMNS:
            raise ValueError(f"Csr: n_cols must be in [0, {MAX_COLUMNS}], got {self.n_cols}")

    def _check_places(self, name: str) -> None:
        """Checks indptr and the range of the indices; `name` is what the matrix is called in a message."""
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        if first != 0 or last != self.nnz:
            raise ValueError(f"{name}: indptr must run from 0 to {self.nnz}, got {first} to {last}")
        falls = self.indptr[1:] < self.indptr[:-1]
        if bool(falls.any()):
            raise ValueError(f"{name}: indptr must not fall, got a fall after row {int(falls.nonzero()[0])}")
        if self.nnz:
            low, high = (int(end) for end in torch.aminmax(self.indices))
            if low < 0 or high >= self.n_cols:
                raise ValueError(f"{name}: indices must be in [0, {self.n_cols}), got values from {low} to {high}")

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out, in copies and files, what was computed from the matrix."""
        return {**self.__dict__, "_cache": {}}

    @classmethod
    def from_coo(
        cls, rows: Tensor, cols: Tensor, values: Tensor | None, shape: tuple[int, int], *, sum_duplicates: bool = False
    ) -> Csr:
        """Returns the matrix with the given entries, sorted by row and column.

        Args:
            rows: integer [nnz], each in [0, shape[0]).
            cols: integer [nnz], each in [0, shape[1]).
            values: float32 or float64 [nnz]; None stands for ones in float32.
            shape: rows and columns.
            sum_duplicates: add entries at the same place instead of keeping them side by side.

        Returns:
            The matrix, on the device of `rows`.

        Raises:
            TypeError: an index is not an integer.
            ValueError: an index is out of range, or the lengths differ.
        """
        n_rows, n_cols = shape
        if not 0 <= n_cols <= MAX_COLUMNS or not 0 <= n_rows <= MAX_COLUMNS:
            raise ValueError(f"Csr: shape must be of sizes from 0 to {MAX_COLUMNS}, got {tuple(shape)}")
        for name, index in (("rows", rows), ("cols", cols)):
            if index.dtype.is_floating_point or index.dtype.is_complex or index.dtype == torch.bool:
                raise TypeError(f"Csr: {name} must be integers, got {str(index.dtype).removeprefix('torch.')}")
        if rows.shape != cols.shape or rows.dim() != 1:
            raise ValueError(f"Csr: rows and cols must be vectors of one length, got {rows.shape} and {cols.shape}")
        for name, index, size in (("rows", rows, n_rows), ("cols", cols, n_cols)):
            if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
                raise ValueError(
                    f"Csr: {name} must be in [0, {size}), got values from {int(index.min())} to {int(index.max())}"
                )
        values = torch.ones(rows.numel(), dtype=torch.float32, device=rows.device) if values is None else values
        if values.shape != rows.shape:
            raise ValueError(f"Csr: values must have shape {tuple(rows.shape)}, got {tuple(values.shape)}")
        key = rows.to(torch.int64) * n_cols + cols.to(torch.int64)
        if sum_duplicates:
            key, inverse = torch.unique(key, return_inverse=True)
            values = _sums(values, inverse, key.numel())
        else:
            key, order = torch.sort(key, stable=True)
            values = values[order]
        row = torch.div(key, max(n_cols, 1), rounding_mode="floor")
        indptr = torch.zeros(n_rows + 1, dtype=torch.int64, device=rows.device)
        indptr[1:] = torch.cumsum(torch.bincount(row, minlength=n_rows), 0) if n_rows else 0
        return cls.unchecked(indptr, (key - row * n_cols).to(torch.int32), values.contiguous(), n_cols)

    @classmethod
    def zeros(cls, n: int, device: torch.device | str | None = None) -> Csr:
        """Returns the matrix [n, n] without an entry, float32: the adjacency of n nodes without an edge."""
        indptr = torch.zeros(n + 1, dtype=torch.int64, device=device)
        return cls(indptr, indptr.new_empty(0, dtype=torch.int32), torch.empty(0, device=device), n)

    @classmethod
    def from_dense(cls, dense: Tensor) -> Csr:
        """Returns the non-zero entries of `dense` [n_rows, n_cols].

        Args:
            dense: float32 or float64, strided.

        Returns:
            The matrix.

        Raises:
            ValueError: `dense` is sparse or no matrix.
        """
        if dense.dim() != 2 or dense.layout != torch.strided:
            layout = str(dense.layout).removeprefix("torch.")
            raise ValueError(
                f"Csr: dense must be a strided matrix [n_rows, n_cols], got {layout} of shape {tuple(dense.shape)}"
            )
        rows, cols = dense.nonzero(as_tuple=True)
        return cls.from_coo(rows, cols, dense[rows, cols], (dense.shape[0], dense.shape[1]))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.indptr.numel() - 1

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.indices.numel()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_cols

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of the three tensors."""
        return self.values.device

    def rows(self) -> Tensor:
        """Returns the row of each entry, int64 [nnz]."""
        counts = self.indptr.diff()
        return torch.repeat_interleave(torch.arange(self.n_rows, device=self.device), counts, output_size=self.nnz)

    def transpose(self) -> Csr:
        """Returns the transposed matrix; computed once and kept."""
        if "transpose" not in self._cache:
            with torch._C._DisableFuncTorch():  # inside torch.func.grad a kept tensor would belong to that call alone
                turned = Csr.from_coo(self.indices, self.rows(), self.values, (self.n_cols, self.n_rows))
            turned._cache["transpose"] = self
            self._cache["transpose"] = turned
        return self._cache["transpose"]

    def to(self, target: torch.device | str | torch.dtype) -> Csr:
        """Returns the matrix on another device, or with its values in another dtype."""
        if isinstance(target, torch.dtype):
            if target == self.dtype:
                return self
            return Csr.unchecked(self.indptr, self.indices, self.values.to(target), self.n_cols)
        if torch.device(target) == self.device:
            return self
        indptr, indices, values = (part.to(target) for part in (self.indptr, self.indices, self.values))
        return Csr.unchecked(indptr, indices, values, self.n_cols)

    def select_rows(self, rows: Tensor) -> Csr:
        """Returns the matrix made of the given rows, in the order given (integer [k], each in [0, n_rows))."""
        if rows.dtype == torch.bool:
            raise TypeError("Csr: rows must be numbers of rows, got a mask: take mask.nonzero().flatten()")
        rows = rows.to(self.device, torch.int64)
        if not rows.is_cuda and rows.numel() and int(rows.min()) < 0:
            raise ValueError(f"Csr: rows must be in [0, {self.n_rows}), got {int(rows.min())}")
        counts = self.indptr[rows + 1] - self.indptr[rows]
        indptr = torch.zeros(rows.numel() + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=indptr[1:])
        total = int(indptr[-1])
        start = torch.repeat_interleave(self.indptr[rows] - indptr[:-1], counts, output_size=total)
        entry = start + torch.arange(total, device=self.device)
        return Csr.unchecked(indptr, self.indices[entry], self.values[entry], self.n_cols)

    def to_dense(self) -> Tensor:
        """Returns the dense matrix [n_rows, n_cols]; entries at the same place are added."""
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        return dense.index_put_((self.rows(), self.indices.long()), self.values, accumulate=True)

    def repeated_row(self) -> int | None:
        """Returns the first row found that names a column more than once, or None; computed once and kept."""
        if "repeated row" not in self._cache:
            rises = self.indices[1:] > self.indices[:-1]
            starts = self.indptr[1:-1]
            rises[starts[(starts > 0) & (starts < self.nnz)] - 1] = True
            self._cache["repeated row"] = None if bool(rises.all()) else self._repeated_row_by_sorting()
        return self._cache["repeated row"]

    def _repeated_row_by_sorting(self) -> int | None:
        place = torch.sort(self.rows() * self.n_cols + self.indices).values
        twice = (place[1:] == place[:-1]).nonzero()
        return int(place[twice[0]]) // self.n_cols if twice.numel() else None

    def disordered_row(self) -> int | None:
        """Returns the first row whose columns do not ascend, or None; equal columns side by side do. Kept."""
        if "disordered row" not in self._cache:
            self._cache["disordered row"] = self._find_disorder(torch.lt)
        return self._cache["disordered row"]

    def _find_disorder(self, wrong: Callable[[Tensor, Tensor], Tensor]) -> int | None:
        """Returns the first row with a column that is `wrong` after the one before it, or None."""
        for start in range(0, self.nnz, STEP):  # in steps, for matrices that are mapped from files
            part = self.indices[start : start + STEP + 1]
            falls = wrong(part[1:], part[:-1]).nonzero().flatten() + start + 1
            rows = torch.searchsorted(self.indptr, falls, right=True) - 1
            inside = falls != self.indptr[rows]
            if bool(inside.any()):
                return int(rows[inside][0])
        return None

    def check_structure(self, name: str = "Csr") -> None:
        """Checks every index and value.

        Args:
            name: what the matrix is called in a message.

        Raises:
            ValueError: indptr does not start at 0, falls, or does not end at nnz; an index is out of range; columns
                are not ascending within a row; a value is NaN or infinite.
        """
        self._check_places(name)
        row = self._find_disorder(torch.le)
        if row is not None:
            raise ValueError(f"{name}: columns must be ascending and unique within a row, row {row} is not")
        for start in range(0, self.nnz, STEP):
            faults = (~torch.isfinite(self.values[start : start + STEP])).nonzero().flatten()
            if faults.numel():
                entry = start + int(faults[0])
                row = int(torch.searchsorted(self.indptr, entry, right=True)) - 1
                raise ValueError(f"{name}: values must be finite, got {float(self.values[entry])} in row {row}")


def _sums(values: Tensor, place: Tensor, size: int) -> Tensor:
    """Returns the sums [size] of the values with one place, in the order given on every device.

    Made on the CPU: the order of an `index_add` on a GPU differs from run to run.
    """
    sums = torch.zeros(size, dtype=values.dtype).index_add_(0, place.cpu(), values.cpu())
    return sums.to(values.device)
