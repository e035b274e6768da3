"""What leaving labels out of a network does to the log-odds of some nodes, each label alone or a set together.

With J the Jacobian of the log-odds at the labels, D the curvature and e the gradient of their losses, and
H = J^T D J + mu I the damped Gauss-Newton matrix, a Newton step of the loss without the set G of labels moves node v by

    q_v[G] (I - D_G Q_GG)^-1 e_G,   q_v = J_v H^-1 J^T,   Q = J H^-1 J^T

(`calirare.leave_one_out.formula`, whose formula it is for sets of one). A label y more at node c, of weight a, moves it
by

    -J_v H^-1 J_c^T a (sigma(z) - y),   z = z_c - J_c H^-1 J_c^T a (sigma(z) - y),

the minimum of its own loss beside the quadratic of the others'. In the dual q_v = K[v, T] M^-1 with
M = mu I + D K, in the primal H is factored: whichever matrix is smaller. Where both are large H is never made:
conjugate gradients solve for the nodes that are asked about, and leverages are sampled.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.torch_state import threads_for
from calirare.curvature import (
    GcnLinearisation,
    Linearisation,
    closed_form,
    dual_system,
    gauss_newton,
    gram,
    linearise,
)
from calirare.explain.proximal_label_update import pulled, pulled_together
from calirare.leave_one_out import sampled_leverages
from calirare.models import GcnFit
from calirare_ext import ReceptiveField, SolverStatus, as_dense, part_of_field, solve_inverse_hvp

CLOSED_FORM = 6_000  # labels, or parameters if they are fewer, up to which a matrix of that size is factored
TOLERANCE, MAX_STEPS = 1e-4, 500  # of conjugate gradients
PASS = 16_000_000  # numbers of the rows that are solved for together
TOGETHER = 2_000  # labels of sets that are left out together


class NetworkLabels(abc.ABC):
    """Labels of a network of two classes, left out by one damped Gauss-Newton step with leverage correction.

    Args:
        fitted: the network with its labels.
        damping: mu > 0.
    """

    def __init__(self, fitted: GcnFit, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"NetworkLabels: damping must be positive, got {damping}")
        self.fitted, self.damping = fitted, damping
        self._last: tuple[ReceptiveField, Tensor] | None = None
        self.linearised = fitted.linearisation
        curvature, error = self.linearised.loss_terms
        self.curvature, self.error = curvature[:, 0, 0], error[:, 0]

    @property
    @abc.abstractmethod
    def leverages(self) -> Tensor:
        """D_i Q_ii of each label, float64 [m]."""

    @abc.abstractmethod
    def influence(self, field: ReceptiveField) -> Tensor:
        """Returns q of a field's nodes, float64 [n, m]."""

    @abc.abstractmethod
    def among(self, places: Tensor) -> Tensor:
        """Returns Q among some labels, float64 [g, g]."""

    def _influence_on(self, field: ReceptiveField) -> Tensor:
        """Returns `influence`, once of the field that was asked for last."""
        if self._last is None or self._last[0] is not field:
            self._last = field, self.influence(field)
        return self._last[1]

    def change(self, field: ReceptiveField) -> Tensor:
        """Returns how the log-odds of a field's nodes change without each label, float64 [m, n]."""
        return (self._influence_on(field) * (self.error / (1 - self.leverages))).T

    def change_without(self, field: ReceptiveField, sets: Sequence[Tensor]) -> Tensor:
        """Returns how they change without each set of labels (places, int64), float64 [s, n]."""
        influence = self._influence_on(field)
        out = influence.new_empty(len(sets), influence.shape[0])
        largest = max([1, *(places.numel() for places in sets)])
        step = max(1, TOGETHER // largest)
        for first in range(0, len(sets), step):
            out[first : first + step] = self._without(influence, list(sets[first : first + step]))
        return out

    def _without(self, influence: Tensor, sets: list[Tensor]) -> Tensor:
        """Returns how log-odds change without each set, by systems padded to one size, [s, n]."""
        some = torch.nn.utils.rnn.pad_sequence(sets, batch_first=True, padding_value=-1)
        there, some = some >= 0, some.clamp(min=0)
        labels, place = torch.unique(some, return_inverse=True)
        own, curvature = self.among(labels), torch.where(there, self.curvature[some], 0.0)
        bracket = -curvature[:, :, None] * own[place[:, :, None], place[:, None, :]]
        bracket.masked_fill_(~there[:, None], 0.0).diagonal(dim1=1, dim2=2).add_(1.0)
        solved = torch.linalg.solve(bracket, torch.where(there, self.error[some], 0.0))
        return (influence[:, some] * solved).sum(2).T

    @abc.abstractmethod
    def inverse_rows(self, rows: Tensor) -> Tensor:
        """Returns rows [b, p] times H^-1, float64 [b, p]."""

    def change_with(self, field: ReceptiveField, more: ReceptiveField, log_odds: Tensor) -> Tensor:
        """Returns how the log-odds of a field's nodes change with a label at each of other nodes, float64 [2, c, n].

        Args:
            field: of the nodes.
            more: of the nodes that would have a label, c of them.
            log_odds: of these, float64 [c].

        Returns:
            Of labels of the rest, and of rare ones; each weighs what labels of its class do on average.
        """
        parts = []
        for own, z in zip(self._parts(more), log_odds.split(self._step), strict=True):
            leverages, across = self.between(own, field)
            pull = torch.stack([pulled(z, leverages, a, y) for y, a in enumerate(self._worth())])
            parts.append(-pull[:, :, None] * across)
        return torch.cat(parts, 1)

    def between(self, more: ReceptiveField, field: ReceptiveField) -> tuple[Tensor, Tensor]:
        """Returns J_c H^-1 J_c^T of nodes c, float64 [c], and J_c H^-1 J_v^T of them and a field's nodes, [c, n]."""
        own = jacobian_at(self.fitted, more)
        solved = self.inverse_rows(own)
        return (solved * own.double()).sum(1), self._on(solved, field)

    @property
    def _step(self) -> int:
        """How many nodes' rows are made together."""
        return max(1, PASS // max(self.linearised.n_parameters, 1))

    def _parts(self, field: ReceptiveField) -> Iterator[ReceptiveField]:
        """Yields the fields of a few nodes at a time."""
        n = field.nodes.numel()
        some = torch.arange(n, device=field.nodes.device).split(self._step)
        yield from [field] if n <= self._step else (part_of_field(field, places) for places in some)

    def _jacobians(self, field: ReceptiveField) -> Iterator[Tensor]:
        """Yields the rows of `jacobian_at`, a few nodes' at a time."""
        return (jacobian_at(self.fitted, part) for part in self._parts(field))

    def _on(self, rows: Tensor, field: ReceptiveField) -> Tensor:
        """Returns rows [b, p] times J^T of a field's nodes, float64 [b, n]."""
        return torch.cat([rows @ some.double().T for some in self._jacobians(field)], 1)

    def change_with_all(self, field: ReceptiveField, more: ReceptiveField, log_odds: Tensor, y: Tensor) -> Tensor:
        """Returns how the log-odds of a field's nodes change if other nodes all have a label, float64 [n].

        Args:
            field: of the nodes.
            more: of the nodes that would have a label, c of them.
            log_odds: of these, float64 [c].
            y: their labels, int64 [c].
        """
        own = torch.cat(list(self._jacobians(more)))
        solved = torch.cat([self.inverse_rows(some) for some in own.split(self._step)])
        worth = log_odds.new_tensor(self._worth())[y]
        pull = pulled_together(log_odds, solved @ own.double().T, worth, y)
        return -self._on((pull @ solved)[None], field)[0]

    def _worth(self) -> list[float]:
        """Returns what a label of each class weighs in the mean loss; of a class without labels the mean weight."""
        weights, targets = self.fitted.sample_weights.double(), self.fitted.targets
        each = [weights[targets == y] for y in (0, 1)]
        return [float((some if some.numel() else weights).mean()) / weights.numel() for some in each]


class DualLabels(NetworkLabels):
    """By the m x m system M = mu I + D K of the labels."""

    def __init__(self, fitted: GcnFit, damping: float) -> None:
        super().__init__(fitted, damping)
        self._across: tuple[ReceptiveField, Tensor] | None = None
        with threads_for(self.error.numel() ** 3):
            self.inverse = torch.linalg.inv(dual_system(self.linearised.loss_terms[0], self.linearised.kernel, damping))

    @property
    def leverages(self) -> Tensor:
        """1 - mu (M^-1)_ii."""
        return 1 - self.damping * self.inverse.diagonal()

    def influence(self, field: ReceptiveField) -> Tensor:
        """See `NetworkLabels.influence`."""
        kernels = self.linearised.kernels(field)
        if kernels.across is not None:
            across = kernels.across[:, 0, :, 0]
        else:
            across = jacobian_at(self.fitted, field) @ self.linearised.jacobian.T
        return across.double() @ self.inverse

    def among(self, places: Tensor) -> Tensor:
        """See `NetworkLabels.among`."""
        return self.linearised.kernel[places].double() @ self.inverse[:, places]

    def inverse_rows(self, rows: Tensor) -> Tensor:
        """See `NetworkLabels.inverse_rows`: (I - J^T M^-1 D J) / mu, by Woodbury's identity."""
        labels, rows = self.fitted.field, rows.double()
        by_label = self._on(rows, labels) @ self.inverse * self.curvature
        out = rows.clone()
        for some, own in zip(by_label.split(self._step, 1), self._jacobians(labels), strict=True):
            out.addmm_(some, own.double(), alpha=-1)
        return out.div_(self.damping)

    def between(self, more: ReceptiveField, field: ReceptiveField) -> tuple[Tensor, Tensor]:
        """See `NetworkLabels.between`: by Woodbury's identity from kernels, where they cost less than Jacobians."""
        if not self._by_kernels(more, field):
            return super().between(more, field)
        labels = self.linearised.field
        if self._across is None or self._across[0] is not field:
            self._across = field, kernel_between(self.fitted, labels, field)
        own, known = (kernel_between(self.fitted, more, each) for each in (more, labels))
        by_label = known @ self.inverse * self.curvature
        across = kernel_between(self.fitted, more, field) - by_label @ self._across[1]
        return (own.diagonal() - (by_label * known).sum(1)) / self.damping, across / self.damping

    def _by_kernels(self, more: ReceptiveField, field: ReceptiveField) -> bool:
        """Returns whether kernels between nodes are there, and cost less than Jacobians."""
        if not closed_form(self.linearised):
            return False
        wide, labels = self.fitted.model.layers()[0][0].shape[1], self.linearised.field
        read = field.rows[0].numel() + labels.nodes.numel() + more.rows[0].numel()
        asked = field.nodes.numel() + labels.nodes.numel()
        expensive = more.rows[0].numel() * read > more.nodes.numel() * asked * wide
        return not expensive and isinstance(field.features, Tensor)


class PrimalLabels(NetworkLabels):
    """By the p x p matrix H, of fewer parameters than labels."""

    def __init__(self, fitted: GcnFit, damping: float) -> None:
        super().__init__(fitted, damping)
        self.rows = self.linearised.jacobian
        hessian = gauss_newton(self.rows, self.linearised.loss_terms[0])
        hessian.diagonal().add_(damping)
        self.factor = torch.linalg.cholesky(hessian)
        self.solved = torch.cholesky_solve(self.rows.double().T, self.factor)  # [p, m]

    @property
    def leverages(self) -> Tensor:
        """D_i J_i H^-1 J_i^T."""
        return self.curvature * torch.einsum("ip,pi->i", self.rows.double(), self.solved)

    def influence(self, field: ReceptiveField) -> Tensor:
        """See `NetworkLabels.influence`."""
        return jacobian_at(self.fitted, field).double() @ self.solved

    def among(self, places: Tensor) -> Tensor:
        """See `NetworkLabels.among`."""
        return self.rows[places].double() @ self.solved[:, places]

    def inverse_rows(self, rows: Tensor) -> Tensor:
        """See `NetworkLabels.inverse_rows`."""
        return torch.cholesky_solve(rows.double().T, self.factor).T


class IterativeLabels(NetworkLabels):
    """By conjugate gradients, for labels and parameters too many for either matrix; leverages are sampled."""

    @cached_property
    def leverages(self) -> Tensor:
        """Sampled, with a relative error of about 10 %."""
        assert isinstance(self.linearised, GcnLinearisation)
        return sampled_leverages(self.linearised, self.damping)

    def influence(self, field: ReceptiveField) -> Tensor:
        """See `NetworkLabels.influence`."""
        return self._against_labels(jacobian_at(self.fitted, field))

    def among(self, places: Tensor) -> Tensor:
        """See `NetworkLabels.among`."""
        seeds = self.linearised.logits.new_zeros(places.numel(), self.error.numel(), 1)
        seeds[torch.arange(places.numel()), places] = 1
        return self._against_labels(self.linearised.vjp(seeds))[:, places]

    def _against_labels(self, rows: Tensor) -> Tensor:
        """Returns R H^-1 J^T for rows R [b, p], float64 [b, m]."""
        return self.linearised.jvp(solved(self.linearised, rows, self.damping))[:, :, 0].double()

    def inverse_rows(self, rows: Tensor) -> Tensor:
        """See `NetworkLabels.inverse_rows`."""
        return solved(self.linearised, rows, self.damping).double()


def solved(linearised: Linearisation[Any], rows: Tensor, damping: float) -> Tensor:
    """Returns R H^-1 of rows R [b, p] by conjugate gradients, in their dtype.

    Raises:
        NotConvergedError: they end before the tolerance.
    """
    assert isinstance(linearised, GcnLinearisation)
    found = solve_inverse_hvp(
        linearised, rows, damping=damping, curvature="ggn", tolerance=TOLERANCE, max_iterations=MAX_STEPS
    )
    if bool((found.status != SolverStatus.CONVERGED).any()):
        raise NotConvergedError(f"explain: conjugate gradients ended with {found.summary()}: train again")
    return found.x


def jacobian_at(fitted: GcnFit, field: ReceptiveField) -> Tensor:
    """Returns the Jacobian of the log-odds at a field's nodes, [n, p]; of more classes of z_c - z_0, [n (k - 1), p]."""
    nobody = torch.zeros(field.nodes.numel(), dtype=torch.int64, device=field.nodes.device)
    return linearise(field, [(w.detach(), b.detach()) for w, b in fitted.model.layers()], nobody).jacobian


def kernel_between(fitted: GcnFit, some: ReceptiveField, others: ReceptiveField) -> Tensor:
    """Returns J J^T between the nodes of two fields of dense features, without a Jacobian, float64 [n, m]."""
    layers = [(w.detach().double(), b.detach().double()) for w, b in fitted.model.layers()]
    wide = [
        ReceptiveField(each.rows, as_dense(each.features).double(), tuple(a.to(torch.float64) for a in each.blocks))
        for each in (some, others)
    ]
    nobody = torch.zeros(others.nodes.numel(), dtype=torch.int64, device=others.nodes.device)
    return gram(linearise(wide[1], layers, nobody), wide[0])[:, 0, :, 0]


def network_labels(fitted: GcnFit, damping: float) -> NetworkLabels:
    """Returns the labels of a network in the form of the smaller matrix, or in none where both are large."""
    p, m = fitted.linearisation.n_parameters, fitted.nodes.numel()
    if min(p, m) > CLOSED_FORM:
        return IterativeLabels(fitted, damping)
    return PrimalLabels(fitted, damping) if p < m else DualLabels(fitted, damping)
