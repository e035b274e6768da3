"""The explainable model of every kind of detector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calirare._util.errors import InputError
from calirare.explain.column_edges import SharedColumns
from calirare.explain.columns import RefittedColumns
from calirare.explain.explainable_model import ExplainableModel
from calirare.explain.label_propagation import ExplainablePropagation
from calirare.explain.mixture import ExplainableMixture
from calirare.explain.network import ExplainableNetwork, explainable_folds
from calirare.explain.pool import ExplainablePool
from calirare.explain.trees import ExplainableTrees
from calirare.graph import Graph
from calirare.models import Fitted, Mixture, NeighbourPool, trained_here


def explainable(
    fitted: Fitted,
    graph: Graph,
    damping: float | None = None,
    shared: SharedColumns | None = None,
    name: str = "",
    own: Graph | None = None,
) -> ExplainableModel:
    """Returns a detector on a graph as something that can be explained.

    Args:
        fitted: the detector.
        graph: as the detector takes it, with mapped features.
        damping: of the leave-one-out step of a single network; None: its weight decay.
        shared: hop columns that other detectors of an average read too.
        name: of the detector among those of an average.
        own: the graph that it was trained on, as it takes it, where that is another one.

    Raises:
        InputError: it is of another kind.
    """
    if isinstance(fitted, NeighbourPool):
        return ExplainablePool(fitted, explainable(fitted.base, graph, damping, own=own), graph)
    shared = SharedColumns(graph, own) if shared is None else shared
    if isinstance(fitted, Mixture):
        return ExplainableMixture(fitted, [explainable(m.fitted, graph, None, shared, m.name) for m in fitted.members])
    if not fitted.scores_graphs:
        raise InputError(
            f"explain: the run has logits that were given to it and no detector: train {trained_here()} on the same "
            "labels and explain that run"
        )
    kind = type(fitted).__name__
    if kind not in EXPLAINABLE_MODELS:
        raise InputError(f"explain: the detector must be {trained_here()}, got a {kind}: train one")
    return EXPLAINABLE_MODELS[kind](fitted, graph, damping, shared, name)


# By the class of a detector; of it, the graph, the damping of a single network, columns that are shared, and its name.
EXPLAINABLE_MODELS: dict[str, Callable[[Any, Graph, float | None, SharedColumns, str], ExplainableModel]] = {
    "GcnFit": lambda fitted, graph, damping, shared, name: ExplainableNetwork(fitted, graph, damping, shared),
    "MlpFit": lambda fitted, graph, damping, shared, name: ExplainableNetwork(fitted, graph, damping, shared),
    "FoldedNetwork": lambda fitted, graph, damping, shared, name: explainable_folds(fitted, graph, name, shared),
    "TreesFit": lambda fitted, graph, damping, shared, name: ExplainableTrees(fitted, graph, shared),
    "LabelPropagationFit": lambda fitted, graph, damping, shared, name: ExplainablePropagation(
        fitted, graph, shared.own
    ),
    "LearnedColumns": lambda fitted, graph, damping, shared, name: RefittedColumns(fitted, graph, shared),
}
