"""Questions to a run: why a node has its P(rare), and which labels are probably wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch, threads_for
from calirare.calibration import CalibrateOn
from calirare.explain import (
    Explainer,
    ExplanationContext,
    Explanations,
    Nodes,
    OutOfFold,
    difference,
    explainable,
    nodes_named,
)
from calirare.explain.audit import Audit, audit_labels
from calirare.graph import Graph, find_name, names_in_words
from calirare.graph.tables import as_names, lost_digits, why_any_unknown
from calirare.leave_one_out import OwnLogits
from calirare.models import KnownNodes
from calirare.run.data_settings import cells_of, read_rows
from calirare.run.deciding import nodes_to_decide
from calirare.run.scoring import Scorer


@dataclass(frozen=True, eq=False)
class TrainedOn:
    """The graph that a detector was trained on, where it is not the one that is explained.

    Attributes:
        no_labels: why it is not there, a sentence; empty: it is.
        graph: with the user's names; None: it is not there.
        mapped: the same as the detector takes it.
        shared: whether nodes of one name are the same node in both.
    """

    no_labels: str
    graph: Graph | None = None
    mapped: Graph | None = None
    shared: bool = False

    def places_of(self, graph: Graph) -> Tensor | None:
        """Returns the number of each node of another graph here, -1 where it is new; None: all are."""
        found = KnownNodes.of(self.graph).places_in(graph) if self.shared and self.graph is not None else None
        return None if found is None else torch.from_numpy(found)


@plain_torch()
def explainer_of(
    scorer: Scorer,
    graph: Graph,
    mapped: Graph,
    stored: Callable[[], Tensor | None],
    trained_on: TrainedOn | None = None,
) -> Explainer:
    """Returns what explains nodes of a graph.

    Args:
        scorer: of the run.
        graph: the graph, with the user's names, and where it is the run's own with its split.
        mapped: the same as the detector takes it.
        stored: of a rare class, see `calirare.explain.Explainer`.
        trained_on: the run's own graph; None: it is `graph`.

    Raises:
        InputError: a run of a rare class has more than two, or the detector is of another kind than ours.
    """
    fitted, many, positive_only = scorer.fit, scorer.settings.many, scorer.settings.positive_only
    mapping = scorer.calibrator if many else scorer.calibrators.get("population")
    names, columns = scorer.class_names, mapped.feature_names or None
    threshold = None if many else scorer.settings.decision.thresholds(scorer.threshold, graph)
    if not many and len(names) != 2:
        raise InputError(
            f"explain: the run must have two classes, the rare one and all others, got {len(names)}: train on "
            "graph.rare(...)"
        )
    context = ExplanationContext(graph, fitted.nodes, fitted.targets, names, mapping, threshold, columns, positive_only)
    trained_graph, no_labels = None, ""
    if trained_on is not None:
        trained_graph, no_labels = trained_on.mapped, trained_on.no_labels
        there = graph if trained_on.graph is None else trained_on.graph  # without it no node is known
        context = replace(context, own=there, own_places=trained_on.places_of(graph))
    with threads_for(graph.n_edges):
        model = explainable(fitted, mapped, scorer.damping or None, own=trained_graph)
    if positive_only and not many and trained_on is None:
        own = None if fitted.folded is None else difference(fitted.folded.own_logits)
        model = OutOfFold(model, fitted.nodes, fitted.targets == 0, own)
    return Explainer(model, context, stored, no_labels)


@plain_torch()
def explained(
    explainer: Explainer, nodes: Nodes | None, class_name: str | None, top: int | None, labels: int | None
) -> Explanations:
    """Returns why nodes that are named, or the likeliest alerts, have their P(rare), or with many classes P(class).

    Args:
        explainer: of the run.
        nodes: see `calirare.explain.nodes_named`; None: the alerts, or the likeliest of the class.
        class_name: the class; None: the rare one, with many classes of each node its likeliest.
        top: how many alerts, or nodes without a label whose likeliest class it is, the likeliest first.
        labels: how many labels of each node are shown; None: 10, but none where their effects take long.

    Raises:
        InputError: nodes and `top` are both given or neither, `top` without a class, something is unknown, or there is
            no such node.
    """
    if labels is not None and labels < 0:
        raise InputError(f"explain: labels, how many are shown, must be at least 0, got {labels}")
    context, many = explainer.context, explainer.context.many
    if (nodes is None) == (top is None):
        both = "not both" if nodes is not None else "got neither"
        most = "--top K with --class NAME for the likeliest of a class" if many else "--top K for the likeliest alerts"
        raise InputError(f"explain: name nodes (--node), or {most}, {both}")
    of = _class_of(context, class_name)
    if nodes is not None:
        chosen = check_scored(context.graph, nodes_named(context.graph, nodes))
    else:
        assert top is not None
        if top < 1:
            raise InputError(f"explain: --top must be at least 1, got {top}")
        chosen = top_nodes(explainer, of, top)
    return explainer.explain(chosen, labels, of)


def _class_of(context: ExplanationContext, name: str | None) -> int | None:
    """Returns the number of a class that was named, if one was."""
    if name is None:
        return None
    names, of = context.class_names, find_name(name, context.class_names)
    if not context.many and of != 1:
        raise InputError(
            f"explain: --class is for runs of several classes; this run has one rare class, {names[1]!r}: leave it out"
        )
    if of is None:
        raise InputError(f"explain: the run has no class {name!r}: its classes are {names_in_words(names, 10)}")
    return of


def check_scored(graph: Graph, nodes: Tensor) -> Tensor:
    """Returns nodes as they are.

    Raises:
        InputError: one of them is an auxiliary node, which has no P(rare).
    """
    beside = nodes if graph.scored is None else nodes[graph.scored[nodes]]
    if len(beside) < len(nodes):
        one = graph.node_name(int(nodes[~torch.isin(nodes, beside)][0]))
        raise InputError(
            f"explain: node {one!r} is an auxiliary node, which has no P(rare): name one of the "
            f"{graph.scored_nodes.numel():,} target nodes of graph {graph.name!r}"
        )
    return nodes


def top_nodes(explainer: Explainer, of: int | None, top: int) -> Tensor:
    """Returns the likeliest alerts, or nodes likeliest of a class, among those a run decides on, int64, at most `top`.

    Raises:
        InputError: no class is named, or there is no such node.
    """
    context = explainer.context
    nodes, on = nodes_to_decide(context.graph)
    those = f"all {nodes.numel():,} nodes" if on == "all" else f"the {nodes.numel():,} {on} nodes"
    p = explainer.stored_probabilities(nodes)
    if not context.many:
        of = 1
        none = f"none of {those} is an alert: P(rare) is at most {float(p[:, 1].max()):.3g}, below the threshold"
        none += "" if isinstance(context.threshold, Tensor) else f" {context.threshold:.3g}"
    elif of is None:
        raise InputError(
            f"explain: --top needs a class: name one (--class) of {names_in_words(context.class_names, 10)}"
        )
    else:
        none = f"{context.class_names[of]!r} is the likeliest class of none of {those}, its P is at most "
        none += f"{float(p[:, of].max()):.3g}"
    order = torch.argsort(p[:, of], descending=True, stable=True)
    chosen = nodes[order[context.chosen(p[order], of, nodes[order])][:top]]
    if not chosen.numel():
        raise InputError(f"explain: {none}. Name nodes (--node)")
    return chosen


FOLDS = "each label is judged by models trained without its fold"
NONE_MADE = "made no cross-validation (folds 0)"
NONE_KEPT = "kept no cross-validation (by its method, or of an earlier version)"
NO_FOLDS = (
    "audit: the run {}, so no network is there that has not seen a label: train with --folds 5. `calirare suggest` "
    "(which nodes to label) needs no folds"
)
SOME_FOLDS = (
    "{:,} of {:,} labels are judged by networks trained without their fold, the others by leave-one-out in closed "
    "form; the run's report says whether the two agree"
)


@plain_torch()
def audit_run(scorer: Scorer, graph: Graph, mapped: Graph, held_out: Tensor | None, at_least: float) -> Audit:
    """Returns the audit of a run's labels.

    Args:
        scorer: of the run.
        graph: the run's own, with labels and split.
        mapped: the same as the detector takes it.
        held_out: each label's logits by the network without its fold, [m, k], NaN where there is none; None where the
            run made none.
        at_least: P(wrong) from which a label is flagged, in (0, 1].

    Raises:
        InputError: there are not two classes, too few labels of one, or a network without folds.
    """
    fitted, settings = scorer.fit, scorer.settings
    if settings.positive_only:
        raise InputError(
            "audit: needs labels of both classes, but the run is positive-only. Its alerts are the nodes without a "
            "label that are probably rare; `calirare suggest` shows what to label"
        )
    evidence = FOLDS
    if fitted.folded is not None:
        logits = fitted.folded.judged_by_folds(mapped).own_logits
    elif held_out is not None and bool(torch.isfinite(held_out).all()):
        logits = held_out
    elif held_out is None:
        raise InputError(NO_FOLDS.format(NONE_KEPT if settings.calibration.folds else NONE_MADE))
    else:
        assert fitted.closed_form is not None
        seen = torch.isfinite(held_out).all(1)
        logits = torch.where(
            seen[:, None], held_out.double(), OwnLogits(fitted.closed_form.linearisation)(scorer.damping)
        )
        evidence = SOME_FOLDS.format(int(seen.sum()), seen.numel())
    on = resolved_calibrate_on(settings.calibration.calibrate_on, graph)
    return audit_labels(fitted, mapped, logits, evidence, on, at_least)


def resolved_calibrate_on(requested: CalibrateOn, graph: Graph) -> CalibrateOn:
    """Returns which labels represent the population, where "auto" is requested.

    Labels drawn per class before classes were merged leave "the rest" in other shares than the population's: they are
    left out where others represent it.
    """
    merged = graph.original_y is not None and len(graph.original_class_names) > 2
    sample = merged and graph.split is not None and graph.split.val.numel()
    return "random" if requested == "auto" and sample else requested


def read_node_column(path: str | Path, column: str, graph: Graph) -> dict[str, str]:
    """Returns what stands in a column of a table for each node that has a row there.

    The nodes are in the other column in which most cells are names of nodes (of a graph without names their numbers).

    Args:
        path: CSV, TSV or Parquet.
        column: the one that is read.
        graph: whose nodes they are.

    Raises:
        InputError: the file cannot be read, has no such column, or no column names nodes.
    """
    table = read_rows(Path(path))
    if column not in table:
        raise InputError(f"{path}: there is no column {column!r}: its columns are {names_in_words(table.columns, 10)}")
    known = set(map(str, range(graph.n_nodes) if graph.node_names is None else graph.node_names))
    others = {name: cells_of(as_names(table[name])) for name in table.columns if name != column}
    met = {name: sum(cell in known for cell in cells) for name, cells in others.items()}
    likely = [name for name, n in met.items() if n == max(met.values())]
    for name in likely:
        lost = lost_digits(table[name], path)
        unknown = (cell for cell in others[name] if cell and cell not in known)
        why = why_any_unknown(unknown, pd.Series(sorted(known.difference(others[name])), dtype=object))
        if lost or why:
            raise InputError(
                lost[0] if lost else f"{path}: column {name!r} names no nodes of graph {graph.name!r}{why}"
            )
    best = next(iter(likely), None)
    if best is None or not met[best]:
        raise InputError(f"{path}: no column names nodes of graph {graph.name!r}: take the table that has their names")
    rows = zip(others[best], cells_of(table[column]), strict=True)
    return {node: value for node, value in rows if node in known}
