"""J^T D J, the Gauss-Newton matrix, and its damped inverse where there are fewer parameters than labels: p x p."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.curvature.dual import GgnInverse
from calirare.curvature.linearisation import Linearisation, Product

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
    """Returns how many labels are worked on together."""
    return max(1, BLOCK_NUMBERS // numbers_of_each)


class PrimalGgnInverse:
    """v -> (J^T D J + damping I)^-1 v by Cholesky, see `GgnInverse`, whose twin it is.

    Args:
        linearised: the network at its parameters.
        damping: mu > 0.

    Cost: m (k - 1) p^2 + p^3 / 3 multiply-adds once; p^2 per vector.
    """

    def __init__(self, linearised: Linearisation, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"PrimalGgnInverse: damping must be positive, got {damping}")
        matrix = gauss_newton(linearised.jacobian, linearised.loss_terms[0])
        matrix.diagonal().add_(damping)
        self.factor = torch.linalg.cholesky(matrix)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Returns the product with each row of [b, p]."""
        return torch.cholesky_solve(vectors.double().T, self.factor).T.to(vectors)


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


def inverse_ggn(linearised: Linearisation, damping: float) -> Product:
    """Returns v -> (J^T D J + damping I)^-1 v for rows of [b, p]: in the primal where p is below m (k - 1)."""
    fewer = linearised.n_parameters < linearised.n_nodes * (linearised.n_classes - 1)
    return PrimalGgnInverse(linearised, damping) if fewer else GgnInverse(linearised, damping)
