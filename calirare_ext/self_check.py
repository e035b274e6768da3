"""A quick comparison of every kernel with its float64 reference, for `calirare doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from calirare_ext import reference
from calirare_ext.confidence_bins import confidence_bins
from calirare_ext.csr import Csr
from calirare_ext.eice_term import eice_term
from calirare_ext.field_of_graph import receptive_field
from calirare_ext.gcn_norm import gcn_norm
from calirare_ext.inverse_hvp import SolverStatus, hessian_product, solve_inverse_hvp
from calirare_ext.jackknife_interval import jackknife_interval
from calirare_ext.layouts import write
from calirare_ext.loo_messages import LooDirections, loo_messages
from calirare_ext.masked_gram import in_panels, masked_gram
from calirare_ext.message_interval import message_interval
from calirare_ext.neighbour_means import neighbour_means
from calirare_ext.network_loss import network_field, network_loss
from calirare_ext.node_gradients import node_gradients
from calirare_ext.propagate import propagate
from calirare_ext.receptive_field import ReceptiveField
from calirare_ext.tape import Layer, gcn_forward, record

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
    field = receptive_field(a_hat, x, nodes, 2)
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
    fault = _difference(propagate(block, x), reference.propagate(block, x))
    return fault or (_check_tiles() if device.type == "cpu" else None)


def check_neighbour_means(device: torch.device) -> str | None:
    """Returns what is wrong with neighbour_means, or None."""
    dense, x = (part.to(device) for part in _normal(torch.device("cpu"), (60, 60), (60, 37)))
    a = Csr.from_dense(dense * (dense > 1))
    return _difference(neighbour_means(a, x), reference.neighbour_means(a, x))


def _check_tiles() -> str | None:
    """Returns what is wrong with the tiles that propagate takes of a large matrix, or None."""
    dense, x = _normal(torch.device("cpu"), (90, 90), (90, 37))
    a = Csr.from_dense(dense * (dense > 1))
    out = torch.empty_like(x)
    write(a, "tiles", x, out)
    fault = _difference(out, reference.propagate(a, x))
    return None if fault is None else f"{fault} in tiles"


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


def _normal(device: torch.device, *shapes: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(2)
    return [torch.randn(*shape, dtype=torch.float64, generator=draw).to(device) for shape in shapes]


def check_loo_messages(device: torch.device) -> str | None:
    """Returns what is wrong with loo_messages, or None."""
    n, d, s, h, m = 90, 7, 6, 5, 4
    inputs, z, *parts = _normal(device, (n, d), (n, h), (d + 1, s, h), (h, s), (h,), (s, m))
    directions, wanted = LooDirections(*parts), reference.loo_messages(inputs, z, *parts)
    for x in (inputs, Csr.from_dense(inputs)):
        fault = _difference(loo_messages(x, z, directions), wanted)
        if fault is not None:
            return fault
    return _check_factors() if device.type == "cpu" else None


def _check_factors() -> str | None:
    """Returns what is wrong with loo_messages of directions in factors, or None."""
    field, layers, targets, weights = _problem(torch.device("cpu"))
    assert isinstance(field.inputs, Tensor)
    dense = field.inputs
    tape = record(dataclasses.replace(field, features=Csr.from_dense(dense)), layers, targets, weights)
    gradients, (d, h), m = node_gradients(tape), layers[0][0].shape, targets.numel()
    rows = gradients.dense()[:, : (d + 1) * h].view(m, d + 1, h).transpose(0, 1)
    z, second, contrast = dense @ layers[0][0] + layers[0][1], tape.aggregated[0].T.contiguous(), layers[1][0][:, 0]
    directions = LooDirections(gradients.layers[0], second, contrast.contiguous())
    wanted = reference.loo_messages(dense, z, rows, second, contrast)
    return _difference(loo_messages(Csr.from_dense(dense), z, directions), wanted)


def check_message_interval(device: torch.device) -> str | None:
    """Returns what is wrong with message_interval, for few and for many models, or None."""
    a = _problem(device)[0].blocks[0]
    for m in (101, 1500):
        messages, logits, shift, residuals = _normal(device, (a.n_cols, m), (a.n_rows,), (m,), (m,))
        scores = reference.message_scores(a, messages, logits, shift, 1.3, -0.2)
        wanted = reference.jackknife_interval(scores, residuals, 0.05, 0.95)
        got = message_interval(a, messages, logits, shift, residuals, 0.05, 0.95, scale=1.3, bias=-0.2)
        fault = _difference(torch.stack(got), torch.stack(wanted))
        if fault is not None:
            return fault
    return None


def check_network_loss(device: torch.device) -> str | None:
    """Returns what is wrong with network_loss and its gradient, or None."""
    field, layers, targets, weights = _problem(device)
    parts = [part.clone().requires_grad_() for layer in layers for part in layer]
    z = gcn_forward(field, list(zip(parts[::2], parts[1::2], strict=True)))
    loss = (weights * torch.nn.functional.cross_entropy(z, targets, reduction="none")).sum()
    wanted = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, parts)])
    compiled = network_field(field, [(weight.shape[0], weight.shape[1]) for weight, _ in layers], 1)
    parameters = torch.cat([part.detach().flatten() for part in parts])
    losses, gradient = network_loss(compiled, parameters[None], targets, weights[None])
    return _difference(losses, loss.detach()[None]) or _difference(gradient[0], wanted)


def check_masked_gram(device: torch.device) -> str | None:
    """Returns what is wrong with masked_gram, or None."""
    a = _problem(device)[0].blocks[0]
    products, mask, scaled = _normal(device, (a.n_cols, 70), (a.n_cols, 5), (70, 5))
    mask = (mask > 0).double()
    wanted = reference.propagate(a, products * (mask @ scaled.T)).T
    return _difference(masked_gram(a, in_panels(products), mask, scaled), wanted)


def check_confidence_bins(device: torch.device) -> str | None:
    """Returns what is wrong with confidence_bins, or None; on the CPU, where alone it has a kernel."""
    del device
    scores, weights = _normal(torch.device("cpu"), (2000, 4), (2000,))
    probabilities, labels, weights = torch.softmax(scores, 1), torch.arange(2000) % 4, weights.abs()
    probabilities[7, 1], labels[8] = torch.nan, 4
    for given in (None, weights):
        sums, refused = confidence_bins(probabilities, labels, 15, weights=given)
        wanted, wanted_refused = reference.confidence_bins(probabilities, labels, 15, given)
        if refused != wanted_refused:
            return f"refuses {refused} rows where its reference refuses {wanted_refused}"
        fault = _difference(sums, wanted)
        if fault is not None:
            return fault
    return None


def check_eice_term(device: torch.device) -> str | None:
    """Returns what is wrong with eice_term and its gradient, for two classes and for three, or None."""
    n, m = 30, 41
    for k in (2, 3):
        logits, change, own_logits, own_change = _normal(device, (n, k), (n, k - 1, m), (m, k), (m, k - 1))
        targets = torch.arange(m, device=device) % k
        found = []
        for term in (eice_term, _eice_by_autograd):
            at = [x.clone().requires_grad_() for x in (logits, own_logits)]
            value = term(at[0], 0.3 * change, at[1], 0.3 * own_change, targets)
            gradients = torch.autograd.grad(value, at)
            found.append((value.detach(), *(n * g for g in gradients)))
        for got, wanted in zip(*found, strict=True):
            fault = _difference(got, wanted)
            if fault is not None:
                return fault
    return None


def _eice_by_autograd(
    logits: Tensor, change: Tensor, own_logits: Tensor, own_change: Tensor, targets: Tensor, coverage: float = 0.9
) -> Tensor:
    """Returns L_EICE (paper, Algorithm 1 and Eq. 13) from all scores at once, for autograd to take apart."""
    scores, watched, predicted = _watched_scores(logits, change)
    own_scores, own_watched, _ = _watched_scores(own_logits, own_change[:, :, None])
    residuals = ((targets == own_watched).double() - own_scores[:, 0]).abs()
    below = (1 - coverage) / 2
    midpoint = torch.stack(reference.jackknife_interval(scores, residuals, below, 1 - below)).mean(0)
    uncertainty = torch.where(watched == predicted, midpoint, 1 - midpoint)
    return (uncertainty - torch.softmax(logits, 1).amax(1)).abs().mean()


def _watched_scores(logits: Tensor, change: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns f(v; theta_-i) [n, m], whose class it is (class 1 of two, else the predicted one) and the predicted."""
    predicted = logits.argmax(1)
    watched = torch.ones_like(predicted) if logits.shape[1] == 2 else predicted
    moved = logits[:, :, None] + torch.nn.functional.pad(change, (0, 0, 1, 0))
    p = torch.softmax(moved, 1)
    return p.gather(1, watched[:, None, None].expand(-1, 1, p.shape[2]))[:, 0], watched, predicted


CHECKS: dict[str, Callable[[torch.device], str | None]] = {
    "propagate": check_propagate,
    "neighbour_means": check_neighbour_means,
    "node_gradients": check_node_gradients,
    "solve_inverse_hvp": check_solve_inverse_hvp,
    "jackknife_interval": check_jackknife_interval,
    "loo_messages": check_loo_messages,
    "message_interval": check_message_interval,
    "network_loss": check_network_loss,
    "masked_gram": check_masked_gram,
    "confidence_bins": check_confidence_bins,
    "eice_term": check_eice_term,
}
