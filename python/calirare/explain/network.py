"""One network: labels are left out in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from calirare.explain.column_edges import SharedColumns
from calirare.explain.explainable_model import FEW, ExplainableModel, Kept, Shares
from calirare.explain.network_edges import ConvolutionEdges
from calirare.explain.network_labels import NetworkLabels, label_work, network_labels
from calirare.explain.network_shares import NetworkShares, closed_form_shares
from calirare.explain.removal import Rows
from calirare.explain.words import with_words
from calirare.graph import Graph, default_names
from calirare.leave_one_out import Agreement, OwnLogits, choose_damping, closed_form_fits
from calirare.models import FoldedNetwork, GcnFit
from calirare_ext import ReceptiveField

FIRST_ORDER = (
    "effects of labels on networks are approximate: nothing is trained again, and the scaling of columns, the weights "
    "of the models and the calibrator stay as they are"
)

DOUBT = "effects of labels on this model are rough: the approximation disagrees with cross-validation"
TOO_DEEP = "features: no contributions, since they are only available for networks of up to two layers"


class ExplainableNetwork(ExplainableModel):
    """A graph convolution, or a perceptron on hop columns, on one graph; its labels are left out by a Newton step.

    Args:
        fitted: the network.
        graph: as the network takes it.
        damping: of the leave-one-out step; None: the weight decay.
        shared: hop columns that other detectors of an average read too; None: nobody does.
        folds: the same network with its folds, where it has them: with them the damping is chosen.
        name: what a note calls it.
    """

    def __init__(
        self,
        fitted: GcnFit,
        graph: Graph,
        damping: float | None = None,
        shared: SharedColumns | None = None,
        folds: FoldedNetwork | None = None,
        name: str = "",
    ) -> None:
        self.fitted, self.graph, self.columns = fitted, graph, None
        self._network, self._damping, self._folds, self._name = fitted, damping or fitted.weight_decay, folds, name
        self.label_work = label_work(fitted)
        self._fields = Kept[ReceptiveField]()
        self._known = Rows(graph.n_nodes, fitted.n_classes, self._logits)
        if fitted.columns is not None:
            self.columns = (shared or SharedColumns(graph)).of(fitted.columns)
            self.fitted = fitted.reading(self.columns.columns)
        self.notes = () if closed_form_shares(fitted) else (TOO_DEEP,)

    @cached_property
    def agreed(self) -> Agreement | None:
        """How well leave-one-out agrees with the folds; None without folds, or with too many labels to look."""
        return None if self._folds is None else agreement_of(self._network, self._folds.own_logits)

    @property
    def _doubted(self) -> bool:
        """Whether folds do not confirm leave-one-out."""
        return self._folds is not None and (self.agreed is None or self.agreed.verdict == "do not trust")

    @cached_property
    def labels(self) -> NetworkLabels:
        """What leaves them out, at the damping at which leave-one-out agrees with the folds."""
        damping = self._damping if self.agreed is None or self._doubted else self.agreed.damping
        return network_labels(self._network, damping)

    @property
    def label_notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `ExplainableModel`."""
        return (FIRST_ORDER, f"{self._name}: {DOUBT}") if self._doubted else (FIRST_ORDER,)

    @property
    def expensive(self) -> bool:  # type: ignore[override]
        """See `ExplainableModel`."""
        return self.labels.expensive

    def logits(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.logits`."""
        return self._known[nodes]

    def _logits(self, nodes: Tensor) -> Tensor:
        """Returns the logits of nodes, of few by the field that is needed elsewhere too."""
        few = nodes.numel() <= FEW
        return self.fitted.logits_at(self._field(nodes)) if few else self.fitted.logits_of(self.graph, nodes)

    def _field(self, nodes: Tensor) -> ReceptiveField:
        """Returns what the network reads at nodes."""
        return self._fields.of(nodes, lambda some: self.fitted.evaluation_field(self.graph, some))

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self.logits(nodes) + self.labels.change(self._field(nodes))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        return self.logits(nodes) + self.labels.change_without(self._field(nodes), sets)

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`: weights and features stay as they are."""
        own, other = self._field(nodes), self._field(more)
        return self.logits(nodes) + self.labels.change_with(own, other, self.logits(more))

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: integrated gradients."""
        if not closed_form_shares(self.fitted):
            return None
        shares = self._shares.at(self._field(nodes))
        if self.columns is None:
            return shares
        return with_words(shares, self.graph.feature_names or default_names(self.graph.n_features))

    @cached_property
    def _shares(self) -> NetworkShares:
        """The graph as the network reads it, and what of the shares is the same for all nodes."""
        return NetworkShares(self.fitted, self.graph if self.columns is None else self.columns.columns.of(self.graph))

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        base = self.logits(torch.tensor([node]))
        if self.columns is None:
            return base + self._convolution.effect(node, ends)
        if not self.columns.columns.hops:
            return base.repeat(len(ends), 1)
        z = self.fitted.logits_of_columns(self.columns.with_and_without(node, ends)).double()
        return base + z[1:] - z[0]

    @cached_property
    def _convolution(self) -> ConvolutionEdges:
        """What a graph convolution recomputes without an edge."""
        return ConvolutionEdges(self.fitted, self.graph)


def explainable_folds(folded: FoldedNetwork, graph: Graph, name: str, shared: SharedColumns) -> ExplainableNetwork:
    """Returns a network with folds."""
    name = name or ("gcn" if folded.columns is None else "hops")
    return ExplainableNetwork(folded.network, graph, None, shared, folded, name)


def agreement_of(network: GcnFit, own_logits: Tensor) -> Agreement | None:
    """Returns the damping at which leave-one-out agrees best with the networks without each fold, and how well.

    None where there are too many labels and parameters to look.

    Args:
        network: the network with its labels.
        own_logits: of each label by the network without its fold, float64 [m, k].
    """
    if not closed_form_fits(network.linearisation):
        return None
    own, everyone = OwnLogits(network.linearisation), torch.ones_like(network.targets, dtype=torch.bool)
    return choose_damping(own, network.weight_decay, own_logits, everyone, network.sample_weights)
