"""The exact Hessian of a ReLU network of up to two layers as U B U^T, U of m (k - 1) + 2 h (k - 1) columns."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.leave_one_out.ggn import curvature_and_error, jacobian
from calirare_ext import Csr, GcnTape, SolverResult, block_cg, propagate


def residual_factors(tape: GcnTape) -> tuple[Tensor, Tensor]:
    """Returns Q and E, [h (k - 1), p] each, with sum_i e_i d^2 z_i / d theta^2 = Q^T E + E^T Q.

    A ReLU network of two layers is bilinear in W_1 and W_2 away from its kinks, so the part of the Hessian that
    Gauss-Newton drops couples only W_1[:, j] with W_2[j, c], for each hidden unit j and class c > 0:
    Q[j, c] = sum_i e_ic sum_u A_iu m_uj (S_u, 1) at the place of (W_1[:, j], b_1[j]), and E[j, c] is +1 at W_2[j, c],
    -1 at W_2[j, 0].

    Args:
        tape: the network at its parameters; one or two layers.

    Returns:
        Q and E; no rows for one layer, whose logits are linear in the parameters.

    Raises:
        ValueError: the network has more than two layers.
    """
    if len(tape.layers) > 2:
        raise ValueError(f"residual_factors: the network must have at most two layers, got {len(tape.layers)}")
    like = tape.logits
    if len(tape.layers) == 1:
        return like.new_zeros(0, tape.n_parameters), like.new_zeros(0, tape.n_parameters)
    w1 = tape.layers[0][0]
    d, h = w1.shape
    k = tape.n_classes
    _, error = curvature_and_error(tape)
    back = propagate(tape.field.blocks[0].transpose(), error.to(like.dtype))  # [r_1, k - 1]
    delta = (back[:, :, None] * tape.masks[0][:, None, :]).reshape(-1, (k - 1) * h)  # [r_1, (k - 1) h]
    inputs = tape.field.inputs
    product = propagate(inputs.transpose(), delta) if isinstance(inputs, Csr) else inputs.T @ delta
    q = like.new_zeros(k - 1, h, tape.n_parameters)
    e = torch.zeros_like(q)
    unit = torch.arange(h, device=like.device)
    start = d * h + h  # of W_2, row-major [h, k]
    for c in range(k - 1):
        weights = q[c, :, : d * h].view(h, d, h)
        weights[unit, :, unit] = product.view(d, k - 1, h)[:, c].T
        q[c, unit, d * h + unit] = delta.sum(0).view(k - 1, h)[c]
        e[c, unit, start + unit * k + c + 1] = 1.0
        e[c, unit, start + unit * k] = -1.0
    return q.view(-1, tape.n_parameters), e.view(-1, tape.n_parameters)


class ExactHessian:
    """(H + damping I)^-1 for the exact Hessian, through a system of m (k - 1) + 2 h (k - 1) unknowns.

    (damping I + U B U^T)^-1 = (I - U (damping I + B U^T U)^-1 B U^T) / damping. It need not be positive definite: the
    number of its negative eigenvalues is known (Sylvester's law on the same system).

    Args:
        tape: the network; one or two layers.
        damping: mu > 0.
    """

    def __init__(self, tape: GcnTape, damping: float) -> None:
        if not damping > 0:
            raise ValueError(f"ExactHessian: damping must be positive, got {damping}")
        self.damping = damping
        self.jacobian = jacobian(tape)
        q, e = residual_factors(tape)
        self.rows = torch.cat([self.jacobian, q, e])  # U^T
        curvature, _ = curvature_and_error(tape)
        m, k, _ = curvature.shape
        size, r = m * k, q.shape[0]
        self.middle = torch.zeros(self.rows.shape[0], self.rows.shape[0], dtype=torch.float64, device=q.device)
        for i in range(m):
            self.middle[i * k : (i + 1) * k, i * k : (i + 1) * k] = curvature[i]
        place = torch.arange(r, device=q.device)
        self.middle[size + place, size + r + place] = self.middle[size + r + place, size + place] = 1.0
        self.gram = (self.rows @ self.rows.T).double()
        system = self.middle @ self.gram
        system.diagonal().add_(damping)
        self.inner = torch.linalg.solve(system, self.middle)

    def curvatures(self) -> Tensor:
        """Returns the non-zero eigenvalues of H (without damping), ascending, float64."""
        values, vectors = torch.linalg.eigh(self.gram)
        root = vectors * values.clamp(min=0).sqrt()
        return torch.linalg.eigvalsh(root.T @ self.middle @ root)

    def solve(self, vectors: Tensor) -> Tensor:
        """Returns (H + damping I)^-1 v for each row of [b, p]."""
        inner = (vectors @ self.rows.T).double() @ self.inner.T
        return (vectors - inner.to(vectors.dtype) @ self.rows) / self.damping


class HessianRange:
    """The exact Hessian in an orthonormal basis of its range, r = m (k - 1) + 2 h (k - 1) numbers instead of p.

    Per-node gradients lie in the range, and so does everything conjugate gradients make of them: they run on r x r
    matrices here and take the same steps as on p parameters.

    Args:
        tape: the network; one or two layers.
    """

    def __init__(self, tape: GcnTape) -> None:
        rows = jacobian(tape)
        q, e = residual_factors(tape)
        # In float64 and by QR: the eigenvectors of the rows' Gram matrix lose half of the digits.
        rows = torch.cat([rows, q, e]).double()
        self.basis = torch.linalg.qr(rows.T).Q  # [p, r]
        root = rows @ self.basis
        curvature, _ = curvature_and_error(tape)
        m, k, _ = curvature.shape
        top = root[: m * k].view(m, k, -1)
        self.ggn = torch.einsum("iar,iab,ibs->rs", top, curvature, top)
        bottom = root[m * k :]
        coupled = bottom[: len(q)].T @ bottom[len(q) :]
        self.hessian = self.ggn + coupled + coupled.T

    def ends(self) -> tuple[float, float]:
        """Returns the smallest and the largest eigenvalue of the Hessian; 0 belongs to its spectrum."""
        values = torch.linalg.eigvalsh(self.hessian)
        return min(float(values[0]), 0.0), max(float(values[-1]), 0.0)

    def solve(
        self, rhs: Tensor, damping: float, tolerance: float, max_iterations: int, *, preconditioned: bool
    ) -> SolverResult:
        """Returns (H + damping I)^-1 g for rows of the Jacobian's span [b, p], by block conjugate gradients.

        Args:
            rhs: [b, p], combinations of per-node gradients.
            damping: added to the Hessian.
            tolerance: on the relative residual.
            max_iterations: per right-hand side.
            preconditioned: by the Gauss-Newton matrix.

        Returns:
            Solutions [b, p] and statuses; residuals are those in the range.
        """
        inside = rhs.double() @ self.basis
        identity = torch.eye(self.hessian.shape[0], dtype=torch.float64, device=rhs.device)
        system = self.hessian + damping * identity
        inverse = torch.linalg.inv(self.ggn + damping * identity) if preconditioned else None
        found = block_cg(
            lambda v: v @ system,
            inside,
            tolerance=tolerance,
            max_iterations=max_iterations,
            precondition=None if inverse is None else lambda v: v @ inverse,
        )
        return found._replace(x=(found.x @ self.basis.T).to(rhs.dtype))
