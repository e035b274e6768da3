"""`alo` as a start: a few quasi-Newton steps from every leave-one-out model, on the loss without its label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from calirare._util.memory import BLOCK_BYTES as SAFE_BLOCK_BYTES
from calirare.curvature import GcnLinearisation, GgnInverse, linearise, logit_differences
from calirare.leave_one_out.formula import loo_coefficients
from calirare.leave_one_out.method import Problem
from calirare.leave_one_out.result import Diagnostics, LooResult, models_of
from calirare.leave_one_out.retrain import TOLERANCE
from calirare.models import GcnFit, ManyGcns, RowSpace, unflatten
from calirare.training import ARMIJO, CURVATURE, FittedNetwork, minimise
from calirare_ext import ReceptiveField

BLOCK_BYTES = 256_000_000  # of the models that move, or are evaluated, together
# Where a network is far from linear, a few of `alo`'s models have a loss far above the fit's.
TOO_FAR, HALVINGS = 1.5, 5
Progress = Callable[[int], None] | None


def alo_steps(
    fitted: FittedNetwork,
    field: Any,
    damping: float,
    steps: int,
    progress: Progress = None,
    chosen: Tensor | None = None,
) -> LooResult:
    """Returns the change of every logit after some quasi-Newton steps of each leave-one-out model, from `alo`'s.

    `alo` foresees a label's own logits; on the way its network leaves the pattern of ReLUs it was linearised in, and
    other nodes' logits are foreseen worse. The steps go on from there on the true loss
    sum_{j != i} w_j l_j / m + mu / 2 |theta|^2, all labels side by side, preconditioned by the Gauss-Newton inverse of
    each start. A start whose loss is half again that of the full fit is moved back towards it. What a label moves is
    measured from the network moved by as many steps with every label.

    Args:
        fitted: the network, near a minimum of its loss: from elsewhere the steps lead away with or without a label.
        field: the evaluation field of the nodes v.
        damping: of the starts; the steps themselves minimise the loss of training.
        steps: how many, >= 1.
        progress: called with the number of labels done.
        chosen: distinct places of labels to leave out, int64 [s]; None: all.

    Returns:
        The changes of the network evaluated at each of s models; own changes of other labels are NaN.
        `Diagnostics.unconverged` is the share of models whose gradient stayed above 1e-6, as at kinks of ReLU units.

    Cost: of a GCN about six forward and backward passes of m networks per step, and m kernels of m labels once, all
    side by side; of another module one label after the other, m (k - 1) backward passes for each.
    """
    if fitted.weight_decay == 0:
        raise ValueError("leave_one_out: steps must have a positive weight decay, got 0: there need not be a minimum")
    m = fitted.nodes.numel()
    chosen = torch.arange(m, device=fitted.targets.device) if chosen is None else chosen.to(fitted.targets.device)
    if isinstance(fitted, GcnFit):
        return _of_gcn(fitted, field, damping, steps, progress, chosen)
    return _one_by_one(fitted, field, damping, steps, progress, chosen)


def _of_gcn(
    fitted: GcnFit, field: ReceptiveField, damping: float, steps: int, progress: Progress, chosen: Tensor
) -> LooResult:
    problem = _Loss(fitted)
    m = problem.linearised.n_nodes
    coefficients, leverage = loo_coefficients(problem.linearised, problem.linearised.kernel, damping)
    starts = coefficients.T.reshape(m, m, -1).to(problem.theta)
    here, there = ManyGcns(fitted.field, problem.shapes), ManyGcns(field, problem.shapes)
    base, _ = problem.moved(torch.zeros_like(starts[:1]), None, steps)
    base_here, base_there = (logit_differences(many.logits(base).squeeze(1)) for many in (here, there))
    own = torch.full_like(base_here, float("nan"))
    change = base_there.new_empty(*base_there.shape, chosen.numel())
    done = unconverged = 0
    for places in _blocks(chosen, problem.bytes_of_a_model(steps)):
        models, norms = problem.moved(starts[places], places, steps)
        unconverged += int((norms > TOLERANCE).sum())
        own[places] = _own(logit_differences(here.logits(models).transpose(1, 2)), places) - base_here[places]
        rows = torch.arange(places.numel(), device=base.device)
        for part in _blocks(rows, there.numbers_of_a_model() * base.element_size()):
            after = logit_differences(there.logits(models[part]).transpose(1, 2))  # [n_v, k - 1, b]
            change[:, :, done + part] = after - base_there[:, :, None]
        done += places.numel()
        if progress is not None:
            progress(done)
    facts = Diagnostics("alo", f"{steps} steps", damping, unconverged=unconverged / max(done, 1))
    return LooResult(change, own, leverage, damping, models_of(own.shape[0], chosen), facts)


def _one_by_one(
    fitted: FittedNetwork, field: Any, damping: float, steps: int, progress: Progress, chosen: Tensor
) -> LooResult:
    linearised = fitted.linearisation
    rows = linearised.jacobian
    coefficients, leverage = loo_coefficients(linearised, rows @ rows.T, damping)
    theta = fitted.theta

    def after(direction: Tensor | None, sample_weights: Tensor) -> tuple[Tensor, float]:
        """Returns the differences of the logits of every node, and the gradient's norm."""
        one = fitted.copy(sample_weights=sample_weights)
        one.move_to(theta if direction is None else theta + direction)
        end = minimise(one, tolerance=TOLERANCE, max_steps=steps, warm=True)
        return logit_differences(one.logits_of(None)), end.gradient_norm

    base, _ = after(None, fitted.sample_weights)
    own = torch.full_like(base[fitted.nodes], float("nan"))
    change = base.new_empty(field.nodes.numel(), base.shape[1], chosen.numel())
    unconverged = 0
    for column, i in enumerate(chosen.tolist()):
        without = fitted.sample_weights.clone()
        without[i] = 0.0
        moved, norm = after(coefficients[:, i].to(rows) @ rows, without)
        change[:, :, column] = (moved - base)[field.nodes]
        own[i] = (moved - base)[fitted.nodes[i]]
        unconverged += norm > TOLERANCE
        if progress is not None:
            progress(column + 1)
    facts = Diagnostics("alo", f"{steps} steps", damping, unconverged=unconverged / max(chosen.numel(), 1))
    return LooResult(change, own, leverage, damping, models_of(own.shape[0], chosen), facts)


class _Loss:
    """The loss of a trained network as a function of parameters that its labels can move, see `RowSpace`."""

    def __init__(self, fitted: GcnFit) -> None:
        self.space = RowSpace.of(fitted)
        self.fitted, self.start = self.space.fitted, fitted.theta
        self.linearised, self.theta = self.fitted.linearise(), self.fitted.theta
        self.shapes = fitted.shapes
        self.networks = ManyGcns(self.fitted.field, self.fitted.shapes)

    def moved(self, coefficients: Tensor, places: Tensor | None, steps: int) -> tuple[Tensor, Tensor]:
        """Returns parameters [b, p] after some steps from theta + J^T coefficients, and the gradients' norms.

        Args:
            coefficients: [b, m, k - 1].
            places: the label each does without, int64 [b]; None: none.
            steps: how many.
        """
        weights = self.linearised.sample_weights.repeat(coefficients.shape[0], 1)
        if places is not None:
            weights[torch.arange(places.numel(), device=places.device), places] = 0.0
        fitted = self.fitted

        def objective(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self.networks.penalised_loss(points, fitted.targets, weights[rows], fitted.weight_decay)

        start = self._not_too_far(self.linearised.vjp(coefficients), objective)
        shapes = self.networks.shapes
        inverses = [
            GgnInverse(linearise(fitted.field, unflatten(x, shapes), fitted.targets, w), fitted.weight_decay)
            for x, w in zip(start, weights, strict=True)
        ]

        def precondition(vectors: Tensor) -> Tensor:
            return torch.cat([inverse(v[None]) for inverse, v in zip(inverses, vectors, strict=True)])

        end, norms = take_steps(objective, precondition, start, steps)
        return self.start + self.space.lifted(end - self.theta), norms

    def _not_too_far(self, directions: Tensor, objective: Objective) -> Tensor:
        """Returns theta + directions, halved until the loss is at most TOO_FAR times that of theta."""
        points = self.theta + directions
        rows = torch.arange(points.shape[0], device=points.device)
        most = TOO_FAR * objective(self.theta.expand_as(points).contiguous(), rows)[0]
        far, length = rows, 1.0
        for _ in range(HALVINGS):
            far = far[~(objective(points[far], far)[0] <= most[far])]
            if not far.numel():
                return points
            length /= 2
            points[far] = self.theta + length * directions[far]
        points[far] = self.theta
        return points

    def bytes_of_a_model(self, steps: int) -> int:
        """Returns the memory one model takes: L-BFGS and its line search, kernel, hidden states, the parameters."""
        pairs = (2 * steps + 12) * self.theta.numel()
        dual = self.linearised.n_nodes * (self.linearised.n_classes - 1)
        passes = 8 * self.networks.numbers_of_a_model() + dual**2
        return (pairs + passes + 2 * self.start.numel()) * self.start.element_size()


def _own(logits: Tensor, places: Tensor) -> Tensor:
    """Returns each model's logits at its own label: [m, k - 1, b] and [b] to [b, k - 1]."""
    return logits[places, :, torch.arange(places.numel(), device=places.device)]


def _blocks(what: Tensor, bytes_each: int) -> Iterator[Tensor]:
    """Yields parts of a vector that fit into a block of memory."""
    yield from what.split(max(1, BLOCK_BYTES // max(bytes_each, 1)))


def steps_bytes(problem: Problem, n_models: int) -> int:
    """Returns an upper estimate of the memory `alo_steps` allocates, in bytes."""
    size, linearised = problem.size, problem.linearised
    own = size.dual * size.p
    if isinstance(linearised, GcnLinearisation):
        own = linearised.field.rows[0].numel() * linearised.layers[0][0].shape[0]
    working = (3 * own + 60 * size.p) * size.bytes + 5 * size.dual * size.dual * 8
    return size.change(n_models) + working + 3 * SAFE_BLOCK_BYTES


# L-BFGS for many problems of one size at once, each with its own line search: a batch moves as one product.
#
# That of `training`, which retraining judges by, is another implementation on purpose: the judge shares no code with
# what it judges.
TRIALS = 8  # of one line search: after as many a point with enough descent is taken, whatever its slope
LAST_TRIALS = 40  # of one that has found no descent yet, as a start close to a kink may not at first
Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Product = Callable[[Tensor], Tensor]


def take_steps(objective: Objective, precondition: Product, x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Returns where a number of L-BFGS steps lead, for each of b piecewise smooth functions.

    Each step solves the secant conditions H y = s of the steps before by the two-loop recursion, from a first guess;
    the pairs of all functions are rows of the same tensors, with 1 / s.y = 0 where one has none, so that the recursion
    of all b is one sequence of products. The steps of `training` (Nocedal & Wright 2006, algorithm 7.5, with the
    weak Wolfe line search of Lewis & Overton 2013, algorithm 2.6), but the first preconditioner serves to the end. A
    function whose search finds no descent forgets its past; when it has none, it stays where it is.

    Args:
        objective: (points [c, p], which of the b functions they belong to, int64 [c]) -> values [c], gradients [c, p].
        precondition: approximate inverse Hessian of each, symmetric positive definite: [b, p] -> [b, p].
        x: starts, [b, p].
        steps: how many.

    Returns:
        The points [b, p] and the norms of their gradients [b].
    """
    value, gradient = objective(x, torch.arange(x.shape[0], device=x.device))
    past: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y, 1 / s.y of each function; 0 where there is no pair
    for _ in range(steps):
        direction = _direction(gradient, past, precondition)
        there, value, turned, moved = _weak_wolfe(objective, x, value, gradient, direction)
        if not past and not bool(moved.any()):
            break
        s, y = there - x, turned - gradient
        curvature = _dot(s, y)
        inverse = torch.where(curvature > 0, 1 / curvature, 0.0)
        past = [(old_s, old_y, torch.where(moved, old, 0.0)) for old_s, old_y, old in past] + [(s, y, inverse)]
        x, gradient = there, turned
    return x, gradient.norm(dim=1)


def _direction(gradient: Tensor, past: list[tuple[Tensor, Tensor, Tensor]], precondition: Product) -> Tensor:
    """Returns the L-BFGS directions by the two-loop recursion (Nocedal & Wright 2006, algorithm 7.4)."""
    q, alphas = gradient.clone(), []
    for s, y, inverse in reversed(past):
        alphas.append(inverse * _dot(s, q))
        q.addcmul_(y, alphas[-1][:, None], value=-1)
    q = precondition(q)
    for (s, y, inverse), alpha in zip(past, reversed(alphas), strict=True):
        q.addcmul_(s, (alpha - inverse * _dot(y, q))[:, None])
    return q.neg_()


def _weak_wolfe(
    objective: Objective, x: Tensor, value: Tensor, gradient: Tensor, direction: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns points with enough descent, their values and gradients, and which functions moved (bool [b])."""
    slope = _dot(gradient, direction)
    low, high, length = torch.zeros_like(slope), torch.full_like(slope, float("inf")), torch.ones_like(slope)
    best_x, best_value, best_gradient = x.clone(), value.clone(), gradient.clone()
    open_ = (slope < 0).nonzero().flatten()
    for trials in range(LAST_TRIALS):
        if trials >= TRIALS:
            open_ = open_[low[open_] == 0]
        if not open_.numel():
            break
        trial = torch.addcmul(x[open_], length[open_, None], direction[open_])
        found, there = objective(trial, open_)
        descends = found <= value[open_] + ARMIJO * length[open_] * slope[open_]
        flat = _dot(there, direction[open_]) >= CURVATURE * slope[open_]
        kept = open_[descends]  # a point with enough descent is kept even where the slope has not risen enough
        best_x[kept], best_value[kept], best_gradient[kept] = trial[descends], found[descends], there[descends]
        low[kept] = length[kept]
        over = open_[~descends]
        high[over] = length[over]
        open_ = open_[~(descends & flat)]
        bounded = high[open_] < float("inf")
        length[open_] = torch.where(bounded, (low[open_] + high[open_]) / 2, 2 * low[open_])
    return best_x, best_value, best_gradient, low > 0


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Returns <a_i, b_i> of each row: [b, p] and [b, p] to [b]."""
    return torch.linalg.vecdot(a, b)
