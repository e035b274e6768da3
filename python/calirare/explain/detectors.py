"""The voice of every kind of detector: the one place where a kind's own explanations are entered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calirare._util.errors import InputError
from calirare.explain.class_voice import TwoLogits
from calirare.explain.column_edges import SharedColumns
from calirare.explain.columns import ColumnVoice
from calirare.explain.mixture import MixtureVoice
from calirare.explain.network import NetworkVoice, folded_voice
from calirare.explain.pool import PoolVoice
from calirare.explain.spreading import SpreadingVoice
from calirare.explain.trees import TreesVoice
from calirare.explain.voice import Voice
from calirare.graph import Graph
from calirare.models import Mixture, NeighbourPool, trained_here
from calirare.training import Fitted


def voice_of(fitted: Fitted, graph: Graph, damping: float | None = None) -> Voice:
    """Returns a detector on a graph as something that can be asked "what if".

    Args:
        fitted: the detector, of two classes.
        graph: as the detector takes it, with mapped features.
        damping: of the leave-one-out step of a single network; None: its weight decay.

    Raises:
        InputError: it is of another kind, or of more than two classes.
    """
    if fitted.n_classes != 2:
        raise InputError(
            f"explain: the detector must tell two classes, the rare one and the rest, got {fitted.n_classes}: train on "
            "graph.rare(...)"
        )
    return _voice_of(fitted, graph, damping)


def logit_voice_of(fitted: Fitted, graph: Graph, damping: float | None = None) -> Voice:
    """Returns a detector of any number of classes as a voice that says logits; arguments as of `voice_of`.

    Raises:
        InputError: it is of another kind.
    """
    if isinstance(fitted, NeighbourPool):
        return PoolVoice(fitted, logit_voice_of(fitted.base, graph, damping), graph)
    voice = _voice_of(fitted, graph, damping)
    return voice if fitted.n_classes > 2 else TwoLogits(voice)


def _voice_of(
    fitted: Fitted, graph: Graph, damping: float | None, shared: SharedColumns | None = None, name: str = ""
) -> Voice:
    """Returns the voice of a detector, which of two classes says log-odds, of more logits.

    Args:
        fitted: the detector.
        graph: as the detector takes it.
        damping: of the leave-one-out step of a single network.
        shared: hop columns that other detectors of an average read too.
        name: of the detector among those of an average.
    """
    shared = SharedColumns(graph) if shared is None else shared
    if isinstance(fitted, Mixture):
        return MixtureVoice(fitted, [_voice_of(m.fitted, graph, None, shared, m.name) for m in fitted.members])
    if not fitted.scores_graphs:
        raise InputError(
            f"explain: the run has logits that were given to it and no detector: train {trained_here()} on the same "
            "labels and explain that run"
        )
    kind = type(fitted).__name__
    if kind not in VOICES:
        raise InputError(f"explain: the detector must be {trained_here()}, got a {kind}: train one")
    return VOICES[kind](fitted, graph, damping, shared, name)


# By the class of a detector; of it, the graph, the damping of a single network, columns that are shared, and its name.
VOICES: dict[str, Callable[[Any, Graph, float | None, SharedColumns, str], Voice]] = {
    "GcnFit": lambda fitted, graph, damping, shared, name: NetworkVoice(fitted, graph, damping, shared),
    "MlpFit": lambda fitted, graph, damping, shared, name: NetworkVoice(fitted, graph, damping, shared),
    "FoldedNetwork": lambda fitted, graph, damping, shared, name: folded_voice(fitted, graph, name, shared),
    "TreesFit": lambda fitted, graph, damping, shared, name: TreesVoice(fitted, graph, shared),
    "LabelPropagationFit": lambda fitted, graph, damping, shared, name: SpreadingVoice(fitted, graph),
    "LearnedColumns": lambda fitted, graph, damping, shared, name: ColumnVoice(fitted, graph, shared),
}
