"""One layer, z = S W + b: its Gauss-Newton matrix by classes, without a Jacobian; exact, and as a preconditioner.

With x_i = (S_i, 1) and F_i = w_i (diag(p_i) - p_i p_i^T) / m the matrix is sum_i x_i x_i^T (x) F_i. Every F_i maps the
direction (1, .., 1), in which all classes move alike, to 0: with E [k - 1, k] of rows e_c - e_0 and E E^T = L L^T the
k - 1 directions Q = L^-1 E are orthonormal, and F_i = Q^T B_i Q with B_i = L^T D_i L, D_i the curvature in the logit
differences (`Linearisation.loss_terms`). Block (a, b) of the (d + 1) (k - 1) numbers that are left is X^T diag(B_ab) X,
for k / 2 products of [d, m] and [m, d] instead of one of [p, m k] and [m k, p]: 1 / 2 k of the arithmetic.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeGuard

import torch
from torch import Tensor

from calirare.curvature.gcn import GcnLinearisation, closed_form
from calirare.curvature.ggn import positive_inverse
from calirare.curvature.linearisation import Linearisation
from calirare_ext import as_dense


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
