"""How much of one node's label reaches another along the edges, by walks from both ends that meet on the way.

Asked for is sum_{t = 1..T} alpha^t (S^t)_vu with S = D^-1/2 A D^-1/2, which is symmetric, so that

    (S^{a + b})_vu = <S^a e_v, S^b e_u>:

a steps from v and b from u tell of walks of a + b. The first steps from a node touch few others; a little later each
takes a product with every edge. So sources take steps, once, as long as these are cheap, and the nodes that are
explained take what is left of T. Once nodes have spent as much on products with every edge as it would take to walk on
from the sources until none is left to nodes, sources walk on; that happens once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare.graph import scipy_of_csr
from calirare_ext import Csr, propagate

CHEAP = 4_000_000  # multiply-adds of a step of all sources that is taken at once
FEW = 8  # a step goes along the edges of the nodes that walks have come to where these are at most this part of all
TOGETHER = 32  # walks at once: 128 bytes of each node, so that a million nodes may stay in the cache
NARROW = 16  # columns that a product with every edge costs as much as, however few it has
KEPT = 2**28  # numbers of walks from sources that are kept at most, 1 GB
Spare = list[Tensor]  # memory of dense walks that nobody needs any more


class BidirectionalWalk:
    """Walks from nodes that meet those of sources.

    Args:
        matrix: S, float32, symmetric, [n, n].
        sources: int64 [s].
        reach: alpha, in (0, 1).
        steps: T >= 1.
    """

    def __init__(self, matrix: Csr, sources: Tensor, reach: float, steps: int) -> None:
        self.matrix, self.sources, self.reach = matrix, sources, reach
        self.spent = 0  # columns of products with every edge
        self.few = steps  # that nodes took without one, the least seen
        self._sparse, self._edges = scipy_of_csr(matrix), matrix.indptr.diff().numpy()
        walks, taken = self._start(sources), 0
        self._met: Any = 0 * walks  # sum_{b >= 1} alpha^b S^b e_u of the steps that sources take, [s, n]
        while taken < steps and self._cost(walks) <= CHEAP:
            walks, taken = walks @ self._sparse, taken + 1
            self._met = self._met + np.float32(reach**taken) * walks
        self._ends, self._taken, self.steps = walks, taken, steps - taken

    def of(self, nodes: Tensor) -> Tensor:
        """Returns sum_t alpha^t (S^t)_vu of nodes v and sources u, float64 [n, s]."""
        n, s = self.matrix.n_rows, self.sources.numel()
        more = self.steps - max(self.few - 1, 0)  # one further than seen so far: among others are nodes with more edges
        stopped = not isinstance(self._met, Tensor)
        if stopped and more > 0 and self.spent >= more * s and n * s <= KEPT:
            self._walk_on(more)
        spare: Spare = []
        parts = [self._of(some, spare) for some in nodes.split(TOGETHER)]
        return torch.cat(parts) if parts else torch.zeros(0, s, dtype=torch.float64)

    def _of(self, nodes: Tensor, spare: Spare) -> Tensor:
        """Returns `of` of nodes that walk at once."""
        out = torch.zeros(nodes.numel(), self.sources.numel(), dtype=torch.float64)
        walks, few = self._start(nodes), 0
        for taken in range(1, self.steps + 1):
            walks = self._step(walks, spare)
            few += not isinstance(walks, Tensor)
            out += self.reach**taken * self._at_sources(walks)
        self.few, self.spent = min(self.few, few), self.spent + (self.steps - few) * max(nodes.numel(), NARROW)
        if self._taken:
            out += self.reach**self.steps * self._meet(walks)
        if isinstance(walks, Tensor):
            spare.append(walks)
        return out

    def _walk_on(self, more: int) -> None:
        """Takes further steps from the sources: what they bring to every node is kept from here on, float32 [n, s]."""
        out, spare = torch.empty(self.matrix.n_rows, self.sources.numel()), list[Tensor]()
        for first in range(0, self.sources.numel(), TOGETHER):
            some = slice(first, first + TOGETHER)
            walks, met = (dense(ends, self._room(ends.shape[0], spare)) for ends in (self._ends[some], self._met[some]))
            for taken in range(self._taken + 1, self._taken + more + 1):
                walks = self._step(walks, spare)
                met.add_(walks, alpha=self.reach**taken)
            out[:, some] = met
            spare += [walks, met]
        self._met, self._taken, self.steps = out, self._taken + more, self.steps - more

    def _start(self, nodes: Tensor) -> Any:
        """Returns walks of no step, as scipy's sparse rows, float32 [b, n]."""
        import scipy.sparse as sp

        n, ends = nodes.numel(), np.arange(nodes.numel() + 1, dtype=np.int32)
        at = nodes.numpy().astype(self._sparse.indices.dtype)
        return sp.csr_array((np.ones(n, np.float32), at, ends), shape=(n, self.matrix.n_rows))

    def _cost(self, walks: Any) -> int:
        """Returns the multiply-adds of a step of sparse walks."""
        return int(self._edges[walks.indices].sum())

    def _step(self, walks: Any, spare: Spare) -> Any:
        """Returns walks one step on: sparse [b, n] while few edges lead on, then dense [n, b]; dense ones are spent."""
        if not isinstance(walks, Tensor):
            if FEW * self._cost(walks) <= self.matrix.nnz:
                return walks @ self._sparse
            walks = dense(walks, self._room(walks.shape[0], spare))
        out = propagate(self.matrix, walks, out=self._room(walks.shape[1], spare))
        spare.append(walks)
        return out

    def _room(self, b: int, spare: Spare) -> Tensor:
        """Returns memory for dense walks, [n, b]: the system takes longer to hand out fresh pages than to fill them."""
        size = self.matrix.n_rows * b
        for place, held in enumerate(spare):
            if held.numel() >= size:
                return spare.pop(place).view(-1)[:size].view(-1, b)
        return torch.empty(self.matrix.n_rows, b)

    def _at_sources(self, walks: Any) -> Tensor:
        """Returns what walks bring to the sources, [b, s]."""
        if isinstance(walks, Tensor):
            return walks[self.sources].T
        return torch.from_numpy(walks[:, self.sources.numpy()].toarray())

    def _meet(self, walks: Any) -> Tensor:
        """Returns <walks, met>, [b, s]."""
        met = self._met
        if isinstance(walks, Tensor):
            return walks.T @ met if isinstance(met, Tensor) else torch.from_numpy((met @ walks.numpy()).T)
        return torch.from_numpy(walks @ met.numpy() if isinstance(met, Tensor) else (walks @ met.T).toarray())


def dense(walks: Any, out: Tensor) -> Tensor:
    """Returns sparse walks [b, n] as columns, [n, b], written into `out`."""
    rows = np.repeat(np.arange(walks.shape[0]), np.diff(walks.indptr))
    out.zero_()[torch.from_numpy(walks.indices).long(), torch.from_numpy(rows)] = torch.from_numpy(walks.data)
    return out
