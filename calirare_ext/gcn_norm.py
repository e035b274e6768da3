"""The propagation matrix of a graph convolution."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare_ext.as_csr import SparseMatrix, as_csr
from calirare_ext.csr import Csr
from calirare_ext.row_sums import row_parts, row_sums


def gcn_norm(adjacency: SparseMatrix, edge_weight: Tensor | None = None, num_nodes: int | None = None) -> Csr:
    """Returns A_hat = D^-1/2 (A + I) D^-1/2 (Kipf & Welling 2017, Eq. 2; the convention of PyG's GCNConv).

    A node without a self loop gets one of weight 1; a self loop that is stored keeps its weight, even 0. D holds the
    row sums with the self loops. An isolated node becomes a row with the single entry 1; one whose sum is 0 has zeros.

    Args:
        adjacency: square [n, n], weights >= 0 (negative ones as long as no row sum is), columns ascending in each row;
            in any form of `as_csr`, `edge_index` among them.
        edge_weight: of an `edge_index`, [E]; None: ones in float32.
        num_nodes: n of an `edge_index`; None: its largest number and 1.

    Returns:
        [n, n], dtype and device of `adjacency`, columns ascending in each row.

    Raises:
        ValueError: the matrix is not square, columns of a row do not ascend, or a row sum with the self loop is
            negative or NaN.

    Precision: sums in float64, in a fixed order; two runs agree bit for bit.
    Cost: O(nnz) time; a few numbers per row and per block of 2^20 entries beside the result.

    Example:
        >>> import torch
        >>> gcn_norm(Csr.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))).to_dense()
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    adjacency = as_csr(adjacency, edge_weight, num_nodes, op="gcn_norm")
    n = adjacency.n_rows
    if adjacency.n_cols != n:
        raise ValueError(f"gcn_norm: adjacency must be square, got shape {list(adjacency.shape)}")
    row = adjacency.disordered_row()
    if row is not None:
        raise ValueError(f"gcn_norm: adjacency must have ascending columns in each row, those of row {row} do not")
    looped = with_loops(adjacency)
    degree = row_sums(looped)
    _check_degree(degree)
    values = torch.empty_like(looped.values)
    scale = degree.rsqrt().masked_fill(degree == 0, 0.0)
    for first, last in row_parts(looped):
        entries, counts = _entries(looped, first, last)
        begins, ends = scale[first:last].repeat_interleave(counts), scale.index_select(0, looped.indices[entries])
        values[entries] = (begins * looped.values[entries].double() * ends).to(values.dtype)
    return Csr.unchecked(looped.indptr, looped.indices, values, n)


def _check_degree(degree: Tensor) -> None:
    wrong = ~(degree >= 0)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        got = f"{float(degree[row]):g} in row {row}"
        raise ValueError(
            f"gcn_norm: adjacency must have row sums >= 0 with the self loops, got {got}: its weights must be >= 0"
        )


def _entries(a: Csr, first: int, last: int) -> tuple[slice, Tensor]:
    """Returns the entries of rows [first, last), and how many each has, int64."""
    ends = a.indptr[first : last + 1]
    return slice(int(ends[0]), int(ends[-1])), ends.diff()


def with_loops(a: Csr) -> Csr:
    """Returns A [n, n] with an entry 1 on the diagonal of each row that has none; columns ascend in each row."""
    n = a.n_rows
    has_loop = torch.zeros(n, dtype=torch.bool, device=a.device)
    before = torch.zeros(n, dtype=torch.int64, device=a.device)  # entries left of the diagonal
    for first, last in row_parts(a):
        entries, counts = _entries(a, first, last)
        rows = torch.arange(first, last, dtype=a.indices.dtype, device=a.device).repeat_interleave(counts)
        cols = a.indices[entries]
        has_loop[rows[rows == cols].long()] = True
        left = torch.zeros(cols.numel() + 1, dtype=torch.int64, device=a.device)
        torch.cumsum(cols < rows, 0, out=left[1:])
        before[first:last] = left[a.indptr[first : last + 1] - entries.start].diff()
    new = (~has_loop).nonzero().squeeze(1)
    indptr = a.indptr.clone()
    indptr[1:] += torch.cumsum(~has_loop, 0)
    added = indptr[new] + before[new]
    old = torch.ones(int(indptr[-1]), dtype=torch.bool, device=a.device)  # entries of the result that A has
    old[added] = False
    indices = a.indices.new_empty(old.numel()).masked_scatter_(old, a.indices)
    values = a.values.new_ones(old.numel()).masked_scatter_(old, a.values)
    indices[added] = new.to(indices.dtype)
    return Csr.unchecked(indptr, indices, values, n)
