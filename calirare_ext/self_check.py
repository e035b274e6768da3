"""A quick comparison of every kernel with its float64 reference, for `calirare doctor`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calirare_ext import reference
from calirare_ext.csr import Csr
from calirare_ext.gcn_norm import gcn_norm
from calirare_ext.inverse_hvp import SolverStatus, hessian_product, solve_inverse_hvp
from calirare_ext.jackknife_interval import jackknife_interval
from calirare_ext.node_gradients import node_gradients
from calirare_ext.propagate import propagate
from calirare_ext.receptive_field import ReceptiveField, receptive_field
from calirare_ext.tape import Layer, record

# float64 rounding (1e-16) times the longest sums here (1e3) leaves four digits to spare
TOLERANCE = 1e-9


def _problem(device: torch.device) -> tuple[ReceptiveField, list[Layer], Tensor, Tensor]:
    """Returns a two-layer network on a random graph of 60 nodes with 12 labelled ones."""
    draw = torch.Generator().manual_seed(0)
    upper = torch.triu((torch.rand(60, 60, generator=draw) < 0.1).double(), 1)
    a_hat = gcn_norm(Csr.from_dense((upper + upper.T).to(device)))
    x = torch.randn(60, 9, dtype=torch.float64, generator=draw).to(device)
    layers = [
        tuple(torch.randn(*shape, dtype=torch.float64, generator=draw).to(device) for shape in ((d, h), (h,)))
        for d, h in ((9, 5), (5, 3))
    ]
    nodes = torch.randperm(60, generator=draw)[:12].to(device)
    targets = torch.randint(0, 3, (12,), generator=draw).to(device)
    weights = (torch.rand(12, dtype=torch.float64, generator=draw) + 0.5).to(device)
    field = receptive_field(a_hat, propagate(a_hat, x), nodes, 2)
    return field, [(weight, bias) for weight, bias in layers], targets, weights


def _difference(got: Tensor, wanted: Tensor) -> str | None:
    scale = float(wanted.abs().max())
    error = float((got - wanted).abs().max()) / max(scale, 1.0)
    return None if error <= TOLERANCE else f"differs from its reference by {error:.2g}"


def check_propagate(device: torch.device) -> str | None:
    """Returns what is wrong with propagate, or None."""
    field, *_ = _problem(device)
    block = field.blocks[0]
    x = torch.ones(block.n_cols, 37, dtype=torch.float64, device=device).cumsum(1)
    return _difference(propagate(block, x), reference.propagate(block, x))


def check_node_gradients(device: torch.device) -> str | None:
    """Returns what is wrong with node_gradients, or None."""
    problem = _problem(device)
    return _difference(node_gradients(record(*problem)).dense(), reference.node_gradients(*problem))


def check_solve_inverse_hvp(device: torch.device) -> str | None:
    """Returns what is wrong with the Hessian product and its block CG, or None."""
    problem = _problem(device)
    tape, hessian = record(*problem), reference.hessian(*problem)
    rhs = node_gradients(tape).dense()
    fault = _difference(hessian_product(tape, rhs), rhs @ hessian)
    if fault is not None:
        return fault
    damping = 0.1 - min(0.0, float(torch.linalg.eigvalsh(hessian)[0]))
    result = solve_inverse_hvp(tape, rhs, damping=damping, tolerance=1e-12)
    if bool((result.status != SolverStatus.CONVERGED).any()):
        return f"did not converge: {result.summary()}"
    eye = torch.eye(hessian.shape[0], dtype=hessian.dtype, device=device)
    return _difference(result.x, torch.linalg.solve(hessian + damping * eye, rhs.T).T)


def check_jackknife_interval(device: torch.device) -> str | None:
    """Returns what is wrong with jackknife_interval, or None."""
    draw = torch.Generator().manual_seed(1)
    scores = torch.rand(40, 101, dtype=torch.float64, generator=draw).to(device)
    residuals = torch.rand(101, dtype=torch.float64, generator=draw).to(device)
    ends = jackknife_interval(scores, residuals, 0.05, 0.95)
    lower, upper = reference.jackknife_interval(scores, residuals, 0.05, 0.95)
    return _difference(torch.stack([ends.lower, ends.upper]), torch.stack([lower, upper]))


CHECKS: dict[str, Callable[[torch.device], str | None]] = {
    "propagate": check_propagate,
    "node_gradients": check_node_gradients,
    "solve_inverse_hvp": check_solve_inverse_hvp,
    "jackknife_interval": check_jackknife_interval,
}
