"""Algorithm 1 of the paper: intervals, uncertainty and individual calibration error from leave-one-out models."""

from __future__ import annotations

import time
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.threads import threads_for
from calirare.calibration import JackknifeCalibrator
from calirare.curvature.ggn import pull_back
from calirare.curvature.module_tape import Tape
from calirare.graph.graph import Graph
from calirare.intervals.ends import Asked, Evaluator, IntervalEnds, LogitMap, interval_ends
from calirare.intervals.result import JackknifeResult
from calirare.leave_one_out.methods import CONVENTIONS, Convention, LooSettings, Method, few_enough
from calirare.leave_one_out.result import LooChange
from calirare.leave_one_out.retrain import AnyFit
from calirare.leave_one_out.trust import gradient_ratio
from calirare.models.gcn_fit import Fit, fit_of
from calirare.models.module_fit import ModuleFit, leaves_modes
from calirare_ext import GcnTape

Score = Literal["auto", "rare", "predicted"]
Uncertainty = Literal["auto", "map", "midpoint"]


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
        trained: the network with the labels it was trained on (`calirare.models.fit`, `fit_of`, or `Outcome.fit`); a
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
        evaluator: what evaluates all nodes in blocks where the fused evaluation fits (`intervals.streaming`); None:
            for a large graph a `Streaming` in memory.

    Returns:
        Everything Algorithm 1 computes on the way.

    Raises:
        ValueError: the coverage or the damping is out of range, a word is unknown, or the score does not fit.
    """
    started = time.perf_counter()
    _check_request(trained, graph, method, coverage, nodes, settings, uncertainty)
    bare = isinstance(trained, nn.Module)
    if isinstance(trained, nn.Module):
        assert graph is not None
        trained = fit_of(trained, graph)
    tape = trained.tape()
    rare = _watches_rare(score, tape.n_classes)
    _check_tape(tape, judges)
    settings, note_of_models = settings or (LooSettings() if method is None else LooSettings(method)), ""
    if change is None:
        settings, note_of_models = few_enough(settings, tape.n_nodes)
    mapped = uncertainty == "map" or (uncertainty == "auto" and settings.convention == "corrected")
    asked = Asked(settings, _levels(coverage, settings.convention), damping, calibrator, rare, keep_logits)
    ends = interval_ends(trained, tape, graph, nodes, asked, change, evaluator)
    if not bool(torch.isfinite(ends.own).all(1).any()):
        raise ValueError(f"jackknife: no leave-one-out logit is finite with damping {ends.damping:g}: raise it")
    with threads_for(16 * ends.nodes.numel()), torch.no_grad():
        estimate, note = _estimate(ends, trained.targets, judges) if mapped else (None, "")
        confidence, predicted = torch.softmax(ends.logits if mapped else asked.mapped(ends.logits), 1).max(1)
        right = _chance_of_being_right(ends, estimate, predicted, rare)
        ice = (right - confidence).abs()
        diagnostics = _diagnostics(trained, tape, ends)
    doubt = _doubt(trained, diagnostics["gradient_norm"]) if bare else ""
    diagnostics["seconds"] = time.perf_counter() - started
    return JackknifeResult(
        nodes=ends.nodes,
        lower=ends.lower,
        upper=ends.upper,
        uncertainty=right,
        confidence=confidence,
        ice=ice,
        eice=float(ice.double().mean()),
        residuals=ends.residuals,
        loo_logits=ends.loo_logits,
        own_loo_logits=ends.own,
        coverage=coverage,
        diagnostics=diagnostics,
        estimate=estimate,
        note="; ".join(part for part in (note, note_of_models, doubt) if part),
        leverage=ends.leverage,
        method="influence" if settings.convention != "corrected" else settings.method,
    )


def _check_request(
    trained: object,
    graph: Graph | None,
    method: Method | None,
    coverage: float,
    nodes: Tensor | None,
    settings: LooSettings | None,
    uncertainty: str,
) -> None:
    """Refuses what needs no derivative to be refused."""
    if not 0 < coverage < 1:
        raise ValueError(f"jackknife: coverage must be in (0, 1), got {coverage}")
    if isinstance(nodes, Tensor) and nodes.numel() == 0:
        raise ValueError("jackknife: nodes must name at least one node, got none")
    if not isinstance(trained, Fit | ModuleFit | nn.Module):
        raise TypeError(
            f"jackknife: trained must be a Fit, a ModuleFit or a torch module, got {type(trained).__name__}"
        )
    if graph is None and not isinstance(trained, ModuleFit):
        raise ValueError("jackknife: graph must be given, got None: only a ModuleFit knows its inputs without")
    if method is not None and settings is not None:
        raise ValueError("jackknife: method must be None where settings are given, which name one")
    if uncertainty not in ("auto", "map", "midpoint"):
        raise ValueError(f"jackknife: uncertainty must be auto, map or midpoint, got {uncertainty!r}")


def _check_tape(tape: Tape, judges: Tensor | None) -> None:
    """Refuses a network that diverged, and judges that are not one word per labelled node."""
    if not bool(torch.isfinite(tape.logits).all()):
        raise ValueError("jackknife: the network's logits at its labelled nodes must be finite: did training diverge?")
    if judges is not None and not (
        isinstance(judges, Tensor) and judges.dtype == torch.bool and judges.shape == (tape.n_nodes,)
    ):
        got = f"{judges.dtype} {list(judges.shape)}" if isinstance(judges, Tensor) else type(judges).__name__
        raise ValueError(f"jackknife: judges must be a bool tensor [{tape.n_nodes}], one per labelled node, got {got}")


def _watches_rare(score: str, n_classes: int) -> bool:
    """Returns whether f is the probability of class 1."""
    if score not in ("auto", "rare", "predicted") or (score == "rare" and n_classes != 2):
        raise ValueError(f"jackknife: score must be auto, predicted or, with two classes, rare, got {score!r}")
    return n_classes == 2 and score != "predicted"


def _levels(coverage: float, convention: Convention) -> tuple[float, float]:
    """Returns the levels of the two quantiles."""
    if convention not in CONVENTIONS:
        raise ValueError(f"jackknife: convention must be one of {', '.join(CONVENTIONS)}, got {convention!r}")
    return (coverage, 1 - coverage) if convention == "paper" else ((1 - coverage) / 2, 1 - (1 - coverage) / 2)


def _estimate(ends: IntervalEnds, targets: Tensor, judges: Tensor | None) -> tuple[Tensor, str]:
    """Returns P(y | v) of the nodes [n, k] under the population's map on leave-one-out logits, and its note."""
    known = torch.isfinite(ends.own).all(1)
    chosen = known if judges is None else known & judges.to(known.device)
    fitted = JackknifeCalibrator(target="population").fit(ends.own[chosen], targets[chosen])
    return fitted.transform(ends.logits), fitted.note_


def _chance_of_being_right(ends: IntervalEnds, estimate: Tensor | None, predicted: Tensor, rare: bool) -> Tensor:
    """Returns uncer(v) [n]: by the estimate where there is one, else the interval's midpoint (paper, Eq. 8)."""
    if estimate is not None:
        return estimate.gather(1, predicted[:, None]).squeeze(1)
    midpoint = (ends.lower + ends.upper) / 2
    return torch.where(predicted == 0, 1 - midpoint, midpoint) if rare else midpoint


def _diagnostics(trained: AnyFit, tape: Tape, ends: IntervalEnds) -> dict[str, float]:
    known = torch.isfinite(ends.own).all(1)  # labels that have a model
    losses = [float(F.cross_entropy(z[known], trained.targets[known])) for z in (tape.logits, ends.own)]
    found = {
        "damping": ends.damping,
        "mean_leverage": float(ends.leverage.mean()),
        "max_leverage": float(ends.leverage.max()),
        "in_sample_nll": losses[0],
        "loo_nll": losses[1],
        "gradient_norm": _gradient_norm(trained, tape),
    }
    return found if ends.lowest_curvature is None else found | {"lowest_curvature": ends.lowest_curvature}


def _gradient_norm(trained: AnyFit, tape: Tape) -> float:
    """Returns |grad| of the penalised loss, of a GCN without automatic differentiation; 0 at a stationary point."""
    if isinstance(trained, ModuleFit):
        return trained.gradient_norm()
    assert isinstance(tape, GcnTape)
    parameters = torch.cat([part.flatten() for layer in tape.layers for part in layer])
    loss = pull_back(tape, (tape.loss_gradient_at_logits() / tape.n_nodes)[None])[0]
    return float((loss + trained.weight_decay * parameters).norm())


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
