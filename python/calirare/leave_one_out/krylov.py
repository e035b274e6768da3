"""Own leave-one-out changes where labels times classes are too many for a dense system: a subspace, and what is left.

Of B = mu I + A with A = C^T K C (`formula`) only the diagonal blocks of the inverse are wanted, one per label. Block
Lanczos makes an orthonormal Q [N, r] that holds A's large eigenvalues; with S = Q^T A Q the inverse within it is
Q (S + mu I)^-1 Q^T. Of the rest two blocks of every label are known exactly: how much of the label lies outside,
T_i = I - Q_i Q_i^T, and the curvature there, E_i = A_ii - Q_i S Q_i^T. Choi's inequality for the operator convex 1 / x
(Choi 1974, "A Schwarz inequality for positive linear maps on C*-algebras") bounds what the rest adds to the block from
below, and the bound is what is added:

    (B^-1)_ii = Q_i (S + mu I)^-1 Q_i^T + T_i (mu T_i + E_i)^-1 T_i.

It is exact where the rest of A is a multiple of the identity, such as 0, and errs by its spread squared otherwise. The
subspace grows until the own changes of a sample of labels stand still. A is never made: a column costs a product with
each hidden unit's share of K, or one derivative forward and one backward.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import MOST_BYTES, Linearisation
from calirare.leave_one_out.result import Size

BLOCK = 128  # columns that one step adds: products of such width are near a processor's best
MOST, HIDDEN = 1_000, 32  # columns and hidden units that an estimate of memory counts on
SAMPLE = 128  # labels whose own changes are watched
WORK = 10**11  # multiply-adds of a damping, N r^2, beyond which the subspace grows no more, from `MOST` columns on
TINY = 1e-300  # in place of a norm of 0
TOLERANCE = 0.01  # of the own changes, by their norm; leave-one-out formulas err by ten times as much


class KrylovOwn:
    """damping -> own changes [m, k - 1] of every label, float64, from a subspace that all dampings share.

    Args:
        linearised: the network at the labelled nodes.
        tolerance: relative error of own changes, by their norm, at which the subspace is large enough, > 0.

    Attributes:
        error: what the sample's changes from block to block let expect of the blocks left out; 0 where there are none,
            above the tolerance where the subspace grew as large as it may.

    Precision: the subspace in the network's dtype, r x r systems and blocks of labels in float64.
    Cost: r products with K and 2 N r^2 multiply-adds once, N r^2 for each damping; N r numbers.
    """

    def __init__(self, linearised: Linearisation, tolerance: float = TOLERANCE) -> None:
        self.tolerance, self.error = tolerance, 0.0
        self.roots, self.whitened = linearised.loss_roots
        self.m, self.k = self.whitened.shape
        like = linearised.logits
        self.narrow = self.roots.to(like.dtype)
        self.kernel = linearised.kernel_products()
        self.own_blocks = self.roots.mT @ self.kernel.blocks.double() @ self.roots  # A_ii
        self.basis = like.new_empty(self.m * self.k, 0)
        self.inner = torch.zeros(0, 0, dtype=torch.float64, device=like.device)
        self.outer = torch.zeros_like(self.own_blocks)  # Q_i S Q_i^T, of the present basis
        self.good_for = float("inf")  # the smallest damping the subspace was grown for
        generator = torch.Generator().manual_seed(0)  # of the subspace alone: the same labels give the same numbers
        start = torch.randn(self.m * self.k, min(BLOCK, self.m * self.k), generator=generator, dtype=torch.float64)
        self.next = self._product(start.to(like))
        self.sample = torch.randperm(self.m, generator=generator)[:SAMPLE].to(like.device)

    def __call__(self, damping: float) -> Tensor:
        """Returns the own changes with a damping mu > 0."""
        if not damping > 0:
            raise ValueError(f"KrylovOwn: damping must be positive, got {damping}")
        if damping < self.good_for:
            self._grow(damping)
        return self._own(damping, self.outer, slice(None))

    def _product(self, columns: Tensor) -> Tensor:
        """Returns A times columns, [N, b]."""
        b = columns.shape[1]
        moved = self.kernel(torch.bmm(self.narrow, columns.view(self.m, self.k, b)))
        return torch.bmm(self.narrow.mT, moved).reshape(self.m * self.k, b)

    def _grow(self, damping: float) -> None:
        """Adds blocks until the sample's own changes stand still at this damping."""
        seen, changes = list[Tensor](), list[float]()
        n = self.basis.shape[0]
        while self.basis.shape[1] < min(n, max(MOST, math.isqrt(WORK // n))):
            self._extend()
            seen = [*seen[-1:], self._own(damping, self._outer(self.sample), self.sample)]
            if len(seen) > 1:
                changes.append(float((seen[1] - seen[0]).norm() / seen[1].norm().clamp(min=TINY)))
            if len(changes) > 1:
                self.error = still_to_come(changes[-2], changes[-1])
                if self.error <= self.tolerance:
                    break
        if self.basis.shape[1] == n:
            self.error = 0.0
        self.outer, self.good_for = self._outer(slice(None)), damping

    def _extend(self) -> None:
        """Adds the part of A times the last block that the subspace does not hold."""
        room = self.basis.shape[0] - self.basis.shape[1]
        added = self.next[:, :room]
        for _ in range(2):  # the second time, what rounding left of the first
            added = added - self.basis @ (self.basis.T @ added)
        added = torch.linalg.qr(added)[0]
        self.basis = torch.cat([self.basis, added], 1)
        self.next = self._product(added)
        new, old = (self.basis.T @ self.next).double(), self.inner.shape[0]
        inner = new.new_zeros(old + added.shape[1], old + added.shape[1])
        inner[:old, :old], inner[:, old:], inner[old:, :old] = self.inner, new, new[:old].T
        inner[old:, old:] = (new[old:] + new[old:].T) / 2
        self.inner = inner

    def _rows(self, labels: Tensor | slice) -> Tensor:
        """Returns Q_i of some labels, [s, k - 1, r]."""
        return self.basis.view(self.m, self.k, -1)[labels]

    def _outer(self, labels: Tensor | slice) -> Tensor:
        """Returns Q_i S Q_i^T of some labels, [s, k - 1, k - 1]."""
        rows = self._rows(labels)
        return ((rows @ self.inner.to(rows.dtype)) @ rows.mT).double()

    def _own(self, damping: float, outer: Tensor, labels: Tensor | slice) -> Tensor:
        """Returns the own changes of some labels, C_i^-T (I - mu (B^-1)_ii) (mu (B^-1)_ii)^-1 c_i."""
        rows, roots, whitened = self._rows(labels), self.roots[labels], self.whitened[labels]
        system = self.inner / damping
        system.diagonal().add_(1)
        factor = torch.linalg.cholesky(system)
        identity = torch.eye(factor.shape[0], dtype=factor.dtype, device=factor.device)
        half = rows @ torch.linalg.solve_triangular(factor, identity, upper=False).T.to(rows.dtype)
        one = torch.eye(self.k, dtype=torch.float64, device=factor.device)
        outside = positive(one - (rows @ rows.mT).double())
        rest = positive((self.own_blocks[labels] - outer) / damping)
        tiny = torch.finfo(rows.dtype).eps * one  # of a label that the subspace holds wholly both are 0
        blocks = (half @ half.mT).double() + outside @ torch.linalg.solve(outside + rest + tiny, outside)
        scaled = torch.linalg.solve(blocks, whitened[:, :, None])
        return torch.linalg.solve_triangular(roots.mT, scaled - blocks @ scaled, upper=True)[:, :, 0]


def still_to_come(before: float, last: float) -> float:
    """Returns the sum of the changes to come if they go on falling as the last two did, at least the last one."""
    ratio = last / max(before, TINY)
    return last * max(1.0, ratio / (1 - ratio)) if ratio < 1 else float("inf")


def krylov_bytes(size: Size) -> int:
    """Returns an upper estimate of the memory of a subspace of as many columns as one seldom needs more."""
    columns = 3 * min(MOST, size.dual)
    kept = min(size.m * size.p * size.bytes, MOST_BYTES)  # of `UnitProducts`
    return (columns * size.dual + BLOCK * (size.p + size.rows * HIDDEN)) * size.bytes + kept + BLOCK_BYTES


def positive(blocks: Tensor) -> Tensor:
    """Returns symmetric blocks [m, k, k] without what rounding made negative."""
    values, vectors = torch.linalg.eigh((blocks + blocks.mT) / 2)
    return (vectors * values.clamp(min=0)[:, None]) @ vectors.mT
