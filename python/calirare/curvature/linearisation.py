"""A network linearised at its parameters, as its labelled nodes see it: one face for a GCN and for any other module."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

TINY = 1e-150  # a probability below counts as this: the inverse of a product of two is finite


@dataclass(frozen=True, eq=False)
class Kernels:
    """K = J J^T between nodes and labels, or the Jacobian that stands in for it.

    Attributes:
        own: K at the labelled nodes, [m (k - 1), m (k - 1)].
        across: K[v, T], [n_v, k - 1, m, k - 1], where it is made in closed form; else None.
        rows: the Jacobian J, [m (k - 1), p], where `across` is None.
    """

    own: Tensor
    across: Tensor | None = None
    rows: Tensor | None = None

    @property
    def form(self) -> str:
        """How it was made: "gram" or "jacobian"."""
        return "jacobian" if self.across is None else "gram"


class Linearisation(abc.ABC):
    """A network's logit differences z_c - z_0 and loss at its labelled nodes, to first and second order.

    Derivatives are by all parameters theta [p]; the Jacobian J [m (k - 1), p] is of the differences at the labelled
    nodes, all that a softmax depends on; H is the Hessian of the mean loss sum_i w_i l_i / m without penalty.

    Attributes:
        field: the labelled nodes: an evaluation field has `nodes`, int64 [n_v], and `rows`, the nodes that each layer
            reads, the first layer's first.
        logits: z at the labelled nodes, [m, k], without gradient.
        targets: their classes, int64 [m].
        sample_weights: w_i, [m].
    """

    field: Any
    logits: Tensor
    targets: Tensor
    sample_weights: Tensor

    @property
    def n_nodes(self) -> int:
        """Number of labelled nodes, m."""
        return self.targets.numel()

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return self.logits.shape[1]

    @property
    @abc.abstractmethod
    def n_parameters(self) -> int:
        """Number of parameters, p."""

    @cached_property
    def differences(self) -> Tensor:
        """The logit differences z_c - z_0 at the labelled nodes, [m, k - 1]."""
        return logit_differences(self.logits)

    @cached_property
    def loss_terms(self) -> tuple[Tensor, Tensor]:
        """D [m, k - 1, k - 1] and e [m, k - 1] of the mean loss in the logit differences, float64.

        D_i = w_i (diag(p_i) - p_i p_i^T) / m and e_i = w_i (p_i - y_i) / m, class 0 left out.
        """
        p = torch.softmax(self.logits.double(), 1)[:, 1:]
        weight = (self.sample_weights.double() / self.n_nodes)[:, None]
        weighted = weight * p
        curvature = weighted[:, :, None] * -p[:, None, :]
        curvature.diagonal(dim1=1, dim2=2).add_(weighted)
        right = self.targets[:, None] == torch.arange(1, self.n_classes, device=p.device)
        return curvature, weight * (p - right.to(p))

    @cached_property
    def loss_roots(self) -> tuple[Tensor, Tensor]:
        """C [m, k - 1, k - 1], lower triangular, and c [m, k - 1] with D_i = C_i C_i^T and e_i = C_i c_i, float64.

        In closed form (Tanabe & Sagae 1992, "An exact Cholesky decomposition and the generalized inverse of the
        variance-covariance matrix of the multinomial distribution"), so that neither a probability near 0 nor one near
        1 costs a digit: with q_j the probability left after classes 1 .. j, class 0 included, and s = (w_i / m)^1/2,

            C_jj = s (p_j q_j / q_{j-1})^1/2,  C_lj = -s p_l (p_j / (q_j q_{j-1}))^1/2 for l > j,

        and c_j is s (p_j / (q_j q_{j-1}))^1/2 before the label's class, -s (q_j / (p_j q_{j-1}))^1/2 at it, 0 after it.
        """
        p = torch.softmax(self.logits.double(), 1).clamp(min=TINY)
        left = torch.cat([p[:, 1:], p[:, :1]], 1).flip(1).cumsum(1).flip(1)  # q_{j-1}; class 0 counts last
        own, before, after = p[:, 1:], left[:, :-1], left[:, 1:]
        scale = (self.sample_weights.double() / self.n_nodes).sqrt()[:, None]
        along = scale * (own / (after * before)).sqrt()
        roots = torch.tril(-own[:, :, None] * along[:, None, :], -1)
        roots.diagonal(dim1=1, dim2=2).copy_(scale * (own * after / before).sqrt())
        place, label = torch.arange(1, self.n_classes, device=p.device), self.targets[:, None]
        at = -scale * (after / (own * before)).sqrt()
        passed = (label > 0) & (place > label)  # class 0 is the last one
        errors = torch.where(place == label, at, along).masked_fill(passed, 0.0)
        return roots, errors

    @property
    @abc.abstractmethod
    def jacobian(self) -> Tensor:
        """J, the rows d (z_c - z_0)(i) / d theta, [m (k - 1), p]."""

    @cached_property
    def kernel(self) -> Tensor:
        """K = J J^T at the labelled nodes, [m (k - 1), m (k - 1)]."""
        rows = self.jacobian
        return rows @ rows.T

    def kernels(self, field: Any) -> Kernels:
        """Returns K at the labelled nodes, and what leads from coefficients of labels to changes at a field's nodes."""
        return Kernels(self.kernel, rows=self.jacobian)

    def jvp(self, vectors: Tensor) -> Tensor:
        """Returns J v for each row v of [b, p]: [b, m, k - 1]."""
        return (vectors @ self.jacobian.T).view(-1, self.n_nodes, self.n_classes - 1)

    def vjp(self, seeds: Tensor) -> Tensor:
        """Returns J^T u [b, p] for seeds u of the logit differences, [b, m, k - 1]."""
        return seeds.flatten(1) @ self.jacobian

    @abc.abstractmethod
    def change_along(self, field: Any, directions: Tensor) -> Tensor:
        """Returns the derivative of a field's logit differences along directions [b, p]: [n_v, k - 1, b]."""

    def change_of(self, field: Any, kernels: Kernels, coefficients: Tensor) -> Tensor:
        """Returns K[v, T] alpha for columns alpha [m (k - 1), c]: [n_v, k - 1, c]."""
        if kernels.across is not None:
            n, k, m, _ = kernels.across.shape
            across = kernels.across.reshape(n * k, m * k)
            return (across @ coefficients.to(across.dtype)).reshape(n, k, coefficients.shape[1])
        assert kernels.rows is not None
        return self.change_along(field, coefficients.T.to(kernels.rows.dtype) @ kernels.rows)


def logit_differences(logits: Tensor) -> Tensor:
    """Returns z_c - z_0 for c = 1 .. k - 1, all that a softmax depends on: [.., k] -> [.., k - 1]."""
    return logits[..., 1:] - logits[..., :1]


def with_class_zero(differences: Tensor) -> Tensor:
    """Returns logits [n, k] with class 0 at 0 from differences to it, [n, k - 1]."""
    return torch.cat([differences.new_zeros(differences.shape[0], 1), differences], 1)
