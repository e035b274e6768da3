"""Influence functions and exact-Hessian Newton steps: H^-1 g_i for every label, by four solvers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare.curvature.directions import Forward, change_along
from calirare.curvature.ggn import GgnInverse, curvature_and_error, hessian_along, jacobian
from calirare.curvature.lowrank import ExactHessian, HessianRange
from calirare.curvature.module_tape import ModuleTape, Tape, Where, shallow
from calirare.curvature.spectrum import safe_damping, spectrum_ends
from calirare.leave_one_out.alo import alo, leave_out
from calirare.leave_one_out.result import Diagnostics, LooChange, SolverReport
from calirare_ext import GcnTape, SolverResult, SolverStatus, block_cg, solve_inverse_hvp

SOLVERS = ("cg", "ggn", "dense", "lowrank")
MAX_RANGE = 4000  # unknowns of the Hessian's range that are still cheaper than products with p parameters
MAX_RAISES = 4  # negative curvature met in spite of the estimate: the damping is doubled so often


@dataclass(frozen=True)
class SolverSettings:
    """How H^-1 g is found.

    Attributes:
        solver: "cg" (block conjugate gradients on the exact Hessian, any depth), "ggn" (Gauss-Newton, dual),
            "dense" (p x p matrix, small networks only) or "lowrank" (exact Hessian, one or two layers, direct).
        tolerance: of cg, on the relative residual.
        max_iterations: of cg.
        preconditioned: of cg, by the Gauss-Newton dual.
        accept_unconverged: of cg: return what there is instead of raising.
        automatic_damping: raise the damping until the exact Hessian is positive definite (see `safe_damping`); False
            takes the damping as it is and raises where cg meets negative curvature.
    """

    solver: str = "cg"
    tolerance: float = 1e-4
    max_iterations: int = 200
    preconditioned: bool = True
    accept_unconverged: bool = False
    automatic_damping: bool = True

    def __post_init__(self) -> None:
        """Checks the solver's name.

        Raises:
            ValueError: it is unknown.
        """
        if self.solver not in SOLVERS:
            raise ValueError(f"influence: solver must be one of {', '.join(SOLVERS)}, got {self.solver!r}")


def influence(
    tape: Tape,
    everywhere: Where,
    damping: float,
    settings: SolverSettings | None = None,
    *,
    forward: Forward = "linearised",
) -> LooChange:
    """Returns first-order influence: theta_-i = theta + (H + damping I)^-1 g_i / m (paper, Eq. 7 with the right sign).

    It leaves the leverage out and so sees 15-20 % of the true change; it is here for comparison and reproduction.

    Args:
        tape: the network at the labelled nodes.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        damping: mu > 0.
        settings: the solver.
        forward: see `alo`.

    Returns:
        The changes.

    Raises:
        NotConvergedError: cg did not reach its tolerance.
    """
    settings = settings or SolverSettings()
    if settings.solver == "ggn":
        out = alo(tape, everywhere, damping, forward=forward, leverage_corrected=False)
        return LooChange(
            out.change, out.own, out.leverage, damping, diagnostics=Diagnostics("influence", "ggn", damping)
        )
    _, error = curvature_and_error(tape)
    seeds = error.to(tape.logits.dtype)
    rows = jacobian(tape)
    gradients = torch.einsum("iap,ia->ip", rows.view(tape.n_nodes, -1, rows.shape[1]), seeds)
    directions, facts = _solve(tape, gradients, torch.block_diag(*error), damping, settings, "influence")
    change = change_along(tape, everywhere, directions, forward)
    own = change_along(tape, tape.field, directions, forward).diagonal(dim1=0, dim2=2).T
    leverage = torch.full((tape.n_nodes,), float("nan"), dtype=torch.float64)
    return LooChange(change, own, leverage, facts.damping, diagnostics=facts)


def newton(
    tape: Tape,
    everywhere: Where,
    damping: float,
    settings: SolverSettings | None = None,
    *,
    forward: Forward = "linearised",
) -> LooChange:
    """Returns leave-one-out with the exact Hessian and leverage correction.

    theta_-i = theta + (H - J_i^T D_i J_i)^-1 g_i / m, with H the exact Hessian plus damping; of node i's own share of H
    the Gauss-Newton part is taken out.

    Args:
        tape: the network at the labelled nodes.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        damping: mu > 0.
        settings: the solver; None: "lowrank" up to two layers, which needs no positive definite Hessian and so no more
            damping, else "cg".
        forward: see `alo`.

    Returns:
        The changes.

    Raises:
        NotConvergedError: cg did not reach its tolerance.
    """
    if settings is None:
        direct = SolverSettings("lowrank", automatic_damping=False)
        settings = direct if shallow(tape) else SolverSettings("cg")
    if settings.solver == "ggn":
        return alo(tape, everywhere, damping, forward=forward)
    rows = jacobian(tape)
    curvature, error = curvature_and_error(tape)
    m, k = error.shape
    every = torch.eye(rows.shape[0], dtype=torch.float64, device=rows.device)
    solved, facts = _solve(tape, rows, every, damping, settings, "newton")
    hat = torch.einsum("iap,ibp->iab", rows.view(m, k, -1), solved.view(m, k, -1))
    directions, own, leverage = leave_out(solved.view(m, k, -1), hat, curvature, error)
    change = change_along(tape, everywhere, directions, forward)
    if forward == "full":
        own = change_along(tape, tape.field, directions, forward).diagonal(dim1=0, dim2=2).T
    return LooChange(change, own.to(change.dtype), leverage, facts.damping, diagnostics=facts)


def _solve(
    tape: Tape, rhs: Tensor, combinations: Tensor, damping: float, settings: SolverSettings, method: str
) -> tuple[Tensor, Diagnostics]:
    """Returns (H + damping I)^-1 g for each row of rhs = combinations J, and how it went."""
    if settings.solver == "cg":
        return _solve_cg(tape, rhs, combinations, damping, settings, method)
    if settings.solver == "lowrank":
        if isinstance(tape, ModuleTape):
            raise ValueError(f"{method}: solver lowrank must have a GCN, got another module: take solver='cg'")
        ends = ExactHessian(tape, damping).curvatures()
        lowest, highest = min(float(ends[0]), 0.0), float(ends[-1])
    else:
        matrix = _dense_hessian(tape).double()
        values = torch.linalg.eigvalsh(matrix)
        lowest, highest = float(values[0]), float(values[-1])
    reason = "the weight decay of training"
    if settings.automatic_damping:
        damping, reason = safe_damping(lowest, damping)
    if settings.solver == "lowrank":
        assert isinstance(tape, GcnTape)
        solved = ExactHessian(tape, damping).solve(rhs)
    else:
        matrix.diagonal().add_(damping)
        solved = torch.linalg.solve(matrix, rhs.double().T).T.to(rhs.dtype)
    return solved, Diagnostics(method, settings.solver, damping, reason, lowest, highest)


def _solve_cg(
    tape: Tape, rhs: Tensor, combinations: Tensor, damping: float, settings: SolverSettings, method: str
) -> tuple[Tensor, Diagnostics]:
    reason = "the weight decay of training"
    small = range_of(tape)
    if small is None:
        lowest, highest = spectrum_ends(lambda v: hessian_along(tape, v), tape.n_parameters, tape.logits)
    else:
        lowest, highest = small.ends()
    if settings.automatic_damping:
        damping, reason = safe_damping(lowest, damping)
    for raise_ in range(MAX_RAISES + 1):
        found = solve_exact(tape, rhs, combinations, damping, settings, small)
        negative = int((found.status == SolverStatus.NEGATIVE_CURVATURE).sum())
        if not negative or not settings.automatic_damping or raise_ == MAX_RAISES:
            break
        damping *= 2
        reason = f"raised to {damping:.2e}: {negative} right-hand sides met negative curvature"
    if bool((found.status != SolverStatus.CONVERGED).any()) and not settings.accept_unconverged:
        raise NotConvergedError(
            f"{method}: conjugate gradients ended with {found.summary()} (damping {damping:.3g}, tolerance "
            f"{settings.tolerance:.1g}): raise the damping or the iterations, or take "
            + ("solver='lowrank'" if shallow(tape) else "method='alo'")
        )
    return found.x, Diagnostics(method, "cg", damping, reason, lowest, highest, solver_report(found))


def range_of(tape: Tape) -> HessianRange | None:
    """Returns the exact Hessian's range where it is known in closed form and small, else None."""
    if not shallow(tape):
        return None
    width = (tape.n_nodes + 2 * tape.layers[0][0].shape[1]) * (tape.n_classes - 1)
    return HessianRange(tape) if width <= MAX_RANGE else None


def solve_exact(
    tape: Tape,
    rhs: Tensor,
    combinations: Tensor,
    damping: float,
    settings: SolverSettings,
    small: HessianRange | None,
) -> SolverResult:
    """Returns (H + damping I)^-1 g by block conjugate gradients, H exact; residuals recomputed on all parameters.

    Args:
        tape: the network.
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
        first = GgnInverse(tape, damping) if preconditioned else None
        if isinstance(tape, ModuleTape):
            return block_cg(
                lambda v: hessian_along(tape, v, damping=damping),
                rhs,
                tolerance=tolerance,
                max_iterations=steps,
                precondition=first,
            )
        return solve_inverse_hvp(
            tape, rhs, damping=damping, tolerance=tolerance, max_iterations=steps, precondition=first
        )
    found = small.solve(combinations, damping, tolerance, steps, preconditioned=preconditioned)
    left = torch.linalg.vector_norm(hessian_along(tape, found.x, damping=damping).sub_(rhs), dim=1).double()
    size = torch.linalg.vector_norm(rhs, dim=1).double()
    return found._replace(residual_norm=(left / size).masked_fill(size == 0, 0.0))


def solver_report(found: SolverResult) -> SolverReport:
    """Returns a solver's result as plain numbers."""
    status = tuple(SolverStatus(code).name for code in found.status.tolist())
    return SolverReport(status, tuple(found.iterations.tolist()), tuple(found.residual_norm.tolist()))


def _dense_hessian(tape: Tape) -> Tensor:
    """Returns the exact Hessian [p, p]."""
    identity = torch.eye(tape.n_parameters, dtype=tape.logits.dtype, device=tape.logits.device)
    step = max(1, 16_000_000 // max(tape.n_parameters, 1))
    blocks = [hessian_along(tape, identity[s : s + step]) for s in range(0, tape.n_parameters, step)]
    return torch.cat(blocks)
