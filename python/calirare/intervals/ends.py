"""The two ways to the interval ends of Algorithm 1: fused over blocks of nodes, or from every leave-one-out logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator, JackknifeCalibrator
from calirare.curvature.ggn import logit_differences
from calirare.curvature.module_tape import Tape
from calirare.graph.graph import Graph
from calirare.leave_one_out.left_out import LeftOut, evaluate, fits, left_out
from calirare.leave_one_out.memory import check_memory, estimate_bytes
from calirare.leave_one_out.methods import (
    LooSettings,
    damping_of,
    field_at,
    leave_one_out,
    models_drawn,
    receptive_field_at,
)
from calirare.leave_one_out.result import LooChange
from calirare.leave_one_out.retrain import AnyFit, logits_at
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import Fit
from calirare_ext import GcnTape, ReceptiveField, jackknife_interval

BLOCK_NUMBERS = 16_000_000  # leave-one-out scores held at once


class LogitMap(Protocol):
    """A calibrator that can say its logits, such as `JackknifeCalibrator`."""

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns the logits after the map, [n, k]."""
        ...


class Evaluator(Protocol):
    """What turns left-out models into logits [n, 2] and interval ends [n] of all nodes, under an affine map."""

    def __call__(
        self, left: LeftOut, model: GCN, residuals: Tensor, levels: tuple[float, float], scale: float, bias: float, /
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits before the map, lower ends and upper ends."""
        ...


@dataclass(frozen=True)
class Asked:
    """What the ends depend on beside the network and the nodes.

    Attributes:
        settings: the leave-one-out method.
        levels: of the two quantiles, in [0, 1].
        damping: see `leave_one_out`.
        calibrator: a map put on every leave-one-out logit; None: none.
        rare: f is the probability of class 1; else of the predicted class.
        keep_logits: return every leave-one-out logit.
    """

    settings: LooSettings
    levels: tuple[float, float]
    damping: float | None
    calibrator: LogitMap | None
    rare: bool
    keep_logits: bool

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
        own: logits of each labelled node without itself, class 0 at 0, before any map, [m, k].
        residuals: r_i of the models, [s].
        leverage: h_i, [m].
        damping: that was used.
        loo_logits: z_c - z_0 in each model, before any map, [n, k - 1, s]; None unless they were asked for.
        lowest_curvature: met by methods on the exact Hessian, else None.
    """

    nodes: Tensor
    logits: Tensor
    lower: Tensor
    upper: Tensor
    own: Tensor
    residuals: Tensor
    leverage: Tensor
    damping: float
    loo_logits: Tensor | None = None
    lowest_curvature: float | None = None


@torch.no_grad()
def interval_ends(
    trained: AnyFit,
    tape: Tape,
    graph: Graph | None,
    nodes: Tensor | None,
    asked: Asked,
    change: LooChange | None = None,
    evaluator: Evaluator | None = None,
) -> IntervalEnds:
    """Returns the ends of the nodes' intervals, fused where that computes what is asked.

    Args:
        trained: the network with its labels.
        tape: its derivatives there.
        graph: the graph; None only with a `ModuleFit`.
        nodes: nodes to evaluate, int64 [n]; None: all.
        asked: what is asked.
        change: the changes at these nodes, where they are known.
        evaluator: what evaluates all nodes in blocks; None: for a large graph a `Streaming` in memory.

    Returns:
        The ends.

    Raises:
        ValueError: the change is of other nodes, or holds no model.
    """
    affine = affine_map(asked.calibrator)
    fused = asked.rare and affine is not None and change is None and not asked.keep_logits
    if fused and isinstance(trained, Fit) and isinstance(tape, GcnTape) and _fuses(tape, asked.settings):
        assert graph is not None
        assert affine is not None
        return _fused(trained, tape, graph, nodes, asked, affine, evaluator)
    return _unfused(trained, tape, graph, nodes, asked, change)


def affine_map(calibrator: LogitMap | None) -> tuple[float, float] | None:
    """Returns scale and bias of a map of z_1 - z_0 with two classes; None where it is not affine."""
    fitted = calibrator.map_ if isinstance(calibrator, JackknifeCalibrator) else calibrator
    if fitted is None:
        return (1.0, 0.0) if calibrator is None else None
    if not isinstance(fitted, AffineCalibrator) or fitted.bias_ is None or fitted.bias_.numel() != 2:
        return None
    return fitted.scale_, float(fitted.bias_[1] - fitted.bias_[0])


def _fuses(tape: GcnTape, settings: LooSettings) -> bool:
    """Returns whether the fused evaluation computes what the settings ask for."""
    linearised = settings.method in ("alo", "replicates") and settings.forward == "linearised"
    asked = linearised and settings.convention == "corrected"
    return fits(tape) and asked and settings.form != "randomised" and not settings.steps


def _fused(
    trained: Fit,
    tape: GcnTape,
    graph: Graph,
    nodes: Tensor | None,
    asked: Asked,
    affine: tuple[float, float],
    evaluator: Evaluator | None,
) -> IntervalEnds:
    """Returns the ends without a leave-one-out logit kept."""
    settings, everywhere = asked.settings, None
    if nodes is None and evaluator is None:
        evaluator = _streaming(graph, tape, settings.memory_limit)
    chosen = models_drawn(settings, tape)
    n_models = tape.n_nodes if chosen is None else chosen.numel()
    device = tape.logits.device
    if nodes is None and evaluator is not None:
        needed = estimate_bytes("left_out", settings.form, tape, tape.field, n_models)
        mend = "leave fewer labels out, or take a narrower network"  # the evaluator looks after the graph's size
        nodes, n_rows = torch.arange(graph.n_nodes, device=graph.device), graph.n_nodes
    else:
        everywhere = receptive_field_at(trained, graph, nodes)
        needed = estimate_bytes("fused", settings.form, tape, everywhere, n_models)
        mend = "evaluate fewer nodes at a time"
        nodes, n_rows, evaluator = everywhere.nodes, everywhere.rows[0].numel(), _in_one(tape, everywhere)
    check_memory(needed, settings.memory_limit, device, mend)
    form = "primal" if settings.form == "primal" else "auto" if settings.form == "auto" else "dual"
    mu = damping_of(trained, settings, asked.damping)
    left = left_out(tape, mu, form=form, n_rows=n_rows, at=everywhere, chosen=chosen)
    own = with_class_zero(logit_differences(tape.logits) + left.own)
    scale, bias = affine
    probability = torch.sigmoid(scale * (own[:, 1] - own[:, 0]) + bias)
    residuals = (trained.targets.to(probability.dtype) - probability).abs()
    residuals = residuals if chosen is None else residuals[chosen]
    logits, lower, upper = evaluator(left, trained.model, residuals, asked.levels, scale, bias)
    return IntervalEnds(nodes, logits, lower, upper, own, residuals, left.leverage, left.damping)


def _in_one(tape: GcnTape, everywhere: ReceptiveField) -> Evaluator:
    """Returns what evaluates a network at the nodes of a field together."""

    def evaluator(
        left: LeftOut, model: GCN, residuals: Tensor, levels: tuple[float, float], scale: float, bias: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return evaluate(left, tape, everywhere, residuals, levels, scale=scale, bias=bias)

    return evaluator


def _streaming(graph: Graph, tape: GcnTape, memory_limit: int | None) -> Evaluator | None:
    """Returns what evaluates a large graph in blocks; None for a graph that is better taken as a whole."""
    from calirare.intervals.streaming import Streaming, streams  # which imports what this module is made of

    whole = tape.logits.dtype == graph.x.dtype and streams(graph, len(tape.layers), tape.n_classes)
    return Streaming(graph, memory_limit=memory_limit) if whole else None


def _unfused(
    trained: AnyFit, tape: Tape, graph: Graph | None, nodes: Tensor | None, asked: Asked, change: LooChange | None
) -> IntervalEnds:
    """Returns the ends from every leave-one-out logit."""
    everywhere = field_at(trained, graph, nodes)
    found = everywhere if isinstance(everywhere, Tensor) else everywhere.nodes
    if change is None:
        change = leave_one_out(trained, graph, damping=asked.damping, nodes=nodes, settings=asked.settings)
    elif change.change.shape[0] != found.numel() or not _same(change.nodes, found):
        raise ValueError("jackknife: change must be of the nodes to evaluate, got one of others: give the same")
    logits = logits_at(trained, everywhere)
    own = with_class_zero(logit_differences(tape.logits) + change.own)
    places, models = change.samples()
    if places.numel() == 0:
        raise ValueError("jackknife: change must hold at least one leave-one-out model, got none: take another form")
    residuals = _residuals(own[places], tape.logits[places], trained.targets[places], asked)
    start = logit_differences(logits)
    lower, upper = _quantiles(start, change.change, models, logits, residuals, asked)
    kept = start[:, :, None] + change.change if asked.keep_logits else None
    met = None if change.diagnostics is None else change.diagnostics.lowest_curvature
    return IntervalEnds(found, logits, lower, upper, own, residuals, change.leverage, change.damping, kept, met)


def _same(known: Tensor | None, nodes: Tensor) -> bool:
    return known is None or torch.equal(known.to(nodes.device), nodes)


def with_class_zero(differences: Tensor) -> Tensor:
    """Returns logits [n, k] with class 0 at 0 from differences to it [n, k - 1]."""
    return torch.cat([differences.new_zeros(differences.shape[0], 1), differences], 1)


def _residuals(own: Tensor, logits: Tensor, targets: Tensor, asked: Asked) -> Tensor:
    """Returns r_i = |y_i - f(i; theta_-i)|; where f is of the predicted class y_i says whether that class is right."""
    probability = torch.softmax(asked.mapped(own), 1)
    watched = torch.ones_like(targets) if asked.rare else asked.mapped(logits).argmax(1)
    f = probability.gather(1, watched[:, None]).squeeze(1)
    return ((targets == watched).to(f.dtype) - f).abs()


def _quantiles(
    start: Tensor, change: Tensor, models: Tensor, logits: Tensor, residuals: Tensor, asked: Asked
) -> tuple[Tensor, Tensor]:
    """Returns both interval ends, a block of nodes at a time; sample i is scored by model models[i]."""
    n, k, m = change.shape
    lower, upper = logits.new_empty(n), logits.new_empty(n)
    watched = None if asked.rare else asked.mapped(logits).argmax(1)
    one_each = models.numel() == m and bool((models == torch.arange(m, device=models.device)).all())
    step = max(1, BLOCK_NUMBERS // max(models.numel() * (k + 1), 1))
    for first in range(0, n, step):
        rows = slice(first, min(first + step, n))
        scores = _scores(start[rows, :, None] + change[rows], None if watched is None else watched[rows], asked)
        ends = jackknife_interval(scores if one_each else scores[:, models], residuals, *asked.levels)
        lower[rows], upper[rows] = ends.lower, ends.upper
    return lower, upper


def _scores(loo_logits: Tensor, watched: Tensor | None, asked: Asked) -> Tensor:
    """Returns f(v; theta_-i) [n, m] from logit differences [n, k - 1, m]; of class 1 where no class is watched."""
    n, k, m = loo_logits.shape
    if watched is None and asked.calibrator is None:
        return torch.sigmoid(loo_logits[:, 0])
    mapped = asked.mapped(with_class_zero(loo_logits.transpose(1, 2).reshape(n * m, k)))
    if watched is None:
        return torch.sigmoid(mapped[:, 1] - mapped[:, 0]).view(n, m)
    return torch.softmax(mapped, 1).view(n, m, k + 1).gather(2, watched[:, None, None].expand(n, m, 1)).squeeze(2)
