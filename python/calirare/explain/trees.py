"""Trees: labels are left out by leaf values made again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.explain.column_edges import SharedColumns
from calirare.explain.columns import ExplainableColumns
from calirare.explain.explainable_model import Shares
from calirare.explain.shares import tree_shares
from calirare.explain.tree_labels import REFITS, BoostedLabels, ForestLabels, TreeLabels
from calirare.explain.tree_leaves import REPRODUCED, Leaves, leaves_of
from calirare.explain.words import with_words
from calirare.graph import Graph, default_names
from calirare.models import TREE_SHRINKAGE, TreesFit

FIXED = (
    "effects of labels on trees are approximate: the trees keep their form, and the values in their leaves are made "
    "again without the label"
)
STRONGEST = "effects of labels on trees: with so many labels, only the strongest are worked out in full"
FOREIGN = (
    "label effects of trees are rough: the stored leaf values could not be reproduced, as another version of LightGBM "
    "samples differently"
)


class ExplainableTrees(ExplainableColumns):
    """Boosted trees, or a forest, on hop columns of one graph.

    Args:
        fitted: the trees.
        graph: as the detector takes it.
        shared: hop columns that other detectors of an average read too; None: nobody does.
    """

    fitted: TreesFit

    def __init__(self, fitted: TreesFit, graph: Graph, shared: SharedColumns | None = None) -> None:
        super().__init__(fitted, graph, shared)
        self._own = graph if shared is None else shared.own
        self.label_work = 10.0 * min(fitted.trees.rounds * len(fitted.nodes) ** 2, REFITS)

    @cached_property
    def labels(self) -> TreeLabels:
        """What leaves them out."""
        return tree_labels(self.fitted, self.fitted.columns.at(self._own, self.fitted.nodes).cpu().numpy())

    @property
    def label_notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `ExplainableModel`."""
        notes = (FIXED, *(() if self.labels.exact else (STRONGEST,)))
        return notes + ((FOREIGN,) if self.labels.error > REPRODUCED else ())

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self._after(nodes, self.labels.change(self._leaves(nodes)))

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: TreeSHAP."""
        names = self.fitted.columns.scaled.feature_names
        shares = tree_shares(self.fitted, self._columns(nodes), names, self.logits(nodes))
        return with_words(shares, self.graph.feature_names or default_names(self.graph.n_features))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        places = [each.cpu().numpy() for each in sets]
        return self._after(nodes, self.labels.change_without(self._leaves(nodes), places))

    def _leaves(self, nodes: Tensor) -> NumpyArray:
        """Returns the leaves that nodes lie in, int64 [T, n]."""
        return leaves_of(self.fitted, self._columns(nodes))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`: splits stay, and a label moves only the leaves it lies in."""
        return self._after(nodes, self.labels.change_with(self._leaves(more), self._leaves(nodes)))

    def _after(self, nodes: Tensor, change: NumpyArray) -> Tensor:
        return self.logits(nodes) + torch.from_numpy(change).to(nodes.device)


def tree_labels(fitted: TreesFit, columns: NumpyArray) -> TreeLabels:
    """Returns the labels of trees, by their columns [m, d]."""
    ensemble, k = fitted.trees.all_labels, fitted.n_classes
    if ensemble.kind == "boosting":
        return BoostedLabels(Leaves.from_trees(fitted, columns))
    classes = (1,) if k == 2 else range(k)
    smallest = TREE_SHRINKAGE / (ensemble.weight + TREE_SHRINKAGE)
    return ForestLabels([Leaves.from_trees(fitted, columns, c) for c in classes], smallest)
