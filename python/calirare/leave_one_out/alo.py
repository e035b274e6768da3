"""Approximate leave-one-out: one damped Gauss-Newton step with leverage correction, in its dual, for every label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.leave_one_out.gram import gram
from calirare_ext import GcnTape, ReceptiveField, move_logits, node_gradients, record

DIRECTION_NUMBERS = 16_000_000  # numbers in one block of parameter directions


@dataclass(frozen=True, eq=False)
class LooChange:
    """What leaving each labelled node out does to the logit differences z_c - z_0.

    Attributes:
        change: how node v's logits move when node i is left out, [n_v, k - 1, m].
        own: how node i's logits move when itself is left out, [m, k - 1].
        leverage: h_i, mean eigenvalue of the block of the hat matrix, float64 [m], in [0, 1).
        damping: mu, added to the curvature.
    """

    change: Tensor
    own: Tensor
    leverage: Tensor
    damping: float


def logit_differences(logits: Tensor) -> Tensor:
    """Returns z_c - z_0 for c = 1 .. k - 1, all that a softmax depends on: [n, k] -> [n, k - 1]."""
    return logits[:, 1:] - logits[:, :1]


def alo(tape: GcnTape, everywhere: ReceptiveField, damping: float) -> LooChange:
    """Returns the change of every logit for every labelled node left out, to first order in the logits.

    Solves, for each i, one Newton step of loss = sum_{j != i} w_j l_j / m + damping / 2 |theta|^2 with the
    Gauss-Newton curvature, from the full fit. In the dual, with K = J J^T at the labelled nodes T, D the block diagonal
    curvature w_i (diag(p_i) - p_i p_i^T) / m, e_i = w_i (p_i - y_i) / m and M = damping I + D K:

        dz[v, -i] = K[v, T] M^-1[:, i] (damping M^-1[i, i])^-1 e_i

    The bracket is 1 - leverage, which plain influence functions leave out (they see 15-20 % of the change). The sign is
    that of removing a node, theta_-i = theta + H^-1 g_i / m: the paper's Algorithm 1, line 3 prints the opposite.

    Args:
        tape: the network at the labelled nodes, near a stationary point of its loss with this weight decay.
        everywhere: receptive field of the nodes v.
        damping: the weight decay mu of training, or more; > 0.

    Returns:
        The changes.

    Raises:
        ValueError: the damping is not positive.

    Precision: kernels in the dtype of the tape, the m (k - 1) system in float64.
    Cost: Gram form (up to two layers) n_u r (d + h) + n_v m^2 (k - 1)^2 multiply-adds for n_u rows and r rows in the
    two receptive fields; deeper networks form the m (k - 1) Jacobian rows instead.
    """
    if not damping > 0:
        raise ValueError(f"alo: damping must be positive, got {damping}")
    own_kernel, kernel, jacobian = _kernels(tape, everywhere)
    coefficients, leverage = loo_coefficients(tape, own_kernel, damping)
    columns = coefficients.to(tape.logits.dtype)
    if kernel is not None:
        change = _times(kernel, columns)
    else:
        assert jacobian is not None
        change = _move_everywhere(tape, everywhere, columns.T @ jacobian)
    m, k = tape.n_nodes, tape.n_classes - 1
    own = (own_kernel.reshape(m, k, m * k).double() * coefficients.T.reshape(m, 1, m * k)).sum(2)
    return LooChange(change, own.to(tape.logits.dtype), leverage, damping)


def loo_coefficients(tape: GcnTape, kernel: Tensor, damping: float) -> tuple[Tensor, Tensor]:
    """Returns alpha [m (k - 1), m] with theta_-i - theta = J^T alpha_i, and the leverages [m]; both float64.

    Args:
        tape: the network at the labelled nodes.
        kernel: K at the labelled nodes, [m (k - 1), m (k - 1)].
        damping: mu > 0.

    Returns:
        Coefficients and leverages.
    """
    m, k = tape.n_nodes, tape.n_classes - 1
    p = torch.softmax(tape.logits.double(), 1)[:, 1:]
    weight = tape.sample_weights.double() / m
    curvature = weight[:, None, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])  # [m, k, k]
    wanted = torch.nn.functional.one_hot(tape.targets, k + 1)[:, 1:]
    error = weight[:, None] * (p - wanted)
    system = (curvature @ kernel.double().reshape(m, k, m * k)).reshape(m * k, m * k)
    system.diagonal().add_(damping)
    inverse = torch.linalg.inv(system)
    blocks = inverse.reshape(m, k, m, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [m, k, k]
    scaled = torch.linalg.solve(damping * blocks, error.unsqueeze(2))  # [m, k, 1]
    coefficients = torch.einsum("ria,ia->ri", inverse.reshape(m * k, m, k), scaled.squeeze(2))
    leverage = 1 - damping * blocks.diagonal(dim1=1, dim2=2).mean(1)
    return coefficients, leverage


def own_kernel(tape: GcnTape) -> Tensor:
    """Returns K = J J^T of the logit differences at the labelled nodes, [m (k - 1), m (k - 1)]."""
    if len(tape.layers) > 2:
        jacobian = node_gradients(tape, difference_seeds(tape)).dense()
        return jacobian @ jacobian.T
    size = tape.n_nodes * (tape.n_classes - 1)
    return gram(tape, tape.field).reshape(size, size)


def difference_seeds(tape: GcnTape) -> Tensor:
    """Returns the seeds [m, k - 1, k] whose pulled-back gradients are the Jacobian of z_c - z_0."""
    k = tape.n_classes
    seed = torch.eye(k, dtype=tape.logits.dtype, device=tape.logits.device)[1:]
    seed[:, 0] = -1
    return seed.expand(tape.n_nodes, k - 1, k)


def _kernels(tape: GcnTape, everywhere: ReceptiveField) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Returns K at the labelled nodes, and either K[v, T] (Gram form) or the Jacobian rows."""
    size = tape.n_nodes * (tape.n_classes - 1)
    if len(tape.layers) > 2:
        jacobian = node_gradients(tape, difference_seeds(tape)).dense()
        return jacobian @ jacobian.T, None, jacobian
    kernel = gram(tape, everywhere)
    place = _places(everywhere.nodes, tape.field.nodes)
    own = own_kernel(tape) if place is None else kernel[place].reshape(size, size)
    return own, kernel, None


def _places(nodes: Tensor, wanted: Tensor) -> Tensor | None:
    """Returns where each wanted node stands in `nodes`, or None where one is missing."""
    order = torch.argsort(nodes)
    at = torch.searchsorted(nodes[order], wanted)
    at = order[at.clamp(max=nodes.numel() - 1)] if nodes.numel() else at
    return at if nodes.numel() and bool((nodes[at] == wanted).all()) else None


def _times(kernel: Tensor, columns: Tensor) -> Tensor:
    n, k, m, _ = kernel.shape
    return (kernel.reshape(n * k, m * k) @ columns).reshape(n, k, m)


def _move_everywhere(tape: GcnTape, everywhere: ReceptiveField, directions: Tensor) -> Tensor:
    """Returns J v for every direction [m, p] at the nodes everywhere, [n_v, k - 1, m]."""
    n = everywhere.nodes.numel()
    none = torch.zeros(n, dtype=torch.int64, device=tape.logits.device)
    there = record(everywhere, tape.layers, none)
    out = torch.empty(n, tape.n_classes - 1, directions.shape[0], dtype=directions.dtype, device=directions.device)
    rows = max(x.numel() for x in everywhere.rows) * max(weight.shape[1] for weight, _ in tape.layers)
    step = max(1, DIRECTION_NUMBERS // max(rows, directions.shape[1]))
    for start in range(0, directions.shape[0], step):
        moved = move_logits(there, directions[start : start + step])  # [n, b, k]
        out[:, :, start : start + step] = (moved[:, :, 1:] - moved[:, :, :1]).transpose(1, 2)
    return out
