"""(GGN + damping I)^-1 through its dual: exact, m (k - 1) x m (k - 1), nothing of size p x p."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.curvature.gram import gram
from calirare.curvature.module_tape import ModuleTape, Tape, shallow
from calirare_ext import Csr, GcnTape, hessian_product, move_logits, node_gradients, propagate


def logit_differences(logits: Tensor) -> Tensor:
    """Returns z_c - z_0 for c = 1 .. k - 1, all that a softmax depends on: [n, k] -> [n, k - 1]."""
    return logits[:, 1:] - logits[:, :1]


def difference_seeds(tape: GcnTape) -> Tensor:
    """Returns the seeds [m, k - 1, k] whose pulled-back gradients are the Jacobian of z_c - z_0."""
    k = tape.n_classes
    seed = torch.eye(k, dtype=tape.logits.dtype, device=tape.logits.device)[1:]
    seed[:, 0] = -1
    return seed.expand(tape.n_nodes, k - 1, k)


def jacobian(tape: Tape) -> Tensor:
    """Returns the rows d (z_c - z_0)(i) / d theta, [m (k - 1), p]."""
    if isinstance(tape, ModuleTape):
        return tape.jacobian
    return node_gradients(tape, difference_seeds(tape)).dense()


def own_kernel(tape: Tape, products: Tensor | None = None) -> Tensor:
    """Returns K = J J^T at the labelled nodes, [m (k - 1), m (k - 1)]; products as in `gram`."""
    size = tape.n_nodes * (tape.n_classes - 1)
    if shallow(tape):
        return gram(tape, tape.field, products=products).reshape(size, size)
    rows = jacobian(tape)
    return rows @ rows.T


def curvature_and_error(tape: Tape) -> tuple[Tensor, Tensor]:
    """Returns D [m, k - 1, k - 1] and e [m, k - 1] of the mean loss in the logit differences, float64.

    D_i = w_i (diag(p_i) - p_i p_i^T) / m and e_i = w_i (p_i - y_i) / m, class 0 left out.
    """
    p = torch.softmax(tape.logits.double(), 1)[:, 1:]
    weight = (tape.sample_weights.double() / tape.n_nodes)[:, None]
    weighted = weight * p
    curvature = weighted[:, :, None] * -p[:, None, :]
    curvature.diagonal(dim1=1, dim2=2).add_(weighted)
    right = tape.targets[:, None] == torch.arange(1, tape.n_classes, device=p.device)
    return curvature, weight * (p - right.to(p))


def dual_system(curvature: Tensor, kernel: Tensor, damping: float) -> Tensor:
    """Returns damping I + D K, [m (k - 1), m (k - 1)], float64.

    Args:
        curvature: D, [m, k - 1, k - 1].
        kernel: K, [m (k - 1), m (k - 1)].
        damping: mu.

    Returns:
        The matrix.
    """
    m, k, _ = curvature.shape
    rows = kernel.double().reshape(m, k, m * k)
    system = (curvature * rows if k == 1 else curvature @ rows).reshape(m * k, m * k)
    system.diagonal().add_(damping)
    return system


def pull_back(tape: GcnTape, seeds: Tensor) -> Tensor:
    """Returns J^T u for each block of seeds: the gradient of sum_i <u_i, z_i>.

    Args:
        tape: the network at its parameters.
        seeds: u, [b, m, k], dtype and device of the tape.

    Returns:
        [b, p]; parameters in the order W_1, b_1, .., W_L, b_L, row-major.
    """
    b = seeds.shape[0]
    delta = seeds.transpose(0, 1).reshape(tape.n_nodes, b * seeds.shape[2])  # [r_l, b h_l]
    inputs: list[Tensor | Csr] = [tape.field.inputs, *tape.aggregated]
    parts: list[Tensor] = []
    for level in range(len(tape.layers) - 1, -1, -1):
        weight = tape.layers[level][0]
        d, h = weight.shape
        below = inputs[level]
        product = propagate(below.transpose(), delta) if isinstance(below, Csr) else below.T @ delta
        parts[:0] = [product.view(d, b, h).transpose(0, 1).reshape(b, d * h), delta.sum(0).view(b, h)]
        if level:
            back = (delta.view(-1, b, h) @ weight.T).view(delta.shape[0], b * d)
            back = propagate(tape.field.blocks[level - 1].transpose(), back)
            delta = (back.view(-1, b, d) * tape.masks[level - 1][:, None, :]).view(-1, b * d)
    return torch.cat(parts, 1)


def push_forward(tape: Tape, vectors: Tensor) -> Tensor:
    """Returns J v in logit differences for each row v of [b, p]: [b, m, k - 1]."""
    if isinstance(tape, ModuleTape):
        return (vectors @ tape.jacobian.T).view(-1, tape.n_nodes, tape.n_classes - 1)
    moved = move_logits(tape, vectors)  # [m, b, k]
    return (moved[:, :, 1:] - moved[:, :, :1]).transpose(0, 1)


def pull_differences(tape: Tape, seeds: Tensor) -> Tensor:
    """Returns J^T u [b, p] for seeds u of the logit differences, [b, m, k - 1]."""
    if isinstance(tape, ModuleTape):
        return seeds.flatten(1) @ tape.jacobian
    return pull_back(tape, torch.cat([-seeds.sum(2, keepdim=True), seeds], 2))


def hessian_along(tape: Tape, vectors: Tensor, *, damping: float = 0.0) -> Tensor:
    """Returns (H + damping I) v for each row v of [b, p], H the exact Hessian of the mean loss."""
    if isinstance(tape, ModuleTape):
        return tape.hessian_product(vectors).add_(vectors, alpha=damping)
    return hessian_product(tape, vectors, damping=damping)


class GgnInverse:
    """v -> (J^T D J + damping I)^-1 v = (v - J^T (damping I + D K)^-1 D J v) / damping, exact up to rounding.

    Symmetric positive definite, so it may precondition conjugate gradients on the exact Hessian.

    Args:
        tape: the network at its parameters.
        damping: mu > 0.
        kernel: K at the labelled nodes, where it is known already.

    Cost: one kernel and an m (k - 1) system in float64 once; per vector one forward and one backward product.
    """

    def __init__(self, tape: Tape, damping: float, kernel: Tensor | None = None) -> None:
        if not damping > 0:
            raise ValueError(f"GgnInverse: damping must be positive, got {damping}")
        self.tape, self.damping = tape, damping
        curvature, _ = curvature_and_error(tape)
        m, k, _ = curvature.shape
        system = dual_system(curvature, own_kernel(tape) if kernel is None else kernel, damping)
        blocks = torch.zeros(m, k, m, k, dtype=torch.float64, device=curvature.device)
        blocks.diagonal(dim1=0, dim2=2).copy_(curvature.permute(1, 2, 0))
        inner = torch.linalg.solve(system, blocks.view(m * k, m * k))
        self.inner = ((inner + inner.T) / 2).to(tape.logits.dtype)  # (mu + D K)^-1 D is symmetric

    def __call__(self, vectors: Tensor) -> Tensor:
        """Returns the product with each row of [b, p]."""
        moved = push_forward(self.tape, vectors)
        b, m, k = moved.shape
        inner = (moved.reshape(b, m * k) @ self.inner).view(b, m, k)
        return (vectors - pull_differences(self.tape, inner)) / self.damping
