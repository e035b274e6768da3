"""Questions to a run of many classes: why a node has its P(class)."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.threads import threads_for
from calirare._util.torch_state import plain_torch
from calirare.explain import (
    ClassExplainer,
    Explanations,
    Group,
    Nodes,
    Subject,
    logit_voice_of,
    nodes_named,
)
from calirare.graph import Graph, find_name, named
from calirare.run.deciding import nodes_to_decide
from calirare.run.explaining import check_scored, check_shown
from calirare.run.scoring import Scorer


@plain_torch()
def class_explainer_of(scorer: Scorer, graph: Graph, mapped: Graph) -> ClassExplainer:
    """Returns what explains nodes of the own graph of a run of many classes.

    Args:
        scorer: of the run.
        graph: the graph, with the user's names and the run's split.
        mapped: the same as the detector takes it.

    Raises:
        InputError: the detector is of another kind than ours.
    """
    fitted, names, columns = scorer.fit, scorer.class_names, mapped.feature_names or None
    subject = Subject(graph, fitted.nodes, fitted.targets, names, scorer.calibrator, torch.inf, columns)
    with threads_for(graph.n_edges):
        voice = logit_voice_of(fitted, mapped, scorer.damping or None)
    return ClassExplainer(voice, subject)


@plain_torch()
def classes_explained(
    explainer: ClassExplainer,
    nodes: Nodes | None,
    class_name: str | None,
    top: int | None,
    labels: int,
    group: Group | None,
) -> Explanations:
    """Returns why nodes that are named, or those that are most likely of a class, have their P(class).

    Args:
        explainer: of the run.
        nodes: see `calirare.explain.nodes_named`; None: the likeliest of the class.
        class_name: the class; None: of each node its likeliest.
        top: how many nodes, the likeliest first, of those without a label whose likeliest class it is.
        labels: how many labels of each node are told of.
        group: a column by whose values labels are left out together; None: none are.

    Raises:
        InputError: nodes and `top` are both given or neither, `top` without a class, or something is unknown.
    """
    check_shown(labels)
    if (nodes is None) == (top is None):
        both = "not both" if nodes is not None else "got neither"
        raise InputError(
            "explain: of a run with task classes name nodes (--node), or say how many of the likeliest of a class "
            f"(--top with --class), {both}"
        )
    subject, of = explainer.subject, None
    if class_name is not None:
        of = find_name(class_name, subject.class_names)
        if of is None:
            known = named(subject.class_names, 10)
            raise InputError(f"explain: the run has no class {class_name!r}: its classes are {known}")
    if nodes is not None:
        chosen = check_scored(subject.graph, nodes_named(subject.graph, nodes))
    else:
        assert top is not None
        chosen = likeliest_of(explainer, of, top)
    return explainer.explain(chosen, of, labels, group)


def likeliest_of(explainer: ClassExplainer, of: int | None, top: int) -> Tensor:
    """Returns the nodes with the highest P(class) among those to decide on whose likeliest class it is, int64.

    Raises:
        InputError: `top` is not positive, no class is named, or there is no such node.
    """
    if top < 1:
        raise InputError(f"explain: --top must be at least 1, got {top}")
    if of is None:
        raise InputError(
            f"explain: --top is of a class: name one (--class), of {named(explainer.subject.class_names, 10)}"
        )
    nodes, on = nodes_to_decide(explainer.subject.graph)
    p = explainer.probabilities(nodes)
    order = torch.argsort(p[:, of], descending=True, stable=True)
    chosen = nodes[order[p[order].argmax(1) == of][:top]]
    if not chosen.numel():
        those = f"all {nodes.numel():,} nodes" if on == "all" else f"the {nodes.numel():,} {on} nodes"
        name = explainer.subject.class_names[of]
        raise InputError(
            f"explain: of none of {those} is {name!r} the likeliest class, its P is at most "
            f"{float(p[:, of].max()):.3g}: name nodes (--node)"
        )
    return chosen
