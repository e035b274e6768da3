"""The two ways to the interval ends of Algorithm 1: fused over blocks of nodes, or from every leave-one-out logit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from calirare._util.memory import check_memory
from calirare.calibration import AffineCalibrator, JackknifeCalibrator, PositiveOnlyCalibrator, PriorPlattCalibrator
from calirare.curvature import GcnLinearisation, logit_differences, with_class_zero
from calirare.graph import Graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.comparison import leave_one_out
from calirare.leave_one_out.directions import fits
from calirare.leave_one_out.method import LeaveOneOutMethod
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.leave_one_out.shared_models import pays, shared_interval
from calirare.leave_one_out.streaming import Evaluation, Streaming, streams
from calirare.leave_one_out.trust import from_folds
from calirare.models import GCN, Fitted, FittedNetwork
from calirare_ext import jackknife_interval

BLOCK_NUMBERS = 16_000_000  # leave-one-out scores held at once


class LogitMap(Protocol):
    """A calibrator that can say its logits, such as `JackknifeCalibrator`."""

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns the logits after the map, [n, k]."""
        ...


@dataclass(frozen=True)
class IntervalRequest:
    """What the ends depend on, other than the network and the nodes.

    Attributes:
        method: of the leave-one-out.
        levels: of the two quantiles, in [0, 1].
        calibrator: a map put on every leave-one-out logit; None: none.
        rare: f is the probability of class 1; else of the predicted class.
        keep_differences: return every leave-one-out logit difference.
    """

    method: LeaveOneOutMethod
    levels: tuple[float, float]
    calibrator: LogitMap | None
    rare: bool
    keep_differences: bool

    def mapped(self, logits: Tensor) -> Tensor:
        """Returns the logits under the map."""
        return logits if self.calibrator is None else self.calibrator.calibrated_logits(logits)


@dataclass(frozen=True, eq=False)
class IntervalEnds:
    """What both ways return of the nodes and of the labelled nodes.

    Attributes:
        nodes: the nodes, int64 [n].
        logits: before any map, [n, k].
        lower: C-minus [n].
        upper: C-plus [n].
        own: leave-one-out logits of each labelled node, class 0 at 0, before any map, [m, k].
        residuals: r_i of the models, [s].
        leverage: h_i, [m].
        facts: how the labels were left out.
        loo_differences: z_c - z_0 in each model, before any map, [n, k - 1, s]; None unless they were asked for.
    """

    nodes: Tensor
    logits: Tensor
    lower: Tensor
    upper: Tensor
    own: Tensor
    residuals: Tensor
    leverage: Tensor
    facts: Diagnostics
    loo_differences: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Known:
    """Logits of all nodes, where the ends of some nodes' intervals alone are wanted.

    Attributes:
        logits: of every node before any map, [n, k].
        nodes: those whose ends are wanted, distinct, int64 [s].
    """

    logits: Tensor
    nodes: Tensor

    def spread(self, ends: IntervalEnds) -> IntervalEnds:
        """Returns the ends of `nodes` as those of all nodes: NaN where none were made."""
        n = self.logits.shape[0]
        lower, upper = (x.new_full((n,), torch.nan).index_copy(0, self.nodes, x) for x in (ends.lower, ends.upper))
        every = torch.arange(n, device=self.logits.device)
        return replace(ends, nodes=every, logits=self.logits, lower=lower, upper=upper)


@torch.no_grad()
def interval_ends(
    fitted: Fitted,
    graph: Graph | None,
    nodes: Tensor | None,
    request: IntervalRequest,
    result: LooResult | None = None,
    evaluator: Streaming | None = None,
) -> IntervalEnds:
    """Returns the ends of the nodes' intervals, fused where that computes what is asked.

    Args:
        fitted: the detector with its labels.
        graph: the graph; None only where the network knows its inputs.
        nodes: nodes to evaluate, int64 [n]; None: all.
        request: what is asked.
        result: the leave-one-out at these nodes, where it is known.
        evaluator: what evaluates all nodes in blocks; None: for a large graph a `Streaming` in memory.

    Returns:
        The ends.

    Raises:
        ValueError: the result is of other nodes, or holds no model.
    """
    affine = affine_map(request.calibrator)
    wanted = request.rare and result is None and not request.keep_differences
    network = fitted.closed_form
    if wanted and affine is not None and network is not None and request.method.fuses(network.linearisation):
        assert graph is not None
        return _fused(network, graph, nodes, request, affine, evaluator)
    return _unfused(fitted, graph, nodes, request, result)


def affine_map(calibrator: LogitMap | None) -> tuple[float, float] | None:
    """Returns scale and bias of a map of z_1 - z_0 with two classes; None where it is not affine."""
    fitted = calibrator.map_ if isinstance(calibrator, JackknifeCalibrator) else calibrator
    if fitted is None:
        return (1.0, 0.0) if calibrator is None else None
    bent = isinstance(fitted, PositiveOnlyCalibrator)
    if bent or not isinstance(fitted, AffineCalibrator | PriorPlattCalibrator) or fitted.n_classes != 2:
        return None
    bias = fitted.bias_
    return None if bias is None else (fitted.scale_, float(bias[1] - bias[0]))


def _fused(
    fitted: FittedNetwork,
    graph: Graph,
    nodes: Tensor | None,
    request: IntervalRequest,
    affine: tuple[float, float],
    evaluator: Streaming | None,
) -> IntervalEnds:
    """Returns the ends without a leave-one-out logit kept."""
    method, linearised, field = cast(ALO, request.method), fitted.linearisation, None  # which alone fuses
    assert fits(linearised)
    if nodes is None and evaluator is None and fitted.columns is None:
        evaluator = _streaming(graph, linearised, method.memory_limit)
    n_models = method.n_models_of(linearised.n_nodes)
    if nodes is None and evaluator is not None:
        needed = method.left_out_bytes(linearised, linearised.field.rows[0].numel())
        remedy = "leave fewer labels out, or take a narrower network"  # the evaluator looks after the graph's size
        nodes, n_rows = torch.arange(graph.n_nodes, device=graph.device), graph.n_nodes
    else:
        field = fitted.evaluation_field(graph, nodes)
        nodes, n_rows = field.nodes, field.rows[0].numel()
        # No change of any logit: messages, hidden states and both ends.
        kept = n_rows * (n_models + 2 * linearised.layers[0][0].shape[1]) + 4 * nodes.numel()
        needed = method.left_out_bytes(linearised, n_rows) + kept * linearised.logits.element_size()
        remedy = "evaluate fewer nodes at a time"
    check_memory(needed, method.memory_limit, linearised.logits.device, remedy)
    damping, reason = method.damping_for(fitted)
    left = method.left_out(linearised, damping, n_rows)
    own = with_class_zero(linearised.differences + left.own)
    scale, bias = affine
    probability = torch.sigmoid(scale * (own[:, 1] - own[:, 0]) + bias)
    residuals = (fitted.targets.to(probability.dtype) - probability).abs()
    residuals = residuals if left.places is None else residuals[left.places]
    evaluation = Evaluation(linearised.layers, left, residuals, request.levels, scale, bias)
    if field is not None:
        logits, lower, upper = evaluation.of_field(field)
    else:
        assert evaluator is not None
        logits, lower, upper = evaluator(evaluation, cast(GCN, fitted.model).hops)
    facts = Diagnostics(method.name, left.form, left.damping, reason, estimated_bytes=needed)
    return IntervalEnds(nodes, logits, lower, upper, own, residuals, left.leverage, facts)


def _streaming(graph: Graph, linearised: GcnLinearisation, memory_limit: int | None) -> Streaming | None:
    """Returns what evaluates a large graph in blocks; None for a graph that is better taken as a whole."""
    same = linearised.logits.dtype == graph.x.dtype
    whole = same and streams(graph, len(linearised.layers), linearised.n_classes)
    return Streaming(graph, memory_limit=memory_limit) if whole else None


def _unfused(
    fitted: Fitted, graph: Graph | None, nodes: Tensor | None, request: IntervalRequest, result: LooResult | None
) -> IntervalEnds:
    """Returns the ends from every leave-one-out logit."""
    if fitted.folded is not None and result is None:
        logits, result = from_folds(fitted.folded, graph, nodes)
        at = result.nodes
        assert at is not None
    else:
        network = fitted.closed_form
        assert network is not None
        field: Any = network.evaluation_field(graph, nodes)
        at = field.nodes
        if result is None:
            result = leave_one_out(network, graph, request.method, nodes=nodes)
        elif result.change.shape[0] != at.numel() or not _same(result.nodes, at):
            raise ValueError("jackknife: result must be of the nodes to evaluate, got one of others: give the same")
        logits = network.logits_at(field)
    labels = fitted.label_logits
    own = with_class_zero(logit_differences(labels) + result.own)
    places, models = result.samples()
    residuals = _residuals(own[places], labels[places], fitted.targets[places], request)
    start = logit_differences(logits)
    lower, upper = _quantiles(start, result.change, models, logits, residuals, request)
    kept = start[:, :, None] + result.change if request.keep_differences else None
    facts = result.diagnostics or Diagnostics(request.method.name, "", result.damping)
    return IntervalEnds(at, logits, lower, upper, own, residuals, result.leverage, facts, kept)


def _same(known: Tensor | None, nodes: Tensor) -> bool:
    return known is None or torch.equal(known.to(nodes.device), nodes)


def _residuals(own: Tensor, logits: Tensor, targets: Tensor, request: IntervalRequest) -> Tensor:
    """Returns r_i = |y_i - f(i; theta_-i)|; where f is of the predicted class y_i says whether that class is right."""
    probability = torch.softmax(request.mapped(own), 1)
    watched = torch.ones_like(targets) if request.rare else request.mapped(logits).argmax(1)
    f = probability.gather(1, watched[:, None]).squeeze(1)
    return ((targets == watched).to(f.dtype) - f).abs()


def _quantiles(
    start: Tensor, change: Tensor, models: Tensor, logits: Tensor, residuals: Tensor, request: IntervalRequest
) -> tuple[Tensor, Tensor]:
    """Returns both interval ends, a block of nodes at a time; sample i is scored by model models[i]."""
    n, k, m = change.shape
    lower, upper = logits.new_empty(n), logits.new_empty(n)
    watched = None if request.rare else request.mapped(logits).argmax(1)
    one_each = models.numel() == m and bool((models == torch.arange(m, device=models.device)).all())
    shared = not one_each and pays(models.numel(), m)
    step = max(1, BLOCK_NUMBERS // max((m if shared else models.numel()) * (k + 1), 1))
    for first in range(0, n, step):
        rows = slice(first, min(first + step, n))
        scores = _scores(start[rows, :, None] + change[rows], None if watched is None else watched[rows], request)
        if shared:
            lower[rows], upper[rows] = shared_interval(scores, residuals, models, request.levels)
            continue
        ends = jackknife_interval(scores if one_each else scores[:, models], residuals, *request.levels)
        lower[rows], upper[rows] = ends.lower, ends.upper
    return lower, upper


def _scores(loo_logits: Tensor, watched: Tensor | None, request: IntervalRequest) -> Tensor:
    """Returns f(v; theta_-i) [n, m] from logit differences [n, k - 1, m]; of class 1 where no class is watched."""
    n, k, m = loo_logits.shape
    if watched is None and request.calibrator is None:
        return torch.sigmoid(loo_logits[:, 0])
    mapped = request.mapped(with_class_zero(loo_logits.transpose(1, 2).reshape(n * m, k)))
    if watched is None:
        return torch.sigmoid(mapped[:, 1] - mapped[:, 0]).view(n, m)
    return torch.softmax(mapped, 1).view(n, m, k + 1).gather(2, watched[:, None, None].expand(n, m, 1)).squeeze(2)
