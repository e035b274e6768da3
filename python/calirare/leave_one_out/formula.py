"""Every label left out by one damped Gauss-Newton step with leverage correction, in the dual and in the primal.

With J the Jacobian of the logit differences at the labels T, K = J J^T, D the block diagonal curvature of the loss, e
its gradient in the differences and mu the damping, leaving label i out moves the parameters by

    theta_-i - theta = H^-1 J_i^T (I - D_i P_i)^-1 e_i,   H = J^T D J + mu I,   P_i = J_i H^-1 J_i^T.

It is the Newton step of the loss without label i: its Hessian is H - J_i^T D_i J_i, whose inverse Woodbury's identity
gives in terms of H^-1. The bracket is one minus the leverage of the label, which plain influence functions leave out.
In the dual H^-1 J^T = J^T M^-1 with M = mu I + D K, and I - D_i P_i = mu (M^-1)_ii, so all labels cost one inverse.
With D = C C^T and e = C c it is M^-1 C = C B^-1 with B = mu I + C^T K C, inverted by Cholesky in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.torch_state import threads_for
from calirare.curvature import (
    GcnLinearisation,
    Linearisation,
    block_of_labels,
    closed_form,
    gauss_newton,
    positive_inverse,
    pull_back,
    symmetric_system,
)
from calirare_ext import SolverStatus, move_logits, solve_inverse_hvp


def choose_form(linearised: Linearisation) -> str:
    """Returns the cheapest form: "gram" up to two layers, "primal" where p is below m (k - 1), else "jacobian"."""
    if linearised.n_parameters < linearised.n_nodes * (linearised.n_classes - 1):
        return "primal"
    return "gram" if closed_form(linearised) else "jacobian"


def loo_coefficients(
    linearised: Linearisation, kernel: Tensor, damping: float, *, leverage_corrected: bool = True
) -> tuple[Tensor, Tensor]:
    """Returns alpha [m (k - 1), m] with theta_-i - theta = J^T alpha_i, and the leverages [m]; both float64.

    Args:
        linearised: the network at the labelled nodes.
        kernel: K at the labelled nodes, [m (k - 1), m (k - 1)].
        damping: mu > 0.
        leverage_corrected: False leaves the bracket of `alo` out.

    Returns:
        Coefficients and leverages.
    """
    # M^-1 C = C B^-1, so that C_i^-1 (I - D_i P_i) C_i = damping (B^-1)_ii and alpha_i = C B^-1[:, i] t_i with
    # t_i = (damping (B^-1)_ii)^-1 c_i.
    roots, error = linearised.loss_roots
    m, k = error.shape
    with threads_for(kernel.shape[0] ** 3):
        inverse = positive_inverse(symmetric_system(roots, kernel, damping))
        blocks = inverse.view(m, k, m, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [m, k, k]
        scaled = _solve_each(damping * blocks, error) if leverage_corrected else error
        mixed = torch.bmm(scaled[:, None], inverse.view(m, k, m * k)).view(m, m * k).T  # B^-1[:, i] t_i in column i
        coefficients = torch.bmm(roots, mixed.reshape(m, k, m)).view(m * k, m)
    return coefficients, 1 - damping * blocks.diagonal(dim1=1, dim2=2).mean(1)


def _solve_each(blocks: Tensor, rhs: Tensor) -> Tensor:
    """Returns blocks[i]^-1 rhs[i]; [m, k, k] and [m, k] to [m, k]."""
    if rhs.shape[1] == 1:
        return rhs / blocks[:, 0]
    return torch.linalg.solve(blocks, rhs.unsqueeze(2)).squeeze(2)


def own_change(linearised: Linearisation, kernel: Tensor, coefficients: Tensor) -> Tensor:
    """Returns how each labelled node's own logits move, [m, k - 1], float64."""
    m, k = linearised.n_nodes, linearised.n_classes - 1
    return (kernel.reshape(m, k, m * k).double() * coefficients.T.reshape(m, 1, m * k)).sum(2)


def primal_directions(
    linearised: Linearisation, damping: float, leverage_corrected: bool = True, chosen: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns theta_-i - theta of some labels, own changes and leverages, from J^T D J + damping I; all float64.

    Args:
        linearised: the network at the labelled nodes.
        damping: mu > 0.
        leverage_corrected: see `alo`.
        chosen: places of the labels whose directions are wanted, int64 [s]; None: all m.

    Returns:
        Directions [s, p]; own changes [m, k - 1] and leverages [m] of all labels.
    """
    rows = linearised.jacobian
    curvature, error = linearised.loss_terms
    m, k = error.shape
    p = rows.shape[1]
    hessian = gauss_newton(rows, curvature)
    hessian.diagonal().add_(damping)
    factor = torch.linalg.cholesky(hessian)
    hats = []
    for part in rows.split(block_of_labels(p * k) * k):
        half = torch.linalg.solve_triangular(factor, part.double().T, upper=False).T.view(-1, k, p)
        hats.append(half @ half.mT)
    scaled, own, leverage = leave_out_own(torch.cat(hats), curvature, error, leverage_corrected)
    wanted = slice(None) if chosen is None else chosen
    pulled = (scaled[wanted, :, None] * rows.view(m, k, p)[wanted]).sum(1)  # J_i^T (I - D_i P_i)^-1 e_i
    return torch.cholesky_solve(pulled.T, factor).T, own, leverage


def leave_out_own(
    hat: Tensor, curvature: Tensor, error: Tensor, leverage_corrected: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (I - D_i P_i)^-1 e_i and P_i times it [m, k - 1], and the mean eigenvalue of D_i P_i [m]."""
    leverage = curvature.double() @ hat.double()
    scaled = error.double()
    if leverage_corrected:
        identity = torch.eye(error.shape[1], dtype=torch.float64, device=error.device)
        scaled = torch.linalg.solve(identity - leverage, scaled.unsqueeze(2)).squeeze(2)
    own = (hat.double() @ scaled.unsqueeze(2)).squeeze(2)
    return scaled, own, leverage.diagonal(dim1=1, dim2=2).mean(1)


TOLERANCE, MAX_STEPS = 1e-3, 300  # of conjugate gradients


def sampled_leverages(linearised: GcnLinearisation, damping: float, *, samples: int = 200, seed: int = 0) -> Tensor:
    """Returns the mean leverage of each label's logits, from samples of a Gaussian with covariance H^-1.

    With D_i = B_i B_i^T and H = J^T D J + damping I, x = H^-1 (J^T B g_1 + sqrt(damping) g_2) has covariance H^-1
    ("perturb and solve"; Papandreou & Yuille 2010): B_i^T J_i x has the covariance B_i^T P_i B_i with
    P_i = J_i H^-1 J_i^T, and g_1i - B_i^T J_i x the leverage's complement, I - B_i^T P_i B_i. Both are sample means,
    the second one normalised by their sum, which is I: a leverage stays below 1.

    Args:
        linearised: the network at the labelled nodes.
        damping: mu > 0.
        samples: s, at least 4 k; the relative error of a variance is sqrt(2 / s).
        seed: of the samples.

    Returns:
        Float64 [m].

    Raises:
        NotConvergedError: conjugate gradients did not converge.

    Cost: one Gauss-Newton product per iteration for all samples at once; memory samples x (p + m k).
    """
    m, k = linearised.logits.shape
    generator = torch.Generator().manual_seed(seed)
    g1 = torch.randn(samples, m, k, generator=generator, dtype=torch.float64).to(linearised.logits)
    g2 = torch.randn(samples, linearised.n_parameters, generator=generator, dtype=torch.float64).to(linearised.logits)
    p = linearised.probabilities
    scale = (linearised.sample_weights / linearised.n_nodes).sqrt()
    # B_i = sqrt(w_i / m) (diag(sqrt p_i) - p_i sqrt(p_i)^T), [m, k, k]: B_i B_i^T is the curvature.
    root = scale[:, None, None] * (torch.diag_embed(p.sqrt()) - p[:, :, None] * p.sqrt()[:, None, :])
    rhs = pull_back(linearised, torch.einsum("iab,sib->sia", root, g1)) + damping**0.5 * g2
    found = solve_inverse_hvp(
        linearised, rhs, damping=damping, curvature="ggn", tolerance=TOLERANCE, max_iterations=MAX_STEPS
    )
    if bool((found.status != SolverStatus.CONVERGED).any()):
        raise NotConvergedError(f"leverages: conjugate gradients ended with {found.summary()}: raise the damping")
    moved = move_logits(linearised, found.x).transpose(0, 1).double()  # [s, m, k]
    pushed = torch.einsum("iba,sib->sia", root.double(), moved)
    left = g1.double() - pushed
    hat, rest = (torch.einsum("sia,sib->iab", part, part) / samples for part in (pushed, left))
    values, vectors = torch.linalg.eigh(hat + rest)
    scale = vectors @ torch.diag_embed(values.rsqrt()) @ vectors.transpose(1, 2)
    return (k - (scale @ rest @ scale).diagonal(dim1=1, dim2=2).sum(1)) / (k - 1)
