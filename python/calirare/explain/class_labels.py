"""What leaving labels out of a network of many classes does to the logits of some nodes.

The formula is that of `network_labels`, with blocks of the k - 1 differences of logits to class 0 in the place of
numbers. With D = C C^T and e = C c (`Linearisation.loss_roots`), J_v the Jacobian at a node and H = J^T D J + mu I the
damped Gauss-Newton matrix, a Newton step of the loss without the set G of labels moves the parameters by

    H^-1 J_G^T C_G (I - R_GG)^-1 c_G,   R = C^T J H^-1 J^T C,

and node v by J_v times that. In the dual, with B = mu I + C^T K C, it is J^T C B^-1[:, G] (mu B^-1_GG)^-1 c_G; in the
primal H is factored: whichever matrix is smaller. Where both are large conjugate gradients solve for the nodes that are
asked about, and of each label alone the mean leverage, which is sampled, takes the place of its block.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from calirare._util.torch_state import threads_for
from calirare.curvature import (
    GcnLinearisation,
    gauss_newton,
    positive_inverse,
    symmetric_system,
)
from calirare.explain.network_labels import CLOSED_FORM, jacobian_at, solved
from calirare.leave_one_out import primal_directions, sampled_leverages
from calirare.models import GcnFit
from calirare_ext import ReceptiveField


class ClassLabels(abc.ABC):
    """Labels of a network of k > 2 classes, left out by one damped Gauss-Newton step with leverage correction.

    Args:
        fitted: the network with its labels.
        damping: mu > 0.

    Attributes:
        expensive: whether each node that is asked about costs a system of equations.
    """

    expensive = False

    def __init__(self, fitted: GcnFit, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"ClassLabels: damping must be positive, got {damping}")
        self.fitted, self.damping = fitted, damping
        self.linearised = fitted.linearisation
        self.roots, self.error = self.linearised.loss_roots  # C [m, k - 1, k - 1], c [m, k - 1]

    def change(self, field: ReceptiveField) -> Tensor:
        """Returns how the logits of a field's nodes change without each label, class 0 fixed, float64 [m, n, k]."""
        return _with_class_zero(self._alone(field))

    def change_without(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """Returns how they change without each set of labels (places, int64), float64 [s, n, k]."""
        return _with_class_zero(self._together(field, sets))

    @abc.abstractmethod
    def _alone(self, field: ReceptiveField) -> Tensor:
        """Returns the changes of differences to class 0 without each label, [m, n, k - 1]."""

    @abc.abstractmethod
    def _together(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """Returns them without each set of labels, [s, n, k - 1]."""

    def _rows(self, places: Tensor) -> Tensor:
        """Returns where the differences of some labels stand among those of all, int64 [g (k - 1)]."""
        width = self.error.shape[1]
        return (places[:, None] * width + torch.arange(width)).flatten()

    def _rotated(self, across: Tensor) -> Tensor:
        """Returns rows against the labels' differences, [.., m (k - 1)], times C, [.., m, k - 1]."""
        m, width = self.error.shape
        return torch.einsum("...mi,mij->...mj", across.double().view(*across.shape[:-1], m, width), self.roots)


class DualClassLabels(ClassLabels):
    """By the inverse of B, of m (k - 1) rows; changes are K[v, T] times coefficients."""

    @cached_property
    def inverse(self) -> Tensor:
        """B^-1, float64 [m (k - 1), m (k - 1)]."""
        with threads_for(self.error.numel() ** 3):
            return positive_inverse(symmetric_system(self.roots, self.linearised.kernel, self.damping))

    @cached_property
    def coefficients(self) -> Tensor:
        """Of each label alone, float64 [m (k - 1), m]."""
        m, width = self.error.shape
        blocks = self.inverse.view(m, width, m, width).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        pulls = torch.linalg.solve(self.damping * blocks, self.error[:, :, None])
        mixed = torch.bmm(self.inverse.view(m * width, m, width).transpose(0, 1), pulls)  # [m, m (k - 1), 1]
        return self._turned(mixed[:, :, 0].T)

    def _alone(self, field: ReceptiveField) -> Tensor:
        """See `ClassLabels`."""
        return self._along(field, self.coefficients)

    def _together(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """See `ClassLabels`."""
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


class PrimalClassLabels(ClassLabels):
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
        """Of each label alone, float64 [p, m]."""
        return primal_directions(self.linearised, self.damping)[0].T

    def _alone(self, field: ReceptiveField) -> Tensor:
        """See `ClassLabels`."""
        return self._along(field, self.directions)

    def _together(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """See `ClassLabels`."""
        directions = self.factor.new_zeros(self.factor.shape[0], len(sets))
        for column, places in enumerate(sets):
            rows = torch.einsum("gip,gij->gjp", self.rows[places].double(), self.roots[places]).flatten(0, 1)  # C^T J
            solved = torch.cholesky_solve(rows.T, self.factor)
            left = torch.eye(len(rows)).double() - rows @ solved
            directions[:, column] = solved @ torch.linalg.solve(left, self.error[places].flatten())
        return self._along(field, directions)

    def _along(self, field: ReceptiveField, directions: Tensor) -> Tensor:
        """Returns J_v times directions [p, c], float64 [c, n, k - 1]."""
        moved = jacobian_at(self.fitted, field).double() @ directions
        return moved.view(field.nodes.numel(), -1, directions.shape[1]).permute(2, 0, 1)


class IterativeClassLabels(ClassLabels):
    """By conjugate gradients, for labels and parameters too many for either matrix; leverages are sampled."""

    expensive = True
    _last: tuple[ReceptiveField, Tensor] | None = None

    @cached_property
    def pulls(self) -> Tensor:
        """(I - R_ii)^-1 c_i of each label, its block of leverage taken for its mean times the identity, [m, k - 1]."""
        assert isinstance(self.linearised, GcnLinearisation)
        return self.error / (1 - sampled_leverages(self.linearised, self.damping))[:, None]

    def _alone(self, field: ReceptiveField) -> Tensor:
        """See `ClassLabels`."""
        return torch.einsum("nami,mi->mna", self._influence(field), self.pulls)

    def _together(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """See `ClassLabels`."""
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
        return self._rotated(self.linearised.jvp(solved(self.linearised, rows, self.damping)).flatten(1))


def class_labels(fitted: GcnFit, damping: float) -> ClassLabels:
    """Returns the labels of a network in the form of the smaller matrix, or in none where both are large."""
    p, rows = fitted.linearisation.n_parameters, fitted.nodes.numel() * (fitted.linearisation.n_classes - 1)
    if min(p, rows) > CLOSED_FORM:
        return IterativeClassLabels(fitted, damping)
    return PrimalClassLabels(fitted, damping) if p < rows else DualClassLabels(fitted, damping)


def _with_class_zero(differences: Tensor) -> Tensor:
    """Returns changes of differences to class 0 [.., k - 1] as changes of logits [.., k], 0 of class 0."""
    return torch.nn.functional.pad(differences, (1, 0))
