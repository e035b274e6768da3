"""Leave-one-out of a network that Adam trained and that was stopped before its minimum, by its tangent.

With J the Jacobian of the logit differences z_c - z_0 and P = 1 / (sqrt(v) + epsilon), v the second moments of the
gradient (Kingma & Ba 2015, "Adam", Algorithm 1),

    min_u  sum_i w_i l_i(s J_i P^1/2 u) / m + mu / 2 |u|^2

has a minimum where leaving labels out has a closed form (`alo`). The scale s makes the mean square of the rows 1; mu
stands for the epochs, few for a large one. Tangents of wide networks: Jacot et al. 2018, "Neural tangent kernel".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.torch_state import threads_for
from calirare.curvature import Linearisation, dual_system, gauss_newton, with_class_zero
from calirare.leave_one_out.alo import alo_change, grouped
from calirare.leave_one_out.folds import FoldNetworks, fold_networks
from calirare.leave_one_out.formula import choose_form
from calirare.leave_one_out.held_out import Retraining
from calirare.leave_one_out.method import AS_ASKED, LeaveOneOutMethod, Problem
from calirare.leave_one_out.result import Diagnostics, LooResult, closed_bytes
from calirare.models import FittedNetwork, ModuleFit

EPSILON = 1e-8  # Adam's own
DAMPING = 1e-3  # within .01 of the best correlation with training of 50 and of 200 epochs on simulated words
DAMPINGS = tuple(10.0**power for power in range(1, -7, -1))
NEWTON_STEPS, HALVINGS = 50, 20
ARRIVED = 1e-9  # fall of the loss, relative to it, that ends them


@dataclass(frozen=True, kw_only=True)
class Tangent(LeaveOneOutMethod):
    """Labels left out of the tangent of a network that was trained by Adam for some epochs, not to a minimum.

    Attributes:
        damping: mu > 0, the penalty of the tangent; None: 1e-3. `Tangent.chosen` finds it by networks that are trained
            without folds of the labels.
        second_moments: v >= 0 of the gradient, like the parameters: tensors in their order, as `adam_moments` returns
            them, or by their names; None: those of the network (`fit_of(optimizer=..)`), or else the mean square over
            the labels of the gradient of each one's loss.
        factor: > 0, that all changes are multiplied by.
    """

    name: ClassVar[str] = "tangent"

    second_moments: Sequence[Tensor] | Mapping[str, Tensor] | None = field(default=None, compare=False, repr=False)
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        if not 0 < self.factor < math.inf:
            raise ValueError(f"tangent: factor must be positive and finite, got {self.factor}")

    @classmethod
    def chosen(
        cls,
        fitted: ModuleFit,
        retrain: Retraining,
        second_moments: Sequence[Tensor] | Mapping[str, Tensor] | None = None,
        *,
        folds: int = 5,
    ) -> Tangent:
        """Returns the tangent that moves as networks do that are trained without each fold of the labels.

        The penalty has the largest correlation of the changes of logits, the mean of that of left-out labels and of
        that of other nodes; the factor gives the changes their size by least squares.

        Args:
            fitted: the network with its labels.
            retrain: trains a network as this one was trained, on the labelled nodes it is given (int64 [m']), and
                returns it; called once per fold.
            second_moments: see `Tangent`.
            folds: 2 to m.

        Raises:
            ValueError: no tangent moves as the networks do.
            InputError: there are too few labels, or what is returned is no such network.
        """
        networks = fold_networks(fitted, retrain, folds)
        assert networks is not None
        found = cls(second_moments=second_moments).likeliest(fitted, networks)
        if found is None:
            raise ValueError("tangent: it moves against the networks without folds at every damping: take ALO()")
        return found[0]

    def likeliest(self, fitted: FittedNetwork, networks: FoldNetworks) -> tuple[Tangent, tuple[float, float]] | None:
        """Returns the tangent with the penalty and factor of `chosen`, and its correlations at labels and elsewhere.

        Args:
            fitted: the network with its labels.
            networks: trained without each fold of them.

        Returns:
            None where it moves against the networks at every damping.
        """
        model, best = self.model_of(fitted), (-math.inf, DAMPING, 0.0, (0.0, 0.0))
        at, wanted = fitted.evaluation_field(None, networks.nodes), networks.own.flatten().double()
        for damping in DAMPINGS:
            model = model.minimum(damping)
            moved = grouped(model, at, damping, networks.fold)
            like, ours = networks.likeness(moved.own, moved.change), moved.own.flatten().double()
            factor = float(ours @ wanted / (ours @ ours).clamp(min=torch.finfo(torch.float64).tiny))
            best = max(best, (sum(like) / 2, damping, factor, like))
        return (replace(self, damping=best[1], factor=best[2]), best[3]) if best[2] > 0 else None

    def model_of(self, fitted: FittedNetwork) -> TangentModel:
        """Returns the tangent of a network before it knows a label."""
        return TangentModel(Features(fitted.linearisation, self.paces(fitted)))

    def damping_for(self, fitted: FittedNetwork) -> tuple[float, str]:
        """See `LeaveOneOutMethod.damping_for`; the weight decay plays no part."""
        return (DAMPING, "the default of tangents") if self.damping is None else (self.damping, AS_ASKED)

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        size = problem.size
        form = "primal" if size.p < size.dual else "jacobian"
        return closed_bytes(size, form, size.m) + size.dual * (2 * size.bytes * size.p + 16 * min(size.dual, size.p))

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        model = self.model_of(problem.fitted).minimum(problem.damping)
        out = alo_change(model, problem.field, problem.damping)
        facts = Diagnostics(self.name, choose_form(model), problem.damping)
        change, own = ((self.factor * each).to(problem.linearised.logits) for each in (out.change, out.own))
        return replace(out, change=change, own=own, diagnostics=facts)

    def paces(self, fitted: FittedNetwork) -> Tensor:
        """Returns P of each parameter, [p].

        Raises:
            ValueError: the second moments do not fit the parameters.
        """
        base = fitted.linearisation
        moments = fitted.second_moments if self.second_moments is None else self.second_moments
        if moments is None:
            rows = base.jacobian.view(base.n_nodes, -1, base.n_parameters)
            v = (rows * base.loss_terms[1][:, :, None].to(rows)).sum(1).mul_(base.n_nodes).square().mean(0)
        else:
            if isinstance(moments, Mapping):
                moments = [moments[name] for name in fitted.parameter_names if name in moments]
            v = torch.cat([each.flatten() for each in moments]).to(base.logits)
        if v.numel() != base.n_parameters or not bool((v.isfinite() & (v >= 0)).all()):
            raise ValueError(
                f"tangent: second_moments must be {base.n_parameters:,} finite numbers of at least 0, like the "
                f"parameters, got {v.numel():,} from {float(v.min()):g} to {float(v.max()):g}"
            )
        return 1 / (v.sqrt() + EPSILON)


@dataclass(frozen=True, eq=False)
class Features:
    """What a tangent reads at its labels.

    Attributes:
        base: the network at its labels.
        paces: P, [p].
    """

    base: Linearisation
    paces: Tensor

    @cached_property
    def scale(self) -> Tensor:
        """What each column of J is multiplied by, s P^1/2, [p]."""
        root = self.paces.sqrt()
        square = (self.base.jacobian * root).double().square().sum(1).mean()
        return root * float(square.clamp(min=torch.finfo(torch.float32).tiny).rsqrt())

    @cached_property
    def jacobian(self) -> Tensor:
        """The rows of the tangent, [m (k - 1), p]."""
        return self.base.jacobian * self.scale

    @cached_property
    def kernel(self) -> Tensor:
        """Their products, float64 [m (k - 1), m (k - 1)]."""
        rows = self.jacobian.double()
        return rows @ rows.T

    @property
    def dual(self) -> bool:
        """Whether there are no more rows than parameters."""
        return self.jacobian.shape[0] <= self.jacobian.shape[1]


class TangentModel(Linearisation):
    """`Linearisation` of z = s J P^1/2 u at some u; exact, to every order.

    Args:
        features: what it reads.
        coordinates: a with u = (s J P^1/2)^T a where `features.dual`, else u, float64; None: u = 0.
        sample_weights: w_i, [m]; None: those of the network.
    """

    def __init__(
        self, features: Features, coordinates: Tensor | None = None, sample_weights: Tensor | None = None
    ) -> None:
        base, rows = features.base, features.jacobian
        self.features, self.field, self.targets = features, base.field, base.targets
        self.sample_weights = (base.sample_weights if sample_weights is None else sample_weights).double()
        start = rows.new_zeros(min(rows.shape), dtype=torch.float64)
        self.coordinates = start if coordinates is None else coordinates
        read = features.kernel if features.dual else rows.double()
        self.logits = with_class_zero((read @ self.coordinates).view(self.targets.numel(), -1))

    @property
    def n_parameters(self) -> int:
        """Number of parameters, p."""
        return self.jacobian.shape[1]

    @property
    def jacobian(self) -> Tensor:
        """See `Linearisation.jacobian`."""
        return self.features.jacobian

    @property
    def u(self) -> Tensor:
        """The coordinates as parameters, float64 [p]."""
        return self.jacobian.double().T @ self.coordinates if self.features.dual else self.coordinates

    def change_along(self, field: Any, directions: Tensor) -> Tensor:
        """See `Linearisation.change_along`."""
        return self.features.base.change_along(field, directions.to(self.jacobian) * self.features.scale)

    def loss(self, damping: float) -> float:
        """Returns sum_i w_i l_i / m + damping / 2 |u|^2."""
        losses = F.cross_entropy(self.logits, self.targets, reduction="none")
        at = self.coordinates
        square = at @ self.differences.flatten() if self.features.dual else at @ at
        return float((self.sample_weights * losses).mean() + damping / 2 * square)

    def minimum(self, damping: float) -> TangentModel:
        """Returns the model at the minimum of `loss`, by Newton's steps, each as short as it must be to lower it."""
        here, loss = self, self.loss(damping)
        for _ in range(NEWTON_STEPS):
            there, lower = here._lower(here._newton(damping), damping, loss)
            if not lower < loss - ARRIVED * abs(loss):
                break
            here, loss = there, lower
        return here

    def _lower(self, to: Tensor, damping: float, loss: float) -> tuple[TangentModel, float]:
        """Returns the first point on the way to coordinates where the loss is lower, and the loss there."""
        way = to - self.coordinates
        for _ in range(HALVINGS):
            there = TangentModel(self.features, self.coordinates + way, self.sample_weights)
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
                return torch.linalg.solve(dual_system(curvature, self.features.kernel, damping), pull)
            hessian = gauss_newton(self.jacobian, curvature)
            hessian.diagonal().add_(damping)
            right = self.jacobian.double().T @ pull
            return torch.cholesky_solve(right[:, None], torch.linalg.cholesky(hessian))[:, 0]
