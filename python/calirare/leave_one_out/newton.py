"""Newton steps with the exact Hessian and leverage correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from calirare.curvature import Forward, Linearisation, closed_form
from calirare.leave_one_out.alo import alo_change
from calirare.leave_one_out.exact import ExactSolver, exact_bytes, solve_with
from calirare.leave_one_out.formula import leave_out
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem
from calirare.leave_one_out.result import LooResult


@dataclass(frozen=True, kw_only=True)
class Newton(ExactSolver, LeaveOneOutMethod):
    """One Newton step with the exact Hessian; solver "auto" is "lowrank" up to two layers, else "cg"."""

    name: ClassVar[str] = "newton"

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        self.check(self.name)

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        solver = solver_for(problem.linearised, self).solver
        return exact_bytes(problem, solver, problem.size.dual)

    def remedy(self, problem: Problem) -> str:
        """See `LeaveOneOutMethod.remedy`."""
        closed = closed_form(problem.linearised)
        return "take method='alo' with form='gram', or fewer nodes" if closed else super().remedy(problem)

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        return newton(problem.linearised, problem.field, problem.damping, self, forward=self.forward)


def solver_for(linearised: Linearisation, settings: ExactSolver | None) -> ExactSolver:
    """Returns the solver, where none is named: "lowrank" up to two layers, which wants no more damping, else "cg"."""
    if settings is not None and settings.solver != "auto":
        return settings
    if closed_form(linearised):
        return ExactSolver(solver="lowrank", automatic_damping=False)
    settings = settings or ExactSolver()
    names = ("tolerance", "max_iterations", "preconditioned", "accept_unconverged", "automatic_damping")
    return ExactSolver(solver="cg", **{name: getattr(settings, name) for name in names})


def newton(
    linearised: Linearisation,
    field: object,
    damping: float,
    settings: ExactSolver | None = None,
    *,
    forward: Forward = "linearised",
) -> LooResult:
    """Returns leave-one-out with the exact Hessian and leverage correction.

    theta_-i = theta + (H - J_i^T D_i J_i)^-1 g_i / m, with H the exact Hessian plus damping; of node i's own share of H
    the Gauss-Newton part is taken out.

    Args:
        linearised: the network at the labelled nodes.
        field: the evaluation field of the nodes v.
        damping: mu > 0.
        settings: the solver; None: "lowrank" up to two layers, which needs no positive definite Hessian and so no more
            damping, else "cg".
        forward: see `alo`.

    Returns:
        The changes.

    Raises:
        NotConvergedError: cg did not reach its tolerance.
    """
    settings = solver_for(linearised, settings)
    if settings.solver == "ggn":
        return alo_change(linearised, field, damping, forward=forward)
    rows = linearised.jacobian
    curvature, error = linearised.loss_terms
    m, k = error.shape
    every = torch.eye(rows.shape[0], dtype=torch.float64, device=rows.device)
    solved, facts = solve_with(linearised, rows, every, damping, settings, "newton")
    hat = torch.einsum("iap,ibp->iab", rows.view(m, k, -1), solved.view(m, k, -1))
    directions, own, leverage = leave_out(solved.view(m, k, -1), hat, curvature, error)
    change = linearised.change_along(field, directions, forward)
    if forward == "full":
        own = linearised.own_change_along(directions, forward)
    return LooResult(change, own.to(change.dtype), leverage, facts.damping, diagnostics=facts)
