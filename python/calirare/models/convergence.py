"""Training to a stationary point: what leave-one-out formulas assume and a fixed number of epochs does not give."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from calirare.curvature.ggn import GgnInverse, pull_back
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import Fit, TrainingSettings, class_weights, cross_entropy
from calirare.models.module_fit import ModuleFit
from calirare_ext import GcnTape, ReceptiveField, record

HISTORY = 60  # curvature pairs; at kinks few are not enough
FIRST_REFRESH, WARM_REFRESH, GROWTH = 15, 150, 3  # steps until a new Gauss-Newton matrix, and their growth
ARMIJO, CURVATURE = 1e-4, 0.9  # constants of the line search (Nocedal & Wright 2006, section 3.1)
TRIALS = 40  # evaluations of one line search
WINDOW, RELATIVE_GAIN = 25, 1e-7  # steps over which the loss must fall by this share of itself, or it is a stall


@dataclass(frozen=True)
class Convergence:
    """How a minimisation ended.

    Attributes:
        gradient_norm: |grad| of the penalised loss.
        loss: the penalised loss.
        steps: L-BFGS steps taken.
        converged: the norm is at most the tolerance.
    """

    gradient_norm: float
    loss: float
    steps: int
    converged: bool


def minimise(
    model: GCN,
    field: ReceptiveField,
    targets: Tensor,
    sample_weights: Tensor,
    weight_decay: float,
    *,
    tolerance: float = 1e-6,
    max_steps: int = 3000,
    warm: bool = False,
) -> Convergence:
    """Moves a network's parameters, in place, to a stationary point of loss + weight_decay / 2 |theta|^2.

    L-BFGS with a weak Wolfe line search and the inverse Gauss-Newton matrix as its first guess, without dropout. The
    minimum of a ReLU network often lies on kinks, where a strong Wolfe search fails at once and the weak one goes on
    (Lewis & Overton 2013, "Nonsmooth optimization via quasi-Newton methods"); the gradient's norm then need not reach
    the tolerance, and the search ends when the loss stands still. A node of weight 0 is left out, with the others'
    share of the loss unchanged.

    Args:
        model: the network; its parameters are the start and become the result.
        field: receptive field of the labelled nodes, in the dtype of the network.
        targets: their classes, int64 [m].
        sample_weights: w_i >= 0, [m].
        weight_decay: mu > 0.
        tolerance: on the gradient's norm, > 0. Below 1e-5 it wants float64.
        max_steps: L-BFGS steps in all.
        warm: the start is near the minimum already, as after one label was left out.

    Returns:
        How it ended.
    """
    model.eval()
    shapes = [(weight.shape, bias.shape) for weight, bias in model.layers()]

    def tape(theta: Tensor) -> GcnTape:
        return record(field, unflatten(theta, shapes), targets, sample_weights)

    def objective(theta: Tensor) -> tuple[float, Tensor]:
        here = tape(theta)
        loss = cross_entropy(here.logits, targets, sample_weights) + weight_decay / 2 * theta.square().sum()
        seeds = here.loss_gradient_at_logits()[None] / here.n_nodes
        return loss.item(), pull_back(here, seeds)[0].add_(theta, alpha=weight_decay)

    def preconditioner(theta: Tensor) -> Product:
        inverse = GgnInverse(tape(theta), weight_decay)
        return lambda v: inverse(v[None])[0]

    with torch.no_grad():
        start = torch.cat([part.flatten() for layer in model.layers() for part in layer])
        theta, result = lbfgs(
            objective, preconditioner, start, tolerance, max_steps, WARM_REFRESH if warm else FIRST_REFRESH
        )
        for layer, (weight, bias) in zip(model.layers(), unflatten(theta, shapes), strict=True):
            layer[0].copy_(weight)
            layer[1].copy_(bias)
    return result


def minimise_module(
    trained: ModuleFit, *, tolerance: float = 1e-6, max_steps: int = 3000, warm: bool = False
) -> Convergence:
    """Moves any module's parameters, in place, as `minimise` does a GCN's.

    Args:
        trained: the module with its labels and weight decay.
        tolerance: see `minimise`.
        max_steps: see `minimise`.
        warm: see `minimise`.

    Returns:
        How it ended.
    """
    parameters = trained.parameters()

    def objective(theta: Tensor) -> tuple[float, Tensor]:
        with torch.no_grad():
            vector_to_parameters(theta, parameters)
        return trained.penalised_loss()

    def preconditioner(theta: Tensor) -> Product:
        with torch.no_grad():
            vector_to_parameters(theta, parameters)
        inverse = GgnInverse(trained.tape(), trained.weight_decay)
        return lambda v: inverse(v[None])[0]

    start = torch.cat([p.detach().flatten() for p in parameters])
    theta, result = lbfgs(
        objective, preconditioner, start, tolerance, max_steps, WARM_REFRESH if warm else FIRST_REFRESH
    )
    with torch.no_grad():
        vector_to_parameters(theta, parameters)
    return result


def unflatten(theta: Tensor, shapes: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[Tensor, Tensor]]:
    """Returns a vector [p] as weight and bias of each layer; W_1, b_1, .., W_L, b_L, row-major."""
    sizes = [math.prod(shape) for pair in shapes for shape in pair]
    parts = torch.split(theta, sizes)
    return [(parts[2 * i].view(*w), parts[2 * i + 1].view(*b)) for i, (w, b) in enumerate(shapes)]


Objective = Callable[[Tensor], tuple[float, Tensor]]
Product = Callable[[Tensor], Tensor]


def lbfgs(
    objective: Objective,
    preconditioner: Callable[[Tensor], Product],
    x: Tensor,
    tolerance: float,
    max_steps: int,
    life: int = 15,
) -> tuple[Tensor, Convergence]:
    """Returns the minimum of a piecewise smooth function (Nocedal & Wright 2006, algorithm 7.5).

    Args:
        objective: returns the value and the gradient at a point.
        preconditioner: returns an approximate inverse Hessian at a point, symmetric positive definite.
        x: start, [p].
        tolerance: on the gradient's norm.
        max_steps: steps at most.
        life: steps with the first preconditioner; each later one serves three times as long as the one before.

    Returns:
        The point, and how it ended.
    """
    loss, gradient = objective(x)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=HISTORY)
    losses, age, first = [loss], 0, preconditioner(x)
    while len(losses) <= max_steps:
        norm = float(gradient.norm())
        stalled = len(losses) > WINDOW and losses[-WINDOW] - losses[-1] <= RELATIVE_GAIN * abs(losses[-1])
        if norm <= tolerance or stalled:
            break
        if age >= life:
            pairs.clear()
            age, life, first = 0, life * GROWTH, preconditioner(x)
        found = _weak_wolfe(objective, x, loss, gradient, _quasi_newton(gradient, pairs, first))
        if found is None:
            if not age:
                break
            age = life  # a new look at the curvature, without the past
            continue
        moved, loss, new_gradient = found
        s, y = moved - x, new_gradient - gradient
        if (curvature := float(s @ y)) > 0:
            pairs.append((s, y, 1 / curvature))
        x, gradient, age = moved, new_gradient, age + 1
        losses.append(loss)
    norm = float(gradient.norm())
    return x, Convergence(norm, loss, len(losses) - 1, norm <= tolerance)


def _quasi_newton(gradient: Tensor, pairs: deque[tuple[Tensor, Tensor, float]], first: Product) -> Tensor:
    """Returns the L-BFGS direction by the two-loop recursion (Nocedal & Wright 2006, algorithm 7.4)."""
    q, alphas = gradient.clone(), []
    for s, y, rho in reversed(pairs):
        alphas.append(rho * float(s @ q))
        q.sub_(y, alpha=alphas[-1])
    q = first(q)
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        q.add_(s, alpha=alpha - rho * float(y @ q))
    return q.neg_()


def _weak_wolfe(
    objective: Objective, x: Tensor, loss: float, gradient: Tensor, direction: Tensor
) -> tuple[Tensor, float, Tensor] | None:
    """Returns a point with enough descent and a slope that has risen, or None (Lewis & Overton 2013, algorithm 2.6)."""
    slope = float(gradient @ direction)
    if slope >= 0:
        return None
    low, high, length = 0.0, float("inf"), 1.0
    for _ in range(TRIALS):
        trial = x + length * direction
        value, there = objective(trial)
        if not value <= loss + ARMIJO * length * slope:
            high = length
        elif float(there @ direction) < CURVATURE * slope:
            low = length
        else:
            return trial, value, there
        length = (low + high) / 2 if high < float("inf") else 2 * low
    return None


def as_dtype(trained: Fit, graph: Graph, dtype: torch.dtype) -> Fit:
    """Returns a copy of a trained network in another floating-point type, on the same nodes.

    Args:
        trained: the network; left as it is.
        graph: the graph it was trained on.
        dtype: float32 or float64.

    Returns:
        The copy.
    """
    model = copy.deepcopy(trained.model).to(dtype)
    field = propagation(graph, model.hops).to(dtype).field(trained.nodes, model.n_layers)
    return replace(trained, model=model, field=field, sample_weights=trained.sample_weights.to(dtype))


def converge(
    trained: Fit,
    graph: Graph,
    *,
    tolerance: float = 1e-6,
    max_steps: int = 3000,
    dtype: torch.dtype = torch.float64,
) -> tuple[Fit, Convergence]:
    """Returns a copy of a trained network, trained on without dropout until its gradient vanishes.

    Args:
        trained: the start; left as it is.
        graph: the graph it was trained on.
        tolerance: on the gradient's norm.
        max_steps: see `minimise`.
        dtype: floating-point type of the copy.

    Returns:
        The network at a stationary point, and how it got there.
    """
    out = as_dtype(trained, graph, dtype)
    end = minimise(
        out.model,
        out.field,
        out.targets,
        out.sample_weights,
        out.weight_decay,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    return out, end


def converge_module(
    trained: ModuleFit, *, tolerance: float = 1e-6, max_steps: int = 3000, dtype: torch.dtype = torch.float64
) -> tuple[ModuleFit, Convergence]:
    """Returns a copy of any trained module, trained on until its gradient vanishes; as `converge`."""
    out = trained.copy_as(dtype)
    return out, minimise_module(out, tolerance=tolerance, max_steps=max_steps)


def fit_to_convergence(
    graph: Graph,
    nodes: Tensor,
    settings: TrainingSettings,
    *,
    sample_weights: Tensor | None = None,
    tolerance: float = 1e-6,
    max_steps: int = 3000,
    dtype: torch.dtype = torch.float64,
) -> tuple[Fit, Convergence]:
    """Returns a network trained by L-BFGS from its random start to a stationary point; epochs and dropout are unused.

    Args:
        graph: the graph with labels.
        nodes: distinct labelled nodes, int64 [m].
        settings: shape, weight decay and seed.
        sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
        tolerance: on the gradient's norm.
        max_steps: see `minimise`.
        dtype: floating-point type of the network.

    Returns:
        The network, and how it got there.

    Raises:
        ValueError: a node has no label.
    """
    if graph.y is None or bool((graph.y[nodes] < 0).any()):
        raise ValueError(f"fit_to_convergence: nodes must be labelled, but one of graph {graph.name!r} has no label")
    targets = graph.y[nodes]
    model = GCN(
        graph.n_features,
        graph.n_classes,
        hidden=settings.hidden,
        n_layers=settings.n_layers,
        dropout=0.0,
        hops=settings.hops,
        generator=torch.Generator().manual_seed(settings.seed),
    )
    model.to(graph.device).eval()
    if sample_weights is None:
        sample_weights = class_weights(targets, graph.n_classes)[targets]
    field = propagation(graph, settings.hops).field(nodes, settings.n_layers)
    start = Fit(model, field, targets, sample_weights.to(model.weights[0]), settings.weight_decay, ())
    return converge(start, graph, tolerance=tolerance, max_steps=max_steps, dtype=dtype)
