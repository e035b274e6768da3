"""The voice of every kind of detector: the one place where a new one is entered."""

from __future__ import annotations

from calirare._util.errors import InputError
from calirare.explain.class_voice import TwoLogits
from calirare.explain.column_edges import SharedColumns
from calirare.explain.mixture import MixtureVoice
from calirare.explain.network import NetworkVoice, folded_voice
from calirare.explain.pool import PoolVoice
from calirare.explain.spreading import SpreadingVoice
from calirare.explain.trees import TreesVoice
from calirare.explain.voice import Voice
from calirare.graph import Graph
from calirare.models import (
    FoldedNetwork,
    GcnFit,
    GivenFit,
    HopsFit,
    Member,
    Mixture,
    NeighbourPool,
    SpreadingFit,
    TreesFit,
)
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


def _voice_of(fitted: Fitted, graph: Graph, damping: float | None) -> Voice:
    """Returns the voice of a detector, which of two classes says log-odds, of more logits."""
    shared = SharedColumns(graph)
    if isinstance(fitted, Mixture):
        return MixtureVoice(fitted, [_member(each, graph, shared) for each in fitted.members])
    if isinstance(fitted, TreesFit):
        return TreesVoice(fitted, graph, shared)
    if isinstance(fitted, GcnFit):
        return NetworkVoice(fitted, graph, damping)
    if isinstance(fitted, FoldedNetwork):
        return folded_voice(fitted, graph, "hops" if isinstance(fitted.network, HopsFit) else "gcn", shared)
    if isinstance(fitted, GivenFit):
        raise InputError(
            "explain: the run has logits that were given to it and no detector: train auto, gcn, hops, trees or forest "
            "on the same labels and explain that run"
        )
    raise InputError(
        f"explain: the detector must be auto, gcn, hops, trees or forest, got a {type(fitted).__name__}: train one"
    )


def _member(member: Member, graph: Graph, shared: SharedColumns) -> Voice:
    """Returns the voice of a member of an average."""
    if isinstance(member.fitted, FoldedNetwork):
        return folded_voice(member.fitted, graph, member.name, shared)
    if isinstance(member.fitted, SpreadingFit):
        return SpreadingVoice(member.fitted, graph)
    assert isinstance(member.fitted, TreesFit)
    return TreesVoice(member.fitted, graph, shared)
