"""How good a run is: every number of metrics.json."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from calirare._util.amounts import in_unit
from calirare._util.measure_tables import KNOWN_OR_DRAWN
from calirare.calibration import TARGETS, Calibrator, PositiveOnlyCalibrator, Target
from calirare.graph import PARTS
from calirare.leave_one_out import Quality, quality_of
from calirare.metrics import calibration_report, coverage, detection_report, rare_report
from calirare.run.calibrators import Calibrated
from calirare.run.deciding import nodes_to_decide, realised
from calirare.run.interval_nodes import interval_notes
from calirare.run.judging import RAW, Judged, rare_among
from calirare.run.parties import amounts_of, party_groups
from calirare.run.periods import are_later, labels_by_time, periods
from calirare.run.probabilities import assumed_by, p_rare, unrepresented_by
from calirare.run.result import RunResult
from calirare.run.verdict import Circumstances, Evidence, Source, Verdict, verdict_of, verdict_of_classes
from calirare_ext import __version__

KNOWN = (
    "measures are about P(known), the probability that a node is known to be rare: sampled nodes without a label count "
    "as not rare, even hidden rare ones. Real detection is better than these numbers"
)
SOURCES: dict[str, Source] = {"test": "test nodes", "leave-one-out": "out-of-fold predictions"}
LABEL = re.compile(r"labels are column '(.+)' \(--label\)$")  # a note on what was found by name
DRAWN = ("share(", "random(")  # names of splits that were drawn from the labels


def evaluated_nodes(outcome: RunResult) -> tuple[str, Tensor]:
    """Returns what the run is judged on: the labelled test nodes, or else the labelled nodes without their own label.

    Returns:
        "test", "leave-one-out" or, where known rare nodes are the only labels, `KNOWN_OR_DRAWN`; and the nodes.
    """
    split, y = outcome.graph.split, outcome.graph.y
    assert split is not None
    assert y is not None
    test = split.test[y[split.test] >= 0]
    if test.numel() and (outcome.rare is None or bool((y[test] == 1).any())):
        return "test", test
    return KNOWN_OR_DRAWN if assumed_by(outcome.calibrators) else "leave-one-out", outcome.fit.nodes


def evaluated_logits(outcome: RunResult, judged_on: str, nodes: Tensor) -> Tensor:
    """Returns the logits the report is about, [n, k]: no node's own label has a say in them."""
    if judged_on == "test":
        return outcome.logits[nodes]
    own = outcome.own_logits if outcome.rare is None else outcome.rare.jackknife.own_loo_logits
    assert own is not None  # the training has refused a run that leaves no label out and has no test nodes
    return own.to(outcome.logits.dtype)


def judge_of(outcome: RunResult) -> Judged:
    """Returns the nodes and probabilities that judge a run."""
    judged_on, nodes = evaluated_nodes(outcome)
    logits = evaluated_logits(outcome, judged_on, nodes)
    if outcome.rare is not None:
        return judged(outcome, judged_on, nodes, logits)
    known = torch.isfinite(logits).all(1)
    sides: dict[str, Target | None] = {RAW: None} | {str(t): t for t in TARGETS if t in outcome.calibrators}
    p = {side: outcome.mapped_logits(logits[known], t).cpu() for side, t in sides.items()}
    return Judged(judged_on, judged_labels(outcome, judged_on, nodes)[known].cpu(), p, nodes[known])


def report(outcome: RunResult) -> dict[str, Any]:
    """Returns everything `metrics.json` holds: plain numbers and strings, no timings, deterministic."""
    graph, settings, split = outcome.graph, outcome.settings, outcome.graph.split
    assert split is not None
    facts = {
        "name": graph.name,
        "nodes": graph.n_nodes,
        "directed_edges": graph.n_edges,
        "features": graph.n_features,
        "unit": graph.unit,
        "split": split.name,
        **{part: int(getattr(split, part).numel()) for part in PARTS},
    }
    values: dict[str, Any] = {
        "method": settings.method,
        "model": settings.model,
        "target": settings.calibration.calibrate_for,
        "agreement": None if outcome.agreement is None else vars(outcome.agreement),
        "calibrators": {str(t): outcome.calibrators[t].state() for t in TARGETS if t in outcome.calibrators},
        "choice": None if outcome.choice is None else outcome.choice.to_mapping(),
        "verdict": outcome.verdict.to_mapping(),
        "version": __version__,
    }
    own = _of_classes(outcome) if outcome.rare is None else _of_rare(outcome)
    notes = [*graph.notes, *outcome.notes, *own.pop("notes", ())]
    words = in_unit({name: own.pop(name) for name in ("decision",) if name in own} | {"notes": notes}, graph.unit)
    return values | own | words | {"graph": facts | own["graph"]}


def _of_classes(outcome: RunResult) -> dict[str, Any]:
    """Returns what the report holds where every class is taken as it is."""
    names = outcome.graph.class_names
    shares = outcome.probabilities("population")[outcome.graph.scored_nodes].mean(0).tolist()
    return {
        "task": "classes",
        "graph": {"classes": list(names), "labels_trained_on": int(outcome.fit.nodes.numel())},
        **judge_of(outcome).measures(names),
        "estimated_shares": dict(zip(names, shares, strict=True)),
        "rare_classes": rare_among(names, shares),
    }


def _of_rare(outcome: RunResult) -> dict[str, Any]:
    """Returns what the report holds of a rare class."""
    judged_on, nodes = evaluated_nodes(outcome)
    logits = evaluated_logits(outcome, judged_on, nodes)
    labels = judged_labels(outcome, judged_on, nodes).cpu()
    reports = {RAW: calibration_report(labels, torch.softmax(logits, 1).cpu())}
    for target, calibrator in judging_maps(outcome, judged_on, logits).items():
        reports[str(target)] = calibration_report(labels, calibrator.transform(logits).cpu())
    result, quality = outcome.jackknife, _quality(outcome)
    parts = outcome.graph, outcome.fit.nodes, result.own_loo_logits, outcome.logits, outcome.calibrators
    of_rare = rare_class(judged(outcome, judged_on, nodes, logits))
    return {
        "graph": _graph_facts(outcome),
        "epochs": outcome.epochs,
        "judged_on": judged_on,
        "n_judged": int(nodes.numel()),
        "n_judged_rare": int((labels == 1).sum()),
        "report": reports,
        **of_rare,
        "eice": eice_of(outcome),
        "interval_coverage": {"wanted": result.coverage, **_coverages(outcome, judged_on, nodes)},
        "leave_one_out": {name: value for name, value in result.diagnostics.items() if name != "seconds"},
        "quality": {name: list(x) if isinstance(x, tuple) else x for name, x in asdict(quality).items()},
        "periods": periods(outcome.graph, labels_by_time(*parts)),
        "decision": _decision(outcome, judged_on, nodes),
        "notes": _notes(outcome, judged_on, quality),
    }


def judge(outcome: RunResult, calibrated: Calibrated) -> Verdict:
    """Returns the verdict on a run: by labelled test nodes, else by out-of-fold predictions.

    Args:
        outcome: the run, on the CPU.
        calibrated: what its calibration ended with.
    """
    graph, labelled = outcome.graph, calibrated.labelled
    split, prevalence = graph.split, outcome.settings.calibration.prevalence
    assert split is not None
    judged_on, nodes = evaluated_nodes(outcome)
    later = are_later(graph, nodes if judged_on == "test" else graph.unlabelled)
    known = Circumstances(
        calibrated.leak,
        calibrated.no_sample or assumed_by(outcome.calibrators),
        "" if prevalence is None else f"the base rate is the given {prevalence:g}",
        unrepresented_by(outcome.calibrators),
        0 if labelled is None else int(labelled.rare.sum()),
        0 if labelled is None else len(labelled.rare),
        later,
        drawn=split.name.startswith(DRAWN),
    )
    if outcome.rare is not None and judged_on != "test" and labelled is None:
        return verdict_of(None, known)
    data = judge_of(outcome)  # what is printed of P(rare) is of these nodes too
    if outcome.rare is None:
        p = data.p.get(outcome.settings.calibration.calibrate_for, data.p[RAW])
        return verdict_of_classes(SOURCES[data.on], data.labels, p.double(), graph.class_names, known)
    p = data.p.get("population", data.p[RAW])[:, 1].double()
    y = (data.labels == 1).long().numpy()
    found = verdict_of(Evidence.of(SOURCES[data.on], y, p.numpy(), groups=data.groups), known)
    return replace(found, sentence=in_unit(found.sentence, graph.unit), why=in_unit(found.why, graph.unit))


def _decision(outcome: RunResult, judged_on: str, nodes: Tensor) -> dict[str, Any]:
    """Returns the decision, what to expect of it, and under "test" what it does among labelled test nodes."""
    deciding, y = outcome.settings.decision, outcome.graph.y
    values = outcome.decision.to_mapping() | {"review": deciding.sort_by, "rule_sentence": deciding.rule.sentence}
    values |= {"by_amount": deciding.by_amount, "cut": deciding.rule.cut(outcome.decision.threshold)}
    amounts, decided = amounts_of(outcome.graph.keys or {}), nodes_to_decide(outcome.graph)[0]
    if amounts is not None:
        said = outcome.for_tables()
        risk = (said.rare.cpu() * torch.from_numpy(amounts))[decided]
        values["amount_at_risk"] = {"all": float(risk.sum()), "alerts": float(risk[said.alert[decided]].sum())}
    if judged_on != "test":
        return values | {"test": None}
    assert y is not None
    p = p_rare(outcome.logits[nodes], outcome.calibrators)
    rule = deciding.rule_on(outcome.graph, nodes)
    return values | {"test": realised(p, y[nodes], outcome.decision.threshold, rule)}


def _notes(outcome: RunResult, judged_on: str, quality: Quality) -> list[str]:
    """Returns what the report itself has to say."""
    notes, result, split = [], outcome.jackknife, outcome.graph.split
    assert split is not None
    if judged_on == KNOWN_OR_DRAWN:
        notes.append(KNOWN)
    if judged_on != "test" and split.test.numel():
        rare = outcome.graph.class_names[1]
        notes.append(
            f"none of the {split.test.numel():,} test nodes is of class {rare}, so out-of-fold predictions of the "
            "labelled nodes are measured. Put nodes of the class into the test part"
        )
    notes += interval_notes(result)
    if quality.verdict == "do not trust":
        notes.append(f"do not trust the leave-one-out models ({result.method}): {quality.reason}")
    return notes


def eice_of(outcome: RunResult) -> dict[str, float]:
    """Returns EICE (paper, Eq. 10) of all scored nodes: "raw", of the network's own confidence, and of each target's.

    With the map on leave-one-out logits the population's target has EICE 0 by construction: that map is the estimate.
    With the paper's midpoint only the chosen target's interval is there to judge by.
    """
    result = outcome.jackknife
    chosen = outcome.settings.calibration.calibrate_for
    targets = [t for t in outcome.calibrators if result.estimate is not None or t == chosen]
    sides = {"raw": outcome.probabilities(None)} | {str(t): outcome.probabilities(t) for t in targets}
    scored = outcome.graph.scored_nodes
    return {name: float(result.about(p)[1].double()[scored].mean()) for name, p in sides.items()}


def _quality(outcome: RunResult) -> Quality:
    result = outcome.jackknife
    made = slice(None) if result.ends_of is None else result.ends_of
    finite = bool(torch.isfinite(result.lower[made]).all() and torch.isfinite(result.upper[made]).all())
    return quality_of(outcome.fit, result.own_loo_logits, result.leverage, result.facts, finite=finite)


def _graph_facts(outcome: RunResult) -> dict[str, Any]:
    graph = outcome.graph
    assert graph.y is not None
    of_class, labelled = int((graph.y == 1).sum()), int((graph.y >= 0).sum())
    return {
        "scored_nodes": int(graph.scored_nodes.numel()),
        "rare_class": graph.class_names[1],
        "rare_share": of_class / max(labelled, 1),
        "label": next((found[1] for note in graph.notes if (found := LABEL.search(note))), None),
        "labels_trained_on": int(((graph.y[outcome.fit.nodes] >= 0) & (outcome.fit.sample_weights > 0)).sum()),
    }


def _coverages(outcome: RunResult, judged_on: str, nodes: Tensor) -> dict[str, float | None]:
    """Returns how often the interval holds what it is about, for all judged nodes, those of class 1 and the others.

    An interval is about P(class 1) and shall hold the label, 0 or 1. Of a label that trained the interval moves with f
    to f without the label, as all of the models it was made of have seen it but one.
    """
    labels, own = judged_labels(outcome, judged_on, nodes), evaluated_logits(outcome, judged_on, nodes)
    result, target, judged = outcome.jackknife, outcome.settings.calibration.calibrate_for, torch.isfinite(own).all(1)
    p, whole = (outcome.mapped_logits(z, target)[:, 1] for z in (own.nan_to_num(), outcome.logits[nodes]))
    low, high = (ends[nodes] + (p - whole).to(ends) for ends in (result.lower, result.upper))
    out: dict[str, float | None] = {}
    for name, chosen in (("all", labels >= 0), ("rare", labels == 1), ("rest", labels != 1)):
        some = chosen & judged
        values = (labels[some].double().cpu(), low[some].cpu(), high[some].cpu())
        out[name] = float(coverage(*values)) if bool(some.any()) else None
    return out


FOLDS = 10  # in which a map is fitted without the nodes it is judged on


def judged_labels(outcome: RunResult, judged_on: str, nodes: Tensor) -> Tensor:
    """Returns the classes of what a run is judged on, int64: of labelled nodes those that the detector was shown.

    Args:
        outcome: the run.
        judged_on: "test" or "leave-one-out".
        nodes: the nodes; with "leave-one-out" all that the detector was shown, in their order.
    """
    assert outcome.graph.y is not None
    return outcome.graph.y[nodes] if judged_on == "test" else outcome.fit.targets


def judging_maps(outcome: RunResult, judged_on: str, logits: Tensor) -> dict[Target, Calibrator]:
    """Returns the maps that labels can judge: where these are known rare nodes alone, of P(known) and not of P(rare).

    Args:
        outcome: the run.
        judged_on: "test" or "leave-one-out".
        logits: of the judged nodes, [n, k].
    """
    maps = dict(outcome.calibrators)
    if judged_on == "test":
        return maps
    made = torch.isfinite(logits).all(1)
    for target, each in maps.items():
        if isinstance(each, PositiveOnlyCalibrator):
            maps[target] = each.seen().fit(logits[made], outcome.fit.targets.to(made.device)[made])
    return maps


def judged(outcome: RunResult, judged_on: str, nodes: Tensor, logits: Tensor) -> Judged:
    """Returns what P(rare) is judged by.

    Without test nodes these are the nodes that represent the population, the validation nodes where there are some of
    each class, else all labelled ones. A map that was fitted on their leave-one-out logits is then fitted anew in
    folds, each without the nodes it is put on: fitted on them, its mean would be right by construction.

    Args:
        outcome: the run.
        judged_on: "test" or "leave-one-out".
        nodes: the nodes the report is about, [n].
        logits: theirs, [n, k]; no node's own label has a say in them.
    """
    split, refit = outcome.graph.split, False
    assert split is not None
    y, maps = judged_labels(outcome, judged_on, nodes), judging_maps(outcome, judged_on, logits)
    if judged_on != "test":
        known, in_val = torch.isfinite(logits).all(1), torch.isin(nodes, split.val)
        sample = known & (in_val if bool(in_val.any()) else True)
        refit = outcome.settings.method == "jackknife" and _classes_in(y[sample]) == outcome.graph.n_classes
        kept = sample if _classes_in(y[sample]) > 1 and bool((y[sample] == 1).any()) else known
        nodes, logits, y = nodes[kept], logits[kept], y[kept]
    labels, z = y.cpu(), logits.detach().cpu()
    sides = {RAW: torch.softmax(z, 1)}
    for target, calibrator in maps.items():
        sides[str(target)] = _left_out(calibrator, z, labels) if refit else calibrator.transform(z)
    return Judged(judged_on, labels, sides, nodes, party_groups(outcome.graph, nodes.cpu().numpy()))


def rare_class(data: Judged) -> dict[str, Any]:
    """Returns "detection", by the scores that rank, and "p_rare", of every side, marked by what they are judged on."""
    ranks = [side for side in (RAW, "population") if side in data.p]
    mark, (resamples, draws) = {"judged_on": data.on}, data.draws
    return {
        "detection": {side: mark | detection_report(data.labels, data.p[side], n_draws=resamples) for side in ranks},
        "p_rare": {
            side: mark | rare_report(data.labels, p, n_draws=draws, groups=data.groups) for side, p in data.p.items()
        },
    }


def _classes_in(labels: Tensor) -> int:
    return int(torch.unique(labels).numel())


def _left_out(calibrator: Calibrator, logits: Tensor, labels: Tensor) -> Tensor:
    """Returns each node's probabilities [m, k] by the same kind of map, fitted on the other folds' nodes."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold

    n_folds = min(FOLDS, int(torch.bincount(labels).min()))
    if n_folds < 2:  # a class with one node: no fold can do without it
        return calibrator.transform(logits)
    out = torch.empty_like(logits)
    for others, held in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(logits, labels):
        rest = torch.from_numpy(others)
        out[held] = clone(calibrator).fit(logits[rest], labels[rest]).transform(logits[held])
    return out
