"""The two ways to the interval ends of Algorithm 1: fused over blocks of nodes, or from every leave-one-out logit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from calirare._util.memory import check_memory
from calirare.calibration import AffineCalibrator, JackknifeCalibrator, PositiveOnlyCalibrator, PriorPlattCalibrator
from calirare.curvature import logit_differences, with_class_zero
from calirare.graph import Graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.directions import fits, left_out, left_out_bytes
from calirare.leave_one_out.leaving_out import leave_one_out
from calirare.leave_one_out.method import LeaveOneOutMethod
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.leave_one_out.streaming import Evaluation, Streaming, streams
from calirare.leave_one_out.trust import from_folds
from calirare.models import GCN, Fitted, FittedNetwork
from calirare_ext import jackknife_interval

STEPS = 50  # of bisection: the bracket is then 1e-15 of what it was, and the end itself a sample
MARGIN = 1e-15  # around a number, for what rounding took from it
LABELS_PER_MODEL = 50  # from which sorting pays: a node costs 200 searches per model, or m samples to select from
BLOCK_NODES = 65_536


def pays(n_samples: int, n_models: int) -> bool:
    """Returns whether a node's ends are found sooner here than by selection among all its samples."""
    return n_samples >= LABELS_PER_MODEL * n_models


def shared_interval(
    scores: Tensor, residuals: Tensor, models: Tensor, levels: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Returns the ends of `calirare_ext.jackknife_interval(scores[:, models], residuals, *levels)`.

    A node's samples are f_g - r_i (lower end) and f_g + r_i (upper end) over the models g and their labels i. Sorted
    residuals of each model are its samples in order, shifted by f_g, so that how many samples lie below a number is
    one binary search per model, and an order statistic is bisected.

    Args:
        scores: f of each model, finite but for NaN, [n, G].
        residuals: r_i >= 0, finite, [s].
        models: of each residual, in [0, G), int64 [s]; s >= 1.
        levels: of the two quantiles, in [0, 1].

    Returns:
        Lower and upper ends [n], by NumPy's "linear" rule; NaN where a score is NaN.

    Precision: as `jackknife_interval`, but that samples within 1e-15 of their range may change places.
    Cost: O(n G log s) time for O(n m); O(BLOCK_NODES G) memory.
    """
    lower, upper = torch.empty_like(scores[:, 0]), torch.empty_like(scores[:, 0])
    for end, sign, level in ((lower, -1.0, levels[0]), (upper, 1.0, levels[1])):
        offsets = _sorted_by_model(sign * residuals.double(), models, scores.shape[1])
        position = level * (residuals.numel() - 1)
        low = int(position)
        for rows, block in zip(end.split(BLOCK_NODES), scores.split(BLOCK_NODES), strict=True):
            near, far = order_statistics(block.double(), offsets, low).to(scores.dtype).double().unbind(1)
            rows.copy_(torch.lerp(near, far, position - low))
    return lower, upper


def _sorted_by_model(offsets: Tensor, models: Tensor, n_models: int) -> Tensor:
    """Returns each model's offsets ascending, [G, longest + 1], filled up with infinity."""
    end = offsets.new_full((1,), torch.inf)
    parts = [torch.cat([offsets[models == g].sort().values, end]) for g in range(n_models)]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=torch.inf)


def order_statistics(scores: Tensor, offsets: Tensor, rank: int) -> Tensor:
    """Returns the sample of a rank among scores[:, g] + offsets[g, :], over all g together, and the one after it.

    Args:
        scores: float64 [n, G].
        offsets: ascending along each row, at least the last infinite (infinite ones are none), float64 [G, L].
        rank: from 0.

    Returns:
        The samples, float64 [n, 2], of the last one itself twice; NaN in rows with a NaN score.
    """
    shift = scores.T.contiguous()
    finite = offsets[offsets.isfinite()]
    high = shift.amax(0) + finite.max()
    low = shift.amin(0) + finite.min() - 1.0  # below every sample
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = torch.searchsorted(offsets, middle - shift, right=True).sum(0) > rank
        high, low = torch.where(enough, middle, high), torch.where(enough, low, middle)

    def after(end: Tensor) -> tuple[Tensor, Tensor]:
        following = torch.searchsorted(offsets, end - shift, right=True)
        return following.sum(0), (offsets.gather(1, following.clamp(max=offsets.shape[1] - 1)) + shift).amin(0)

    near = after(low - MARGIN)[1]
    upto, far = after(near + MARGIN)
    found = torch.stack([near, torch.where((upto > rank + 1) | far.isinf(), near, far)], 1)
    return found.masked_fill(shift.isnan().any(0)[:, None], torch.nan)


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
        unseen: a label's predicted class is that of the model without it, as a new node's is; else the network's, which
            has seen the label and is nearly always right (the authors' code; intervals are then far too wide).
    """

    method: LeaveOneOutMethod
    levels: tuple[float, float]
    calibrator: LogitMap | None
    rare: bool
    unseen: bool = False

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
    """

    nodes: Tensor
    logits: Tensor
    lower: Tensor
    upper: Tensor
    own: Tensor
    residuals: Tensor
    leverage: Tensor
    facts: Diagnostics


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

    Raises:
        ValueError: the result is of other nodes, or holds no model.
    """
    affine, method, network = affine_map(request.calibrator), request.method, fitted.closed_form
    plain = request.rare and result is None and isinstance(method, ALO)
    if plain and affine is not None and network is not None and fits(network.linearisation):
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
    method, linearised, field = cast(ALO, request.method), fitted.linearisation, None
    assert fits(linearised)
    if nodes is None and evaluator is None and fitted.columns is None:
        same = linearised.logits.dtype == graph.x.dtype
        if same and streams(graph, len(linearised.layers), linearised.n_classes):
            evaluator = Streaming(graph)
    n_models = method.n_models_of(linearised.n_nodes)
    if nodes is None and evaluator is not None:
        needed = left_out_bytes(linearised, method.fused_form, n_models, linearised.field.rows[0].numel())
        remedy = "leave fewer labels out, or take a narrower network"  # the evaluator looks after the graph's size
        nodes, n_rows = torch.arange(graph.n_nodes, device=graph.device), graph.n_nodes
    else:
        field = fitted.evaluation_field(graph, nodes)
        nodes, n_rows = field.nodes, field.rows[0].numel()
        # No change of any logit: messages, hidden states and both ends.
        kept = n_rows * (n_models + 2 * linearised.layers[0][0].shape[1]) + 4 * nodes.numel()
        needed = left_out_bytes(linearised, method.fused_form, n_models, n_rows)
        needed += kept * linearised.logits.element_size()
        remedy = "evaluate fewer nodes at a time"
    check_memory(needed, method.memory_limit, linearised.logits.device, remedy)
    damping, reason = method.damping_for(fitted)
    chosen = method.chosen_of(linearised)
    left = left_out(linearised, damping, form=method.fused_form, n_rows=n_rows, chosen=chosen)
    own = with_class_zero(linearised.differences + left.own)
    scale, bias = affine
    probability = torch.sigmoid(scale * (own[:, 1] - own[:, 0]) + bias)
    residuals = (fitted.targets.to(probability.dtype) - probability).abs()
    residuals = residuals if left.places is None else residuals[left.places]
    evaluation = Evaluation(linearised.layers, left, residuals, request.levels, scale, bias)
    if field is not None:
        logits, lower, upper = evaluation.ends(field.blocks[0], *evaluation.messages(field.features))
    else:
        assert evaluator is not None
        logits, lower, upper = evaluator(evaluation, cast(GCN, fitted.model).hops)
    facts = Diagnostics(method.name, left.form, left.damping, reason, estimated_bytes=needed)
    return IntervalEnds(nodes, logits, lower, upper, own, residuals, left.leverage, facts)


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
        elif result.change.shape[0] != at.numel() or not (
            result.nodes is None or torch.equal(result.nodes.to(at.device), at)
        ):
            raise ValueError("jackknife: result must be of the nodes to evaluate, got one of others: give the same")
        logits = network.logits_at(field)
    labels = fitted.label_logits
    own = with_class_zero(logit_differences(labels) + result.own)
    places, models = result.samples()
    residuals = _residuals(own[places], labels[places], fitted.targets[places], request)
    start = logit_differences(logits)
    lower, upper = _quantiles(start, result.change, models, logits, residuals, request)
    facts = result.diagnostics or Diagnostics(request.method.name, "", result.damping)
    return IntervalEnds(at, logits, lower, upper, own, residuals, result.leverage, facts)


def _residuals(own: Tensor, logits: Tensor, targets: Tensor, request: IntervalRequest) -> Tensor:
    """Returns r_i = |y_i - f(i; theta_-i)|; where f is of the predicted class y_i says whether that class is right."""
    probability = torch.softmax(request.mapped(own), 1)
    predicted = probability if request.unseen else request.mapped(logits)
    watched = torch.ones_like(targets) if request.rare else predicted.argmax(1)
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
