"""Whether nodes that have names of the run's are the run's nodes, where labels nearby tell of them.

Spread labels know a node by its name in any graph, as an account keeps its number from month to month. Where nodes were
numbered anew, or another bank numbers its own, the same names are those of others, and their labels tell nothing. By
their features the two are told apart: what the other detectors say of the labelled nodes in the scored graph has the
order of the labels, about as well as what they say in the run's own graph without each label, or none at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.metrics import auroc
from calirare.models import Mixture, SpreadingFit
from calirare.training import Fitted

Say = Callable[[str], None]
FEWEST = 5  # labelled nodes of a class that are known by name, for an answer
MOST = 1_000  # of a class that are asked about
LEAST = 0.02  # weight of spread labels in the average, from which they matter
CHANCE = 2.0  # standard errors above one half up to which an area is chance: names are those of others
TELLING = 4.0  # standard errors above one half from which on the run's own area tells of its nodes
OTHERS = (
    "{:,} of {:,} nodes have names of the run's nodes but are taken for others: their features order the labels of "
    "these names with an area of {:.2f} under the ROC curve, in the run's own graph of {:.2f}; labels nearby are left "
    "out"
)
UNSURE = (
    "{:,} of {:,} nodes are taken for the run's, whose names they have, and labels nearby tell of them; features "
    "cannot tell whether they are the same: where nodes were numbered anew, give them other names"
)


def acquainted(fitted: Fitted, graph: Graph, say: Say) -> Fitted:
    """Returns a detector that knows the nodes of its training graph in another one, or none if they are others.

    Args:
        fitted: of the run.
        graph: another graph, or the run's own, as the detector takes it.
        say: takes a note where the nodes are others, or might be.
    """
    spread = _spreading(fitted) if isinstance(fitted, Mixture) else None
    places = None if spread is None or spread.known.edges else spread.known.places_in(graph)
    if spread is None or places is None or not (places >= 0).any():  # by equal edges they are the same
        return fitted
    assert isinstance(fitted, Mixture)
    known, n = int((places >= 0).sum()), graph.n_nodes
    at = torch.full((spread.known.n_nodes,), -1)
    at[torch.from_numpy(places[places >= 0])] = torch.from_numpy((places >= 0).nonzero()[0])
    labels = _some(at[spread.nodes.cpu()] >= 0, spread.targets.cpu(), spread.n_classes)
    counts = torch.bincount(spread.targets.cpu()[labels], minlength=spread.n_classes)
    alone, nodes = fitted.without(SpreadingFit), at[spread.nodes.cpu()[labels]]
    if alone is None or int(counts.min()) < FEWEST:
        say(UNSURE.format(known, n))
        return fitted
    targets = spread.targets.cpu()[labels]
    own = _area(targets, alone.own_logits.cpu()[labels])
    error = _error(counts)
    if own < 0.5 + TELLING * error:
        say(UNSURE.format(known, n))
        return fitted
    here = _area(targets, alone.logits_of(graph, nodes).cpu())
    if here >= 0.5 + CHANCE * error:
        return fitted
    say(OTHERS.format(known, n, here, own))
    return fitted.knowing_nobody()


def _spreading(fitted: Mixture) -> SpreadingFit | None:
    heard = (m.fitted for m in fitted.members if m.weight >= LEAST)
    return next((each for each in heard if isinstance(each, SpreadingFit)), None)


def _some(there: Tensor, targets: Tensor, k: int) -> Tensor:
    """Returns the places of labels that are there, at most `MOST` of each class, spread over them."""
    found = ((there & (targets == c)).nonzero().flatten() for c in range(k))
    return torch.cat([some[:: max(1, math.ceil(some.numel() / MOST))] for some in found])


def _area(targets: Tensor, logits: Tensor) -> float:
    """Returns the area under the ROC curve, of many classes the mean of each one against the rest."""
    return float(auroc(targets, logits.double().softmax(1)))


def _error(counts: Tensor) -> float:
    """Returns the standard error of an area of one half, of the smallest class against the rest."""
    few, rest = float(counts.min()), float(counts.sum() - counts.min())
    return math.sqrt((few + rest + 1) / (12 * few * rest))
