"""H^-1 g with the exact Hessian, or the Gauss-Newton matrix in its place, by three solvers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import (
    GcnLinearisation,
    GgnInverse,
    HessianRange,
    Linearisation,
    closed_form,
    safe_damping,
    spectrum_ends,
)
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, check_at_least, check_one_of
from calirare.leave_one_out.result import Diagnostics, SolverReport, closed_bytes
from calirare_ext import SolverResult, SolverStatus

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

    def remedy(self, problem: Problem) -> str:
        """See `LeaveOneOutMethod.remedy`."""
        closed = closed_form(problem.linearised)
        return "take method='alo' with form='gram', or fewer nodes" if closed else super().remedy(problem)

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
            lowest, highest = hessian.ends()
        else:
            lowest, highest = spectrum_ends(linearised.hvp, linearised.n_parameters, linearised.logits)
        if self.automatic_damping:
            damping, reason = safe_damping(lowest, damping)
        if solver == "cg":
            found, damping, raised = self._conjugate_gradients(linearised, rhs, damping)
            facts = Diagnostics(self.name, "cg", damping, raised or reason, lowest, highest, solver_report(found))
            return found.x, facts
        return hessian.solve(combinations, damping), Diagnostics(self.name, solver, damping, reason, lowest, highest)

    def _conjugate_gradients(
        self, linearised: Linearisation, rhs: Tensor, damping: float
    ) -> tuple[SolverResult, float, str]:
        """Returns solutions, the damping they were found with, and why it was raised, else ""."""
        reason = ""
        for raise_ in range(MAX_RAISES + 1):
            found = linearised.solve(
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


def solver_report(found: SolverResult) -> SolverReport:
    """Returns a solver's result as plain numbers."""
    status = tuple(SolverStatus(code).name for code in found.status.tolist())
    return SolverReport(status, tuple(found.iterations.tolist()), tuple(found.residual_norm.tolist()))


def _range_width(linearised: Linearisation) -> float:
    """Returns the columns that span the exact Hessian's range, infinite where they are not known in closed form."""
    if not closed_form(linearised):
        return float("inf")
    hidden = linearised.layers[0][0].shape[1] if len(linearised.layers) > 1 else 0
    return (linearised.n_nodes + 2 * hidden) * (linearised.n_classes - 1)
