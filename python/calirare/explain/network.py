"""One network as a voice: labels in closed form."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from calirare.explain.network_labels import NetworkLabels, network_labels
from calirare.explain.voice import Voice
from calirare.graph import Graph
from calirare.models import FoldedNetwork, GcnFit

FIRST_ORDER = (
    "labels of a network: the closed form of leave-one-out (one damped Newton step); scaling of features, calibration "
    "map and weights of the average stay as they are"
)

DOUBT = (
    "leave-one-out in closed form was not found to agree with networks trained without each fold: take its part of the "
    "labels' effects as rough"
)


class NetworkVoice(Voice):
    """A graph convolution, or a perceptron on hop columns, on one graph.

    Args:
        fitted: the network.
        graph: as the network takes it.
        labels: of the network.
        notes: sentences of the caller.
    """

    def __init__(self, fitted: GcnFit, graph: Graph, labels: NetworkLabels, notes: tuple[str, ...] = ()) -> None:
        self.fitted, self.graph, self.labels = fitted, graph, labels
        self.notes = (FIRST_ORDER, *notes)

    def log_odds(self, nodes: Tensor) -> Tensor:
        """See `Voice.log_odds`."""
        logits = self.fitted.logits_of(self.graph, nodes).double()
        return logits[:, 1] - logits[:, 0]

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `Voice.without_each_label`."""
        return self.log_odds(nodes) + self.labels.change(self.fitted.evaluation_field(self.graph, nodes))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `Voice.without_labels`."""
        field = self.fitted.evaluation_field(self.graph, nodes)
        return self.log_odds(nodes) + self.labels.change_without(field, sets)


def network_voice(fitted: GcnFit, graph: Graph, damping: float | None = None) -> NetworkVoice:
    """Returns the voice of a network; `damping` None: its weight decay."""
    return NetworkVoice(fitted, graph, network_labels(fitted, damping or fitted.weight_decay))


def folded_voice(folded: FoldedNetwork, graph: Graph, name: str) -> NetworkVoice:
    """Returns the voice of a network with folds, at the damping at which leave-one-out agrees with the folds."""
    network = folded.network
    agreed = folded.damping is not None
    labels = network_labels(network, folded.damping or network.weight_decay)
    return NetworkVoice(network, graph, labels, () if agreed else (f"{name}: {DOUBT}",))
