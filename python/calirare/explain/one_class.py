"""A detector of many classes as one of a class and the rest: what it says of P(class) in its log-odds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calirare.calibration import Calibrator
from calirare.explain.explainable_model import ExplainableModel, Shares, two_columns
from calirare.explain.shares import passed_on


class OneClass(ExplainableModel):
    """One class against the rest, as the calibrated probabilities of a detector of k > 2 classes have it.

    What it says is the log-odds of P(class) under the calibration map, log P(class) - log(1 - P(class)), so that no
    map is left to be applied.

    Args:
        model: the detector on the graph, which says logits.
        mapping: of the logits of all classes; None: there is no map.
        of: the class, in [0, k).
    """

    def __init__(self, model: ExplainableModel, mapping: Calibrator | None, of: int) -> None:
        self.model, self.mapping, self.of = model, mapping, of

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # those of the detector, which may come later
        """See `ExplainableModel`."""
        return self.model.notes

    def prepare(self, nodes: Tensor) -> None:
        """See `ExplainableModel.prepare`."""
        self.model.prepare(nodes)

    def log_odds(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.log_odds`."""
        return self._told(self.model.log_odds(nodes))

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self._told(self.model.without_each_label(nodes))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        return self._told(self.model.without_labels(nodes, sets))

    def probabilities_without(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """Returns P of every class of nodes without each of s sets of labels, float64 [s, n, k]."""
        return probabilities(self.model.without_labels(nodes, sets), self.mapping)

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        return self._told(self.model.without_edges(node, ends))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`: a label would be of any class, and that is not told."""
        raise NotImplementedError("OneClass.with_each_label: a label more is told of two classes alone")

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: those of all logits, each by how far it moves the log-odds of the class."""
        own = self.model.shares(nodes)
        if own is None:
            return None
        found = passed_on(own, lambda logits: self._told(logits)[..., None])
        return Shares(found.base[:, 0], found.names, found.values[:, :, 0])

    def _told(self, logits: Tensor) -> Tensor:
        """Returns the log-odds of P(class) by logits [.., k], float64 [..]."""
        return class_log_odds(probabilities(logits, self.mapping), self.of)


class TwoLogits(ExplainableModel):
    """A model of two classes that says logits, 0 and its log-odds, [.., 2] for [..].

    Args:
        model: of two classes.
    """

    def __init__(self, model: ExplainableModel) -> None:
        self.model, self.notes = model, model.notes

    def prepare(self, nodes: Tensor) -> None:
        """See `ExplainableModel.prepare`."""
        self.model.prepare(nodes)

    def log_odds(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.log_odds`."""
        return two_columns(self.model.log_odds(nodes))

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return two_columns(self.model.without_each_label(nodes))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        return two_columns(self.model.without_labels(nodes, sets))

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        return two_columns(self.model.without_edges(node, ends))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`."""
        return two_columns(self.model.with_each_label(nodes, more))

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`."""
        own = self.model.shares(nodes)
        return None if own is None else Shares(two_columns(own.base), own.names, two_columns(own.values))


def probabilities(logits: Tensor, mapping: Calibrator | None) -> Tensor:
    """Returns probabilities [.., k] of logits [.., k] under a calibration map; None: there is no map. float64."""
    flat = logits.double().reshape(-1, logits.shape[-1])
    p = flat.softmax(1) if mapping is None or not len(flat) else mapping.transform(flat)
    return p.reshape(logits.shape)


def class_log_odds(p: Tensor, of: int) -> Tensor:
    """Returns log P(class) - log(sum of the others) of probabilities [.., k], finite, float64 [..].

    What is left of 1 is added up of the others: of a class that is next to certain no digit is lost.
    """
    rest = torch.cat([p[..., :of], p[..., of + 1 :]], -1).sum(-1)
    tiny = torch.finfo(torch.float64).tiny
    return p[..., of].clamp(min=tiny).log() - rest.clamp(min=tiny).log()
