"""`trees` and `forest`: boosted and randomised trees on a node's hop columns, with their folds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.graph import Graph
from calirare.models.column_fit import ColumnFit, labelled_rows
from calirare.models.columns import HopColumns
from calirare.models.tree_growth import Labels
from calirare.models.trees import TreesModel, TreesTraining


@dataclass(frozen=True, eq=False)
class TreesFit(ColumnFit):
    """Trees with the labels they were grown on; attributes as of `ColumnFit`.

    Attributes:
        in_sample: logits of the labelled nodes, float64 [m, k].
        trees: what was learned.
    """

    in_sample: Tensor
    trees: TreesModel

    @property
    def fold(self) -> Tensor:  # type: ignore[override]  # the trees' own
        """See `FoldFitted`."""
        return torch.from_numpy(self.trees.fold).to(self.nodes.device)

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        return torch.from_numpy(self.trees.own_logits).to(self.nodes.device)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.in_sample

    def row_logits(self, rows: NumpyArray) -> NumpyArray:
        """See `ColumnFit.row_logits`."""
        return self.trees.logits(rows)

    def row_logits_without_folds(self, rows: NumpyArray) -> NumpyArray:
        """See `ColumnFit.row_logits_without_folds`."""
        return self.trees.logits_without(rows)

    def side_by_side(self) -> Self:
        """See `ColumnFit.side_by_side`: the trees were grown in parallel, on a thread each."""
        ensemble = replace(self.trees.all_labels, threads=torch.get_num_threads())
        return replace(self, trees=replace(self.trees, all_labels=ensemble))


@dataclass(frozen=True)
class TreesDetector:
    """How trees are grown on a graph.

    Attributes:
        growing: how they are grown on columns.
        hops: how far the columns reach, see `HopColumns`.
        columns: fitted columns to read; None: fitted on the graph.
        labels: what the columns say of the nodes to be fitted, read before; None: `fit` reads it.
    """

    growing: TreesTraining = field(default_factory=TreesTraining)
    hops: int = 2
    columns: HopColumns | None = None
    labels: Labels | None = None

    @property
    def seed(self) -> int:
        """Seed of folds and trees."""
        return self.growing.seed

    def fit(self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None) -> TreesFit:
        """Grows trees on labelled nodes of a graph.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            sample_weights: w_i [m]; None: see `TreesTraining.label_weights`.

        Raises:
            ValueError: a node has no label.
        """
        columns, labels = self.read(graph, nodes) if self.labels is None else (self.columns, self.labels)
        assert columns is not None
        assert graph.y is not None
        weights = sample_weights
        if weights is None:
            weights = self.growing.label_weights(graph.y[nodes], graph.n_classes)
        grown = self.growing.fit(labels.weighed(weights.double().cpu().numpy()))
        in_sample = torch.from_numpy(grown.logits(labels.columns)).to(graph.device)
        return TreesFit(columns, nodes, graph.y[nodes], weights, in_sample, grown)

    def read(self, graph: Graph, nodes: Tensor) -> tuple[HopColumns, Labels]:
        """Returns the columns, and what they say of labelled nodes: arguments and errors of `fit`."""
        columns, x, y = labelled_rows(graph, nodes, self.columns, self.hops, self.seed)
        return columns, self.growing.labels_of(x.cpu().numpy(), y.cpu().numpy(), graph.n_classes)
