"""Leverages of labels by sampling, where labels and parameters are both too many for a dense system."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare.curvature import GcnLinearisation, pull_back
from calirare_ext import SolverStatus, move_logits, solve_inverse_hvp

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
    root = _curvature_root(linearised)
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


def _curvature_root(linearised: GcnLinearisation) -> Tensor:
    """Returns B_i = sqrt(w_i / m) (diag(sqrt p_i) - p_i sqrt(p_i)^T), [m, k, k]: B_i B_i^T is the curvature."""
    p = linearised.probabilities
    scale = (linearised.sample_weights / linearised.n_nodes).sqrt()
    return scale[:, None, None] * (torch.diag_embed(p.sqrt()) - p[:, :, None] * p.sqrt()[:, None, :])
