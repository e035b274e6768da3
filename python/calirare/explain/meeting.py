"""How much of what one node says reaches another along the edges, by walks from both ends that meet on the way.

Asked for is sum_{t = 1..T} alpha^t (S^t)_vu with S = D^-1/2 A D^-1/2, which is symmetric, so that

    (S^{a + b})_vu = <S^a e_v, S^b e_u>:

a steps from v and b from u tell of walks of a + b. The first steps from a node touch few others; a little later each
takes a product with every edge. So sources take steps, once, as long as these are cheap, and the nodes that are asked
about take what is left of T: along the edges of the nodes that they have come to while these are few, then along all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calirare.graph import scipy_of_csr
from calirare_ext import Csr, propagate

CHEAP = 4_000_000  # multiply-adds of a step of all sources that is taken
FEW = 16  # a step along the edges of some nodes is taken where they are at most this part of all edges
TOGETHER = 64  # nodes that walk at once


class Meeting:
    """Walks from nodes that meet those of sources.

    Args:
        matrix: S, float32, symmetric, [n, n].
        sources: int64 [s].
        reach: alpha, in (0, 1).
        steps: T >= 1.
    """

    def __init__(self, matrix: Csr, sources: Tensor, reach: float, steps: int) -> None:
        self.matrix, self.sources, self.reach = matrix, sources, reach
        self.edges = self.matrix.indptr.diff()
        self.met, taken = self._from_sources(steps)
        self.steps = steps - taken

    def of(self, nodes: Tensor) -> Tensor:
        """Returns sum_t alpha^t (S^t)_vu of nodes v and sources u, float64 [n, s]."""
        parts = [self._of(some) for some in nodes.split(TOGETHER)]
        return torch.cat(parts) if parts else torch.zeros(0, self.sources.numel(), dtype=torch.float64)

    def _from_sources(self, steps: int) -> tuple[Csr, int]:
        """Returns sum_{b >= 1} alpha^b S^b e_u of the steps that sources take, [s, n], and how many these are."""
        import scipy.sparse as sp

        shape, matrix, edges = (self.sources.numel(), self.matrix.n_rows), scipy_of_csr(self.matrix), self.edges.numpy()
        ends = np.arange(shape[0] + 1, dtype=np.int32)
        walk = sp.csr_array((np.ones(shape[0], np.float32), self.sources.numpy().astype(np.int32), ends), shape=shape)
        met, taken = sp.csr_array(shape, dtype=np.float32), 0
        while taken < steps and edges[walk.indices].sum() <= CHEAP:
            walk, taken = walk @ matrix, taken + 1
            met = met + np.float32(self.reach**taken) * walk
        met.sort_indices()
        indptr, indices, values = (torch.from_numpy(part) for part in (met.indptr, met.indices, met.data))
        return Csr.unchecked(indptr.long(), indices, values, shape[1]), taken

    def _of(self, nodes: Tensor) -> Tensor:
        """Returns `of` of nodes that walk at once."""
        walk, at = torch.zeros(self.matrix.n_rows, nodes.numel()), nodes
        walk[nodes, torch.arange(nodes.numel())] = 1
        out = torch.zeros(nodes.numel(), self.sources.numel(), dtype=torch.float64)
        for taken in range(1, self.steps + 1):
            few = FEW * int(self.edges[at].sum()) <= self.matrix.nnz
            walk, at = self._along(walk, at) if few else (propagate(self.matrix, walk), at)
            out += self.reach**taken * walk[self.sources].T
        return out + self.reach**self.steps * propagate(self.met, walk).T

    def _along(self, walk: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Returns S walk, [n, b], along the edges of the nodes that walks have come to, and where they come then."""
        some, reached = self.matrix.select_rows(at), torch.zeros(walk.shape[0], dtype=torch.bool)
        reached[some.indices.long()] = True
        return torch.from_numpy(scipy_of_csr(some).T @ walk[at].numpy()), reached.nonzero().flatten()
