"""uncer(v), how likely the predicted class of a node is right, and how far a user's own network can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from calirare.calibration import Calibrator, JackknifeCalibrator
from calirare.graph import Graph
from calirare.leave_one_out.ends import IntervalEnds, IntervalRequest
from calirare.leave_one_out.held_out import Retraining, retrained_logits, validation_of
from calirare.leave_one_out.trust import Quality, quality_of
from calirare.metrics import PopulationCheck, population_check
from calirare.models import Fitted

UncertaintyName = Literal["auto", "map", "midpoint"]
UNCERTAINTIES = get_args(UncertaintyName)


@dataclass(frozen=True, eq=False)
class Assessment:
    """What a definition says of some nodes.

    Attributes:
        uncertainty: uncer(v), [n].
        confidence: conf(v), the probability of the predicted class that it is compared with, [n].
        estimate: P(y | v) [n, k], of which the uncertainty is one column, or None.
        note: where it rests on a fallback; else empty.
    """

    uncertainty: Tensor
    confidence: Tensor
    estimate: Tensor | None = None
    note: str = ""


def assess(
    name: UncertaintyName,
    ends: IntervalEnds,
    targets: Tensor,
    calibration_nodes: Tensor | None,
    request: IntervalRequest,
    population_map: Calibrator | None,
) -> Assessment:
    """Returns uncertainty and confidence of nodes.

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
        return Assessment(right, confidence)
    known = torch.isfinite(ends.own).all(1)
    chosen = known if calibration_nodes is None else known & calibration_nodes.to(known.device)
    note, fitted = "", population_map
    if fitted is None:
        fitted = JackknifeCalibrator(target="population").fit(ends.own[chosen], targets[chosen])
        note = fitted.note_
    estimate = fitted.transform(ends.logits)
    confidence, predicted = torch.softmax(ends.logits, 1).max(1)
    right = estimate.gather(1, predicted[:, None]).squeeze(1)
    return Assessment(right, confidence, estimate, note)


def check_uncertainty(name: str) -> None:
    """Raises a ValueError where a definition is unknown."""
    if name not in UNCERTAINTIES:
        raise ValueError(
            f"jackknife: uncertainty must be {', '.join(UNCERTAINTIES[:-1])} or {UNCERTAINTIES[-1]}, got {name!r}"
        )


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
