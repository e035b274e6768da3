"""How far the jackknife of a network that was trained elsewhere can be trusted, by labels that it has not seen."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.intervals.ends import IntervalEnds
from calirare.leave_one_out import Quality, Retraining, quality_of, retrained_logits, validation_of
from calirare.metrics import PopulationCheck, population_check
from calirare.training import Fitted


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
