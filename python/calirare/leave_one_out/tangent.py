"""A network that was stopped before its minimum as a model of its labels that has one.

What a label did to such a network adds up along the way, at the pace at which Adam moves each parameter; a Newton step
from where it stands knows of neither. Its tangent does: with J the Jacobian of the logit differences z_c - z_0 and
P = 1 / sqrt(v), v the mean squares of the gradient as Adam holds them,

    min_u  sum_i w_i l_i(J_i P^1/2 u) / m + mu / 2 |u|^2,

begins at no knowledge, as training does, and ends at its own minimum, where leaving labels out has a closed form. The
penalty mu stands for the epochs that were taken. It is the one with which the tangent moves most as the networks do
that were trained without each fold of the labels, and one factor gives its moves their size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as kept
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.threads import threads_for
from calirare.curvature import Forward, Kernels, Linearisation, NodeField, dual_system, gauss_newton, with_class_zero
from calirare_ext import SolverResult, block_cg

FEW = 0.25  # share of the parameters, up to which it pays to leave out those that a gradient does not have
NEWTON_STEPS, HALVINGS = 50, 20
ARRIVED = 1e-9  # fall of the loss, relative to it, that ends them


@dataclass(frozen=True, eq=False)
class Features:
    """What a linear model of logit differences reads at its labels.

    Attributes:
        field: the labelled nodes.
        targets: their classes, int64 [m].
        sample_weights: w_i, [m].
        jacobian: J, [m (k - 1), p].
        rows_at: the same of the nodes of any field, [n (k - 1), p].
    """

    field: NodeField
    targets: Tensor
    sample_weights: Tensor
    jacobian: Tensor
    rows_at: Callable[[NodeField], Tensor]
    _across: WeakKeyDictionary[NodeField, Tensor] = kept(default_factory=WeakKeyDictionary, init=False)

    @property
    def dual(self) -> bool:
        """Whether J J^T is the smaller matrix."""
        return self.jacobian.shape[0] <= self.jacobian.shape[1]

    @cached_property
    def kernel(self) -> Tensor:
        """K = J J^T, float64 [m (k - 1), m (k - 1)]."""
        rows = self.jacobian.double()
        return rows @ rows.T

    def across(self, some: NodeField) -> Tensor:
        """Returns J_v J^T of a field's nodes, [n (k - 1), m (k - 1)]; once of each field while it is there."""
        if some is self.field:
            return self.kernel
        if some not in self._across:
            self._across[some] = products(self.rows_at(some), self.jacobian)
        return self._across[some]

    @cached_property
    def start(self) -> Tensor:
        """The coordinates of no knowledge: of coefficients of labels where `dual`, else of parameters."""
        return self.jacobian.new_zeros(min(self.jacobian.shape), dtype=torch.float64)


class LinearModel(Linearisation[NodeField]):
    """`Linearisation` of z = J u, at some u: exact, to every order.

    Args:
        features: what it reads.
        coordinates: a with u = J^T a where `features.dual`, else u, float64; None: u = 0.
    """

    def __init__(self, features: Features, coordinates: Tensor | None = None) -> None:
        self.features, self.field, self.targets = features, features.field, features.targets
        self.sample_weights = features.sample_weights.double()
        self.coordinates = features.start if coordinates is None else coordinates
        read = features.kernel if features.dual else features.jacobian.double()
        self.logits = with_class_zero((read @ self.coordinates).view(self.targets.numel(), -1))

    @property
    def n_parameters(self) -> int:
        """Number of parameters, p."""
        return self.features.jacobian.shape[1]

    @property
    def jacobian(self) -> Tensor:
        """See `Linearisation.jacobian`."""
        return self.features.jacobian

    @property
    def kernel(self) -> Tensor:
        """See `Linearisation.kernel`; float64."""
        return self.features.kernel

    def kernels(self, field: NodeField) -> Kernels:
        """See `Linearisation.kernels`."""
        across = self.features.across(field).view(field.nodes.numel(), -1, self.n_nodes, self.n_classes - 1)
        return Kernels(self.kernel, across)

    def jvp(self, vectors: Tensor) -> Tensor:
        """See `Linearisation.jvp`."""
        return (vectors @ self.jacobian.T).view(-1, self.n_nodes, self.n_classes - 1)

    def vjp(self, seeds: Tensor) -> Tensor:
        """See `Linearisation.vjp`."""
        return seeds.flatten(1) @ self.jacobian

    def hvp(self, vectors: Tensor, *, damping: float = 0.0) -> Tensor:
        """See `Linearisation.hvp`: J^T D J, all that there is of it."""
        bent = torch.einsum("mij,bmj->bmi", self.loss_terms[0].to(vectors), self.jvp(vectors))
        return self.vjp(bent).add_(vectors, alpha=damping)

    def change_along(self, field: NodeField, directions: Tensor, forward: Forward = "linearised") -> Tensor:
        """See `Linearisation.change_along`; both ways are the same."""
        del forward
        rows = self.features.rows_at(field)
        return (rows @ directions.to(rows).T).view(field.nodes.numel(), -1, directions.shape[0])

    def solve(self, rhs: Tensor, *, damping: float, tolerance: float, max_iterations: int, precondition: Any) -> Any:
        """See `Linearisation.solve`."""
        found: SolverResult = block_cg(
            lambda v: self.hvp(v, damping=damping),
            rhs,
            tolerance=tolerance,
            max_iterations=max_iterations,
            precondition=precondition,
        )
        return found

    def loss(self, damping: float) -> float:
        """Returns sum_i w_i l_i / m + damping / 2 |u|^2."""
        losses = F.cross_entropy(self.logits, self.targets, reduction="none")
        at = self.coordinates
        square = at @ self.differences.flatten() if self.features.dual else at @ at
        return float((self.sample_weights * losses).mean() + damping / 2 * square)

    def minimum(self, damping: float) -> LinearModel:
        """Returns the model at the minimum of `loss`, by Newton's steps, each as short as it must be to lower it."""
        here, loss = self, self.loss(damping)
        for _ in range(NEWTON_STEPS):
            there, lower = here._lower(here._newton(damping), damping, loss)
            if not lower < loss - ARRIVED * abs(loss):
                break
            here, loss = there, lower
        return here

    def _lower(self, to: Tensor, damping: float, loss: float) -> tuple[LinearModel, float]:
        """Returns the first point on the way to coordinates where the loss is lower, and the loss there."""
        way = to - self.coordinates
        for _ in range(HALVINGS):
            there = LinearModel(self.features, self.coordinates + way)
            lower = there.loss(damping)
            if lower < loss:
                return there, lower
            way = way / 2
        return self, loss

    def _newton(self, damping: float) -> Tensor:
        """Returns the coordinates of the minimum of the loss to second order: u = (J^T D J + mu I)^-1 J^T (D z - e)."""
        curvature, error = self.loss_terms
        pull = (torch.einsum("mij,mj->mi", curvature, self.differences) - error).flatten()
        with threads_for(self.coordinates.numel() ** 3):
            if self.features.dual:
                return torch.linalg.solve(dual_system(curvature, self.kernel, damping), pull)
            right = self.jacobian.double().T @ pull
            return torch.cholesky_solve(right[:, None], torch.linalg.cholesky(self._hessian(damping)))[:, 0]

    @cached_property
    def _gauss_newton(self) -> Tensor:
        """J^T D J, float64 [p, p]."""
        return gauss_newton(self.jacobian, self.loss_terms[0])

    def _hessian(self, damping: float) -> Tensor:
        """Returns J^T D J + damping I, float64 [p, p]."""
        out = self._gauss_newton.clone()
        out.diagonal().add_(damping)
        return out

    def moved_without(self, places: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """Returns how u changes without some labels (places, int64), by a Newton step, and their rows of J.

        For fewer parameters than labels, of which there may be very many: nothing is as large as labels by labels.

        Returns:
            float64 [p] and [g (k - 1), p].
        """
        curvature, error = self.loss_terms
        rows = self.jacobian.view(*error.shape, -1)[places].flatten(0, 1).double()
        left = self._hessian(damping) - gauss_newton(rows, curvature[places])
        return torch.linalg.solve(left, rows.T @ error[places].flatten()), rows


def products(rows: Tensor, jacobian: Tensor) -> Tensor:
    """Returns rows [n, p] times J^T, [n, m]; where the rows hold few numbers that are not 0, by these alone.

    What a node reads has few of the words that there are, and a gradient holds nothing of the others.
    """
    used = rows.any(0).nonzero().flatten()
    turned = jacobian.T
    if not turned.is_contiguous() or used.numel() > FEW * rows.shape[1]:
        return rows @ turned
    return rows[:, used] @ turned[used]
