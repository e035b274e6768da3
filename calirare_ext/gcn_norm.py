"""The propagation matrix of a graph convolution."""

from __future__ import annotations

import torch

from calirare_ext.csr import Csr


def gcn_norm(adjacency: Csr) -> Csr:
    """Returns A_hat = D^-1/2 (A + I) D^-1/2 (Kipf & Welling 2017, Eq. 2; the convention of PyG's GCNConv).

    A node without a self loop gets one of weight 1; a self loop that is there keeps its weight. D holds the row sums
    with the self loops. An isolated node becomes a row with the single entry 1.

    Args:
        adjacency: square [n, n], weights >= 0, columns ascending in each row.

    Returns:
        [n, n], dtype and device of `adjacency`, columns ascending in each row.

    Raises:
        ValueError: the matrix is not square.

    Example:
        >>> import torch
        >>> gcn_norm(Csr.from_dense(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))).to_dense()
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    n = adjacency.n_rows
    if adjacency.n_cols != n:
        raise ValueError(f"gcn_norm: adjacency must be square, got shape {list(adjacency.shape)}")
    rows, cols = adjacency.rows(), adjacency.indices.long()
    has_loop = torch.zeros(n, dtype=torch.bool, device=adjacency.device)
    has_loop[rows[rows == cols]] = True
    new = (~has_loop).nonzero().squeeze(1)
    values = torch.cat([adjacency.values, adjacency.values.new_ones(new.numel())])
    with_loops = Csr.from_coo(torch.cat([rows, new]), torch.cat([cols, new]), values, (n, n))
    degree = torch.zeros(n, dtype=torch.float64, device=adjacency.device)
    degree.index_add_(0, with_loops.rows(), with_loops.values.double())
    scale = degree.rsqrt().masked_fill(degree == 0, 0.0)
    normalised = scale[with_loops.rows()] * with_loops.values.double() * scale[with_loops.indices.long()]
    return Csr(with_loops.indptr, with_loops.indices, normalised.to(adjacency.dtype), n)
