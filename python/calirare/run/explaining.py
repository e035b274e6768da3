"""Questions to a run: why a node has its P(rare), and which labels are probably wrong."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.threads import threads_for
from calirare._util.torch_state import plain_torch
from calirare.calibration import CalibrateOn
from calirare.explain import (
    Explainer,
    Explanations,
    Group,
    Nodes,
    Subject,
    Unlearnt,
    difference,
    nodes_named,
    voice_of,
)
from calirare.explain.audit import Audit, audit_labels, unseen_logits
from calirare.graph import Graph
from calirare.leave_one_out import OwnLogits
from calirare.run.deciding import nodes_to_decide
from calirare.run.scoring import Scorer
from calirare.run.settings import Settings
from calirare.training import Fitted, FittedNetwork, FoldFitted


@plain_torch()
def explainer_of(scorer: Scorer, graph: Graph, mapped: Graph, stored: Callable[[], Tensor | None]) -> Explainer:
    """Returns what explains nodes of a run's own graph.

    Args:
        scorer: of the run.
        graph: the graph, with the user's names and the run's split.
        mapped: the same as the detector takes it.
        stored: see `calirare.explain.Explainer`.

    Raises:
        InputError: the detector has more than two classes, or is of another kind than ours.
    """
    fitted = scorer.fit
    mapping = scorer.calibrators.get("population")
    names, columns = scorer.class_names, mapped.feature_names or None
    positive_only = scorer.settings.positive_only
    subject = Subject(graph, fitted.nodes, fitted.targets, names, mapping, scorer.threshold, columns, positive_only)
    with threads_for(graph.n_edges):
        voice = voice_of(fitted, mapped, scorer.damping or None)
    if positive_only:
        own = difference(fitted.own_logits) if isinstance(fitted, FoldFitted) else None
        voice = Unlearnt(voice, fitted.nodes, fitted.targets == 0, own)
    return Explainer(voice, subject, stored)


@plain_torch()
def explained(
    explainer: Explainer,
    nodes: Nodes | None,
    top: int | None,
    labels: int,
    group: Group | None,
) -> Explanations:
    """Returns why nodes that are named, or the likeliest alerts, have their P(rare).

    Args:
        explainer: of the run.
        nodes: see `calirare.explain.nodes_named`; None: the alerts.
        top: how many alerts, the likeliest first, of the nodes that are decided on.
        labels: how many labels of each node are told of.
        group: a column by whose values labels are left out together; None: none are.

    Raises:
        InputError: both or neither are given, a node or the column is unknown, or there is no alert.
    """
    check_shown(labels)
    if (nodes is None) == (top is None):
        both = "not both" if nodes is not None else "got neither"
        raise InputError(f"explain: name nodes, or say how many of the top alerts (--node or --top), {both}")
    if nodes is not None:
        chosen = check_scored(explainer.subject.graph, nodes_named(explainer.subject.graph, nodes))
    else:
        assert top is not None
        chosen = top_alerts(explainer, top)
    return explainer.explain(chosen, labels, group)


def check_shown(labels: int) -> None:
    """Raises an InputError where fewer than no labels are to be told of."""
    if labels < 0:
        raise InputError(f"explain: labels, how many are told of, must be at least 0, got {labels}")


def check_scored(graph: Graph, nodes: Tensor) -> Tensor:
    """Returns nodes as they are.

    Raises:
        InputError: one of them carries edges alone, and no P(rare) is told of it.
    """
    beside = nodes if graph.scored is None else nodes[graph.scored[nodes]]
    if len(beside) < len(nodes):
        one = graph.node_name(int(nodes[~torch.isin(nodes, beside)][0]))
        raise InputError(
            f"explain: node {one!r} carries edges alone and is not scored, so that no P(rare) is told of it: name "
            f"scored nodes, of which graph {graph.name!r} has {graph.scored_nodes.numel():,}"
        )
    return nodes


def top_alerts(explainer: Explainer, top: int) -> Tensor:
    """Returns the likeliest alerts among the nodes that a run decides on, int64, at most `top`.

    Raises:
        InputError: `top` is not positive, or there is no alert.
    """
    if top < 1:
        raise InputError(f"explain: --top must be at least 1, got {top}")
    subject = explainer.subject
    nodes, on = nodes_to_decide(subject.graph)
    p = explainer.p_stored(nodes)
    order = torch.argsort(p, descending=True, stable=True)[:top]
    chosen = nodes[order[p[order] >= subject.threshold]]
    if not chosen.numel():
        those = f"all {nodes.numel():,} nodes" if on == "all" else f"the {nodes.numel():,} {on} nodes"
        raise InputError(
            f"explain: none of {those} is an alert, P(rare) is at most "
            f"{float(p.max()):.3g} and the threshold {subject.threshold:.3g}: name nodes (--node)"
        )
    return chosen


FOLDS = "each label is judged by models trained without its fold"
NONE_MADE = "made no cross-validation (folds 0)"
NONE_KEPT = "kept no cross-validation (by its method, or of an earlier version)"
NO_FOLDS = (
    "audit: the run {}, and no label can be judged by a network that has not learnt it: train with --folds 5; --next "
    "K, which label to get, needs none"
)
SOME_FOLDS = (
    "{:,} of {:,} labels are judged by networks trained without their fold, the others by leave-one-out in closed "
    "form; the run's report says whether the two agree"
)


@plain_torch()
def audit_run(
    fitted: Fitted,
    graph: Graph,
    mapped: Graph,
    settings: Settings,
    damping: float,
    held_out: Tensor | None,
    at_least: float,
) -> Audit:
    """Returns the audit of a run's labels.

    Args:
        fitted: the detector with its labels.
        graph: the run's own, with labels and split.
        mapped: the same as the detector takes it.
        settings: of the run.
        damping: of its leave-one-out step.
        held_out: each label's logits by the network without its fold, [m, k], NaN where there is none; None where the
            run made none.
        at_least: P(wrong) from which a label is flagged, in (0, 1].

    Raises:
        InputError: there are not two classes, too few labels of one, or a network without folds.
    """
    if settings.positive_only:
        raise InputError(
            "audit: the run's labels are positive-only, so there are no labels of the rest to be wrong: its alerts are "
            "the nodes without a label that are probably rare; --next K says what to label"
        )
    evidence = FOLDS
    if isinstance(fitted, FoldFitted):
        logits = unseen_logits(fitted, mapped)
    elif held_out is not None and bool(torch.isfinite(held_out).all()):
        logits = held_out
    elif held_out is None:
        raise InputError(NO_FOLDS.format(NONE_KEPT if settings.calibration.folds else NONE_MADE))
    else:
        assert isinstance(fitted, FittedNetwork)
        seen = torch.isfinite(held_out).all(1)
        logits = torch.where(seen[:, None], held_out.double(), OwnLogits(fitted.linearisation)(damping))
        evidence = SOME_FOLDS.format(int(seen.sum()), seen.numel())
    on = representing(settings.calibration.calibrate_on, graph)
    return audit_labels(fitted, mapped, logits, evidence, on, at_least)


def representing(asked: CalibrateOn, graph: Graph) -> CalibrateOn:
    """Returns which labels represent the population, where "auto" is asked for.

    Labels drawn per class before classes were merged leave "the rest" in other shares than the population's: they are
    left out where others represent it.
    """
    merged = graph.original_y is not None and len(graph.original_class_names) > 2
    return "random" if asked == "auto" and merged and graph.split is not None and graph.split.val.numel() else asked
