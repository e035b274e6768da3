"""Whether nodes with names of the run's nodes are the same nodes, as label propagation assumes.

Where nodes were renumbered the same names are those of others. Features tell: what the other detectors predict of the
labelled nodes in the scored graph has the order of the labels about as well as in the run's own graph, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.graph import Graph
from calirare.metrics import auroc
from calirare.models.fitted import Fitted, FoldFitted
from calirare.models.label_propagation import LabelPropagationFit
from calirare.models.mixture import Mixture
from calirare.models.neighbours import NeighbourPool

Say = Callable[[str], None]
FEWEST = 5  # labelled nodes of a class that are known by name, for an answer
MOST = 1_000  # of a class that are asked about
LEAST = 0.02  # weight of spread labels in the average, from which they matter
CHANCE = 2.0  # standard errors above one half up to which an area is chance: names are those of others
TELLING = 4.0  # standard errors above one half from which on the run's own area tells of its nodes
OTHERS = (
    "{:,} of {:,} nodes have names of the run's nodes but seem to be other nodes: predicting the labels of these names "
    "from features has AUROC {:.2f} here, and {:.2f} in the run's own graph. Label propagation is left out for this "
    "graph."
)
UNSURE = (
    "{:,} of {:,} nodes have names of the run's nodes and are taken for the same nodes, so label propagation uses "
    "their labels. Their features cannot confirm it. If the nodes were renumbered, give them other names."
)


def match_nodes(fitted: Fitted, graph: Graph, say: Say) -> Fitted:
    """Returns a detector that knows the nodes of its training graph in another one, or none if they are others.

    Args:
        fitted: of the run.
        graph: another graph, or the run's own, as the detector takes it.
        say: takes a note where the nodes are others, or might be.
    """
    if isinstance(fitted, NeighbourPool):
        return replace(fitted, base=cast(FoldFitted, match_nodes(fitted.base, graph, say)))
    spread = label_propagation_by_names(fitted)
    if spread is None:
        return fitted
    assert isinstance(fitted, Mixture)
    met = NameMatches(spread)
    met.add(0, graph.n_nodes, spread.places_in(graph))

    def logits_at(alone: Mixture, nodes: Tensor) -> Tensor:
        return alone.logits_of(graph, nodes.to(graph.device)).cpu()

    return fitted.without_label_memory() if names_are_others(fitted, met, logits_at, say) else fitted


def label_propagation_by_names(fitted: Fitted) -> LabelPropagationFit | None:
    """Returns the spread labels of an average where they matter and know nodes by names; by equal edges none errs."""
    members = (m.fitted for m in fitted.members if m.weight >= LEAST) if isinstance(fitted, Mixture) else ()
    return next((each for each in members if isinstance(each, LabelPropagationFit) and not each.known.edges), None)


class NameMatches:
    """The nodes of a graph that have names of the run's, block by block.

    Attributes:
        known: how many.
        n: of how many nodes.
    """

    def __init__(self, spread: LabelPropagationFit) -> None:
        self.known, self.n, self._labels = 0, 0, spread.nodes.cpu()
        self._at = torch.full((spread.known.n_nodes,), -1)

    def add(self, first: int, last: int, places: NumpyArray | None) -> None:
        """Meets the nodes [first, last), whose places among the run's nodes are -1 for none; None: none has any."""
        self.n += last - first
        if places is not None:
            here = (places >= 0).nonzero()[0]
            self.known += len(here)
            self._at[torch.from_numpy(places[here])] = torch.from_numpy(first + here)

    @property
    def labels_at(self) -> Tensor:
        """The node that has the name of each label's node, int64 [m], -1 for none."""
        return self._at[self._labels]


def names_are_others(
    fitted: Mixture, met: NameMatches, logits_at: Callable[[Mixture, Tensor], Tensor], say: Say
) -> bool:
    """Returns whether names are those of other nodes; takes a note where they are, and where features cannot tell.

    Args:
        fitted: of the run.
        met: the nodes that have names of the run's.
        logits_at: returns the logits of some nodes by the members that read features, [a, k].
        say: takes the note.
    """
    if not met.known:
        return False
    targets, alone, there = fitted.targets.cpu(), fitted.without(LabelPropagationFit), met.labels_at >= 0
    k = fitted.members[0].fitted.n_classes
    found = ((there & (targets == c)).nonzero().flatten() for c in range(k))
    labels = torch.cat([some[:: max(1, math.ceil(some.numel() / MOST))] for some in found])
    counts = torch.bincount(targets[labels], minlength=k)
    if alone is not None and int(counts.min()) >= FEWEST:
        own = _area(targets[labels], alone.own_logits.cpu()[labels])
        few, rest = float(counts.min()), float(counts.sum() - counts.min())
        error = math.sqrt((few + rest + 1) / (12 * few * rest))  # of the smallest class against the rest
        if own >= 0.5 + TELLING * error:
            area = _area(targets[labels], logits_at(alone, met.labels_at[labels]))
            others = area < 0.5 + CHANCE * error
            if others:
                say(OTHERS.format(met.known, met.n, area, own))
            return others
    say(UNSURE.format(met.known, met.n))
    return False


def _area(targets: Tensor, logits: Tensor) -> float:
    """Returns the area under the ROC curve, of many classes the mean of each one against the rest."""
    return float(auroc(targets, logits.double().softmax(1)))
