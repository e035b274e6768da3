"""H^-1 g with the exact Hessian, or the Gauss-Newton matrix in its place, by four solvers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import (
    FORWARDS,
    ExactHessian,
    Forward,
    GcnLinearisation,
    GgnInverse,
    HessianRange,
    Linearisation,
    closed_form,
    safe_damping,
    spectrum_ends,
)
from calirare.leave_one_out.method import Problem, check_at_least, check_one_of
from calirare.leave_one_out.result import Diagnostics, SolverReport, closed_bytes
from calirare_ext import SolverResult, SolverStatus

Solver = Literal["auto", "cg", "ggn", "dense", "lowrank"]
SOLVERS: tuple[Solver, ...] = ("auto", "cg", "ggn", "dense", "lowrank")
MAX_RANGE = 4000  # unknowns of the Hessian's range that are still cheaper than products with p parameters
MAX_RAISES = 4  # negative curvature met in spite of the estimate: the damping is doubled so often


@dataclass(frozen=True, kw_only=True)
class ExactSolver:
    """How H^-1 g is found.

    Attributes:
        solver: "cg" (block conjugate gradients on the exact Hessian, any depth), "ggn" (Gauss-Newton, dual),
            "dense" (p x p matrix, small networks only), "lowrank" (exact Hessian, one or two layers, direct) or "auto".
        tolerance: of cg, on the relative residual.
        max_iterations: of cg.
        preconditioned: of cg, by the Gauss-Newton dual.
        accept_unconverged: of cg: return what there is instead of raising.
        automatic_damping: raise the damping until the exact Hessian is positive definite (see `safe_damping`); False
            takes the damping as it is and raises where cg meets negative curvature.
        forward: "linearised" logits, or "full": the network evaluated at each leave-one-out model.
    """

    solver: Solver = "auto"
    tolerance: float = 1e-4
    max_iterations: int = 200
    preconditioned: bool = True
    accept_unconverged: bool = False
    automatic_damping: bool = True
    forward: Forward = "linearised"

    def check(self, name: str) -> None:
        """Checks the options.

        Raises:
            ValueError: one is unknown or out of range.
        """
        check_one_of(name, "solver", self.solver, SOLVERS)
        check_one_of(name, "forward", self.forward, FORWARDS)
        check_at_least(name, "max_iterations", self.max_iterations, 1)
        if not self.tolerance > 0:
            raise ValueError(f"{name}: tolerance must be positive, got {self.tolerance}")


def exact_bytes(problem: Problem, solver: str, columns: int) -> int:
    """Returns an upper estimate of the memory of solving for some right-hand sides and their effect, in bytes."""
    size, linearised = problem.size, problem.linearised
    b, m, p, dual = size.bytes, size.m, size.p, size.dual
    change = size.change(m)
    if solver == "ggn":
        return closed_bytes(problem.size, "gram" if closed_form(linearised) else "jacobian", m)
    if solver == "dense":
        return change + 4 * p * p * 8 + 3 * m * p * b + BLOCK_BYTES
    if solver == "lowrank":
        hidden = 0
        if isinstance(linearised, GcnLinearisation) and len(linearised.layers) > 1:
            hidden = linearised.layers[0][0].shape[1]
        wide = dual + 2 * size.k * hidden
        return change + (2 * wide + 3 * dual) * p * b + 5 * wide * wide * 8 + BLOCK_BYTES
    return change + (dual + 9 * columns) * p * b + 3 * dual * dual * 8 + BLOCK_BYTES


def solve_with(
    linearised: Linearisation, rhs: Tensor, combinations: Tensor, damping: float, settings: ExactSolver, method: str
) -> tuple[Tensor, Diagnostics]:
    """Returns (H + damping I)^-1 g for each row of rhs = combinations J, and how it went."""
    if settings.solver == "cg":
        return _solve_cg(linearised, rhs, combinations, damping, settings, method)
    if settings.solver == "lowrank":
        if not isinstance(linearised, GcnLinearisation):
            raise ValueError("leave_one_out: solver lowrank must have a GCN, got another module: take solver='cg'")
        ends = ExactHessian(linearised, damping).curvatures()
        lowest, highest = min(float(ends[0]), 0.0), float(ends[-1])
    else:
        matrix = _dense_hessian(linearised).double()
        values = torch.linalg.eigvalsh(matrix)
        lowest, highest = float(values[0]), float(values[-1])
    reason = ""
    if settings.automatic_damping:
        damping, reason = safe_damping(lowest, damping)
    if settings.solver == "lowrank":
        assert isinstance(linearised, GcnLinearisation)
        solved = ExactHessian(linearised, damping).solve(rhs)
    else:
        matrix.diagonal().add_(damping)
        solved = torch.linalg.solve(matrix, rhs.double().T).T.to(rhs.dtype)
    return solved, Diagnostics(method, settings.solver, damping, reason, lowest, highest)


def _solve_cg(
    linearised: Linearisation, rhs: Tensor, combinations: Tensor, damping: float, settings: ExactSolver, method: str
) -> tuple[Tensor, Diagnostics]:
    reason = ""
    small = range_of(linearised)
    if small is None:
        lowest, highest = spectrum_ends(lambda v: linearised.hvp(v), linearised.n_parameters, linearised.logits)
    else:
        lowest, highest = small.ends()
    if settings.automatic_damping:
        damping, reason = safe_damping(lowest, damping)
    for raise_ in range(MAX_RAISES + 1):
        found = solve_exact(linearised, rhs, combinations, damping, settings, small)
        negative = int((found.status == SolverStatus.NEGATIVE_CURVATURE).sum())
        if not negative or not settings.automatic_damping or raise_ == MAX_RAISES:
            break
        damping *= 2
        reason = f"raised to {damping:.2e}: {negative} right-hand sides met negative curvature"
    if bool((found.status != SolverStatus.CONVERGED).any()) and not settings.accept_unconverged:
        raise NotConvergedError(
            f"{method}: conjugate gradients ended with {found.summary()} (damping {damping:.3g}, tolerance "
            f"{settings.tolerance:.1g}): raise the damping or the iterations, or take "
            + ("solver='lowrank'" if closed_form(linearised) else "method='alo'")
        )
    return found.x, Diagnostics(method, "cg", damping, reason, lowest, highest, solver_report(found))


def range_of(linearised: Linearisation) -> HessianRange | None:
    """Returns the exact Hessian's range where it is known in closed form and small, else None."""
    if not closed_form(linearised):
        return None
    width = (linearised.n_nodes + 2 * linearised.layers[0][0].shape[1]) * (linearised.n_classes - 1)
    return HessianRange(linearised) if width <= MAX_RANGE else None


def solve_exact(
    linearised: Linearisation,
    rhs: Tensor,
    combinations: Tensor,
    damping: float,
    settings: ExactSolver,
    small: HessianRange | None,
) -> SolverResult:
    """Returns (H + damping I)^-1 g by block conjugate gradients, H exact; residuals recomputed on all parameters.

    Args:
        linearised: the network.
        rhs: g = c J, [b, p], J the Jacobian's rows.
        combinations: c, [b, m (k - 1)].
        damping: added to the Hessian.
        settings: tolerance, iterations, preconditioner.
        small: the Hessian's range, where there is one: the same iteration on far smaller matrices.

    Returns:
        Solutions and statuses.
    """
    tolerance, steps, preconditioned = settings.tolerance, settings.max_iterations, settings.preconditioned
    if small is None:
        first = GgnInverse(linearised, damping) if preconditioned else None
        return linearised.solve(rhs, damping=damping, tolerance=tolerance, max_iterations=steps, precondition=first)
    found = small.solve(combinations, damping, tolerance, steps, preconditioned=preconditioned)
    left = torch.linalg.vector_norm(linearised.hvp(found.x, damping=damping).sub_(rhs), dim=1).double()
    size = torch.linalg.vector_norm(rhs, dim=1).double()
    return found._replace(residual_norm=(left / size).masked_fill(size == 0, 0.0))


def solver_report(found: SolverResult) -> SolverReport:
    """Returns a solver's result as plain numbers."""
    status = tuple(SolverStatus(code).name for code in found.status.tolist())
    return SolverReport(status, tuple(found.iterations.tolist()), tuple(found.residual_norm.tolist()))


def _dense_hessian(linearised: Linearisation) -> Tensor:
    """Returns the exact Hessian [p, p]."""
    identity = torch.eye(linearised.n_parameters, dtype=linearised.logits.dtype, device=linearised.logits.device)
    step = max(1, 16_000_000 // max(linearised.n_parameters, 1))
    blocks = [linearised.hvp(identity[s : s + step]) for s in range(0, linearised.n_parameters, step)]
    return torch.cat(blocks)
