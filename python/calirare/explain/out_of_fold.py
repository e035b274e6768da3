"""Nodes that stood for the rest in training without having a label: explained as models say that did not learn them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calirare.explain.explainable_model import ExplainableModel, Shares

UNLEARNT = "not taken for the rest"  # what a drawn node's log-odds gain where it is left out of training
NOTE = (
    "labels: the class 'none, drawn' is of nodes without a label that stood for the rest in training; P(rare) of such "
    "a node is by models that did not learn it"
)


class OutOfFold(ExplainableModel):
    """A detector as it would speak of each drawn node had that node not been drawn.

    What leaving it out adds to its log-odds is taken as the same whatever else is changed: an explanation starts from
    the P(rare) that tables show, and says of labels, edges and features what the detector says.

    Args:
        model: the detector.
        labelled: nodes it was trained on, int64 [m].
        drawn: which of them were drawn, bool [m].
        own_log_odds: of the trained nodes by models without them, float64 [m]; None: as `model` leaves them out.
    """

    def __init__(self, model: ExplainableModel, labelled: Tensor, drawn: Tensor, own_log_odds: Tensor | None) -> None:
        self.model, self.labelled, self.notes = model, labelled, (*model.notes, NOTE)
        self.places = {int(node): place for place, node in enumerate(labelled.tolist()) if bool(drawn[place])}
        self.own = own_log_odds

    def _shift(self, nodes: Tensor) -> Tensor:
        """Returns what is added to the log-odds of nodes, float64 [n]: 0 of those that were not drawn."""
        out = torch.zeros(nodes.numel(), dtype=torch.float64)
        where = [i for i, node in enumerate(nodes.tolist()) if node in self.places]
        if where:
            chosen = nodes[where]
            out[where] = self._own(chosen) - self.model.log_odds(chosen)
        return out

    def _own(self, nodes: Tensor) -> Tensor:
        """Returns the log-odds of drawn nodes by models without them, float64 [n]."""
        places = torch.tensor([self.places[node] for node in nodes.tolist()])
        if self.own is not None:
            return self.own[places].double()
        return self.model.without_each_label(nodes)[places, torch.arange(nodes.numel())]

    def log_odds(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.log_odds`."""
        return self.model.log_odds(nodes) + self._shift(nodes)

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`; a drawn node has no label of its own to be left out."""
        shift = self._shift(nodes)
        out, own = self.model.without_each_label(nodes) + shift, self.model.log_odds(nodes) + shift
        for i, node in enumerate(nodes.tolist()):
            if node in self.places:
                out[self.places[node], i] = own[i]
        return out

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`; that a node was not learned is a share of its own."""
        found = self.model.shares(nodes)
        if found is None:
            return None
        return Shares(found.base, (*found.names, UNLEARNT), torch.cat([found.values, self._shift(nodes)[:, None]], 1))

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        return self.model.without_edges(node, ends) + self._shift(torch.tensor([node]))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`; a set that holds the node leaves it out as the detector does."""
        out, shift = self.model.without_labels(nodes, sets), self._shift(nodes)
        for i, places in enumerate(sets):
            out[i] += torch.where(torch.isin(nodes, self.labelled[places]), 0.0, shift)
        return out

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`."""
        return self.model.with_each_label(nodes, more) + self._shift(nodes)

    def with_labels(self, nodes: Tensor, more: Tensor, y: Tensor) -> Tensor:
        """See `ExplainableModel.with_labels`."""
        return self.model.with_labels(nodes, more, y) + self._shift(nodes)
