"""Algorithm 1 of the paper: intervals, uncertainty and individual calibration error from leave-one-out models."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.calibration.affine import AffineCalibrator
from calirare.calibration.jackknife import JackknifeCalibrator
from calirare.graph import Graph
from calirare.jackknife_result import JackknifeResult
from calirare.leave_one_out.change import LooChange
from calirare.leave_one_out.evaluate import LeftOut, evaluate, fits, left_out
from calirare.leave_one_out.ggn import logit_differences, pull_back
from calirare.leave_one_out.memory import check_memory, estimate_bytes
from calirare.leave_one_out.methods import (
    CONVENTIONS,
    Convention,
    LooSettings,
    Method,
    damping_of,
    few_enough,
    field_at,
    leave_one_out,
    models_drawn,
    receptive_field_at,
)
from calirare.leave_one_out.module_tape import ModuleTape, Tape, Where
from calirare.leave_one_out.quality import gradient_ratio
from calirare.leave_one_out.retrain import AnyFit, logits_at
from calirare.module_fit import ModuleFit, leaves_modes
from calirare.threads import threads_for
from calirare.training import Fit, fit_of
from calirare_ext import GcnTape, ReceptiveField, jackknife_interval

Score = Literal["auto", "rare", "predicted"]
Uncertainty = Literal["auto", "map", "midpoint"]
BLOCK_NUMBERS = 16_000_000  # leave-one-out scores held at once


class LogitMap(Protocol):
    """A calibrator that can say its logits, such as `JackknifeCalibrator`."""

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns the logits after the map, [n, k]."""
        ...


class Evaluator(Protocol):
    """What turns left-out models into logits [n, 2] and interval ends [n] of all nodes, under an affine map."""

    def __call__(
        self, left: LeftOut, tape: GcnTape, residuals: Tensor, levels: tuple[float, float], scale: float, bias: float, /
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits before the map, lower ends and upper ends."""
        ...


@leaves_modes
def jackknife(
    trained: Fit | ModuleFit | nn.Module,
    graph: Graph | None = None,
    *,
    method: Method | None = None,
    coverage: float = 0.9,
    damping: float | None = None,
    calibrator: LogitMap | None = None,
    nodes: Tensor | None = None,
    change: LooChange | None = None,
    settings: LooSettings | None = None,
    score: Score = "auto",
    uncertainty: Uncertainty = "auto",
    judges: Tensor | None = None,
    keep_logits: bool = False,
    evaluator: Evaluator | None = None,
) -> JackknifeResult:
    """Returns jackknife intervals, uncertainty, ICE and EICE (paper, Algorithm 1), without retraining.

    With two layers, two classes, linearised `alo` and no map or an affine one, scores are made and reduced to interval
    ends for a few nodes at a time (`leave_one_out.evaluate`): about a fifth of the time, and one number for each node
    and label instead of several. Anything else takes every leave-one-out logit first. Where there are more than 4,000
    labels, or than `settings.n_models`, the intervals of `alo` rest on as many models drawn at random ("replicates");
    uncertainty and ICE rest on all labels.

    Args:
        trained: the network with the labels it was trained on (`calirare.training.fit`, `fit_of`, or `Outcome.fit`); a
            bare network, our `GCN` or any torch module with model(x, edge_index) -> logits, stands for one trained on
            the split's training nodes with the default weight decay. What is not a GCN goes through reverse-mode
            derivatives: the same answers, slower.
        graph: the graph it was trained on; None is enough for a `ModuleFit`.
        method: short for `settings=LooSettings(method)`.
        coverage: the paper's alpha, in (0, 1): the interval runs from quantile (1 - coverage) / 2 to its mirror image.
        damping: see `leave_one_out`.
        calibrator: a map put on every leave-one-out logit before f is taken, fitted on leave-one-out logits itself;
            None: the network's own probabilities.
        nodes: nodes to evaluate, int64 [n]; None: all.
        change: the leave-one-out changes, where they were computed before for the same nodes.
        settings: the leave-one-out method and convention; None: `alo`. The convention "paper" also takes the quantiles
            as printed, Q_alpha below and Q_(1 - alpha) above, alpha the coverage: intervals are far too narrow.
        score: f: "rare": the probability of class 1 (two classes only); "predicted": of the predicted class; "auto":
            "rare" with two classes, as in the authors' code, else "predicted".
        uncertainty: uncer(v): "map": the probability, under a Platt map for the population fitted on the labelled
            nodes' leave-one-out logits, that the predicted class is right (the best of the definitions judged where
            P(y | v) is known, docs/jackknife.md); "midpoint": the paper's; "auto": "map" with the convention
            "corrected", else "midpoint".
        judges: labelled nodes the map is fitted on, those that represent the population, bool [m]; None: all.
        keep_logits: put every leave-one-out logit into the result.
        evaluator: what evaluates all nodes in blocks where the fused evaluation fits (`calirare.scale.stream`); None:
            for a large graph a `Streaming` in memory.

    Returns:
        Everything Algorithm 1 computes on the way.

    Raises:
        ValueError: the coverage or the damping is out of range, a word is unknown, or the score does not fit.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"jackknife: coverage must be in (0, 1), got {coverage}")
    if isinstance(nodes, Tensor) and nodes.numel() == 0:
        raise ValueError("jackknife: nodes must name at least one node, got none")
    started = time.perf_counter()
    if not isinstance(trained, Fit | ModuleFit | nn.Module):
        raise TypeError(
            f"jackknife: trained must be a Fit, a ModuleFit or a torch module, got {type(trained).__name__}"
        )
    if graph is None and not isinstance(trained, ModuleFit):
        raise ValueError("jackknife: graph must be given, got None: only a ModuleFit knows its inputs without")
    bare = isinstance(trained, nn.Module)
    if isinstance(trained, nn.Module):
        assert graph is not None
        trained = fit_of(trained, graph)
    if method is not None and settings is not None:
        raise ValueError("jackknife: method must be None where settings are given, which name one")
    tape = trained.tape()
    n_classes = tape.n_classes
    if not bool(torch.isfinite(tape.logits).all()):
        raise ValueError("jackknife: the network's logits at its labelled nodes must be finite: did training diverge?")
    if judges is not None:
        _check_judges(judges, tape.n_nodes)
    if score not in ("auto", "rare", "predicted") or (score == "rare" and n_classes != 2):
        raise ValueError(f"jackknife: score must be auto, predicted or, with two classes, rare, got {score!r}")
    if uncertainty not in ("auto", "map", "midpoint"):
        raise ValueError(f"jackknife: uncertainty must be auto, map or midpoint, got {uncertainty!r}")
    rare = n_classes == 2 and score != "predicted"
    settings, note_of_models = settings or (LooSettings() if method is None else LooSettings(method)), ""
    if change is None:
        settings, note_of_models = few_enough(settings, tape.n_nodes)
    mapped = uncertainty == "map" or (uncertainty == "auto" and settings.convention == "corrected")
    levels = _levels(coverage, settings.convention)
    affine = affine_map(calibrator)
    fused = rare and affine is not None and change is None and not keep_logits and _fuses(tape, settings)
    with torch.no_grad():
        if fused:
            assert isinstance(trained, Fit)
            assert isinstance(tape, GcnTape)
            assert graph is not None
            assert affine is not None
            if nodes is None and evaluator is None:
                evaluator = _streaming(graph, tape)
            if nodes is None and evaluator is not None:
                everywhere_nodes = torch.arange(graph.n_nodes, device=graph.device)
                _check_streamed(tape, settings)
                ends = _streamed(trained, tape, graph.n_nodes, settings, damping, affine, levels, evaluator)
            else:
                field = receptive_field_at(trained, graph, nodes)
                everywhere_nodes = field.nodes
                ends = _fused(trained, tape, field, settings, damping, affine, levels)
        else:
            everywhere = field_at(trained, graph, nodes)
            everywhere_nodes = everywhere if isinstance(everywhere, Tensor) else everywhere.nodes
            if change is None:
                change = leave_one_out(trained, graph, damping=damping, nodes=nodes, settings=settings)
            elif change.change.shape[0] != everywhere_nodes.numel() or not _same(change.nodes, everywhere_nodes):
                raise ValueError("jackknife: change must be of the nodes to evaluate, got one of others: give the same")
            ends = _unfused(trained, tape, everywhere, change, calibrator, levels, rare, keep_logits)
    if not bool(torch.isfinite(ends.own).all(1).any()):
        raise ValueError(f"jackknife: no leave-one-out logit is finite with damping {ends.damping:g}: raise it")
    with threads_for(16 * everywhere_nodes.numel()):
        estimate, note = _estimate(ends, trained.targets, judges) if mapped else (None, "")
        confidence, predicted = torch.softmax(ends.logits if mapped else _mapped(ends.logits, calibrator), 1).max(1)
        if estimate is not None:
            right = estimate.gather(1, predicted[:, None]).squeeze(1)
        else:
            midpoint = (ends.lower + ends.upper) / 2
            right = torch.where(predicted == 0, 1 - midpoint, midpoint) if rare else midpoint
        ice = (right - confidence).abs()
        diagnostics = {
            "damping": ends.damping,
            "mean_leverage": float(ends.leverage.mean()),
            "max_leverage": float(ends.leverage.max()),
            "in_sample_nll": float(F.cross_entropy(tape.logits, trained.targets)),
            "loo_nll": _mean_loss(ends.own, trained.targets),
            "gradient_norm": _gradient_norm(trained, tape),
            "seconds": time.perf_counter() - started,
        }
        if change is not None and change.diagnostics is not None and change.diagnostics.lowest_curvature is not None:
            diagnostics["lowest_curvature"] = change.diagnostics.lowest_curvature
    doubt = _doubt(trained, diagnostics["gradient_norm"]) if bare else ""
    note = "; ".join(part for part in (note, note_of_models, doubt) if part)
    return JackknifeResult(
        everywhere_nodes,
        ends.lower,
        ends.upper,
        right,
        confidence,
        ice,
        float(ice.double().mean()),
        ends.residuals,
        ends.loo_logits,
        ends.own,
        coverage,
        diagnostics,
        estimate,
        note,
        ends.leverage,
        "influence" if settings.convention != "corrected" else settings.method,
    )


def _doubt(trained: AnyFit, gradient_norm: float) -> str:
    """Returns a sentence where a bare network was hardly trained as is assumed of it, else nothing."""
    ratio = gradient_ratio(trained, gradient_norm)
    if ratio <= 1:
        return ""
    return (
        "the network is no minimum of the loss that is assumed of a bare one (the split's training nodes, class "
        f"weights, weight decay {trained.weight_decay:g}): its gradient is {ratio:.1f} times the weight decay's; if it "
        "was trained otherwise, say how with fit_of or ModuleFit"
    )


def _check_judges(judges: Tensor, m: int) -> None:
    if not isinstance(judges, Tensor) or judges.dtype != torch.bool or judges.shape != (m,):
        got = f"{judges.dtype} {list(judges.shape)}" if isinstance(judges, Tensor) else type(judges).__name__
        raise ValueError(f"jackknife: judges must be a bool tensor [{m}], one per labelled node, got {got}")


def _same(known: Tensor | None, nodes: Tensor) -> bool:
    return known is None or torch.equal(known.to(nodes.device), nodes)


def affine_map(calibrator: LogitMap | None) -> tuple[float, float] | None:
    """Returns scale and bias of a map of z_1 - z_0 with two classes; None where it is not affine."""
    fitted = calibrator.map if isinstance(calibrator, JackknifeCalibrator) else calibrator
    if fitted is None:
        return (1.0, 0.0) if calibrator is None else None
    if not isinstance(fitted, AffineCalibrator) or fitted.bias is None or fitted.bias.numel() != 2:
        return None
    return fitted.scale, float(fitted.bias[1] - fitted.bias[0])


@dataclass(frozen=True, eq=False)
class _Ends:
    """What both ways to the interval ends return: of the nodes, and of the labelled nodes."""

    logits: Tensor
    lower: Tensor
    upper: Tensor
    own: Tensor
    residuals: Tensor
    leverage: Tensor
    damping: float
    loo_logits: Tensor | None


def _estimate(ends: _Ends, targets: Tensor, judges: Tensor | None) -> tuple[Tensor, str]:
    """Returns P(y | v) of the nodes [n, k] under the population's map on leave-one-out logits, and its note."""
    known = torch.isfinite(ends.own).all(1)
    chosen = known if judges is None else known & judges.to(known.device)
    fitted = JackknifeCalibrator(target="population").fit(ends.own[chosen], targets[chosen])
    return fitted.transform(ends.logits), fitted.note


def _fuses(tape: Tape, settings: LooSettings) -> bool:
    """Returns whether the fused evaluation computes what the settings ask for."""
    if isinstance(tape, ModuleTape):
        return False
    linearised = settings.method in ("alo", "replicates") and settings.forward == "linearised"
    asked = linearised and settings.convention == "corrected"
    return fits(tape) and asked and settings.form != "randomised" and not settings.steps


def _fused(
    trained: Fit,
    tape: GcnTape,
    everywhere: ReceptiveField,
    settings: LooSettings,
    damping: float | None,
    affine: tuple[float, float],
    levels: tuple[float, float],
) -> _Ends:
    """Returns the ends without a leave-one-out logit kept."""
    chosen = models_drawn(settings, tape)
    n_models = tape.n_nodes if chosen is None else chosen.numel()
    needed = estimate_bytes("fused", settings.form, tape, everywhere, n_models)
    check_memory(needed, settings.memory_limit, tape.logits.device, "evaluate fewer nodes at a time")

    def in_one(
        left: LeftOut, tape: GcnTape, residuals: Tensor, levels: tuple[float, float], scale: float, bias: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return evaluate(left, tape, everywhere, residuals, levels, scale=scale, bias=bias)

    rows = everywhere.rows[0].numel()
    return _streamed(trained, tape, rows, settings, damping, affine, levels, in_one, everywhere)


def _check_streamed(tape: GcnTape, settings: LooSettings) -> None:
    """Refuses left-out models that do not fit; the evaluator looks after what is of the size of the graph."""
    chosen = models_drawn(settings, tape)
    n_models = tape.n_nodes if chosen is None else chosen.numel()
    needed = estimate_bytes("left_out", settings.form, tape, tape.field, n_models)
    check_memory(
        needed, settings.memory_limit, tape.logits.device, "leave fewer labels out, or take a narrower network"
    )


def _streaming(graph: Graph, tape: GcnTape) -> Evaluator | None:
    """Returns what evaluates a large graph in blocks; None for a graph that is better taken as a whole."""
    from calirare.scale.stream import Streaming, streams  # which imports what this module is made of

    whole = tape.logits.dtype == graph.x.dtype and streams(graph, len(tape.layers), tape.n_classes)
    return Streaming(graph) if whole else None


def _streamed(
    trained: Fit,
    tape: GcnTape,
    n_rows: int,
    settings: LooSettings,
    damping: float | None,
    affine: tuple[float, float],
    levels: tuple[float, float],
    evaluator: Evaluator,
    at: ReceptiveField | None = None,
) -> _Ends:
    """Returns the ends from whatever evaluates the left-out models at the nodes, those of `at` where it is known."""
    mu = damping_of(trained, settings, damping)
    form = "primal" if settings.form == "primal" else "auto" if settings.form == "auto" else "dual"
    chosen = models_drawn(settings, tape)
    left = left_out(tape, mu, form=form, n_rows=n_rows, at=at, chosen=chosen)
    own = _with_class_zero(logit_differences(tape.logits) + left.own)
    scale, bias = affine
    probability = torch.sigmoid(scale * (own[:, 1] - own[:, 0]) + bias)
    residuals = (trained.targets.to(probability.dtype) - probability).abs()
    residuals = residuals if chosen is None else residuals[chosen]
    logits, lower, upper = evaluator(left, tape, residuals, levels, scale, bias)
    return _Ends(logits, lower, upper, own, residuals, left.leverage, left.damping, None)


def _unfused(
    trained: AnyFit,
    tape: Tape,
    everywhere: Where,
    change: LooChange,
    calibrator: LogitMap | None,
    levels: tuple[float, float],
    rare: bool,
    keep_logits: bool,
) -> _Ends:
    """Returns the ends from every leave-one-out logit."""
    logits = logits_at(trained, everywhere)
    own = _with_class_zero(logit_differences(tape.logits) + change.own)
    places, models = change.samples()
    if places.numel() == 0:
        raise ValueError("jackknife: change must hold at least one leave-one-out model, got none: take another form")
    residuals = _residuals(own[places], tape.logits[places], trained.targets[places], calibrator, rare)
    start = logit_differences(logits)
    lower, upper = _intervals(start, change.change, models, logits, residuals, levels, calibrator, rare)
    kept = start[:, :, None] + change.change if keep_logits else None
    return _Ends(logits, lower, upper, own, residuals, change.leverage, change.damping, kept)


def _gradient_norm(trained: AnyFit, tape: Tape) -> float:
    """Returns |grad| of the penalised loss, of a GCN without automatic differentiation; 0 at a stationary point."""
    if isinstance(trained, ModuleFit):
        return trained.gradient_norm()
    assert isinstance(tape, GcnTape)
    parameters = torch.cat([part.flatten() for layer in tape.layers for part in layer])
    loss = pull_back(tape, (tape.loss_gradient_at_logits() / tape.n_nodes)[None])[0]
    return float((loss + trained.weight_decay * parameters).norm())


def _with_class_zero(differences: Tensor) -> Tensor:
    return torch.cat([differences.new_zeros(differences.shape[0], 1), differences], 1)


def _mean_loss(logits: Tensor, targets: Tensor) -> float:
    """Returns the mean loss of the labels that have a model."""
    known = torch.isfinite(logits).all(1)
    return float(F.cross_entropy(logits[known], targets[known]))


def _mapped(logits: Tensor, calibrator: LogitMap | None) -> Tensor:
    return logits if calibrator is None else calibrator.calibrated_logits(logits)


def _levels(coverage: float, convention: Convention) -> tuple[float, float]:
    """Returns the levels of the two quantiles."""
    if convention not in CONVENTIONS:
        raise ValueError(f"jackknife: convention must be one of {', '.join(CONVENTIONS)}, got {convention!r}")
    return (coverage, 1 - coverage) if convention == "paper" else ((1 - coverage) / 2, 1 - (1 - coverage) / 2)


def _residuals(own: Tensor, logits: Tensor, targets: Tensor, calibrator: LogitMap | None, rare: bool) -> Tensor:
    """Returns r_i = |y_i - f(i; theta_-i)|; where f is of the predicted class y_i says whether that class is right."""
    probability = torch.softmax(_mapped(own, calibrator), 1)
    watched = torch.ones_like(targets) if rare else _mapped(logits, calibrator).argmax(1)
    f = probability.gather(1, watched[:, None]).squeeze(1)
    return ((targets == watched).to(f.dtype) - f).abs()


def _intervals(
    start: Tensor,
    change: Tensor,
    models: Tensor,
    logits: Tensor,
    residuals: Tensor,
    levels: tuple[float, float],
    calibrator: LogitMap | None,
    rare: bool,
) -> tuple[Tensor, Tensor]:
    """Returns both interval ends, a block of nodes at a time; sample i is scored by model models[i]."""
    n, k, m = change.shape
    lower, upper = logits.new_empty(n), logits.new_empty(n)
    watched = None if rare else _mapped(logits, calibrator).argmax(1)
    one_each = models.numel() == m and bool((models == torch.arange(m, device=models.device)).all())
    step = max(1, BLOCK_NUMBERS // max(models.numel() * (k + 1), 1))
    for first in range(0, n, step):
        rows = slice(first, min(first + step, n))
        scores = _scores(start[rows, :, None] + change[rows], None if watched is None else watched[rows], calibrator)
        ends = jackknife_interval(scores if one_each else scores[:, models], residuals, *levels)
        lower[rows], upper[rows] = ends.lower, ends.upper
    return lower, upper


def _scores(loo_logits: Tensor, watched: Tensor | None, calibrator: LogitMap | None) -> Tensor:
    """Returns f(v; theta_-i) [n, m] from logit differences [n, k - 1, m]; of class 1 where no class is watched."""
    n, k, m = loo_logits.shape
    if watched is None and calibrator is None:
        return torch.sigmoid(loo_logits[:, 0])
    flat = _with_class_zero(loo_logits.transpose(1, 2).reshape(n * m, k))
    mapped = _mapped(flat, calibrator)
    if watched is None:
        return torch.sigmoid(mapped[:, 1] - mapped[:, 0]).view(n, m)
    return torch.softmax(mapped, 1).view(n, m, k + 1).gather(2, watched[:, None, None].expand(n, m, 1)).squeeze(2)
