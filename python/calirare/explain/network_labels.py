"""What leaving labels out of a network, or adding some, does to the logits of some nodes.

In differences to class 0, with J the Jacobian at the labels, D = C C^T and e = C c curvature and gradient of their
losses (`Linearisation.loss_roots`) and H = J^T D J + mu I, a Newton step without the set G of labels moves node v by

    J_v H^-1 J_G^T C_G (I - R_GG)^-1 c_G,   R = C^T J H^-1 J^T C

(see `calirare.leave_one_out.formula`). A label y more at node c, of weight a, moves it by

    -J_v H^-1 J_c^T a (p(z) - e_y),   z = z_c - J_c H^-1 J_c^T a (p(z) - e_y).

By the smaller of B = mu I + C^T K C (dual) and H (primal); where both are large, by conjugate gradients for the nodes
that are explained, with each label's mean leverage, which is sampled, in the place of its block.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from calirare._util.errors import NotConvergedError
from calirare._util.torch_state import threads_for
from calirare.curvature import (
    GcnLinearisation,
    Linearisation,
    gauss_newton,
    linearise,
    logit_differences,
    positive_inverse,
    symmetric_system,
)
from calirare.explain.explainable_model import PAGE
from calirare.explain.proximal_label_update import resting_gradients
from calirare.leave_one_out import primal_directions, sampled_leverages
from calirare.models import GcnFit
from calirare_ext import ReceptiveField, SolverStatus, part_of_field, solve_inverse_hvp

CLOSED_FORM = 6_000  # labels times k - 1, or parameters if they are fewer, up to which that matrix is factored
TOLERANCE, MAX_STEPS = 1e-4, 500  # of conjugate gradients
PASS = 16_000_000  # numbers of the rows that are solved for together


class NetworkLabels(abc.ABC):
    """Labels of a network, left out by one damped Gauss-Newton step with leverage correction.

    Args:
        fitted: the network with its labels.
        damping: mu > 0.

    Attributes:
        expensive: whether each node costs a system of equations.
    """

    expensive = False

    def __init__(self, fitted: GcnFit, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"NetworkLabels: damping must be positive, got {damping}")
        self.fitted, self.damping = fitted, damping
        self.linearised = fitted.linearisation
        self.roots, self.error = self.linearised.loss_roots  # C [m, k - 1, k - 1], c [m, k - 1]

    def change(self, field: ReceptiveField) -> Tensor:
        """Returns how the logits of a field's nodes change without each label, class 0 fixed, float64 [m, n, k]."""
        return pad(self._without_each(field), (1, 0))

    def change_without(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """Returns how they change without each set of labels (places, int64), float64 [s, n, k]."""
        return pad(self._without_sets(field, sets), (1, 0))

    def change_with(self, field: ReceptiveField, more: ReceptiveField, logits: Tensor) -> Tensor:
        """Returns how the logits of a field's nodes change with a label at each of other nodes, float64 [k, c, n, k].

        Args:
            field: of the nodes.
            more: of the nodes that would have a label, c of them.
            logits: of these, float64 [c, k].

        Returns:
            The first index is the label, which weighs what labels of its class weigh on average.
        """
        parts, n_classes, width = [], logits.shape[1], self.error.shape[1]
        for own, z in zip(self._jacobians(more), logit_differences(logits).split(self._step), strict=True):
            solved = self.inverse_rows(own)
            leverages = solved.view(-1, width, own.shape[1]) @ own.double().view(-1, width, own.shape[1]).mT
            across = self._on(solved, field).view(len(z), width, -1, width)
            labels = torch.arange(n_classes).repeat_interleave(len(z))
            every = z.repeat(n_classes, 1), leverages.repeat(n_classes, 1, 1), self._worth[labels], labels
            pull = resting_gradients(*every).view(n_classes, *z.shape)
            parts.append(-torch.einsum("yci,cinj->ycnj", pull, across))
        return pad(torch.cat(parts, 1), (1, 0))

    @abc.abstractmethod
    def _without_each(self, field: ReceptiveField) -> Tensor:
        """Returns the changes of differences to class 0 without each label, [m, n, k - 1]."""

    @abc.abstractmethod
    def _without_sets(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """Returns them without each set of labels, [s, n, k - 1]."""

    @abc.abstractmethod
    def inverse_rows(self, rows: Tensor) -> Tensor:
        """Returns rows [b, p] times H^-1, float64 [b, p]."""

    @property
    def _step(self) -> int:
        """How many nodes' rows are made together."""
        return max(1, PASS // max(self.linearised.n_parameters * self.error.shape[1], 1))

    def _parts(self, field: ReceptiveField) -> Iterator[ReceptiveField]:
        """Yields the fields of a few nodes at a time."""
        n = field.nodes.numel()
        some = torch.arange(n, device=field.nodes.device).split(self._step)
        yield from [field] if n <= self._step else (part_of_field(field, places) for places in some)

    def _jacobians(self, field: ReceptiveField) -> Iterator[Tensor]:
        """Yields the rows of `jacobian_at`, a few nodes' at a time."""
        return (jacobian_at(self.fitted, part) for part in self._parts(field))

    def _on(self, rows: Tensor, field: ReceptiveField) -> Tensor:
        """Returns rows [b, p] times J^T of a field's nodes, float64 [b, n (k - 1)]."""
        return torch.cat([rows @ some.double().T for some in self._jacobians(field)], 1)

    @cached_property
    def _worth(self) -> Tensor:
        """What a label of each class weighs in the mean loss, [k]; of a class without labels the mean weight."""
        weights, targets = self.fitted.sample_weights.double(), self.fitted.targets
        each = [weights[targets == y] for y in range(self.linearised.n_classes)]
        return torch.stack([(some if some.numel() else weights).mean() for some in each]) / weights.numel()

    def _rows(self, places: Tensor) -> Tensor:
        """Returns where the differences of some labels stand among those of all, int64 [g (k - 1)]."""
        width = self.error.shape[1]
        return (places[:, None] * width + torch.arange(width)).flatten()

    def _rotated(self, across: Tensor) -> Tensor:
        """Returns rows against the labels' differences, [.., m (k - 1)], times C, [.., m, k - 1]."""
        m, width = self.error.shape
        return torch.einsum("...mi,mij->...mj", across.double().view(*across.shape[:-1], m, width), self.roots)


class DualLabels(NetworkLabels):
    """By the inverse of B, of m (k - 1) rows; changes are K[v, T] times coefficients."""

    @cached_property
    def inverse(self) -> Tensor:
        """B^-1, float64 [m (k - 1), m (k - 1)]."""
        with threads_for(self.error.numel() ** 3):
            return positive_inverse(symmetric_system(self.roots, self.linearised.kernel, self.damping))

    @cached_property
    def coefficients(self) -> Tensor:
        """Returns a column of coefficients for each label, float64 [m (k - 1), m]."""
        m, width = self.error.shape
        blocks = self.inverse.view(m, width, m, width).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        label_steps = torch.linalg.solve(self.damping * blocks, self.error[:, :, None])
        mixed = torch.bmm(self.inverse.view(m * width, m, width).transpose(0, 1), label_steps)  # [m, m (k - 1), 1]
        return self._turned(mixed[:, :, 0].T)

    def _without_each(self, field: ReceptiveField) -> Tensor:
        """See `NetworkLabels`."""
        return self._along(field, self.coefficients)

    def _without_sets(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """See `NetworkLabels`."""
        mixed = self.inverse.new_zeros(self.inverse.shape[0], len(sets))
        for column, places in enumerate(sets):
            rows = self._rows(places)
            left = self.damping * self.inverse[rows[:, None], rows]
            mixed[:, column] = self.inverse[:, rows] @ torch.linalg.solve(left, self.error[places].flatten())
        return self._along(field, self._turned(mixed))

    def _turned(self, mixed: Tensor) -> Tensor:
        """Returns C times columns, [m (k - 1), c]."""
        m, width = self.error.shape
        return torch.bmm(self.roots, mixed.reshape(m, width, -1)).view(m * width, -1)

    def _along(self, field: ReceptiveField, coefficients: Tensor) -> Tensor:
        """Returns J_v J^T times coefficients [m (k - 1), c], float64 [c, n, k - 1]."""
        across = self.linearised.kernels(field).across
        if across is None:
            rows = jacobian_at(self.fitted, field) @ self.linearised.jacobian.T
            across = rows.view(field.nodes.numel(), -1, *self.error.shape)
        return (across.flatten(2).double() @ coefficients).permute(2, 0, 1)

    def inverse_rows(self, rows: Tensor) -> Tensor:
        """See `NetworkLabels.inverse_rows`: (I - J^T C B^-1 C^T J) / mu, by Woodbury's identity."""
        labels, rows = self.fitted.field, rows.double()
        by_label = self._turned((self._rotated(self._on(rows, labels)).flatten(1) @ self.inverse).T).T
        out, width = rows.clone(), self.error.shape[1]
        for some, own in zip(by_label.split(self._step * width, 1), self._jacobians(labels), strict=True):
            out.addmm_(some, own.double(), alpha=-1)
        return out.div_(self.damping)


class PrimalLabels(NetworkLabels):
    """By the p x p matrix H, of fewer parameters than differences of labels; changes are J_v times directions."""

    @cached_property
    def factor(self) -> Tensor:
        """The Cholesky factor of H, float64 [p, p]."""
        hessian = gauss_newton(self.rows.flatten(0, 1), self.linearised.loss_terms[0])
        hessian.diagonal().add_(self.damping)
        return torch.linalg.cholesky(hessian)

    @cached_property
    def rows(self) -> Tensor:
        """J, [m, k - 1, p]."""
        return self.linearised.jacobian.view(*self.error.shape, -1)

    @cached_property
    def directions(self) -> Tensor:
        """Returns a direction in parameter space for each label, float64 [p, m]."""
        return primal_directions(self.linearised, self.damping)[0].T

    def _without_each(self, field: ReceptiveField) -> Tensor:
        """See `NetworkLabels`."""
        return self._along(field, self.directions)

    def _without_sets(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """See `NetworkLabels`."""
        directions = self.factor.new_zeros(self.factor.shape[0], len(sets))
        for column, places in enumerate(sets):
            rows = torch.einsum("gip,gij->gjp", self.rows[places].double(), self.roots[places]).flatten(0, 1)  # C^T J
            solved = self.inverse_rows(rows).T
            left = torch.eye(len(rows)).double() - rows @ solved
            directions[:, column] = solved @ torch.linalg.solve(left, self.error[places].flatten())
        return self._along(field, directions)

    def _along(self, field: ReceptiveField, directions: Tensor) -> Tensor:
        """Returns J_v times directions [p, c], float64 [c, n, k - 1]."""
        moved = jacobian_at(self.fitted, field).double() @ directions
        return moved.view(field.nodes.numel(), -1, directions.shape[1]).permute(2, 0, 1)

    def inverse_rows(self, rows: Tensor) -> Tensor:
        """See `NetworkLabels.inverse_rows`."""
        return torch.cholesky_solve(rows.double().T, self.factor).T


class IterativeLabels(NetworkLabels):
    """By conjugate gradients, for labels and parameters too many for either matrix; leverages are sampled."""

    expensive = True
    _last: tuple[ReceptiveField, Tensor] | None = None

    @cached_property
    def label_steps(self) -> Tensor:
        """(I - R_ii)^-1 c_i of each label, its block of leverage taken for its mean times the identity, [m, k - 1]."""
        assert isinstance(self.linearised, GcnLinearisation)
        return self.error / (1 - sampled_leverages(self.linearised, self.damping))[:, None]

    def _without_each(self, field: ReceptiveField) -> Tensor:
        """See `NetworkLabels`."""
        return torch.einsum("nami,mi->mna", self._influence(field), self.label_steps)

    def _without_sets(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """See `NetworkLabels`."""
        influence = self._influence(field)
        out = influence.new_zeros(len(sets), *influence.shape[:2])
        for row, places in enumerate(sets):
            pull = torch.linalg.solve(self._left(places), self.error[places].flatten())
            out[row] = influence[:, :, places].flatten(2) @ pull
        return out

    def _influence(self, field: ReceptiveField) -> Tensor:
        """Returns J_v H^-1 J^T C of a field's nodes, float64 [n, k - 1, m, k - 1], once of the last field."""
        if self._last is None or self._last[0] is not field:
            rows = self._against_labels(jacobian_at(self.fitted, field))
            self._last = field, rows.view(field.nodes.numel(), -1, *rows.shape[1:])
        return self._last[1]

    def _left(self, places: Tensor) -> Tensor:
        """Returns I - R among some labels, float64 [g (k - 1), g (k - 1)]."""
        (m, width), g = self.error.shape, places.numel()
        seeds = self.linearised.logits.new_zeros(g, width, m, width)
        seeds[torch.arange(g), :, places] = self.roots[places].mT.to(seeds.dtype)
        among = self._against_labels(self.linearised.vjp(seeds.view(g * width, m, width)))
        return torch.eye(g * width).double() - among[:, places].flatten(1)

    def _against_labels(self, rows: Tensor) -> Tensor:
        """Returns X H^-1 J^T C for rows X [b, p], float64 [b, m, k - 1]."""
        return self._rotated(self.linearised.jvp(self._solved(rows)).flatten(1))

    def inverse_rows(self, rows: Tensor) -> Tensor:
        """See `NetworkLabels.inverse_rows`."""
        return self._solved(rows).double()

    def _solved(self, rows: Tensor) -> Tensor:
        """Returns rows [b, p] times H^-1 by conjugate gradients, in their dtype."""
        linearised: Linearisation = self.linearised
        assert isinstance(linearised, GcnLinearisation)
        found = solve_inverse_hvp(
            linearised, rows, damping=self.damping, curvature="ggn", tolerance=TOLERANCE, max_iterations=MAX_STEPS
        )
        if bool((found.status != SolverStatus.CONVERGED).any()):
            raise NotConvergedError(f"explain: conjugate gradients ended with {found.summary()}: train again")
        return found.x


def jacobian_at(fitted: GcnFit, field: ReceptiveField) -> Tensor:
    """Returns the Jacobian of the differences z_c - z_0 at a field's nodes, [n (k - 1), p]."""
    zeros = torch.zeros(field.nodes.numel(), dtype=torch.int64, device=field.nodes.device)
    return linearise(field, [(w.detach(), b.detach()) for w, b in fitted.model.layers()], zeros).jacobian


def network_labels(fitted: GcnFit, damping: float) -> NetworkLabels:
    """Returns the labels of a network in the form of the smaller matrix, or in none where both are large."""
    p, rows = _size(fitted)
    if min(p, rows) > CLOSED_FORM:
        return IterativeLabels(fitted, damping)
    return PrimalLabels(fitted, damping) if p < rows else DualLabels(fitted, damping)


def label_work(fitted: GcnFit) -> float:
    """Returns the multiply-adds, roughly, of `network_labels` and of `PAGE` nodes, see `ExplainableModel`."""
    p, rows = _size(fitted)
    if min(p, rows) > CLOSED_FORM:
        return float(MAX_STEPS) * rows * p * PAGE
    side = min(p, rows)
    return 10.0 * side**3 + (6.0 * rows * p**2 if p < rows else 0.0) + PAGE * float(rows) * side


def _size(fitted: GcnFit) -> tuple[int, int]:
    """Returns the number of parameters, and of differences of labels, m (k - 1)."""
    return fitted.linearisation.n_parameters, fitted.nodes.numel() * (fitted.linearisation.n_classes - 1)
