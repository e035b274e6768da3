"""Sums of the rows of a sparse matrix, in one order on every device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from calirare_ext.as_csr import SparseMatrix, as_csr
from calirare_ext.csr import Csr
from calirare_ext.propagate import propagate

BLOCK_ENTRIES = 1 << 20  # entries worked on together: memory beside the result stays small


def row_sums(a: SparseMatrix) -> Tensor:
    """Returns the sum of each row's values.

    Args:
        a: any matrix [n, m], in any form of `as_csr`.

    Returns:
        float64 [n], on the device of `a`.

    Precision: sums in float64, in a fixed order: two runs agree bit for bit, which an `index_add` on a GPU does not.
    Cost: O(nnz) time; a few numbers per `BLOCK_ENTRIES` entries beside the result.

    Example:
        >>> import torch
        >>> row_sums(Csr.from_dense(torch.tensor([[0.5, 2.0], [0.0, 0.0]])))
        tensor([2.5000, 0.0000], dtype=torch.float64)
    """
    a = as_csr(a, op="row_sums")
    sums = torch.zeros(a.n_rows, dtype=torch.float64, device=a.device)
    one = sums.new_ones(1, 1)
    for first, last in row_parts(a):
        begin, end = int(a.indptr[first]), int(a.indptr[last])
        part = Csr.unchecked(
            a.indptr[first : last + 1] - begin, a.indices.new_zeros(end - begin), a.values[begin:end].double(), 1
        )
        sums[first:last] = propagate(part, one).squeeze(1)
    return sums


def row_parts(a: Csr) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows with about BLOCK_ENTRIES entries each."""
    first = 0
    while first < a.n_rows:
        wanted = int(a.indptr[first]) + BLOCK_ENTRIES
        last = int(torch.searchsorted(a.indptr, wanted, right=True)) - 1
        last = min(max(last, first + 1), first + BLOCK_ENTRIES, a.n_rows)
        yield first, last
        first = last
