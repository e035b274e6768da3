"""(J^T D J + damping I)^-1, the inverse of the damped Gauss-Newton matrix, through its dual: nothing is p x p.

By the identity of Woodbury, with K = J J^T [m (k - 1), m (k - 1)] and D the block diagonal curvature of the loss,

    (J^T D J + mu I)^-1 = (I - J^T (mu I + D K)^-1 D J) / mu,

so that a system of the number of labels is solved in place of one of the number of parameters.
"""

from __future__ import annotations

import torch
from scipy.linalg.lapack import dpotri
from torch import Tensor

from calirare.curvature.linearisation import Linearisation


def dual_system(curvature: Tensor, kernel: Tensor, damping: float) -> Tensor:
    """Returns damping I + D K, [m (k - 1), m (k - 1)], float64.

    Args:
        curvature: D, [m, k - 1, k - 1].
        kernel: K, [m (k - 1), m (k - 1)].
        damping: mu.
    """
    m, k, _ = curvature.shape
    rows = kernel.double().reshape(m, k, m * k)
    system = (curvature * rows if k == 1 else curvature @ rows).reshape(m * k, m * k)
    system.diagonal().add_(damping)
    return system


def symmetric_system(roots: Tensor, kernel: Tensor, damping: float) -> Tensor:
    """Returns damping I + C^T K C [m (k - 1), m (k - 1)], float64, from C [m, k - 1, k - 1] with D = C C^T."""
    system = turned(roots, kernel.double())
    system.diagonal().add_(damping)
    return system


def turned(roots: Tensor, matrix: Tensor) -> Tensor:
    """Returns C^T A C [m k, m k] of a symmetric A, C block diagonal, [m, k, k]."""
    m, k, _ = roots.shape
    left = roots.mT.contiguous()
    half = torch.bmm(left, matrix.view(m, k, m * k)).view(m * k, m * k)
    return torch.bmm(left, half.T.reshape(m, k, m * k)).view(m * k, m * k)


def positive_inverse(system: Tensor) -> Tensor:
    """Returns the inverse of a symmetric positive definite matrix, float64 [N, N], contiguous."""
    factor = torch.linalg.cholesky(system)
    if factor.device.type != "cpu":
        return torch.cholesky_inverse(factor).contiguous()
    # LAPACK's routine, 1.5 times faster as scipy calls it than as torch does (N = 3,600). It sees L^T, by columns.
    found, failed = dpotri(factor.contiguous().numpy().T, lower=0, overwrite_c=1)
    if failed:
        raise ValueError(f"positive_inverse: system must be positive definite, dpotri ended with {failed}")
    half = torch.from_numpy(found.T).tril_()
    return half + half.tril(-1).mT


class GgnInverse:
    """v -> (J^T D J + damping I)^-1 v, exact up to rounding.

    Symmetric positive definite, so it may precondition conjugate gradients on the exact Hessian.

    Args:
        linearised: the network at its parameters.
        damping: mu > 0.
        kernel: K at the labelled nodes, where it is known already.

    Cost: one kernel and an m (k - 1) system in float64 once; per vector one forward and one backward product.
    """

    def __init__(self, linearised: Linearisation, damping: float, kernel: Tensor | None = None) -> None:
        if not damping > 0:
            raise ValueError(f"GgnInverse: damping must be positive, got {damping}")
        self.linearised, self.damping = linearised, damping
        curvature, _ = linearised.loss_terms
        m, k, _ = curvature.shape
        known = linearised.kernel if kernel is None else kernel
        if k > 1:  # (mu + D K)^-1 D = C B^-1 C^T, in a third of the time
            inverse = positive_inverse(symmetric_system(linearised.loss_roots[0], known, damping))
            self.inner = turned(linearised.loss_roots[0].mT, inverse).to(linearised.logits.dtype)
            return
        system = dual_system(curvature, known, damping)
        blocks = torch.zeros(m, k, m, k, dtype=torch.float64, device=curvature.device)
        blocks.diagonal(dim1=0, dim2=2).copy_(curvature.permute(1, 2, 0))
        inner = torch.linalg.solve(system, blocks.view(m * k, m * k))
        self.inner = ((inner + inner.T) / 2).to(linearised.logits.dtype)  # (mu + D K)^-1 D is symmetric

    def __call__(self, vectors: Tensor) -> Tensor:
        """Returns the product with each row of [b, p]."""
        moved = self.linearised.jvp(vectors)
        b, m, k = moved.shape
        inner = (moved.reshape(b, m * k) @ self.inner).view(b, m, k)
        return (vectors - self.linearised.vjp(inner)) / self.damping
