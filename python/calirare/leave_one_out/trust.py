"""How far a leave-one-out result can be trusted: losses, leverages, coverage, and one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.torch_state import plain_modes
from calirare.curvature import logit_differences, with_class_zero
from calirare.graph import Graph
from calirare.leave_one_out.held_out import (
    FOLDED,
    Compared,
    HeldOut,
    compared,
    validation_of,
)
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.models import Fitted, FittedNetwork, FoldFitted

ROUNDING = 1e-6  # of leverages
UNCHECKED = (
    "no label that the network has not seen bears it out: put some into the split's validation part (quality with "
    "graph=..), or say how the network is trained (retrain=.. of jackknife)"
)
WEAK, GOOD = 0.5, 0.8  # correlation with networks trained without folds that is refused below, and trusted from
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the quantiles of leverages
HIGH_LEVERAGE = 0.95  # 1 / (1 - h) = 20: one Gauss-Newton step no longer carries that far


@dataclass(frozen=True)
class Quality:
    """A leave-one-out result's own account of itself.

    Attributes:
        verdict: "trust", "caution" or "do not trust".
        reason: one sentence.
        stationarity: |grad| of the penalised loss over mu |theta|, 0 at a stationary point.
        in_sample_nll: mean loss of the labels, unweighted.
        loo_nll: the same without each node's own label, over the nodes that have a model.
        held_out_nll: the same by cross-validation, or None.
        leverage_quantiles: minimum, quartiles and maximum; None where unknown.
        above_leverage: share of labels with a leverage above .95.
        validation_nll: mean loss of the graph's validation labels, each class weighted as among the labels; None
            without such labels.
        n_validation: how many these are.
        likeness: correlation of the changes with those of networks trained without folds, at the labels and at other
            nodes; None without such networks.
    """

    verdict: str
    reason: str
    stationarity: float
    in_sample_nll: float
    loo_nll: float
    held_out_nll: float | None
    leverage_quantiles: tuple[float, ...] | None
    above_leverage: float
    validation_nll: float | None = None
    n_validation: int = 0
    likeness: tuple[float, float] | None = None


@plain_modes()
def quality(
    fitted: FittedNetwork,
    result: LooResult,
    held_out_logits: Tensor | None = None,
    *,
    graph: Graph | None = None,
) -> Quality:
    """Returns how far a leave-one-out result can be trusted.

    A module of the user's own (`ModuleFit`) is trusted only where labels that it has not seen bear it out: the graph's
    validation labels, or `held_out_logits`.

    Args:
        fitted: the network and its labels.
        result: the result.
        held_out_logits: cross-fitted logits of the labelled nodes [m, k] (`training.cross_fitted_logits`), or None.
        graph: whose validation labels, where there are some, are compared with the result.
    """
    validation = validation_of(fitted, graph)
    own = with_class_zero(fitted.linearisation.differences + result.own)
    facts = result.diagnostics or Diagnostics("alo", "", result.damping)
    finite = bool(torch.isfinite(result.change).all())
    labels: dict[str, Any] = {"held_out_logits": held_out_logits, "validation": validation}
    return quality_of(fitted, own, result.leverage, facts, finite=finite, **labels)


def quality_of(
    fitted: Fitted,
    own_logits: Tensor,
    leverage: Tensor,
    facts: Diagnostics,
    *,
    finite: bool = True,
    held_out_logits: Tensor | None = None,
    validation: HeldOut | None = None,
    likeness: tuple[float, float] | None = None,
) -> Quality:
    """Returns the same account where no `LooResult` was kept.

    Args:
        fitted: the detector and its labels.
        own_logits: each label's leave-one-out logits, class 0 at 0, [m, k]; NaN where there is no model.
        leverage: h_i [m], NaN where unknown.
        facts: how it was computed.
        finite: whether every change at other nodes is finite.
        held_out_logits: see `quality`.
        validation: labels that the network was not trained on, or None.
        likeness: see `Quality`.
    """
    has_model = torch.isfinite(own_logits).all(1)
    # All three over the same labels: those that have a model may be a few drawn at random.
    targets = fitted.targets[has_model]
    held = None if held_out_logits is None else float(F.cross_entropy(held_out_logits[has_model].double(), targets))
    in_sample, loo = (float(F.cross_entropy(z[has_model].double(), targets)) for z in (fitted.label_logits, own_logits))
    known = leverage[torch.isfinite(leverage)]
    spread = None
    if known.numel():
        spread = tuple(torch.quantile(known, known.new_tensor(LEVELS)).tolist())
    above = float((known > HIGH_LEVERAGE).double().mean()) if known.numel() else 0.0
    network = fitted.closed_form
    stationarity = 0.0 if network is None else gradient_ratio(network, network.gradient_norm())
    own = fitted.needs_check
    if own and validation is None and held_out_logits is not None:
        validation = HeldOut(fitted.nodes[has_model], held_out_logits[has_model], targets, FOLDED)
    unseen = None if validation is None else compared(own_logits[has_model], targets, validation)
    seen = (None, 0) if unseen is None or unseen.what == FOLDED else (unseen.held_out_nll, unseen.labels)
    found = replace(Quality("", "", stationarity, in_sample, loo, held, spread, above, *seen), likeness=likeness)
    unchecked = own and unseen is None and likeness is None
    verdict, reason = _verdict(found, facts, unseen, finite=finite, unchecked=unchecked)
    return replace(found, verdict=verdict, reason=reason)


def gradient_ratio(fitted: FittedNetwork, gradient_norm: float) -> float:
    """Returns |grad| of the penalised loss over mu |theta|; 0 at a stationary point, inf without weight decay."""
    size = torch.stack([p.detach().norm() for p in fitted.model.parameters()]).norm()
    pull = fitted.weight_decay * float(size)
    if pull == 0:
        return math.inf if gradient_norm > 0 else 0.0
    return gradient_norm / pull


def _verdict(
    found: Quality, facts: Diagnostics, unseen: Compared | None, *, finite: bool, unchecked: bool
) -> tuple[str, str]:
    """Returns the verdict and the first reason that holds, the gravest first."""
    in_sample, loo, held = found.in_sample_nll, found.loo_nll, found.held_out_nll
    if not finite:
        return "do not trust", "a change is not finite"
    low, high = (0.0, 0.0) if found.leverage_quantiles is None else found.leverage_quantiles[:: len(LEVELS) - 1]
    if low < -ROUNDING or high > 1 + ROUNDING:
        return (
            "do not trust",
            f"leverages lie in [{low:.2f}, {high:.2f}], outside [0, 1]: the curvature is not positive",
        )
    if loo < in_sample and facts.method != CROSS_FITTING:  # whose models have not seen the label, by construction
        return "do not trust", f"the loss without a node's label, {loo:.3f}, is below the one with it, {in_sample:.3f}"
    if held is not None and not 0.5 * held <= loo <= 2 * held:
        return "do not trust", f"leave-one-out loss {loo:.3f} is not within a factor of two of held-out loss {held:.3f}"
    if found.likeness is not None and min(found.likeness[0], 1.0) < WEAK:
        return "do not trust", f"{_likeness(found)}: it does not describe how this network is trained"
    if unseen is not None and unseen.verdict is not None:
        return unseen.verdict
    if found.likeness is not None:
        losses = f"loss {loo:.3f} without each label, {held or 0.0:.3f} by networks trained without its fold"
        if found.likeness[0] < GOOD or found.likeness[1] < GOOD:
            return "caution", f"{_likeness(found)} ({losses}): rely on what it says of the labels, less of other nodes"
        return "trust", f"{losses}; {_likeness(found)}"
    if not found.stationarity <= 1:
        return "caution", (
            f"the gradient is {found.stationarity:.1f} times the weight decay's: the network was stopped far from a "
            "minimum, train longer for intervals of its own"
        )
    if found.above_leverage > 0.05:
        above = f"{100 * found.above_leverage:.0f} % of the labels have a leverage above {HIGH_LEVERAGE}"
        return "caution", f"{above}: raise the weight decay"
    if facts.sampling_error > 0.1:
        return "caution", f"a quantile's level may be off by {facts.sampling_error:.2f}: leave more labels out"
    if facts.method == CROSS_FITTING:
        return "trust", "every label is judged by a model that was trained without its fold"
    if unchecked:
        return "caution", UNCHECKED
    return "trust", f"gradient {found.stationarity:.2f} of the weight decay's, leverages below {HIGH_LEVERAGE}"


def _likeness(found: Quality) -> str:
    own, other = found.likeness or (0.0, 0.0)
    return f"its changes correlate {own:.2f} at the labels and {other:.2f} at other nodes with retraining without folds"


CROSS_FITTING = "cross-fitting"


def from_folds(fitted: FoldFitted, graph: Graph | None, nodes: Tensor | None = None) -> tuple[Tensor, LooResult]:
    """Returns what leaving out each label's fold does to the logits: label i's model is the one without its fold.

    The interval of CV+ with these models keeps the jackknife+'s promise up to a term in 1 / K (Barber et al. 2021,
    "Predictive inference with the jackknife+", Theorem 4).

    Args:
        fitted: the detector with its folds.
        graph: the graph.
        nodes: the nodes v, int64 [n]; None: all.

    Returns:
        Logits [n, k], and changes with one model per fold; leverages are unknown, there is no damping.
    """
    labels = fitted.label_logits
    logits, by_folds = fitted.all_logits_of(graph, nodes)
    start = logit_differences(logits)
    without = torch.stack([logit_differences(z) for z in by_folds], 2)  # [n, k - 1, K]
    own = logit_differences(fitted.own_logits) - logit_differences(labels).double()
    unknown = torch.full((labels.shape[0],), torch.nan, dtype=torch.float64, device=labels.device)
    facts = Diagnostics(CROSS_FITTING, "folds", 0.0)
    n = logits.shape[0]
    return logits, LooResult(
        (without - start[:, :, None]).to(labels.dtype),
        own.to(labels.dtype),
        unknown,
        0.0,
        torch.where(torch.isfinite(own).all(1), fitted.fold, -1),  # -1: a label that every model has learnt
        facts,
        torch.arange(n, device=logits.device) if nodes is None else nodes,
    )
