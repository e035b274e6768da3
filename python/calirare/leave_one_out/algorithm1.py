"""Algorithm 1 of the paper: intervals, uncertainty and individual calibration error from leave-one-out models."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.torch_state import plain_modes, threads_for
from calirare.calibration import Calibrator, JackknifeCalibrator
from calirare.graph import Graph, check_graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.ends import IntervalEnds, IntervalRequest, Known, LogitMap, interval_ends
from calirare.leave_one_out.held_out import Retraining, retrained_logits, validation_of
from calirare.leave_one_out.interval_result import JackknifeResult
from calirare.leave_one_out.method import LeaveOneOutMethod, check_one_of
from calirare.leave_one_out.result import LooResult
from calirare.leave_one_out.streaming import Streaming
from calirare.leave_one_out.trust import Quality, gradient_ratio, quality_of
from calirare.metrics import PopulationCheck, population_check
from calirare.models import Fitted, FittedNetwork, evaluating, fit_of

UncertaintyName = Literal["auto", "map", "midpoint"]
UNCERTAINTIES = get_args(UncertaintyName)


def assess(
    name: UncertaintyName,
    ends: IntervalEnds,
    targets: Tensor,
    calibration_nodes: Tensor | None,
    request: IntervalRequest,
    population_map: Calibrator | None,
) -> tuple[Tensor, Tensor, Tensor | None, str]:
    """Returns uncertainty [n] and confidence [n] of nodes, P(y | v) [n, k] or None, and a note on a fallback or "".

    Args:
        name: "map": P(predicted class | v) under a map for the population, next to the network's own confidence;
            "midpoint": the interval's midpoint (paper, Eq. 8), next to the confidence under the interval's map; "auto":
            "map", and where the paper's formulas are taken as printed "midpoint".
        ends: of the intervals, with the labels' own leave-one-out logits.
        targets: of the labelled nodes, int64 [m].
        calibration_nodes: those that represent the population, bool [m]; None: all.
        request: what the ends were asked for.
        population_map: the fitted map of "map"; None: Platt scaling of leave-one-out logits.
    """
    if name == "auto":
        name = "map" if request.method.prints == "corrected" else "midpoint"
    if name == "midpoint":
        confidence, predicted = torch.softmax(request.mapped(ends.logits), 1).max(1)
        midpoint = (ends.lower + ends.upper) / 2
        right = torch.where(predicted == 0, 1 - midpoint, midpoint) if request.rare else midpoint
        return right, confidence, None, ""
    known = torch.isfinite(ends.own).all(1)
    chosen = known if calibration_nodes is None else known & calibration_nodes.to(known.device)
    note, fitted = "", population_map
    if fitted is None:
        fitted = JackknifeCalibrator(target="population").fit(ends.own[chosen], targets[chosen])
        note = fitted.note_
    estimate = fitted.transform(ends.logits)
    confidence, predicted = torch.softmax(ends.logits, 1).max(1)
    right = estimate.gather(1, predicted[:, None]).squeeze(1)
    return right, confidence, estimate, note


def account_of(
    fitted: Fitted, graph: Graph | None, ends: IntervalEnds, estimate: Tensor | None, retrain: Retraining | None
) -> Quality | None:
    """Returns the account; None of our own detectors, whose run says it, unless retraining was given.

    Args:
        fitted: the detector with its labels.
        graph: with validation labels, where there are some.
        ends: of the intervals.
        estimate: P(y | v) by the map on leave-one-out logits, of the nodes of `ends`, [n, k]; None: there is no map.
        retrain: see `calirare.quality`.

    Raises:
        InputError: retraining does not fit.
    """
    network = fitted.closed_form
    if network is None or (retrain is None and not fitted.needs_check):
        return None
    held = validation_of(fitted, graph)
    cross = None if retrain is None or held is not None else retrained_logits(network, retrain, graph)
    finite = bool(torch.isfinite(ends.lower).all() and torch.isfinite(ends.upper).all())
    account = quality_of(
        fitted, ends.own, ends.leverage, ends.facts, finite=finite, held_out_logits=cross, validation=held
    )
    if held is None or estimate is None or account.verdict == "do not trust":
        return account
    check = _on_the_whole(ends.nodes, estimate, held.nodes, held.targets)
    if check is None or check.trusted or not check.wrong:
        return account
    what = "P(class 1)" if estimate.shape[1] == 2 else "P(prediction is right)"
    reason = f"{check.sentence.replace('P(rare)', what)}, by {len(held.nodes):,} validation labels"
    return replace(account, verdict="do not trust", reason=reason)


def _on_the_whole(nodes: Tensor, estimate: Tensor, held: Tensor, targets: Tensor) -> PopulationCheck | None:
    """Returns mean P over the observed share: of class 1, with more than two classes that the prediction is right."""
    place = torch.full((int(torch.cat([nodes, held]).max()) + 1,), -1, dtype=torch.int64, device=nodes.device)
    place[nodes] = torch.arange(len(nodes), device=nodes.device)
    there = place[held] >= 0
    if int(there.sum()) < 2:
        return None
    p, y = estimate[place[held[there]]], targets[there]
    if p.shape[1] == 2:
        return population_check((y == 1).long(), p[:, 1])
    sure, predicted = p.max(1)
    return population_check((predicted == y).long(), sure)


Score = Literal["auto", "rare", "predicted"]


@plain_modes()
def jackknife(
    fitted: Fitted | nn.Module,
    graph: Graph | None = None,
    method: LeaveOneOutMethod | None = None,
    *,
    coverage: float = 0.9,
    calibrator: LogitMap | None = None,
    nodes: Tensor | None = None,
    result: LooResult | None = None,
    score: Score = "auto",
    uncertainty: UncertaintyName = "auto",
    calibration_nodes: Tensor | None = None,
    evaluator: Streaming | None = None,
    population_map: Calibrator | None = None,
    known: Known | None = None,
    retrain: Retraining | None = None,
) -> JackknifeResult:
    """Returns jackknife intervals, uncertainty, ICE and EICE (paper, Algorithm 1), without retraining.

    With two layers, two classes, linearised `ALO` and no map or an affine one, scores are made and reduced to interval
    ends for a few nodes at a time (`streaming.Evaluation`): about a fifth of the time, and one number for each node
    and label instead of several. Anything else takes every leave-one-out logit first. Where there are more than 4,000
    labels, or than the method's `n_models`, the intervals of `ALO` rest on as many models drawn at random
    of more than 100,000 nodes on 4e8 models times nodes, at least 1,000; uncertainty and ICE rest on
    all labels.

    Args:
        fitted: the detector with the labels it was trained on (`calirare.fit`, `fit_of`, or `Outcome.fit`); a bare
            network, our `GCN` or any torch module with model(x, edge_index) -> logits, stands for one trained on the
            split's training nodes with the default weight decay. What is not a GCN goes through reverse-mode
            derivatives: the same answers, slower; what was trained on folds (`FoldFitted`) answers by their models.
        graph: the graph it was trained on; None is enough for a `ModuleFit`.
        method: of the leave-one-out; None: `ALO()`. With `Influence(convention="paper")` the quantiles are taken as
            printed too, Q_alpha below and Q_(1 - alpha) above, alpha the coverage: intervals are far too narrow.
        coverage: the paper's alpha, in (0, 1): the interval runs from quantile (1 - coverage) / 2 to its mirror image.
        calibrator: a map put on every leave-one-out logit before f is taken, fitted on leave-one-out logits itself;
            None: the network's own probabilities.
        nodes: nodes to evaluate, int64 [n]; None: all.
        result: the leave-one-out, where it was computed before for the same nodes.
        score: f: "rare": the probability of class 1 (two classes only); "predicted": of the predicted class; "auto":
            "rare" with two classes, as in the authors' code, else "predicted".
        uncertainty: uncer(v): "map": the probability, under a Platt map for the population fitted on the labelled
            nodes' leave-one-out logits, that the predicted class is right (the best of the definitions judged where
            P(y | v) is known, docs/jackknife.md); "midpoint": the paper's; "auto": "map", with the conventions "paper"
            and "official" "midpoint".
        calibration_nodes: labelled nodes the map is fitted on, those that represent the population, bool [m]; None:
            all.
        evaluator: what evaluates all nodes in blocks where the fused evaluation fits ; None: for a large
            graph a `Streaming` in memory.
        population_map: of the uncertainty "map": a fitted map for the population; None: one is fitted.
        known: every node's logits, where the ends of some nodes alone are wanted; everything else is of every node.
        retrain: of a network of the user's own on a graph without validation labels: trains one like it on the labelled
            nodes it is given and returns it; five times, for the result's `account`.

    Returns:
        Everything Algorithm 1 computes on the way.

    Raises:
        TypeError: the graph or what was fitted is none.
        ValueError: the coverage or the damping is out of range, a word is unknown, or the score does not fit.
    """
    started = time.perf_counter()
    _check_request(fitted, graph, method, coverage, nodes if known is None else known.nodes)
    with evaluating(fitted if isinstance(fitted, nn.Module) else getattr(fitted, "model", None)):
        bare = isinstance(fitted, nn.Module)
        if isinstance(fitted, nn.Module):
            assert graph is not None
            fitted = fit_of(fitted, graph)
        rare = _watches_rare(score, fitted.n_classes)
        _check_labels(fitted, calibration_nodes)
        method, note_of_models = method or ALO(), ""
        at = nodes if known is None else known.nodes
        if result is None and fitted.folded is None:  # whose folds are few and answer for all labels
            n_nodes = at.numel() if isinstance(at, Tensor) else 0 if graph is None else graph.n_nodes
            method, note_of_models = method.for_labels(fitted.nodes.numel(), n_nodes)
        check_one_of("jackknife", "uncertainty", uncertainty, UNCERTAINTIES)
        request = IntervalRequest(method, _levels(coverage, method), calibrator, rare)
        ends = interval_ends(fitted, graph, at, request, result, evaluator)
        ends = ends if known is None else known.spread(ends)
        if not bool(torch.isfinite(ends.own).all(1).any()):
            raise ValueError(
                f"jackknife: no leave-one-out logit is finite with damping {ends.facts.damping:g}: raise it"
            )
        with threads_for(16 * ends.nodes.numel()), torch.no_grad():
            right, confidence, estimate, note = assess(
                uncertainty, ends, fitted.targets, calibration_nodes, request, population_map
            )
            ice = (right - confidence).abs()
            diagnostics = _diagnostics(fitted, ends)
        account = account_of(fitted, graph, ends, estimate, retrain)
        doubt = _doubt(fitted.closed_form, diagnostics["gradient_norm"]) if bare and fitted.closed_form else ""
    diagnostics["seconds"] = time.perf_counter() - started
    distrust = f"{account.verdict}: {account.reason}" if account is not None and account.verdict != "trust" else ""
    return JackknifeResult(
        nodes=ends.nodes,
        lower=ends.lower,
        upper=ends.upper,
        uncertainty=right,
        confidence=confidence,
        ice=ice,
        eice=float(ice.double().mean()),
        residuals=ends.residuals,
        own_loo_logits=ends.own,
        coverage=coverage,
        diagnostics=diagnostics,
        estimate=estimate,
        note="; ".join(part for part in (note, note_of_models, doubt, distrust) if part),
        leverage=ends.leverage,
        facts=ends.facts,
        ends_of=None if known is None else known.nodes,
        account=account,
    )


def _check_request(
    fitted: object,
    graph: Graph | None,
    method: LeaveOneOutMethod | None,
    coverage: float,
    nodes: Tensor | None,
) -> None:
    """Refuses what needs no derivative to be refused."""
    if graph is not None:
        check_graph("jackknife", graph)
    if not 0 < coverage < 1:
        raise ValueError(f"jackknife: coverage must be in (0, 1), got {coverage}")
    if isinstance(nodes, Tensor) and nodes.numel() == 0:
        raise ValueError("jackknife: nodes must name at least one node, got none")
    if not isinstance(fitted, Fitted | nn.Module):
        raise TypeError(f"jackknife: fitted must be a fitted network or a torch module, got {type(fitted).__name__}")
    if graph is None and (isinstance(fitted, nn.Module) or fitted.needs_graph):
        raise ValueError("jackknife: graph must be given, got None: only a ModuleFit knows its inputs without")
    if method is not None and not isinstance(method, LeaveOneOutMethod):
        raise TypeError(f"jackknife: method must be one such as ALO() or Retrain(), got {method!r}")


def _check_labels(fitted: Fitted, calibration_nodes: Tensor | None) -> None:
    """Refuses a network that diverged, and calibration nodes that are not one word per labelled node."""
    if not bool(torch.isfinite(fitted.label_logits).all()):
        raise ValueError("jackknife: the network's logits at its labelled nodes must be finite: did training diverge?")
    m, given = fitted.nodes.numel(), calibration_nodes
    fits = given is None or (isinstance(given, Tensor) and given.dtype == torch.bool and given.shape == (m,))
    if not fits:
        got = f"{given.dtype} {list(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise ValueError(f"jackknife: calibration_nodes must be a bool tensor [{m}], one per labelled node, got {got}")


def _watches_rare(score: str, n_classes: int) -> bool:
    """Returns whether f is the probability of class 1."""
    if score not in ("auto", "rare", "predicted") or (score == "rare" and n_classes != 2):
        raise ValueError(f"jackknife: score must be auto, predicted or, with two classes, rare, got {score!r}")
    return n_classes == 2 and score != "predicted"


def _levels(coverage: float, method: LeaveOneOutMethod) -> tuple[float, float]:
    """Returns the levels of the two quantiles."""
    if method.prints == "paper":
        return coverage, 1 - coverage
    return (1 - coverage) / 2, 1 - (1 - coverage) / 2


def _diagnostics(fitted: Fitted, ends: IntervalEnds) -> dict[str, float]:
    known = torch.isfinite(ends.own).all(1)  # labels that have a model
    in_sample = fitted.label_logits
    losses = [float(F.cross_entropy(z[known], fitted.targets[known])) for z in (in_sample, ends.own)]
    found = {
        "damping": ends.facts.damping,
        "mean_leverage": float(ends.leverage.mean()),
        "max_leverage": float(ends.leverage.max()),
        "in_sample_nll": losses[0],
        "loo_nll": losses[1],
    }
    if fitted.closed_form is not None:
        found["gradient_norm"] = fitted.closed_form.gradient_norm()
    lowest = ends.facts.lowest_curvature
    return found if lowest is None else found | {"lowest_curvature": lowest}


def _doubt(fitted: FittedNetwork, gradient_norm: float) -> str:
    """Returns a sentence where a bare network was hardly trained as is assumed of it, else nothing."""
    ratio = gradient_ratio(fitted, gradient_norm)
    if ratio <= 1:
        return ""
    return (
        "the network is no minimum of the loss that is assumed of a bare one (the split's training nodes, class "
        f"weights, weight decay {fitted.weight_decay:g}): its gradient is {ratio:.1f} times the weight decay's; if it "
        "was trained otherwise, say how with fit_of or ModuleFit"
    )
