"""A run's nodes explained: the detector, its map and its decision put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.threads import threads_for
from calirare.explain import Explainer, Explanations, Subject, Unlearnt, difference, nodes_named, voice_of
from calirare.graph import Graph
from calirare.models import FITS
from calirare.run.deciding import nodes_to_decide
from calirare.run.scoring import Scorer
from calirare.training import Fitted, FoldFitted


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
    fitted = _on_cpu(scorer.fit)
    if graph.device.type != "cpu":
        graph, mapped = graph.to("cpu"), mapped.to("cpu")
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


def _on_cpu(fitted: Fitted) -> Fitted:
    """Returns a detector on the CPU, where single nodes are explained; of a kind that no file holds, itself."""
    if fitted.nodes.device.type == "cpu" or type(fitted).__name__ not in FITS:
        return fitted
    tensors, facts = fitted.state()
    return FITS[type(fitted).__name__].from_state({name: tensor.cpu() for name, tensor in tensors.items()}, facts)


def explained(
    explainer: Explainer,
    nodes: Sequence[str | int] | Tensor | None,
    top: int | None,
    labels: int,
    group: str | None,
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
    if (nodes is None) == (top is None):
        raise InputError("explain: name nodes, or say how many of the top alerts, not both (--node or --top)")
    if nodes is not None:
        chosen = nodes_named(explainer.subject.graph, nodes)
    else:
        assert top is not None
        chosen = top_alerts(explainer, top)
    return explainer.explain(chosen, labels, group)


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
        raise InputError(
            f"explain: none of the {nodes.numel():,} {on} nodes is an alert, P(rare) is at most "
            f"{float(p.max()):.3g} and the threshold {subject.threshold:.3g}: name nodes (--node)"
        )
    return chosen
