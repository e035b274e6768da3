"""Nodes sampled as negatives in training, which have no label: explained by models that were not trained on them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calirare.explain.explainable_model import ExplainableModel, Shares, difference

NOT_SAMPLED = (
    "not sampled as a node that is not rare"  # what a sampled node's log-odds gain where it is left out of training
)
NOTE = (
    "labels: 'none, drawn' marks unlabelled nodes that were sampled for training as not rare; models without them give "
    "their P(rare)"
)


class OutOfFold(ExplainableModel):
    """A detector of two classes, with each sampled node scored as if that node had not been sampled.

    What leaving it out adds to its log-odds is taken as the same whatever else is changed: an explanation starts from
    the P(rare) that tables show, and effects of labels, edges and features are the detector's.

    Args:
        model: the detector.
        labelled: nodes it was trained on, int64 [m].
        sampled: which of them were sampled as negatives, bool [m].
        own_log_odds: of the trained nodes by models without them, float64 [m]; None: as `model` leaves them out.
    """

    def __init__(self, model: ExplainableModel, labelled: Tensor, sampled: Tensor, own_log_odds: Tensor | None) -> None:
        self.model, self.labelled, self.notes, self.label_work = model, labelled, model.notes, model.label_work
        self.places = {int(node): place for place, node in enumerate(labelled.tolist()) if bool(sampled[place])}
        self.own = own_log_odds

    @property
    def label_notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `ExplainableModel`."""
        return *self.model.label_notes, NOTE

    def _shift(self, nodes: Tensor) -> Tensor:
        """Returns what is added to the logits of nodes, 0 of those that were not sampled, float64 [n, 2]."""
        out = torch.zeros(nodes.numel(), 2, dtype=torch.float64)
        where = [i for i, node in enumerate(nodes.tolist()) if node in self.places]
        if where:
            chosen = nodes[where]
            out[where, 1] = self._own(chosen) - difference(self.model.logits(chosen))
        return out

    def _own(self, nodes: Tensor) -> Tensor:
        """Returns the log-odds of sampled nodes by models without them, float64 [n]."""
        places = torch.tensor([self.places[node] for node in nodes.tolist()])
        if self.own is not None:
            return self.own[places].double()
        return difference(self.model.without_each_label(nodes)[places, torch.arange(nodes.numel())])

    def logits(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.logits`."""
        return self.model.logits(nodes) + self._shift(nodes)

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`; a sampled node has no label of its own to be left out."""
        shift = self._shift(nodes)
        out, own = self.model.without_each_label(nodes) + shift, self.model.logits(nodes) + shift
        for i, node in enumerate(nodes.tolist()):
            if node in self.places:
                out[self.places[node], i] = own[i]
        return out

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`; that a node was not trained on is a share of its own."""
        found = self.model.shares(nodes)
        if found is None:
            return None
        values = torch.cat([found.values, self._shift(nodes)[:, None]], 1)
        return Shares(found.base, (*found.names, NOT_SAMPLED), values)

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        return self.model.without_edges(node, ends) + self._shift(torch.tensor([node]))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`; a set that holds the node leaves it out as the detector does."""
        out, shift = self.model.without_labels(nodes, sets), self._shift(nodes)
        for i, places in enumerate(sets):
            out[i] += torch.where(torch.isin(nodes, self.labelled[places])[:, None], 0.0, shift)
        return out

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`."""
        return self.model.with_each_label(nodes, more) + self._shift(nodes)
