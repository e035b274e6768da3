"""Row orders that keep neighbours together, so that a sparse product finds rows of X in cache."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from calirare_ext.csr import Csr

RowOrder = Literal["rcm", "community"]


def row_order(a: Csr, kind: RowOrder = "rcm") -> Tensor:
    """Returns a permutation of the rows in which rows with common columns stand near each other.

    Args:
        a: square, with a symmetric pattern (edges in both directions), on any device.
        kind: "rcm": reverse Cuthill-McKee (George & Liu 1981), by SciPy, milliseconds; "community": Louvain
            communities (Blondel et al. 2008), by networkx, each in reverse Cuthill-McKee order: seconds, and a better
            order for graphs that have communities.

    Returns:
        int64 [n_rows] on the CPU: first the row to be computed first.

    Raises:
        ValueError: `a` is not square or the kind is unknown.
        ModuleNotFoundError: "community" without networkx.

    Source: George & Liu (1981); Blondel et al., "Fast unfolding of communities in large networks" (2008).
    """
    if a.n_rows != a.n_cols:
        raise ValueError(f"row_order: a must be square, got shape {a.shape}")
    if kind not in ("rcm", "community"):
        raise ValueError(f"row_order: kind must be rcm or community, got {kind!r}")
    if a.n_rows == 0:
        return torch.zeros(0, dtype=torch.int64)
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ones = np.ones(a.nnz, dtype=np.float32)  # the pattern alone: an entry of weight 0 is read all the same
    pattern = csr_matrix((ones, a.indices.cpu().numpy(), a.indptr.cpu().numpy()), shape=a.shape)
    if kind == "rcm":
        return torch.from_numpy(reverse_cuthill_mckee(pattern, symmetric_mode=True).astype(np.int64))
    try:
        import networkx
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("row_order: kind 'community' needs networkx: pip install networkx") from error
    groups = networkx.community.louvain_communities(networkx.from_scipy_sparse_array(pattern), seed=0)
    parts = []
    for group in sorted(groups, key=lambda rows: (-len(rows), min(rows))):
        rows = np.array(sorted(group), dtype=np.int64)
        parts.append(rows[reverse_cuthill_mckee(pattern[rows][:, rows].tocsr(), symmetric_mode=True)])
    return torch.from_numpy(np.concatenate(parts))
