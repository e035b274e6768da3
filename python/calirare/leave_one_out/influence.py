"""Influence functions: first-order leave-one-out without the leverage, for comparison and reproduction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from calirare.curvature import Forward, Linearisation, closed_form
from calirare.leave_one_out.alo import alo_change
from calirare.leave_one_out.exact import ExactSolver, Solver, exact_bytes, solve_with
from calirare.leave_one_out.method import Convention, LeaveOneOutMethod, Problem, check_one_of
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.training import FittedNetwork

CONVENTIONS: tuple[Convention, ...] = ("corrected", "paper", "official")
OFFICIAL_DAMPING = 1e-2  # of the authors' code, in place of the weight decay


@dataclass(frozen=True, kw_only=True)
class Influence(ExactSolver, LeaveOneOutMethod):
    """First-order influence (paper, Eq. 7); solver "auto" is "cg" for "corrected", else "lowrank" where it can be.

    Attributes:
        convention: "corrected": the right sign; "paper": the sign Algorithm 1 prints, which correlates -.86 to -.98
            with retraining; "official": the authors' code: right sign, exact Hessian and damping .01, which sees about
            6 % of the change.
    """

    name: ClassVar[str] = "influence"

    convention: Convention = "corrected"

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        self.check(self.name)
        check_one_of(self.name, "convention", self.convention, CONVENTIONS)

    @property
    def prints(self) -> Convention:
        """The convention."""
        return self.convention

    def damping_for(self, fitted: FittedNetwork) -> tuple[float, str]:
        """See `LeaveOneOutMethod.damping_for`; of the authors' code .01."""
        if self.convention == "official" and self.damping is None:
            return OFFICIAL_DAMPING, "the authors' code"
        return super().damping_for(fitted)

    def solver_for(self, linearised: Linearisation) -> Solver:
        """Returns the solver taken for a network."""
        if self.solver != "auto":
            return self.solver
        return "lowrank" if self.convention != "corrected" and closed_form(linearised) else "cg"

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        return exact_bytes(problem, self.solver_for(problem.linearised), problem.n_labels)

    def remedy(self, problem: Problem) -> str:
        """See `LeaveOneOutMethod.remedy`."""
        closed = closed_form(problem.linearised)
        return "take method='alo' with form='gram', or fewer nodes" if closed else super().remedy(problem)

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        solver = replace(self, solver=self.solver_for(problem.linearised))
        out = influence(problem.linearised, problem.field, problem.damping, solver, forward=self.forward)
        if self.convention == "paper":  # a copy of the largest tensor only where the sign asks for it
            out = replace(out, change=-out.change, own=-out.own)
        return out


def influence(
    linearised: Linearisation,
    field: object,
    damping: float,
    settings: ExactSolver | None = None,
    *,
    forward: Forward = "linearised",
) -> LooResult:
    """Returns first-order influence: theta_-i = theta + (H + damping I)^-1 g_i / m (paper, Eq. 7 with the right sign).

    It leaves the leverage out and so sees 15-20 % of the true change; it is here for comparison and reproduction.

    Args:
        linearised: the network at the labelled nodes.
        field: the evaluation field of the nodes v.
        damping: mu > 0.
        settings: the solver.
        forward: see `alo`.

    Returns:
        The changes.

    Raises:
        NotConvergedError: cg did not reach its tolerance.
    """
    settings = settings or ExactSolver(solver="cg")
    if settings.solver == "ggn":
        out = alo_change(linearised, field, damping, forward=forward, leverage_corrected=False)
        return LooResult(
            out.change, out.own, out.leverage, damping, diagnostics=Diagnostics("influence", "ggn", damping)
        )
    _, error = linearised.loss_terms
    seeds = error.to(linearised.logits.dtype)
    rows = linearised.jacobian
    gradients = torch.einsum("iap,ia->ip", rows.view(linearised.n_nodes, -1, rows.shape[1]), seeds)
    directions, facts = solve_with(linearised, gradients, torch.block_diag(*error), damping, settings, "influence")
    change = linearised.change_along(field, directions, forward)
    own = linearised.own_change_along(directions, forward)
    leverage = torch.full((linearised.n_nodes,), float("nan"), dtype=torch.float64)
    return LooResult(change, own, leverage, facts.damping, diagnostics=facts)
