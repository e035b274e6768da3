"""The exact Hessian: in its range, of a ReLU network of up to two layers, and the ends of its spectrum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.curvature import GcnLinearisation, Linearisation, ModuleLinearisation
from calirare_ext import SolverResult, block_cg, hessian_product, propagate, solve_inverse_hvp, turned_times

COLUMNS = 4096  # of a piece that is widened to float64: it stays in the cache
NOTHING = 1e-13  # eigenvalues of the Gram matrix of the range, of its largest: what rounding leaves of none


def residual_factors(linearised: GcnLinearisation) -> tuple[Tensor, Tensor]:
    """Returns Q and E, [h (k - 1), p] each, with sum_i e_i d^2 z_i / d theta^2 = Q^T E + E^T Q.

    A ReLU network of two layers is bilinear in W_1 and W_2 away from its kinks, so the part of the Hessian that
    Gauss-Newton drops couples only W_1[:, j] with W_2[j, c], for each hidden unit j and class c > 0:
    Q[j, c] = sum_i e_ic sum_u A_iu m_uj (S_u, 1) at the place of (W_1[:, j], b_1[j]), and E[j, c] is +1 at W_2[j, c],
    -1 at W_2[j, 0].

    Args:
        linearised: the network at its parameters; one or two layers.

    Returns:
        Q and E; no rows for one layer, whose logits are linear in the parameters.

    Raises:
        ValueError: the network has more than two layers.
    """
    if len(linearised.layers) > 2:
        raise ValueError(
            f"solver lowrank: the network must have at most two layers, got {len(linearised.layers)}: take solver='cg'"
        )
    like = linearised.logits
    if len(linearised.layers) == 1:
        return like.new_zeros(0, linearised.n_parameters), like.new_zeros(0, linearised.n_parameters)
    w1 = linearised.layers[0][0]
    d, h = w1.shape
    k = linearised.n_classes
    _, error = linearised.loss_terms
    back = propagate(linearised.field.blocks[0].transpose(), error.to(like.dtype))  # [r_1, k - 1]
    delta = (back[:, :, None] * linearised.masks[0][:, None, :]).reshape(-1, (k - 1) * h)  # [r_1, (k - 1) h]
    product = turned_times(linearised.field.features, delta)
    q = like.new_zeros(k - 1, h, linearised.n_parameters)
    e = torch.zeros_like(q)
    unit = torch.arange(h, device=like.device)
    start = d * h + h  # of W_2, row-major [h, k]
    for c in range(k - 1):
        weights = q[c, :, : d * h].view(h, d, h)
        weights[unit, :, unit] = product.view(d, k - 1, h)[:, c].T
        q[c, unit, d * h + unit] = delta.sum(0).view(k - 1, h)[c]
        e[c, unit, start + unit * k + c + 1] = 1.0
        e[c, unit, start + unit * k] = -1.0
    return q.view(-1, linearised.n_parameters), e.view(-1, linearised.n_parameters)


class HessianRange:
    """The exact Hessian in an orthonormal basis of its range, r <= m (k - 1) + 2 h (k - 1) numbers instead of p.

    Per-node gradients lie in the range, and so do their products with the inverse. With U^T the rows that span it and
    U^T U = V diag(lambda) V^T the basis is U V lambda^(-1/2) and is never made; directions that hold less than
    `NOTHING` of the rows are left out of it.

    Args:
        linearised: the network; one or two layers.
    """

    def __init__(self, linearised: GcnLinearisation) -> None:
        gradients = linearised.jacobian
        q, e = residual_factors(linearised)
        coupled = q.abs().amax(1) > 0 if q.numel() else torch.zeros(0, dtype=torch.bool, device=q.device)
        q, e = q[coupled], e[coupled]  # a unit that no labelled node sees couples nothing
        self.rows = torch.cat([gradients, q, e])  # U^T
        gram = self.rows.new_zeros(len(self.rows), len(self.rows), dtype=torch.float64)
        for piece in self.rows.split(COLUMNS, 1):
            wide = piece.double()
            gram.addmm_(wide, wide.T)
        values, vectors = torch.linalg.eigh(gram)
        kept = values > NOTHING * values[-1]
        length = values[kept].sqrt()
        self.root = vectors[:, kept] / length  # basis = U root
        coordinates = vectors[:, kept] * length
        self.gradients, first, second = coordinates.split([len(gradients), len(q), len(e)])
        curvature, _ = linearised.loss_terms
        m, k, _ = curvature.shape
        ggn = self.gradients.T @ (curvature @ self.gradients.reshape(m, k, -1)).reshape(m * k, -1)
        twice = first.T @ second
        self.hessian = ggn + twice + twice.T

    def ends(self) -> tuple[float, float]:
        """Returns the smallest and the largest eigenvalue of the Hessian; 0 belongs to its spectrum."""
        values = torch.linalg.eigvalsh(self.hessian)
        return min(float(values[0]), 0.0), max(float(values[-1]), 0.0)

    def solve(self, combinations: Tensor, damping: float) -> Tensor:
        """Returns (H + damping I)^-1 g [b, p] for combinations g = c J of the Jacobian's rows; c is [b, m (k - 1)].

        The system need not be positive definite.
        """
        system = self.hessian.clone()
        system.diagonal().add_(damping)
        inside = self.gradients.T @ combinations.double().T
        mixed = (self.root @ torch.linalg.solve(system, inside)).T
        return torch.cat([(mixed @ piece.double()).to(piece) for piece in self.rows.split(COLUMNS, 1)], 1)


_ABSENT: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}  # parameters the outputs do not depend on


def hessian_times(linearised: Linearisation, vectors: Tensor, *, damping: float = 0.0) -> Tensor:
    """Returns (H + damping I) v for each row v of [b, p], H the exact Hessian of the mean loss without penalty."""
    if isinstance(linearised, GcnLinearisation):
        return hessian_product(linearised, vectors, damping=damping)
    if not isinstance(linearised, ModuleLinearisation):
        raise TypeError(f"hessian_times: a {type(linearised).__name__} has no exact Hessian: take a GCN or a module")
    parameters = [p for p in linearised.module.parameters() if p.requires_grad]
    with torch.enable_grad():
        logits = linearised.module(*linearised.inputs)[linearised.field.nodes]
        losses = F.cross_entropy(logits, linearised.targets, reduction="none")
        loss = (linearised.sample_weights * losses).mean()
        gradient = _flat(torch.autograd.grad(loss, parameters, create_graph=True, **_ABSENT))
    rows = [
        _flat(torch.autograd.grad(gradient, parameters, v, retain_graph=True, **_ABSENT)) for v in vectors.to(gradient)
    ]
    return torch.stack(rows) + damping * vectors if rows else vectors.new_zeros(0, linearised.n_parameters)


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def solve(linearised: Linearisation, rhs: Tensor, *, damping: float, **limits: Any) -> SolverResult:
    """Returns (H + damping I)^-1 g for each row g of [b, p]; `limits` are those of `calirare_ext.block_cg`."""
    if isinstance(linearised, GcnLinearisation):
        return solve_inverse_hvp(linearised, rhs, damping=damping, **limits)
    return block_cg(lambda v: hessian_times(linearised, v, damping=damping), rhs, **limits)


STEPS = 60
MARGIN = 0.1  # an estimate from inside the spectrum is widened by this share of itself before a damping trusts it


def spectrum_ends(product: Callable[[Tensor], Tensor], size: int, like: Tensor) -> tuple[float, float]:
    """Returns estimates of the smallest and the largest eigenvalue of a symmetric matrix.

    Lanczos with full reorthogonalisation (Golub & Van Loan 2013, section 10.1) from a random vector. Both lie inside
    the spectrum, so the smallest is estimated from above.

    Args:
        product: maps [1, p] to [1, p].
        size: p >= 1.
        like: gives dtype and device.
    """
    start = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q = (start / start.norm()).to(like)
    basis, diagonal, off = [q], [], []
    for _ in range(min(STEPS, size)):
        w = product(basis[-1][None])[0]
        diagonal.append(float(w @ basis[-1]))
        for _ in range(2):  # twice is enough (Kahan; Parlett 1998, section 6.9)
            known = torch.stack(basis)
            w = w - known.T @ (known @ w)
        norm = float(w.norm())
        if norm <= 1e-6 * max(abs(x) for x in diagonal) or len(basis) == size:
            break
        off.append(norm)
        basis.append(w / norm)
    t = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    n = len(diagonal)
    if n > 1:
        side = torch.tensor(off[: n - 1], dtype=torch.float64)
        t += torch.diag(side, 1) + torch.diag(side, -1)
    values = torch.linalg.eigvalsh(t)
    return float(values[0]), float(values[-1])


def safe_damping(lowest: float, wanted: float) -> tuple[float, str]:
    """Returns a damping that makes H + damping I positive definite, and why.

    The rule: where the smallest eigenvalue plus the wanted damping is below a tenth of the wanted one, damping becomes
    1.1 |lowest| + wanted, so that the lowest curvature left is about the wanted damping.

    Args:
        lowest: estimate of the smallest eigenvalue of H.
        wanted: damping asked for, > 0.

    Returns:
        The damping and one sentence.
    """
    if lowest + wanted > 0.1 * wanted:
        return wanted, f"as wanted: the lowest curvature {lowest:.2e} stays above it"
    raised = (1 + MARGIN) * -lowest + wanted
    return raised, f"raised from {wanted:.2e}: the Hessian has curvature down to {lowest:.2e}"
