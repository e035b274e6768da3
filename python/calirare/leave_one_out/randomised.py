"""Leave-one-out of every label's own logits by sampling: for labels and parameters too many for either dense system."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare.curvature.ggn import pull_back
from calirare.leave_one_out.influence import solver_report
from calirare.leave_one_out.result import Diagnostics, LooChange
from calirare_ext import GcnTape, SolverStatus, move_logits, solve_inverse_hvp


def randomised(
    tape: GcnTape,
    damping: float,
    *,
    samples: int = 200,
    tolerance: float = 1e-3,
    max_iterations: int = 300,
    seed: int = 0,
) -> LooChange:
    """Returns how each label's own logits move without it, from samples of a Gaussian with covariance H^-1.

    With D_i = B_i B_i^T and H = J^T D J + damping I, x = H^-1 (J^T B g_1 + sqrt(damping) g_2) has covariance H^-1
    ("perturb and solve"; Papandreou & Yuille 2010): J_i x gives P_i = J_i H^-1 J_i^T, and y_i = g_1i - B_i^T J_i x has
    covariance I - B_i^T P_i B_i, the leverage's complement. Both are sample means, the second one normalised by their
    sum, which is I: a leverage stays below 1. Then, as in `alo`,

        dz_i = P_i e_i + P_i B_i (I - B_i^T P_i B_i)^-1 B_i^T P_i e_i

    Args:
        tape: the network at the labelled nodes.
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
    m, k = tape.logits.shape
    if samples < 4 * k:
        raise ValueError(f"randomised: samples must be at least {4 * k}, got {samples}")
    generator = torch.Generator().manual_seed(seed)
    g1 = torch.randn(samples, m, k, generator=generator, dtype=torch.float64).to(tape.logits)
    g2 = torch.randn(samples, tape.n_parameters, generator=generator, dtype=torch.float64).to(tape.logits)
    root = _curvature_root(tape)
    rhs = pull_back(tape, torch.einsum("iab,sib->sia", root, g1)) + damping**0.5 * g2
    found = solve_inverse_hvp(
        tape, rhs, damping=damping, curvature="ggn", tolerance=tolerance, max_iterations=max_iterations
    )
    if bool((found.status != SolverStatus.CONVERGED).any()):
        raise NotConvergedError(f"randomised: conjugate gradients ended with {found.summary()}: raise the damping")
    moved = move_logits(tape, found.x).transpose(0, 1).double()  # [s, m, k]
    left = g1.double() - torch.einsum("iba,sib->sia", root.double(), moved)
    half = samples // 2
    own, leverage = _own(tape, root, moved, left)
    one, other = (_own(tape, root, moved[part], left[part])[0] for part in (slice(0, half), slice(half, None)))
    error = float((one - other).norm() / (2 * own.norm())) if float(own.norm()) > 0 else 0.0
    facts = Diagnostics("alo", "randomised", damping, solver=solver_report(found), sampling_error=error)
    empty = tape.logits.new_empty(0, k - 1, 0)
    model_of = torch.full((m,), -1, dtype=torch.int64, device=leverage.device)
    return LooChange(empty, own.to(tape.logits.dtype), leverage, damping, model_of, facts)


def _curvature_root(tape: GcnTape) -> Tensor:
    """Returns B_i = sqrt(w_i / m) (diag(sqrt p_i) - p_i sqrt(p_i)^T), [m, k, k]: B_i B_i^T is the curvature."""
    p = tape.probabilities
    scale = (tape.sample_weights / tape.n_nodes).sqrt()
    return scale[:, None, None] * (torch.diag_embed(p.sqrt()) - p[:, :, None] * p.sqrt()[:, None, :])


def _own(tape: GcnTape, root: Tensor, moved: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
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
    error = tape.loss_gradient_at_logits().double().unsqueeze(2) / tape.n_nodes
    first = variance @ error
    second = variance @ (b @ torch.linalg.solve(rest, b.transpose(1, 2) @ first))
    moved_own = (first + second).squeeze(2)
    leverage = (k - rest.diagonal(dim1=1, dim2=2).sum(1)) / (k - 1)
    return moved_own[:, 1:] - moved_own[:, :1], leverage
