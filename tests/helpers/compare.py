"""Compares what an operator returned with an independent float64 computation, at the tolerance of tolerance.py.

Each function takes the operator's arguments and its result and raises AssertionError; test_mutants.py shows that each
one rejects the wrong versions of mutants.py.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from calirare_ext import Csr, GcnTape, JackknifeInterval, ReceptiveField, SolverResult, SolverStatus, reference
from calirare_ext.tape import Layer
from tests.helpers.tolerance import assert_identical, assert_telling, assert_within, sum_bound, unit_roundoff


def exactly(x: Tensor) -> Tensor:
    """Returns x as float64 on the CPU."""
    return x.detach().cpu().double()


def exact_csr(a: Csr) -> Csr:
    return Csr(a.indptr.cpu(), a.indices.cpu(), exactly(a.values), a.n_cols)


def absolute_csr(a: Csr) -> Csr:
    return Csr(a.indptr.cpu(), a.indices.cpu(), exactly(a.values).abs(), a.n_cols)


def propagate_matches(y: Tensor, a: Csr, x: Tensor) -> None:
    """Compares Y with the dense product: a row with t entries is a sum of t products."""
    expected = exact_csr(a).to_dense() @ exactly(x)
    magnitude = absolute_csr(a).to_dense() @ exactly(x).abs()
    terms = a.indptr.cpu().diff()[:, None]
    assert_within(y, expected, sum_bound(expected, terms, magnitude, out=a.dtype), "propagate")


def neighbour_means_match(y: Tensor, a: Csr, x: Tensor) -> None:
    """Compares D^-1 A X with the dense product: sums of both run in double, whatever is stored."""
    dense, total = exact_csr(a).to_dense(), exact_csr(a).to_dense().sum(1, keepdim=True)
    inverse = torch.where(total == 0, 0.0, 1 / total)
    expected, magnitude = inverse * (dense @ exactly(x)), inverse.abs() * (dense.abs() @ exactly(x).abs())
    cancelled = torch.where(total == 0, 1.0, dense.abs().sum(1, keepdim=True) / total.abs())
    terms = 2 * (a.indptr.cpu().diff()[:, None] + 2) * cancelled
    bound = sum_bound(expected, terms, magnitude, out=a.dtype, accumulate=torch.float64)
    assert_within(y, expected, bound, "neighbour_means")


def masked_gram_matches(out: Tensor, a: Csr, products: Tensor, mask: Tensor, scaled: Tensor) -> None:
    """Compares with (A (G * (mask scaled^T)))^T written out densely, G [r_R, r] as it was before the panels."""

    def dense(a: Csr, products: Tensor, scaled: Tensor) -> Tensor:
        return (exact_csr(a).to_dense() @ (exactly(products) * (exactly(mask) @ exactly(scaled).T))).T

    expected, magnitude = dense(a, products, scaled), dense(absolute_csr(a), products.abs(), scaled.abs())
    bound = sum_bound(expected, mask.shape[0] * (mask.shape[1] + 2), magnitude, out=a.dtype)
    assert_within(out, expected, bound, "masked_gram")
    if expected.numel() > 100:
        assert_telling(expected, bound)


def gcn_norm_matches(a_hat: Csr, adjacency: Csr) -> None:
    """Compares with a_ij / sqrt(d_i d_j) written out densely; the degree is a sum, so its terms count."""
    dense = exact_csr(adjacency).to_dense()
    dense.diagonal()[dense.diagonal() == 0] = 1.0
    degree = dense.sum(1)
    expected = dense / torch.sqrt(degree[:, None] * degree[None, :])
    terms = dense.shape[0] + 6  # the degrees of both ends, two roots, two divisions, two products
    bound = sum_bound(expected, terms, expected.abs(), out=adjacency.dtype, accumulate=torch.float64)
    assert_within(exact_csr(a_hat).to_dense(), expected, bound, "gcn_norm")
    a_hat.check_structure("gcn_norm")


class ExactNetwork:
    """A tape's network again in float64 on the CPU, with its operators on absolute values.

    With the ReLU's masks held fixed the logits are a polynomial in the parameters; taken at |theta| with |inputs| and
    |A_hat| its value, first and second derivatives are the S of the logits, of J and of the exact Hessian.
    """

    def __init__(self, tape: GcnTape) -> None:
        field = tape.field
        inputs = exact_csr(field.inputs) if isinstance(field.inputs, Csr) else exactly(field.inputs)
        rows = tuple(ids.cpu() for ids in field.rows)
        self.field = ReceptiveField(rows, inputs, tuple(exact_csr(block) for block in field.blocks))
        self.layers: list[Layer] = [(exactly(w), exactly(b)) for w, b in tape.layers]
        self.targets, self.weights = tape.targets.cpu(), exactly(tape.sample_weights)
        self.theta = reference.flatten(self.layers)
        self.m, self.k = self.targets.numel(), self.layers[-1][1].numel()
        self.masks = [(exactly(mask) > 0).double() for mask in tape.masks]
        self.dtype = tape.logits.dtype
        widths = sum(w.shape[0] + w.shape[1] + 4 for w, _ in self.layers)
        self.terms = 3 * (widths + 2 * sum(rows.numel() for rows in field.rows)) + 2 * self.k + 16

    def logits(self) -> Tensor:
        return reference.gcn(self.field, self.layers)

    def probabilities(self) -> Tensor:
        return torch.softmax(self.logits(), 1)

    def absolute_logits(self, theta: Tensor) -> Tensor:
        """The polynomial [m, k] on absolute inputs and adjacency, differentiable in theta."""
        inputs, layers = self.field.inputs, reference.unflatten(theta, self.layers)
        z = (inputs.to_dense() if isinstance(inputs, Csr) else inputs).abs() @ layers[0][0] + layers[0][1]
        for block, mask, (weight, bias) in zip(self.field.blocks, self.masks, layers[1:], strict=True):
            z = absolute_csr(block).to_dense() @ (z * mask) @ weight + bias
        return z

    def absolute_jacobian(self) -> Tensor:
        """S of the Jacobian of the logits, [m, k, p]."""
        return torch.autograd.functional.jacobian(self.absolute_logits, self.theta.abs())

    def softmax_growth(self) -> Tensor:
        """How much an error of the logits (at most S) grows in a probability: 1 + 4 max S, per node [m, 1]."""
        return 1 + 4 * self.absolute_logits(self.theta.abs()).amax(1, keepdim=True)

    def absolute_seeds(self) -> Tensor:
        """S of w_i (p_i - onehot(y_i)), [m, k]."""
        sizes = self.probabilities() + torch.nn.functional.one_hot(self.targets, self.k)
        return self.weights[:, None] * sizes * self.softmax_growth()

    @functools.cached_property
    def absolute_gradients(self) -> Tensor:
        """S of the loss gradients of all nodes, [m, p]."""
        return torch.einsum("mk,mkp->mp", self.absolute_seeds(), self.absolute_jacobian())

    @functools.cached_property
    def ggn(self) -> Tensor:
        """The explicit [p, p] Gauss-Newton matrix of sum_i w_i l_i / m."""
        return reference.ggn(self.field, self.layers, self.weights)

    @functools.cached_property
    def hessian(self) -> Tensor:
        """The explicit [p, p] Hessian of sum_i w_i l_i / m, by autograd."""
        return reference.hessian(self.field, self.layers, self.targets, self.weights)

    def matrix(self, curvature: str) -> Tensor:
        return self.hessian if curvature == "exact" else self.ggn

    @functools.cached_property
    def absolute_ggn(self) -> Tensor:
        """S of the Gauss-Newton matrix."""
        jacobian, p = self.absolute_jacobian(), self.probabilities()
        share = self.weights / self.m * self.softmax_growth()[:, 0]
        curve = share[:, None, None] * (torch.diag_embed(p) + p[:, :, None] * p[:, None, :])
        return torch.einsum("mkp,mkl,mlq->pq", jacobian, curve, jacobian)

    @functools.cached_property
    def absolute_hessian(self) -> Tensor:
        """S of the exact Hessian: the Gauss-Newton part and the curvature of the logits."""
        seeds = self.absolute_seeds() / self.m
        return self.absolute_ggn + torch.autograd.functional.hessian(
            lambda theta: (seeds * self.absolute_logits(theta)).sum(), self.theta.abs(), vectorize=True
        )

    def absolute_matrix(self, curvature: str) -> Tensor:
        return self.absolute_hessian if curvature == "exact" else self.absolute_ggn


@functools.lru_cache(maxsize=64)
def exact_network(tape: GcnTape) -> ExactNetwork:
    """Returns the tape's exact network; tapes never change, so one is enough."""
    return ExactNetwork(tape)


def logits_match(logits: Tensor, tape: GcnTape) -> None:
    """Compares the logits with the dense float64 network."""
    net = exact_network(tape)
    expected, magnitude = net.logits(), net.absolute_logits(net.theta.abs())
    assert_within(logits, expected, sum_bound(expected, net.terms, magnitude, out=net.dtype), "logits")


def node_gradients_match(rows: Tensor, tape: GcnTape, seeds: Tensor | None = None) -> None:
    """Compares the rows [m * s, p] with one reverse pass per node (or per node and seed) through the dense network."""
    net = exact_network(tape)
    if seeds is None:
        expected = reference.node_gradients(net.field, net.layers, net.targets, net.weights)
        magnitude = net.absolute_gradients
    else:
        jacobian = torch.autograd.functional.jacobian(
            lambda theta: reference.gcn(net.field, reference.unflatten(theta, net.layers)), net.theta
        )
        expected = torch.einsum("msk,mkp->msp", exactly(seeds), jacobian).flatten(0, 1)
        magnitude = torch.einsum("msk,mkp->msp", exactly(seeds).abs(), net.absolute_jacobian()).flatten(0, 1)
    bound = sum_bound(expected, net.terms, magnitude, out=net.dtype)
    assert_telling(expected, bound)
    assert_within(rows, expected, bound, "node_gradients")


def hessian_product_matches(out: Tensor, tape: GcnTape, vectors: Tensor, curvature: str, damping: float) -> None:
    """Compares (H + damping I) v with the explicit [p, p] matrix."""
    net, v = exact_network(tape), exactly(vectors)
    identity = damping * torch.eye(net.theta.numel(), dtype=torch.float64)
    expected = v @ (net.matrix(curvature) + identity)
    magnitude = v.abs() @ (net.absolute_matrix(curvature) + identity.abs())
    bound = sum_bound(expected, net.terms + net.theta.numel(), magnitude, out=net.dtype)
    assert_telling(expected, bound)
    assert_within(out, expected, bound, f"hessian_product ({curvature})")


def move_logits_matches(out: Tensor, tape: GcnTape, vectors: Tensor) -> None:
    """Compares J v with forward-mode autograd through the dense network."""
    net = exact_network(tape)

    def logits(theta: Tensor) -> Tensor:
        return reference.gcn(net.field, reference.unflatten(theta, net.layers))

    rows = [torch.func.jvp(logits, (net.theta,), (v,))[1] for v in exactly(vectors)]
    expected = torch.stack(rows, 1)
    magnitude = torch.einsum("mkp,bp->mbk", net.absolute_jacobian(), exactly(vectors).abs())
    bound = sum_bound(expected, net.terms + net.theta.numel(), magnitude, out=net.dtype)
    assert_telling(expected, bound)
    assert_within(out, expected, bound, "move_logits")


def solution_matches(
    result: SolverResult,
    matrix: Tensor,
    rhs: Tensor,
    tolerance: float,
    magnitude: Tensor | None = None,
    terms: int | None = None,
) -> None:
    """Asserts that every right-hand side converged, and that the residual recomputed here in float64 is small enough.

    A product rounds by at most t u S |x| with S = `magnitude` (None: |A|) and t = `terms` (None: p + 4). The residual
    that the solver carries along drifts from the true one by that much per iteration (Greenbaum 1997, section 7.3).
    """
    magnitude, terms = matrix.abs() if magnitude is None else magnitude, terms or matrix.shape[0] + 4
    x, g, u = exactly(result.x), exactly(rhs), unit_roundoff(rhs.dtype)
    assert result.status.tolist() == [SolverStatus.CONVERGED] * g.shape[0], result.summary()
    norm = g.norm(dim=1)
    residual = torch.where(norm > 0, (g - x @ matrix).norm(dim=1) / norm, (x @ matrix).norm(dim=1))
    drift = terms * u * ((x.abs() @ magnitude).norm(dim=1) / torch.where(norm > 0, norm, 1.0) + 1.0)
    slack = drift * result.iterations.cpu()
    over = residual > tolerance + slack
    assert not bool(over.any()), f"residual {residual[over].tolist()} above {tolerance} + {slack[over].tolist()}"
    assert_within(result.residual_norm, residual, drift, "residual_norm")


def numpy_interval(scores: Tensor, residuals: Tensor, q_lower: float, q_upper: float) -> tuple[Tensor, Tensor]:
    """Returns both ends by numpy.quantile on the float64 samples, rounded once to the dtype of the scores."""
    ends = []
    for samples, q in ((scores - residuals, q_lower), (scores + residuals, q_upper)):
        quantile = np.quantile(exactly(samples).numpy(), q, axis=1, method="linear")
        ends.append(torch.from_numpy(np.asarray(quantile)).to(scores.dtype))
    return ends[0], ends[1]


def interval_matches(
    result: JackknifeInterval, scores: Tensor, residuals: Tensor, q_lower: float, q_upper: float
) -> None:
    """Compares ends with NumPy and places with a stable sort, all exactly. The samples are finite."""
    m = scores.shape[1]
    lower, upper = numpy_interval(scores, residuals, q_lower, q_upper)
    assert_identical(result.lower.detach().cpu(), lower, "lower")
    assert_identical(result.upper.detach().cpu(), upper, "upper")
    for name, samples, q, places in (
        ("lower_places", scores - residuals, q_lower, result.lower_places),
        ("upper_places", scores + residuals, q_upper, result.upper_places),
    ):
        order = np.argsort(exactly(samples).numpy(), axis=1, kind="stable")
        low = int(np.floor(q * (m - 1)))
        expected = torch.from_numpy(order[:, [low, min(low + 1, m - 1)]])
        assert_identical(places.cpu(), expected, name)


def influence_matches(change: Tensor, derivative: Tensor, uncertainty: Tensor) -> None:
    """Compares d theta / d(weight of node i taken out) [m, p] with finite differences of retrained parameters.

    `uncertainty` [m] is how far each row of the finite differences may itself be off, in norm; it must be a small part
    of it, or the comparison would prove nothing.
    """
    size = derivative.norm(dim=1)
    assert bool((uncertainty < 0.01 * size).all()), "the finite differences are too rough to judge by"
    error = (exactly(change) - derivative).norm(dim=1)
    assert bool((error <= uncertainty).all()), (
        f"influence: relative errors {(error / size).tolist()}, allowed {(uncertainty / size).tolist()}"
    )
