"""Approximate leave-one-out: one damped Gauss-Newton step with leverage correction, for every label."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.threads import threads_for
from calirare.curvature.directions import Forward, change_along
from calirare.curvature.ggn import (
    curvature_and_error,
    difference_seeds,
    dual_system,
    jacobian,
    logit_differences,
    own_kernel,
)
from calirare.curvature.gram import gram
from calirare.curvature.module_tape import ModuleTape, Tape, Where, shallow
from calirare.leave_one_out.result import LooChange
from calirare_ext import Csr, GcnTape, ReceptiveField

__all__ = ["FORMS", "LooChange", "alo", "difference_seeds", "logit_differences", "loo_coefficients", "own_kernel"]

FORMS = ("auto", "gram", "jacobian", "primal")
BLOCK_NUMBERS = 16_000_000  # numbers of the Jacobian worked on together in float64


def alo(
    tape: Tape,
    everywhere: Where,
    damping: float,
    *,
    form: str = "auto",
    forward: Forward = "linearised",
    leverage_corrected: bool = True,
) -> LooChange:
    """Returns the change of every logit for every labelled node left out, to first order in the logits.

    Solves, for each i, one Newton step of loss = sum_{j != i} w_j l_j / m + damping / 2 |theta|^2 with the
    Gauss-Newton curvature, from the full fit. In the dual, with K = J J^T at the labelled nodes T, D the block diagonal
    curvature w_i (diag(p_i) - p_i p_i^T) / m, e_i = w_i (p_i - y_i) / m and M = damping I + D K:

        dz[v, -i] = K[v, T] M^-1[:, i] (damping M^-1[i, i])^-1 e_i

    The bracket is 1 - leverage, which plain influence functions leave out (they see 15-20 % of the change). The sign is
    that of removing a node, theta_-i = theta + H^-1 g_i / m: the paper's Algorithm 1, line 3 prints the opposite.

    Args:
        tape: the network at the labelled nodes, near a stationary point of its loss with this weight decay.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        damping: the weight decay mu of training, or more; > 0.
        form: "gram" (up to two layers; nothing of the size of the parameters is made), "jacobian" (m (k - 1) x p),
            "primal" (a p x p system, for more labels than parameters) or "auto": the cheapest of them.
        forward: "linearised" logits, or "full": the network evaluated at each theta_-i.
        leverage_corrected: False gives the plain Gauss-Newton influence function.

    Returns:
        The changes.

    Raises:
        ValueError: the damping is not positive, or a word is unknown.

    Precision: kernels in the dtype of the tape, the systems in float64.
    Cost: Gram form n_u r (d + h) + n_v m^2 (k - 1)^2 multiply-adds for n_u rows and r rows in the two receptive fields;
    the others m n_u d h.
    """
    if not damping > 0:
        raise ValueError(f"alo: damping must be positive, got {damping}")
    if form not in FORMS:
        raise ValueError(f"alo: form must be one of {', '.join(FORMS)}, got {form!r}")
    form = choose_form(tape) if form == "auto" else form
    if form == "primal":
        return _primal(tape, everywhere, damping, forward, leverage_corrected)
    if form == "jacobian" or forward == "full":
        rows = jacobian(tape)
        kernel = rows @ rows.T
        coefficients, leverage = loo_coefficients(tape, kernel, damping, leverage_corrected=leverage_corrected)
        directions = coefficients.T.to(rows.dtype) @ rows
        change = change_along(tape, everywhere, directions, forward)
        own = change_along(tape, tape.field, directions, "full") if forward == "full" else None
        own = own_change(tape, kernel, coefficients) if own is None else own.diagonal(dim1=0, dim2=2).T
        return LooChange(change, own.to(tape.logits.dtype), leverage, damping)
    if isinstance(tape, ModuleTape):
        raise ValueError("alo: form gram must have a GCN, got another module: take form='jacobian'")
    assert isinstance(everywhere, ReceptiveField)
    return _gram_form(tape, everywhere, damping, leverage_corrected)


def choose_form(tape: Tape) -> str:
    """Returns the cheapest form: "gram" up to two layers, "primal" where p is below m (k - 1), else "jacobian"."""
    if tape.n_parameters < tape.n_nodes * (tape.n_classes - 1):
        return "primal"
    return "gram" if shallow(tape) else "jacobian"


def loo_coefficients(
    tape: Tape, kernel: Tensor, damping: float, *, leverage_corrected: bool = True
) -> tuple[Tensor, Tensor]:
    """Returns alpha [m (k - 1), m] with theta_-i - theta = J^T alpha_i, and the leverages [m]; both float64.

    Args:
        tape: the network at the labelled nodes.
        kernel: K at the labelled nodes, [m (k - 1), m (k - 1)].
        damping: mu > 0.
        leverage_corrected: False leaves the bracket of `alo` out.

    Returns:
        Coefficients and leverages.
    """
    with threads_for(kernel.shape[0] ** 3):
        curvature, error = curvature_and_error(tape)
        m, k = error.shape
        inverse = torch.linalg.inv(dual_system(curvature, kernel, damping))
        blocks = inverse.reshape(m, k, m, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [m, k, k]
        scaled = _solve_each(damping * blocks, error) if leverage_corrected else error
        coefficients = (inverse.reshape(m * k, m, k) * scaled).sum(2)
        leverage = 1 - damping * blocks.diagonal(dim1=1, dim2=2).mean(1)
    return coefficients, leverage


def _solve_each(blocks: Tensor, rhs: Tensor) -> Tensor:
    """Returns blocks[i]^-1 rhs[i]; [m, k, k] and [m, k] to [m, k]."""
    if rhs.shape[1] == 1:
        return rhs / blocks[:, 0]
    return torch.linalg.solve(blocks, rhs.unsqueeze(2)).squeeze(2)


def own_change(tape: Tape, kernel: Tensor, coefficients: Tensor) -> Tensor:
    """Returns how each labelled node's own logits move, [m, k - 1], float64."""
    m, k = tape.n_nodes, tape.n_classes - 1
    return (kernel.reshape(m, k, m * k).double() * coefficients.T.reshape(m, 1, m * k)).sum(2)


def kernels(tape: GcnTape, everywhere: ReceptiveField) -> tuple[Tensor, Tensor]:
    """Returns K at the labelled nodes [m (k - 1), m (k - 1)] and K[v, T] [n_v, k - 1, m, k - 1]."""
    size = tape.n_nodes * (tape.n_classes - 1)
    kernel = gram(tape, everywhere)
    place = _places(everywhere, tape.field)
    own = own_kernel(tape) if place is None else kernel[place].reshape(size, size)
    return own, kernel


def along_kernel(kernel: Tensor, columns: Tensor) -> Tensor:
    """Returns K[v, T] alpha for every column: [n_v, k - 1, m, k - 1] and [m (k - 1), c] to [n_v, k - 1, c]."""
    n, k, m, _ = kernel.shape
    return (kernel.reshape(n * k, m * k) @ columns.to(kernel.dtype)).reshape(n, k, columns.shape[1])


def _gram_form(tape: GcnTape, everywhere: ReceptiveField, damping: float, leverage_corrected: bool) -> LooChange:
    own_kernel_, kernel = kernels(tape, everywhere)
    coefficients, leverage = loo_coefficients(tape, own_kernel_, damping, leverage_corrected=leverage_corrected)
    own = own_change(tape, own_kernel_, coefficients).to(tape.logits.dtype)
    return LooChange(along_kernel(kernel, coefficients), own, leverage, damping)


def _primal(tape: Tape, everywhere: Where, damping: float, forward: Forward, leverage_corrected: bool) -> LooChange:
    directions, own, leverage = primal_directions(tape, damping, leverage_corrected)
    change = change_along(tape, everywhere, directions.to(tape.logits.dtype), forward)
    if forward == "full":
        moved = change_along(tape, tape.field, directions.to(tape.logits.dtype), forward)
        own = moved.diagonal(dim1=0, dim2=2).T
    return LooChange(change, own.to(tape.logits.dtype), leverage, damping)


def primal_directions(
    tape: Tape, damping: float, leverage_corrected: bool = True, chosen: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns theta_-i - theta of some labels, own changes and leverages, from J^T D J + damping I; all float64.

    Args:
        tape: the network at the labelled nodes.
        damping: mu > 0.
        leverage_corrected: see `alo`.
        chosen: places of the labels whose directions are wanted, int64 [s]; None: all m.

    Returns:
        Directions [s, p]; own changes [m, k - 1] and leverages [m] of all labels.
    """
    rows = jacobian(tape)
    curvature, error = curvature_and_error(tape)
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


def gauss_newton(rows: Tensor, curvature: Tensor) -> Tensor:
    """Returns J^T D J [p, p] in float64, from J [m (k - 1), p] and D [m, k - 1, k - 1], some labels at a time."""
    k, p = curvature.shape[1], rows.shape[1]
    labels = block_of_labels(p * k)
    out = rows.new_zeros(p, p, dtype=torch.float64)
    for part, bent in zip(rows.split(labels * k), curvature.split(labels), strict=True):
        wide = part.double()
        out.addmm_(wide.T, (bent @ wide.view(-1, k, p)).flatten(0, 1))
    return out


def block_of_labels(numbers_of_each: int) -> int:
    """Returns how many labels are worked on together."""
    return max(1, BLOCK_NUMBERS // numbers_of_each)


def leave_out(
    solved: Tensor, hat: Tensor, curvature: Tensor, error: Tensor, leverage_corrected: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns directions, own changes and leverages from H^-1 J_i^T: Delta_i = H^-1 J_i^T (I - D_i P_i)^-1 e_i.

    Args:
        solved: H^-1 J_i^T as rows, [m, k - 1, p].
        hat: P_i = J_i H^-1 J_i^T, [m, k - 1, k - 1].
        curvature: D_i, [m, k - 1, k - 1].
        error: e_i, [m, k - 1].
        leverage_corrected: False leaves the bracket out.

    Returns:
        Delta [m, p], the change of node i's logits [m, k - 1], mean eigenvalue of D_i P_i [m].
    """
    scaled, own, leverage = leave_out_own(hat, curvature, error, leverage_corrected)
    return torch.einsum("iap,ia->ip", solved, scaled.to(solved.dtype)), own, leverage


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


def _places(everywhere: ReceptiveField, own: ReceptiveField) -> Tensor | None:
    """Returns where each labelled node stands in a field of the same graph; None where one is missing.

    None also for the field of another graph, where the same numbers mean other nodes: their inputs and neighbours tell.
    """
    place, below = _find(everywhere.nodes, own.nodes), places_of_rows(everywhere, own)
    if place is None or below is None:
        return None
    for block, own_block in zip(everywhere.blocks, own.blocks, strict=True):
        rows = block.select_rows(place)
        mine = Csr(own_block.indptr, below[own_block.indices.long()].int(), own_block.values, block.n_cols)
        if not _equal(rows, mine):
            return None
    return place


def places_of_rows(everywhere: ReceptiveField, own: ReceptiveField) -> Tensor | None:
    """Returns where the rows of a field's inputs stand in another's, int64 [r]; None where one is missing."""
    inputs = own.inputs
    with threads_for(inputs.nnz if isinstance(inputs, Csr) else inputs.numel()):
        below = _find(everywhere.rows[0], own.rows[0])
        return below if below is not None and _equal(_rows(everywhere.inputs, below), inputs) else None


def _find(nodes: Tensor, wanted: Tensor) -> Tensor | None:
    """Returns where each wanted node stands in `nodes`, or None where one is missing."""
    if nodes.numel() == 0:
        return None
    order = torch.argsort(nodes)
    at = order[torch.searchsorted(nodes[order], wanted).clamp(max=nodes.numel() - 1)]
    return at if bool((nodes[at] == wanted).all()) else None


def _rows(x: Tensor | Csr, rows: Tensor) -> Tensor | Csr:
    return x.select_rows(rows) if isinstance(x, Csr) else x[rows]


def _equal(a: Tensor | Csr, b: Tensor | Csr) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
    parts = ((a.indptr, b.indptr), (a.indices, b.indices), (a.values, b.values))
    return a.shape == b.shape and all(torch.equal(x, y) for x, y in parts)
