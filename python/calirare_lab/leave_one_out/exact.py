"""Newton steps and influence functions: H^-1 g with the exact Hessian, or the Gauss-Newton matrix, by three solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError, check_one_of
from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import GcnLinearisation, GgnInverse, Linearisation, closed_form
from calirare.leave_one_out import (
    Diagnostics,
    LeaveOneOutMethod,
    LooResult,
    Problem,
    alo_change,
    check_at_least,
    closed_bytes,
    leave_out_own,
)
from calirare.models import FittedNetwork
from calirare_ext import SolverResult, SolverStatus
from calirare_lab.leave_one_out.hessian import HessianRange, hessian_times, safe_damping, solve, spectrum_ends

Solver = Literal["auto", "cg", "ggn", "lowrank"]
SOLVERS: tuple[Solver, ...] = ("auto", "cg", "ggn", "lowrank")
MAX_RANGE = 4000  # unknowns of the Hessian's range that are still cheaper than products with p parameters
MAX_RAISES = 4  # negative curvature met in spite of the estimate: the damping is doubled so often


@dataclass(frozen=True, kw_only=True)
class ExactHessianMethod(LeaveOneOutMethod):
    """A method that solves with the exact Hessian.

    Attributes:
        solver: "lowrank" (direct, one or two graph convolutions), "cg" (block conjugate gradients, any network), "ggn"
            (the Gauss-Newton matrix instead) or "auto": "lowrank" where it applies and is small, else "cg".
        tolerance: of cg, on the relative residual.
        max_iterations: of cg.
        automatic_damping: raise the damping until the exact Hessian is positive definite (see `safe_damping`); False
            takes the damping as it is and raises where cg meets negative curvature.
    """

    solver: Solver = "auto"
    tolerance: float = 1e-4
    max_iterations: int = 200
    automatic_damping: bool = True

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        check_one_of(self.name, "solver", self.solver, SOLVERS)
        check_at_least(self.name, "max_iterations", self.max_iterations, 1)
        if not self.tolerance > 0:
            raise ValueError(f"{self.name}: tolerance must be positive, got {self.tolerance}")

    def solver_for(self, linearised: Linearisation) -> Solver:
        """Returns the solver taken for a network."""
        if self.solver != "auto":
            return self.solver
        return "lowrank" if _range_width(linearised) <= MAX_RANGE else "cg"

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        size, linearised = problem.size, problem.linearised
        b, m, p, dual = size.bytes, size.m, size.p, size.dual
        change, solver = size.change(m), self.solver_for(linearised)
        if solver == "ggn":
            return closed_bytes(size, "gram" if closed_form(linearised) else "jacobian", m)
        if solver == "lowrank" and closed_form(linearised):
            wide = int(_range_width(linearised))
            return change + (2 * wide + 3 * dual) * p * b + 5 * wide * wide * 8 + BLOCK_BYTES
        return change + (dual + 9 * dual) * p * b + 3 * dual * dual * 8 + BLOCK_BYTES

    def solve(
        self, linearised: Linearisation, rhs: Tensor, combinations: Tensor, damping: float
    ) -> tuple[Tensor, Diagnostics]:
        """Returns (H + damping I)^-1 g [b, p] for each row g of rhs = combinations J, and how it went.

        Raises:
            NotConvergedError: cg did not reach its tolerance.
            ValueError: "lowrank" does not fit the network.
        """
        solver, reason = self.solver_for(linearised), ""
        if solver == "lowrank":
            if not isinstance(linearised, GcnLinearisation):
                raise ValueError("leave_one_out: solver lowrank must have a GCN, got another module: take solver='cg'")
            hessian = HessianRange(linearised)
            lowest = hessian.ends()[0]
        else:
            product = partial(hessian_times, linearised)
            lowest, _ = spectrum_ends(product, linearised.n_parameters, linearised.logits)
        if self.automatic_damping:
            damping, reason = safe_damping(lowest, damping)
        if solver == "cg":
            found, damping, raised = self._conjugate_gradients(linearised, rhs, damping)
            facts = Diagnostics(self.name, "cg", damping, raised or reason, lowest, found.summary())
            return found.x, facts
        return hessian.solve(combinations, damping), Diagnostics(self.name, solver, damping, reason, lowest)

    def _conjugate_gradients(
        self, linearised: Linearisation, rhs: Tensor, damping: float
    ) -> tuple[SolverResult, float, str]:
        """Returns solutions, the damping they were found with, and why it was raised, else ""."""
        reason = ""
        for raise_ in range(MAX_RAISES + 1):
            found = solve(
                linearised,
                rhs,
                damping=damping,
                tolerance=self.tolerance,
                max_iterations=self.max_iterations,
                precondition=GgnInverse(linearised, damping),
            )
            negative = int((found.status == SolverStatus.NEGATIVE_CURVATURE).sum())
            if not negative or not self.automatic_damping or raise_ == MAX_RAISES:
                break
            damping *= 2
            reason = f"raised to {damping:.2e}: {negative} right-hand sides met negative curvature"
        if bool((found.status != SolverStatus.CONVERGED).any()):
            raise NotConvergedError(
                f"{self.name}: conjugate gradients ended with {found.summary()} (damping {damping:.3g}, tolerance "
                f"{self.tolerance:.1g}). Raise the damping or the iterations, or take "
                + ("solver='lowrank'" if closed_form(linearised) else "method='alo'")
            )
        return found, damping, reason


def _range_width(linearised: Linearisation) -> float:
    """Returns the columns that span the exact Hessian's range, infinite where they are not known in closed form."""
    if not closed_form(linearised):
        return float("inf")
    hidden = linearised.layers[0][0].shape[1] if len(linearised.layers) > 1 else 0
    return (linearised.n_nodes + 2 * hidden) * (linearised.n_classes - 1)


Convention = Literal["corrected", "paper", "official"]
CONVENTIONS: tuple[Convention, ...] = ("corrected", "paper", "official")
OFFICIAL_DAMPING = 1e-2  # of the authors' code, in place of the weight decay


@dataclass(frozen=True, kw_only=True)
class Influence(ExactHessianMethod):
    """First-order influence (paper, Eq. 7); it leaves the leverage out and so sees 15-20 % of the true change.

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
        check_one_of(self.name, "convention", self.convention, CONVENTIONS)

    def damping_for(self, fitted: FittedNetwork) -> tuple[float, str]:
        """See `LeaveOneOutMethod.damping_for`; of the authors' code .01."""
        if self.convention == "official" and self.damping is None:
            return OFFICIAL_DAMPING, "the authors' code"
        return super().damping_for(fitted)

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        out = self._influence(problem)
        if self.convention == "paper":  # a copy of the largest tensor only where the sign needs it
            out = replace(out, change=-out.change, own=-out.own)
        return out

    def _influence(self, problem: Problem) -> LooResult:
        """Returns theta_-i = theta + (H + damping I)^-1 g_i / m as changes of logits."""
        linearised, field, damping = problem.linearised, problem.field, problem.damping
        if self.solver == "ggn":
            out = alo_change(linearised, field, damping, leverage_corrected=False)
            return replace(out, diagnostics=Diagnostics(self.name, "ggn", damping))
        _, error = linearised.loss_terms
        rows = linearised.jacobian
        seeds = error.to(rows.dtype)
        gradients = torch.einsum("iap,ia->ip", rows.view(linearised.n_nodes, -1, rows.shape[1]), seeds)
        directions, facts = self.solve(linearised, gradients, torch.block_diag(*error), damping)
        change = linearised.change_along(field, directions)
        own = linearised.change_along(linearised.field, directions).diagonal(dim1=0, dim2=2).T
        leverage = torch.full((linearised.n_nodes,), float("nan"), dtype=torch.float64)
        return LooResult(change, own, leverage, facts.damping, diagnostics=facts)


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
