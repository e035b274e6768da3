"""Algorithm 1 of the paper: intervals, uncertainty and individual calibration error from leave-one-out models."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.errors import check_one_of
from calirare._util.torch_state import plain_modes, threads_for
from calirare.calibration import Calibrator, JackknifeCalibrator
from calirare.graph import Graph, check_graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.choice import Choice, choose_method
from calirare.leave_one_out.ends import IntervalEnds, IntervalRequest, Known, LogitMap, interval_ends
from calirare.leave_one_out.folds import FOLDS
from calirare.leave_one_out.held_out import HeldOut, Retraining, validation_of
from calirare.leave_one_out.interval_result import JackknifeResult
from calirare.leave_one_out.method import LeaveOneOutMethod
from calirare.leave_one_out.result import LooResult
from calirare.leave_one_out.streaming import Streaming
from calirare.leave_one_out.trust import Quality, gradient_ratio, quality_of
from calirare.metrics import population_check
from calirare.models import ClassWeight, Fitted, FittedNetwork, ModuleFit, evaluating, fitted_of, node_labels

if TYPE_CHECKING:
    from torch_geometric.data import Data

UncertaintyName = Literal["map", "midpoint"]
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
            "midpoint": the interval's midpoint (paper, Eq. 8), next to the confidence under the interval's map.
        ends: of the intervals, with the labels' own leave-one-out logits.
        targets: of the labelled nodes, int64 [m].
        calibration_nodes: those that represent the population, bool [m]; None: all.
        request: what the ends were asked for.
        population_map: the fitted map of "map"; None: Platt scaling of leave-one-out logits.
    """
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


def account_of(fitted: Fitted, ends: IntervalEnds, choice: Choice, validation: HeldOut | None) -> Quality:
    """Returns how far the leave-one-out models of a network that was trained elsewhere can be trusted."""
    finite = bool(torch.isfinite(ends.lower).all() and torch.isfinite(ends.upper).all())
    return quality_of(
        fitted,
        ends.own,
        ends.leverage,
        ends.facts,
        finite=finite,
        held_out_logits=None if choice.networks is None else choice.networks.logits,
        validation=validation,
        likeness=choice.likeness,
    )


def calibration_of(own_logits: Tensor, targets: Tensor, validation: HeldOut | None) -> tuple[str, str] | None:
    """Returns the verdict on a network's own probabilities on average, and the sentence; None with too few labels.

    With two classes the predicted rate of class 1 and the observed one, with more the confidence and the proportion of
    predictions that are right.

    Args:
        own_logits: of the labels without themselves, [m, k].
        targets: their classes, int64 [m].
        validation: labels that the network was not trained on, which then judge.
    """
    known = torch.isfinite(own_logits).all(1)
    logits, y, what = own_logits[known], targets[known], "training labels left out"
    if validation is not None and validation.nodes.numel() > 1:
        logits, y, what = validation.logits, validation.targets, "validation labels"
    if len(y) < 2:
        return None
    p = torch.softmax(logits.double(), 1)
    if p.shape[1] == 2:
        check, of = population_check((y == 1).long(), p[:, 1]), "of class 1"
    else:
        confidence, predicted = p.max(1)
        check, of = population_check((predicted == y).long(), confidence), "of being right"
    side = "" if check.trusted and not check.wrong else ", too high" if check.factor > 1 else ", too low"
    verdict = "do not trust" if check.wrong else check.verdict
    return verdict, (
        f"mean P {of} {check.mean:.3f}, observed {check.share:.3f} on {len(y):,} {what} (ratio {check.factor:.2f}, "
        f"95 % interval {check.low:.2f} to {check.high:.2f}{side})"
    )


Score = Literal["auto", "rare", "predicted"]


@plain_modes()
def jackknife(
    fitted: Fitted | nn.Module,
    data: Graph | Data | None = None,
    method: LeaveOneOutMethod | None = None,
    *,
    labels: Tensor | None = None,
    class_weight: ClassWeight = None,
    weight_decay: float | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    coverage: float = 0.9,
    calibrator: LogitMap | None = None,
    nodes: Tensor | None = None,
    result: LooResult | None = None,
    score: Score = "auto",
    uncertainty: UncertaintyName = "map",
    calibration_nodes: Tensor | None = None,
    evaluator: Streaming | None = None,
    population_map: Calibrator | None = None,
    known: Known | None = None,
    retrain: Retraining | None = None,
    folds: int = FOLDS,
    seed: int = 0,
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
            network, our `GCN` or any torch module with model(x, edge_index[, edge_weight]) -> logits, goes through
            `fit_of` first. What is not a GCN goes through reverse-mode derivatives: the same answers, slower; what was
            trained on folds (`FoldFitted`) answers by their models.
        data: the graph it was trained on, for a bare network also a `Data` of PyTorch Geometric; None is enough for a
            `ModuleFit`.
        labels: of a bare network: the nodes it was trained on, see `fit_of`; as are the next three.
        class_weight: of its training loss; None: none.
        weight_decay: of its training; None: the optimiser's, or 5e-4.
        optimizer: the Adam that trained it.
        method: of the leave-one-out; None: `ALO()`, of a torch module the one that `choose_method` takes.
        coverage: the paper's alpha, in (0, 1). With two classes the interval runs from quantile (1 - coverage) / 2 to
            its mirror image, as in the paper; with more from 1 - coverage to coverage, as in jackknife+.
        calibrator: a map put on every leave-one-out logit before f is taken, fitted on leave-one-out logits itself;
            None: the network's own probabilities.
        nodes: nodes to evaluate, int64 [n]; None: all.
        result: the leave-one-out, where it was computed before for the same nodes.
        score: f: "rare": the probability of class 1 (two classes only); "predicted": of the predicted class; "auto":
            "rare" with two classes, as in the authors' code, else "predicted".
        uncertainty: uncer(v): "map": the probability, under a Platt map for the population fitted on the labelled
            nodes' leave-one-out logits, that the predicted class is right (the best of the definitions judged where
            P(y | v) is known, docs/jackknife.md); "midpoint": the paper's.
        calibration_nodes: labelled nodes the map is fitted on, those that represent the population, bool [m]; None:
            all.
        evaluator: what evaluates all nodes in blocks where the fused evaluation fits ; None: for a large
            graph a `Streaming` in memory.
        population_map: of the uncertainty "map": a fitted map for the population; None: one is fitted.
        known: every node's logits, where the ends of some nodes alone are wanted; everything else is of every node.
        retrain: of a torch module: trains one like it on the labelled nodes it is given and returns it; None: the
            library trains networks by itself, see `fold_networks`.
        folds: of a torch module: networks trained without a fold of the labels, which choose the method and judge it;
            0: none.
        seed: of these networks.

    Returns:
        Everything Algorithm 1 computes on the way.

    Warns:
        UserWarning: the leave-one-out of a torch module cannot be relied on.

    Raises:
        TypeError: the graph or what was fitted is none.
        ValueError: the coverage or the damping is out of range, a word is unknown, or the score does not fit.
    """
    started = time.perf_counter()
    _check_request(fitted, data, method, coverage, nodes if known is None else known.nodes)
    bare_network = isinstance(fitted, nn.Module)
    with evaluating(fitted if isinstance(fitted, nn.Module) else getattr(fitted, "model", None)):
        own = {"class_weight": class_weight, "weight_decay": weight_decay, "optimizer": optimizer}
        fitted, graph = fitted_of("jackknife", fitted, data, labels=labels, **own)
        rare = _watches_rare(score, fitted.n_classes)
        _check_labels(fitted, calibration_nodes)
        choice, validation = None, None
        labels_known = fitted.needs_check or not bare_network
        if isinstance(fitted, ModuleFit) and result is None:
            validation = validation_of(fitted, data)
            options: dict[str, Any] = {"validation": validation, "retrain": retrain, "folds": folds, "seed": seed}
            choice = choose_method(fitted, method, **options)
            method = choice.method
        method, note_of_models = method or ALO(), ""
        at = nodes if known is None else known.nodes
        if result is None and fitted.folded is None:  # whose folds are few and answer for all labels
            n_nodes = at.numel() if isinstance(at, Tensor) else 0 if graph is None else graph.n_nodes
            method, note_of_models = method.for_labels(fitted.nodes.numel(), n_nodes)
        check_one_of("jackknife", "uncertainty", uncertainty, UNCERTAINTIES)
        several = fitted.n_classes > 2
        request = IntervalRequest(method, _levels(coverage, several), calibrator, rare, several)
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
        account = None if choice is None else account_of(fitted, ends, choice, validation)
        calibrated = None if choice is None else calibration_of(ends.own, fitted.targets, validation)
        network = fitted.closed_form
        doubt = "" if network is None or labels_known else _doubt(network, diagnostics["gradient_norm"])
    diagnostics["seconds"] = time.perf_counter() - started
    if account is not None and account.verdict == "do not trust":
        warnings.warn(f"jackknife: leave-one-out cannot be relied on: {account.reason}", stacklevel=4)
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
        note="; ".join(part for part in (note, note_of_models, doubt) if part),
        leverage=ends.leverage,
        facts=ends.facts,
        ends_of=None if known is None else known.nodes,
        account=account,
        calibration=calibrated,
        choice=choice,
    )


def _check_request(
    fitted: object,
    data: Graph | Data | None,
    method: LeaveOneOutMethod | None,
    coverage: float,
    nodes: Tensor | None,
) -> None:
    """Refuses what needs no derivative to be refused."""
    if not 0 < coverage < 1:
        raise ValueError(f"jackknife: coverage must be in (0, 1), got {coverage}")
    if isinstance(nodes, Tensor) and nodes.numel() == 0:
        raise ValueError("jackknife: nodes must name at least one node, got none")
    if not isinstance(fitted, Fitted | nn.Module):
        raise TypeError(f"jackknife: fitted must be a fitted network or a torch module, got {type(fitted).__name__}")
    if data is not None:
        node_labels("jackknife", data)
        if isinstance(fitted, Fitted) and fitted.needs_graph:
            check_graph("jackknife", data)
    if data is None and (isinstance(fitted, nn.Module) or fitted.needs_graph):
        raise ValueError("jackknife: data must be given, got None: only a ModuleFit knows its inputs without")
    if method is not None and not isinstance(method, LeaveOneOutMethod):
        raise TypeError(f"jackknife: method must be one such as ALO() or Grouped(), got {method!r}")


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


def _levels(coverage: float, several: bool) -> tuple[float, float]:
    """Returns the levels of the two quantiles.

    Residuals are absolute, so that each end by itself errs as often as wanted (Barber et al. 2021, Eq. 1.4); with two
    classes the levels are the paper's, which are wider.
    """
    if several:
        return 1 - coverage, coverage
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
    return found


def _doubt(fitted: FittedNetwork, gradient_norm: float) -> str:
    """Returns a sentence where a bare network was hardly trained as is assumed of it, else nothing."""
    ratio = gradient_ratio(fitted, gradient_norm)
    if ratio <= 1:
        return ""
    return (
        f"the gradient of the loss is {ratio:.1f} times the weight decay's ({fitted.weight_decay:g}): if the network "
        "was trained on other labels or with class weights, say so with labels= and class_weight="
    )
