"""The Gauss-Newton matrix J^T D J: its damped inverse, by a system of parameters or one of labels, and its hats.

One layer, z = S W + b, needs no Jacobian. With x_i = (S_i, 1) and F_i = w_i (diag(p_i) - p_i p_i^T) / m the matrix is
sum_i x_i x_i^T (x) F_i. Every F_i maps the direction (1, .., 1), in which all classes move alike, to 0: with E [k - 1,
k] of rows e_c - e_0 and E E^T = L L^T the k - 1 directions Q = L^-1 E are orthonormal, and F_i = Q^T B_i Q with
B_i = L^T D_i L, D_i the curvature in the logit differences (`Linearisation.loss_terms`). Block (a, b) of the (d + 1)
(k - 1) numbers that are left is X^T diag(B_ab) X, for k / 2 products of [d, m] and [m, d] instead of one of [p, m k]
and [m k, p]: 1 / 2 k of the arithmetic.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeGuard

import torch
from scipy.linalg.lapack import dpotri
from torch import Tensor

from calirare.curvature.gcn import GcnLinearisation, closed_form
from calirare.curvature.linearisation import Linearisation
from calirare_ext import as_dense

BLOCK_NUMBERS = 16_000_000  # numbers of the Jacobian worked on together in float64


def gauss_newton(rows: Tensor, curvature: Tensor) -> Tensor:
    """Returns J^T D J [p, p] in float64, from J [m (k - 1), p] and D [m, k - 1, k - 1], some labels at a time.

    One layer of two classes has its parameters in pairs, one of each class, and z_1 - z_0 opposite gradients in both:
    J = X (x) [-1, 1], so that J^T D J = X^T D X (x) [[1, -1], [-1, 1]], for a quarter of the arithmetic.
    """
    if _in_opposite_pairs(rows, curvature):
        pair = rows.new_tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
        return torch.kron(gauss_newton(rows[:, 1::2], curvature), pair)
    k, p = curvature.shape[1], rows.shape[1]
    labels = block_of_labels(p * k)
    out = rows.new_zeros(p, p, dtype=torch.float64)
    for part, bent in zip(rows.split(labels * k), curvature.split(labels), strict=True):
        wide = part.double()
        out.addmm_(wide.T, (bent @ wide.view(-1, k, p)).flatten(0, 1))
    return out


def distinct_columns(rows: Tensor, curvature: Tensor) -> Tensor:
    """Returns rows of the same J J^T: of opposite pairs of columns (see `gauss_newton`) one each, times sqrt(2)."""
    return rows[:, 1::2] * 2**0.5 if _in_opposite_pairs(rows, curvature) else rows


def _in_opposite_pairs(rows: Tensor, curvature: Tensor) -> bool:
    even = curvature.shape[1] == 1 and rows.shape[1] % 2 == 0 and rows.shape[1] > 0
    return even and torch.equal(rows[:, ::2], -rows[:, 1::2])


def block_of_labels(numbers_of_each: int) -> int:
    """Returns how many labels are processed together."""
    return max(1, BLOCK_NUMBERS // numbers_of_each)


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
    """v -> (J^T D J + damping I)^-1 v, exact up to rounding, by the smaller of two systems.

    With at least as many parameters as m (k - 1): the dual, by Woodbury's identity with K = J J^T and D = C C^T,
    (J^T D J + mu I)^-1 = (I - J^T C (mu I + C^T K C)^-1 C^T J) / mu. With fewer: Cholesky of the p x p matrix.
    Symmetric positive definite, so it may precondition conjugate gradients on the exact Hessian.

    Args:
        linearised: the network at its parameters.
        damping: mu > 0.

    Cost: dual: one kernel and an m (k - 1) system in float64 once; per vector one forward and one backward product.
    Primal: m (k - 1) p^2 + p^3 / 3 multiply-adds once; p^2 per vector.
    """

    def __init__(self, linearised: Linearisation, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"GgnInverse: damping must be positive, got {damping}")
        self.linearised, self.damping = linearised, damping
        self.primal = linearised.n_parameters < linearised.n_nodes * (linearised.n_classes - 1)
        if self.primal:
            matrix = gauss_newton(linearised.jacobian, linearised.loss_terms[0])
            matrix.diagonal().add_(damping)
            self.system = torch.linalg.cholesky(matrix)
            return
        roots = linearised.loss_roots[0]
        inverse = positive_inverse(symmetric_system(roots, linearised.kernel, damping))
        self.system = turned(roots.mT, inverse).to(linearised.logits.dtype)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Returns the product with each row of [b, p]."""
        if self.primal:
            return torch.cholesky_solve(vectors.double().T, self.system).T.to(vectors)
        moved = self.linearised.jvp(vectors)
        inner = (moved.flatten(1) @ self.system).view(moved.shape)
        return (vectors - self.linearised.vjp(inner)) / self.damping


class SpectralHat:
    """damping -> J_i (J^T D J + damping I)^-1 J_i^T of each label i, [m, k - 1, k - 1], float64.

    The spectrum J^T D J = Q diag(lambda) Q^T is computed once; with G = J Q, J_i .. J_i^T = G_i (lambda + mu)^-1 G_i^T.

    Args:
        linearised: the network at its labelled nodes.

    Cost: m (k - 1) p^2 multiply-adds and one spectrum, once; m (k - 1)^2 p per damping. m (k - 1) p float64 are kept.
    """

    def __init__(self, linearised: Linearisation) -> None:
        curvature = linearised.loss_terms[0]
        rows, k = distinct_columns(linearised.jacobian, curvature), curvature.shape[1]
        self.block = block_of_labels(rows.shape[1] * k)
        values, vectors = torch.linalg.eigh(gauss_newton(rows, curvature))
        self.values = values.clamp_(min=0)
        self.rows = torch.empty_like(rows, dtype=torch.float64)  # G
        for part, turned in zip(rows.split(self.block * k), self.rows.split(self.block * k), strict=True):
            torch.matmul(part.double(), vectors, out=turned)
        self.rows = self.rows.view(-1, k, rows.shape[1])

    def __call__(self, damping: float) -> Tensor:
        """Returns the blocks with a damping mu > 0."""
        inverse = 1 / (self.values + damping)
        return torch.cat([(part * inverse) @ part.mT for part in self.rows.split(self.block)])


def is_one_layer(linearised: Linearisation) -> TypeGuard[GcnLinearisation]:
    """Returns whether the network is one layer, linear in its parameters."""
    return closed_form(linearised) and len(linearised.layers) == 1


def inputs_with_one(linearised: GcnLinearisation) -> Tensor:
    """Returns x_i = (S_i, 1), float64 [m, d + 1]."""
    inputs = as_dense(linearised.field.features).double()
    return torch.cat([inputs, inputs.new_ones(inputs.shape[0], 1)], 1)


class OneLayerHat:
    """damping -> P_i = J_i (J^T D J + damping I)^-1 J_i^T of every label, float64 [m, k - 1, k - 1].

    Args:
        linearised: a network of one layer.

    Cost: for each damping q^3 + m q (d + 1) multiply-adds with q = (d + 1) (k - 1); 2 q^2 numbers.
    """

    def __init__(self, linearised: GcnLinearisation) -> None:
        self.inputs = inputs_with_one(linearised)
        self.curvature = linearised.loss_terms[0]
        k = self.curvature.shape[1]
        self.root = torch.linalg.cholesky(self.inputs.new_ones(k, k).fill_diagonal_(2.0))  # L

    @cached_property
    def matrix(self) -> Tensor:
        """The Gauss-Newton matrix in the directions Q, ordered by class, [q, q]."""
        bent = self.root.T @ self.curvature @ self.root  # B
        (_, d), k = self.inputs.shape, bent.shape[1]
        out = self.inputs.new_empty(k, d, k, d)
        for a in range(k):
            for b in range(a, k):
                block = (self.inputs * bent[:, a, b, None]).T @ self.inputs
                out[a, :, b], out[b, :, a] = block, block.T
        return out.view(k * d, k * d)

    def __call__(self, damping: float) -> Tensor:
        """Returns the blocks with a damping mu > 0."""
        (m, d), k = self.inputs.shape, self.root.shape[0]
        system = self.matrix.clone()
        system.diagonal().add_(damping)
        inverse = positive_inverse(system).view(k, d, k, d)
        inner = self.inputs.new_empty(m, k, k)
        for a in range(k):
            for b in range(a, k):
                inner[:, a, b] = inner[:, b, a] = ((self.inputs @ inverse[a, :, b]) * self.inputs).sum(1)
        return self.root @ inner @ self.root.T


class OneLayerPreconditioner:
    """v -> (J^T D J + damping I)^-1 v with every F_i as if it bent all directions Q alike; of two classes it is exact.

    With s_i = tr(F_i) / (k - 1) the matrix is (X^T diag(s) X) (x) Q^T Q, and one system of the smaller of d + 1 and m
    serves all classes, against one of k - 1 times its side.

    Args:
        linearised: a network of one layer.
        damping: mu > 0.

    Cost: min(m, d)^2 max(m, d) + min(m, d)^3 / 3 multiply-adds once; k d min(m, d) per vector.
    """

    def __init__(self, linearised: GcnLinearisation, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"OneLayerPreconditioner: damping must be positive, got {damping}")
        p = torch.softmax(linearised.logits.double(), 1)
        bent = linearised.sample_weights.double() / linearised.n_nodes * (1 - p.square().sum(1)) / (p.shape[1] - 1)
        self.scaled, self.damping = inputs_with_one(linearised) * bent.sqrt()[:, None], damping
        m, d = self.scaled.shape
        self.dual = m < d
        system = self.scaled @ self.scaled.T if self.dual else self.scaled.T @ self.scaled
        system.diagonal().add_(damping)
        self.factor = torch.linalg.cholesky(system)

    def __call__(self, vector: Tensor) -> Tensor:
        """Returns the product with a vector [p]."""
        columns = vector.double().view(self.scaled.shape[1], -1)
        alike = columns.mean(1, keepdim=True)
        apart = columns - alike
        if self.dual:
            inner = torch.cholesky_solve(self.scaled @ apart, self.factor)
            found = (apart - self.scaled.T @ inner) / self.damping
        else:
            found = torch.cholesky_solve(apart, self.factor)
        return (found + alike / self.damping).reshape(-1).to(vector)
