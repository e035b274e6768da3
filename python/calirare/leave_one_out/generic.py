"""Leave-one-out for any differentiable torch module: GAT, GIN, SAGE or a user's own, by reverse mode alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from calirare.leave_one_out.alo import leave_out
from calirare.leave_one_out.change import Diagnostics, LooChange

Logits = Callable[[], Tensor]


def alo_of_module(
    module: nn.Module,
    logits: Logits,
    nodes: Tensor,
    targets: Tensor,
    damping: float,
    *,
    sample_weights: Tensor | None = None,
    where: Tensor | None = None,
    forward: str = "linearised",
) -> LooChange:
    """Returns the approximate leave-one-out of `alo` for a module of any shape.

    Only reverse-mode derivatives are asked of the module (first order for "full", second for "linearised"), so sparse
    and scatter propagation work. The module must be in evaluation mode: dropout would change between passes.

    Args:
        module: the network; all parameters that require a gradient take part.
        logits: returns the logits of every node [n, k] at the module's present parameters, such as
            `lambda: module(x, edge_index)`.
        nodes: labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        damping: mu > 0, the weight decay of training on all these parameters.
        sample_weights: w_i [m]; None: ones.
        where: nodes v to evaluate; None: all.
        forward: "linearised" or "full".

    Returns:
        The changes.

    Raises:
        ValueError: the module is in training mode, or a number or word does not fit.

    Cost: m (k - 1) backward passes, then m more ("linearised") or m forward passes ("full"); memory m (k - 1) p.
    """
    if module.training:
        raise ValueError("alo_of_module: module must be in evaluation mode, got training mode: call eval()")
    if not damping > 0:
        raise ValueError(f"alo_of_module: damping must be positive, got {damping}")
    if forward not in ("linearised", "full"):
        raise ValueError(f"alo_of_module: forward must be linearised or full, got {forward!r}")
    parameters = [p for p in module.parameters() if p.requires_grad]
    z = logits()
    where = torch.arange(z.shape[0], device=z.device) if where is None else where
    weights = torch.ones_like(z[nodes, 0]) if sample_weights is None else sample_weights.to(z)
    rows = _jacobian(z, nodes, parameters)
    curvature, error = _loss_terms(z.detach()[nodes], targets, weights)
    solved = _inverse_rows(rows, curvature, damping)
    hat = torch.einsum("iap,ibp->iab", rows, solved)
    directions, own, leverage = leave_out(solved, hat, curvature, error)
    if forward == "full":
        moved = _evaluated(parameters, logits, directions)
        change = moved[where]
        own = moved[nodes].diagonal(dim1=0, dim2=2).T
    else:
        change = _linearised(parameters, logits, where, directions)
    facts = Diagnostics("alo", "autograd", damping)
    return LooChange(change, own.to(z.dtype), leverage, damping, diagnostics=facts)


def _differences(z: Tensor) -> Tensor:
    return z[:, 1:] - z[:, :1]


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def _jacobian(z: Tensor, nodes: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Returns d (z_c - z_0)(i) / d theta, [m, k - 1, p]."""
    own = _differences(z[nodes])
    rows = [
        _flat(torch.autograd.grad(own[i, c], parameters, retain_graph=True, allow_unused=True, materialize_grads=True))
        for i in range(own.shape[0])
        for c in range(own.shape[1])
    ]
    return torch.stack(rows).view(own.shape[0], own.shape[1], -1)


def _loss_terms(z: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns D and e of `ggn.curvature_and_error`."""
    p = torch.softmax(z.double(), 1)[:, 1:]
    scale = weights.double() / z.shape[0]
    curvature = scale[:, None, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    wanted = torch.nn.functional.one_hot(targets, z.shape[1])[:, 1:]
    return curvature, scale[:, None] * (p - wanted)


def _inverse_rows(rows: Tensor, curvature: Tensor, damping: float) -> Tensor:
    """Returns (J^T D J + damping I)^-1 J_i^T as rows [m, k - 1, p], through the dual."""
    m, k, p = rows.shape
    flat = rows.view(m * k, p)
    kernel = (flat @ flat.T).double()
    system = (curvature @ kernel.view(m, k, m * k)).view(m * k, m * k)
    system.diagonal().add_(damping)
    return (torch.linalg.inv(system).T.to(rows.dtype) @ flat).view(m, k, p)


def _evaluated(parameters: list[nn.Parameter], logits: Logits, directions: Tensor) -> Tensor:
    """Returns z(theta + v) - z(theta) in differences for every direction, [n, k - 1, b]; parameters are put back."""
    sizes = [p.numel() for p in parameters]
    kept = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        before = _differences(logits())
        moved = []
        try:
            for direction in directions:
                for p, old, part in zip(parameters, kept, direction.split(sizes), strict=True):
                    p.copy_(old + part.view_as(p))
                moved.append(_differences(logits()) - before)
        finally:
            for p, old in zip(parameters, kept, strict=True):
                p.copy_(old)
    return torch.stack(moved, 2)


def _linearised(parameters: list[nn.Parameter], logits: Logits, where: Tensor, directions: Tensor) -> Tensor:
    """Returns J v in differences at the nodes `where`, [n_v, k - 1, b]: the derivative of <J^T u, v> by u."""
    z = _differences(logits()[where])
    u = torch.zeros_like(z, requires_grad=True)
    gradients = torch.autograd.grad(z, parameters, u, create_graph=True, allow_unused=True, materialize_grads=True)
    pulled = _flat(gradients)
    columns = [torch.autograd.grad(pulled, u, direction.to(pulled), retain_graph=True)[0] for direction in directions]
    return torch.stack(columns, 2)
