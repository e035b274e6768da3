"""Newton steps with the exact Hessian and leverage correction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from calirare.leave_one_out.alo import alo_change
from calirare.leave_one_out.exact import ExactHessianMethod
from calirare.leave_one_out.formula import leave_out_own
from calirare.leave_one_out.method import Problem
from calirare.leave_one_out.result import LooResult


@dataclass(frozen=True, kw_only=True)
class Newton(ExactHessianMethod):
    """One Newton step with the exact Hessian and leverage correction.

    theta_-i = theta + (H - J_i^T D_i J_i)^-1 g_i / m, with H the exact Hessian plus damping; of node i's own part of H
    the Gauss-Newton matrix is taken out. Solver "auto" keeps the damping where it solves directly.
    """

    name: ClassVar[str] = "newton"

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        linearised, solver = problem.linearised, self.solver_for(problem.linearised)
        if solver == "ggn":
            return alo_change(linearised, problem.field, problem.damping)
        keeps = self.solver == "auto" and solver == "lowrank"
        settings = replace(self, automatic_damping=False) if keeps else self
        rows = linearised.jacobian
        curvature, error = linearised.loss_terms
        m, k = error.shape
        every = torch.eye(rows.shape[0], dtype=torch.float64, device=rows.device)
        solved, facts = settings.solve(linearised, rows, every, problem.damping)
        solved = solved.view(m, k, -1)
        hat = torch.einsum("iap,ibp->iab", rows.view(m, k, -1), solved)
        scaled, own, leverage = leave_out_own(hat, curvature, error)
        directions = torch.einsum("iap,ia->ip", solved, scaled.to(solved.dtype))
        change = linearised.change_along(problem.field, directions)
        return LooResult(change, own.to(change.dtype), leverage, facts.damping, diagnostics=facts)
