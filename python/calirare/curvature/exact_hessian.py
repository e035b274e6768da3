"""The exact Hessian: in its range, of a ReLU network of up to two layers, and the ends of its spectrum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.curvature.gcn import GcnLinearisation
from calirare_ext import propagate, turned_times

COLUMNS = 4096  # of a piece that is widened to float64: it stays in the cache
REPEATED = 1e-12  # of the cosine of two rows that are one but for rounding
APART = 1e-4  # its square is what the Cholesky factor of a Gram matrix loses of 16 digits


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
    """The exact Hessian in an orthonormal basis of its range, r = m (k - 1) + 2 h (k - 1) numbers instead of p.

    Per-node gradients lie in the range, and so do their products with the inverse. The basis is U R^-1 with the
    triangular R of U^T U = R^T R and is never made; where U's columns are too close to dependent for that, it comes
    from a QR decomposition.

    Args:
        linearised: the network; one or two layers.
    """

    def __init__(self, linearised: GcnLinearisation) -> None:
        rows = linearised.jacobian
        q, e = residual_factors(linearised)
        coupled = q.abs().amax(1) > 0 if q.numel() else torch.zeros(0, dtype=torch.bool, device=q.device)
        q, e = q[coupled], e[coupled]  # a unit that no labelled node sees couples nothing
        rows = torch.cat([rows, q, e])  # U^T
        self.frame = _frame(rows)
        curvature, _ = linearised.loss_terms
        m, k, _ = curvature.shape
        self.gradients, bottom = self.frame.coordinates.split([m * k, rows.shape[0] - m * k])
        ggn = self.gradients.T @ (curvature @ self.gradients.reshape(m, k, -1)).reshape(m * k, -1)
        twice = bottom[: len(q)].T @ bottom[len(q) :]
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
        return self.frame.vectors(torch.linalg.solve(system, inside).T)


@dataclass(frozen=True, eq=False)
class Frame:
    """An orthonormal basis of the span of some rows.

    Attributes:
        coordinates: of every row in the basis, [s, r], float64.
        spanning: independent rows, [r, p], of which the basis consists through `triangle`; or the basis itself.
        triangle: R [r, r] with basis = R^-T spanning; None: spanning is the basis.
    """

    coordinates: Tensor
    spanning: Tensor
    triangle: Tensor | None

    def vectors(self, coordinates: Tensor) -> Tensor:
        """Returns vectors [b, p] from their coordinates [b, r], in the dtype of the spanning rows."""
        if self.triangle is not None:
            coordinates = torch.linalg.solve_triangular(self.triangle, coordinates.T, upper=True).T
        out = self.spanning.new_empty(coordinates.shape[0], self.spanning.shape[1])
        for columns, piece in zip(out.split(COLUMNS, 1), self.spanning.split(COLUMNS, 1), strict=True):
            columns.copy_(coordinates @ piece.double())
        return out


def _frame(rows: Tensor) -> Frame:
    """Returns a basis of the span of rows [s, p]; a row that repeats another one's direction is left out of it."""
    gram = rows.new_zeros(rows.shape[0], rows.shape[0], dtype=torch.float64)
    for piece in rows.split(COLUMNS, 1):
        wide = piece.double()
        gram.addmm_(wide, wide.T)
    size = gram.diagonal().sqrt()
    cosine = gram / (size[:, None] * size)
    new = ~((cosine.abs() > 1 - REPEATED).triu(1).any(0))
    inner = gram[new][:, new]
    triangle, failed = torch.linalg.cholesky_ex(inner, upper=True)
    apart = triangle.diagonal() / size[new]  # sine of each row's angle to those before it
    if not bool(failed) and bool((apart > APART).all()):
        along = torch.linalg.solve_triangular(triangle.T, gram[new], upper=False)
        return Frame(along.T, rows if bool(new.all()) else rows[new], triangle)
    basis, along = torch.linalg.qr(rows.double().T)
    return Frame(along.T, basis.T.to(rows.dtype), None)


STEPS = 60
MARGIN = 0.1  # an estimate from inside the spectrum is widened by this share of itself before a damping trusts it


def spectrum_ends(
    product: Callable[[Tensor], Tensor], size: int, like: Tensor, *, steps: int = STEPS, seed: int = 0
) -> tuple[float, float]:
    """Returns estimates of the smallest and the largest eigenvalue of a symmetric matrix.

    Lanczos with full reorthogonalisation (Golub & Van Loan 2013, section 10.1) from a random vector. Both lie inside
    the spectrum, so the smallest is estimated from above.

    Args:
        product: maps [1, p] to [1, p].
        size: p >= 1.
        like: gives dtype and device.
        steps: products at most.
        seed: of the start.

    Returns:
        The two eigenvalues.
    """
    start = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q = (start / start.norm()).to(like)
    basis, diagonal, off = [q], [], []
    for _ in range(min(steps, size)):
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
