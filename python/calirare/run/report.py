"""How good a run is: every number of metrics.json."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from calirare.calibration import TARGETS
from calirare.curvature import spectrum_ends
from calirare.leave_one_out import Quality, quality_of
from calirare.metrics import PopulationCheck, calibration_report, coverage
from calirare.run.abstaining import realised_error
from calirare.run.deciding import realised
from calirare.run.interval_nodes import interval_notes
from calirare.run.probabilities import p_rare
from calirare.run.rare_class import (
    KNOWN_OR_DRAWN,
    Judged,
    judged,
    judged_labels,
    judging_maps,
    rare_class,
    wrong_in_the_large,
)
from calirare.run.result import RunResult
from calirare.training import FittedNetwork

KNOWN = (
    "measures are of what labels can tell, whether a node is known to be rare: drawn nodes without a label count as "
    "the rest, hidden rare ones among them too, so that detection is better than it reads"
)


def evaluated_nodes(outcome: RunResult) -> tuple[str, Tensor]:
    """Returns what the run is judged on: the labelled test nodes, or else the labelled nodes without their own label.

    Returns:
        "test", "leave-one-out" or, where known rare nodes are the only labels, `KNOWN_OR_DRAWN`; and the nodes.
    """
    split, y = outcome.graph.split, outcome.graph.y
    assert split is not None
    assert y is not None
    test = split.test[y[split.test] >= 0]
    if test.numel() and bool((y[test] == 1).any()):
        return "test", test
    return KNOWN_OR_DRAWN if outcome.assumed else "leave-one-out", outcome.fit.nodes


def evaluated_logits(outcome: RunResult, judged_on: str, nodes: Tensor) -> Tensor:
    """Returns the logits the report is about, [n, k]: no node's own label has a say in them."""
    return outcome.logits[nodes] if judged_on == "test" else outcome.jackknife.own_loo_logits.to(outcome.logits.dtype)


def judged_rare(outcome: RunResult) -> Judged:
    """Returns the nodes and probabilities that detection and P(rare) are judged by, see `rare_class.judged`."""
    judged_on, nodes = evaluated_nodes(outcome)
    return judged(outcome, judged_on, nodes, evaluated_logits(outcome, judged_on, nodes))


def report(outcome: RunResult) -> dict[str, Any]:
    """Returns everything `metrics.json` holds: plain numbers and strings, no timings, deterministic."""
    judged_on, nodes = evaluated_nodes(outcome)
    logits = evaluated_logits(outcome, judged_on, nodes)
    labels = judged_labels(outcome, judged_on, nodes).cpu()
    reports = {"raw": calibration_report(labels, torch.softmax(logits, 1).cpu())}
    for target, calibrator in judging_maps(outcome, judged_on, logits).items():
        reports[str(target)] = calibration_report(labels, calibrator.transform(logits).cpu())
    result, agreement, quality = outcome.jackknife, outcome.agreement, _quality(outcome)
    diagnostics = {name: value for name, value in result.diagnostics.items() if name != "seconds"}
    of_rare = rare_class(judged_rare(outcome))
    two = outcome.graph.n_classes == 2
    wrong = wrong_in_the_large(of_rare, outcome.graph.class_names[1]) if two else None
    states = {str(target): outcome.calibrators[target].state() for target in TARGETS if target in outcome.calibrators}
    return {
        "graph": _graph_facts(outcome),
        "method": outcome.settings.method,
        "target": outcome.settings.calibration.target,
        "epochs": outcome.epochs,
        "judged_on": judged_on,
        "n_judged": int(nodes.numel()),
        "n_judged_rare": int((labels == 1).sum()),
        "report": reports,
        **of_rare,
        "eice": eice_of(outcome),
        "interval_coverage": {"wanted": result.coverage, **_coverages(outcome, judged_on, nodes)},
        "leave_one_out": diagnostics,
        "agreement": None if agreement is None else vars(agreement),
        "population_check": _checked(outcome),
        "quality": _plain(asdict(quality)),
        "spectrum": _spectrum(outcome),
        "calibrators": states,
        "decision": _decision(outcome, judged_on, nodes),
        "choice": None if outcome.choice is None else outcome.choice.to_mapping(),
        "model": outcome.settings.model,
        "notes": [*outcome.graph.notes, *outcome.notes]
        + _notes(outcome, judged_on, quality)
        + ([] if wrong is None else [wrong]),
    }


def _checked(outcome: RunResult) -> dict[str, Any] | None:
    """Returns what labels say of the mean of P(rare), by maps without each of them."""
    check = outcome.check
    if check is None and outcome.assumed:  # which no label can check
        return dict.fromkeys(PopulationCheck._fields) | {"verdict": "caution", "reason": outcome.assumed}
    if check is None:
        return None
    verdict = "caution" if outcome.doubt and check.verdict == "trust" else check.verdict
    reason = f"{check.sentence}, but {outcome.doubt}" if outcome.doubt else check.sentence
    return check._asdict() | {"verdict": verdict, "reason": reason}


def _decision(outcome: RunResult, judged_on: str, nodes: Tensor) -> dict[str, Any]:
    """Returns the decision, what to expect of it, and under "test" what it does among labelled test nodes."""
    values, y = outcome.decision.to_mapping() | {"review": outcome.settings.decision.by}, outcome.graph.y
    if judged_on != "test":
        return values | {"test": None}
    assert y is not None
    p = p_rare(outcome.logits[nodes], outcome.calibrators)
    left, among = outcome.for_tables().abstain, realised(p, y[nodes], outcome.decision.threshold)
    if left is not None:
        among["undecided"] = realised_error(p, y[nodes], left[nodes], outcome.decision.threshold)
    return values | {"test": among}


def _notes(outcome: RunResult, judged_on: str, quality: Quality) -> list[str]:
    """Returns what the report itself has to say."""
    notes, result, split = [], outcome.jackknife, outcome.graph.split
    assert split is not None
    if judged_on == KNOWN_OR_DRAWN:
        notes.append(KNOWN)
    if judged_on != "test" and split.test.numel():
        rare = outcome.graph.class_names[1]
        notes.append(
            f"the run is judged on its labelled nodes, each without its own label, because none of the "
            f"{split.test.numel():,} test nodes is of the class {rare}: put some into the test part"
        )
    notes += interval_notes(result)
    turned = float((result.lower > result.upper).double().mean())
    if turned:
        notes.append(
            f"with convention {outcome.settings.loo.prints} {turned:.0%} of the intervals are upside down at coverage "
            f"{result.coverage:g}: their ends are written as the paper prints them, and swapped where they are drawn "
            "and the labels in them counted"
        )
    if quality.verdict == "do not trust":
        notes.append(f"do not trust the leave-one-out models ({result.method}): {quality.reason}")
    return notes


def eice_of(outcome: RunResult) -> dict[str, float]:
    """Returns EICE (paper, Eq. 10) of all nodes: "raw", of the network's own confidence, and of each target's.

    With the map on leave-one-out logits the population's target has EICE 0 by construction: that map is the estimate.
    With the paper's midpoint only the chosen target's interval is there to judge by.
    """
    result = outcome.jackknife
    chosen = outcome.settings.calibration.target
    targets = [t for t in outcome.calibrators if result.estimate is not None or t == chosen]
    sides = {"raw": outcome.probabilities()} | {str(t): outcome.probabilities(t) for t in targets}
    return {name: float(result.about(p)[1].double().mean()) for name, p in sides.items()}


def _spectrum(outcome: RunResult) -> dict[str, float] | None:
    """Returns estimates of the ends of the exact Hessian's spectrum, without damping; None without a network."""
    if not isinstance(outcome.fit, FittedNetwork):
        return None
    linearised = outcome.fit.linearisation
    lowest, highest = spectrum_ends(linearised.hvp, linearised.n_parameters, linearised.logits)
    return {"lowest": float(lowest), "highest": float(highest)}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values as JSON gives them back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _quality(outcome: RunResult) -> Quality:
    result = outcome.jackknife
    made = slice(None) if result.ends_of is None else result.ends_of
    finite = bool(torch.isfinite(result.lower[made]).all() and torch.isfinite(result.upper[made]).all())
    return quality_of(outcome.fit, result.own_loo_logits, result.leverage, result.facts, finite=finite)


def _graph_facts(outcome: RunResult) -> dict[str, Any]:
    graph, split = outcome.graph, outcome.graph.split
    assert split is not None
    assert graph.y is not None
    return {
        "name": graph.name,
        "nodes": graph.n_nodes,
        "directed_edges": graph.n_edges,
        "features": graph.n_features,
        "rare_class": graph.class_names[1],
        "rare_share": graph.minority_share,
        "split": split.name,
        "train": int(split.train.numel()),
        "val": int(split.val.numel()),
        "test": int(split.test.numel()),
        "labels_trained_on": int(((graph.y[outcome.fit.nodes] >= 0) & (outcome.fit.sample_weights > 0)).sum()),
    }


def _coverages(outcome: RunResult, judged_on: str, nodes: Tensor) -> dict[str, float | None]:
    """Returns how often the interval holds what it is about, for all judged nodes, those of class 1 and the others.

    With two classes an interval is about P(class 1) and shall hold the label, 0 or 1; with more it is about the
    predicted class and shall hold 1 where the prediction is right, else 0. Ends upside down, as the convention "paper"
    gives them, count in order.
    """
    result, labels = outcome.jackknife, judged_labels(outcome, judged_on, nodes)
    hits = labels
    if outcome.graph.n_classes > 2:
        hits = (outcome.probabilities(outcome.settings.calibration.target)[nodes].argmax(1) == labels).long()
    low, high = torch.minimum(result.lower, result.upper), torch.maximum(result.lower, result.upper)
    out: dict[str, float | None] = {}
    for name, chosen in (("all", labels >= 0), ("rare", labels == 1), ("rest", labels != 1)):
        held = nodes[chosen]
        values = (hits[chosen].double().cpu(), low[held].cpu(), high[held].cpu())
        out[name] = float(coverage(*values)) if held.numel() else None
    return out
