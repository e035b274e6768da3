"""The ends of a Hessian's spectrum by the Lanczos method."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
