"""Leave-one-out of every label's own logits by sampling: for labels and parameters too many for either dense system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import GcnLinearisation, pull_back
from calirare.leave_one_out.exact import solver_report
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, check_at_least
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare_ext import SolverStatus, move_logits, solve_inverse_hvp


@dataclass(frozen=True, kw_only=True)
class Randomised(LeaveOneOutMethod):
    """The labels' own logits alone, by sampling, for labels and parameters too many for either dense system.

    Attributes:
        samples: Gaussian samples; the relative error of a variance is sqrt(2 / samples).
        tolerance: of conjugate gradients.
        max_iterations: of conjugate gradients.
        seed: of the samples; None: the run's.
    """

    name: ClassVar[str] = "randomised"

    samples: int = 200
    tolerance: float = 1e-3
    max_iterations: int = 300
    seed: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        check_at_least("randomised", "samples", self.samples, 8)
        check_at_least("randomised", "max_iterations", self.max_iterations, 1)

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        size = problem.size
        return self.samples * (6 * size.p + 4 * size.m * (size.k + 1)) * size.bytes + BLOCK_BYTES

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        linearised = problem.linearised
        if not isinstance(linearised, GcnLinearisation):
            raise ValueError("leave_one_out: method randomised must have a GCN, got another module: take method alo")
        return randomised(
            linearised,
            problem.damping,
            samples=self.samples,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            seed=self.seed or 0,
        )


def randomised(
    linearised: GcnLinearisation,
    damping: float,
    *,
    samples: int = 200,
    tolerance: float = 1e-3,
    max_iterations: int = 300,
    seed: int = 0,
) -> LooResult:
    """Returns how each label's own logits move without it, from samples of a Gaussian with covariance H^-1.

    With D_i = B_i B_i^T and H = J^T D J + damping I, x = H^-1 (J^T B g_1 + sqrt(damping) g_2) has covariance H^-1
    ("perturb and solve"; Papandreou & Yuille 2010): J_i x gives P_i = J_i H^-1 J_i^T, and y_i = g_1i - B_i^T J_i x has
    covariance I - B_i^T P_i B_i, the leverage's complement. Both are sample means, the second one normalised by their
    sum, which is I: a leverage stays below 1. Then, as in `alo`,

        dz_i = P_i e_i + P_i B_i (I - B_i^T P_i B_i)^-1 B_i^T P_i e_i

    Args:
        linearised: the network at the labelled nodes.
        damping: mu > 0.
        samples: s; the relative error of a variance is sqrt(2 / s).
        tolerance: of conjugate gradients.
        max_iterations: of conjugate gradients.
        seed: of the samples.

    Returns:
        Own changes and leverages; the change of other nodes is empty ([0, k - 1, 0]). The sampling error is that of own
        changes, from two halves of the samples.

    Raises:
        ValueError: fewer than two samples per class and half.
        NotConvergedError: conjugate gradients did not converge.

    Cost: one Gauss-Newton product per iteration for all samples at once; memory samples x (p + m k).
    """
    m, k = linearised.logits.shape
    if samples < 4 * k:
        raise ValueError(f"randomised: samples must be at least {4 * k}, got {samples}")
    generator = torch.Generator().manual_seed(seed)
    g1 = torch.randn(samples, m, k, generator=generator, dtype=torch.float64).to(linearised.logits)
    g2 = torch.randn(samples, linearised.n_parameters, generator=generator, dtype=torch.float64).to(linearised.logits)
    root = _curvature_root(linearised)
    rhs = pull_back(linearised, torch.einsum("iab,sib->sia", root, g1)) + damping**0.5 * g2
    found = solve_inverse_hvp(
        linearised, rhs, damping=damping, curvature="ggn", tolerance=tolerance, max_iterations=max_iterations
    )
    if bool((found.status != SolverStatus.CONVERGED).any()):
        raise NotConvergedError(f"randomised: conjugate gradients ended with {found.summary()}: raise the damping")
    moved = move_logits(linearised, found.x).transpose(0, 1).double()  # [s, m, k]
    left = g1.double() - torch.einsum("iba,sib->sia", root.double(), moved)
    half = samples // 2
    own, leverage = _own(linearised, root, moved, left)
    one, other = (_own(linearised, root, moved[part], left[part])[0] for part in (slice(0, half), slice(half, None)))
    error = float((one - other).norm() / (2 * own.norm())) if float(own.norm()) > 0 else 0.0
    facts = Diagnostics("randomised", "samples", damping, solver=solver_report(found), sampling_error=error)
    empty = linearised.logits.new_empty(0, k - 1, 0)
    model_of = torch.full((m,), -1, dtype=torch.int64, device=leverage.device)
    return LooResult(empty, own.to(linearised.logits.dtype), leverage, damping, model_of, facts)


def _curvature_root(linearised: GcnLinearisation) -> Tensor:
    """Returns B_i = sqrt(w_i / m) (diag(sqrt p_i) - p_i sqrt(p_i)^T), [m, k, k]: B_i B_i^T is the curvature."""
    p = linearised.probabilities
    scale = (linearised.sample_weights / linearised.n_nodes).sqrt()
    return scale[:, None, None] * (torch.diag_embed(p.sqrt()) - p[:, :, None] * p.sqrt()[:, None, :])


def _own(linearised: GcnLinearisation, root: Tensor, moved: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Returns own changes [m, k - 1] and leverages [m] from samples of J_i x and y_i, [s, m, k] each."""
    s, _, k = moved.shape
    b = root.double()
    variance = torch.einsum("sia,sib->iab", moved, moved) / s
    pushed = torch.einsum("iba,sib->sia", b, moved)
    hat = torch.einsum("sia,sib->iab", pushed, pushed) / s
    rest = torch.einsum("sia,sib->iab", left, left) / s
    values, vectors = torch.linalg.eigh(hat + rest)
    scale = vectors @ torch.diag_embed(values.rsqrt()) @ vectors.transpose(1, 2)
    rest = scale @ rest @ scale
    error = linearised.loss_gradient_at_logits().double().unsqueeze(2) / linearised.n_nodes
    first = variance @ error
    second = variance @ (b @ torch.linalg.solve(rest, b.transpose(1, 2) @ first))
    moved_own = (first + second).squeeze(2)
    leverage = (k - rest.diagonal(dim1=1, dim2=2).sum(1)) / (k - 1)
    return moved_own[:, 1:] - moved_own[:, :1], leverage
