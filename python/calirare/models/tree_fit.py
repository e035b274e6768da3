"""`trees` and `forest`: boosted and randomised trees on a node's hop columns, with their folds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from calirare.graph import Graph, check_nodes
from calirare.models.columns import HopColumns
from calirare.models.tree_growth import Labels
from calirare.models.trees import TreesModel, TreesTraining
from calirare.training import FoldFitted, State, prefixed, unprefixed


@dataclass(frozen=True, eq=False)
class ColumnField:
    """Nodes with the columns that are read of them.

    Attributes:
        nodes: int64 [n].
        columns: float32 [n, d].
    """

    nodes: Tensor
    columns: Tensor


@dataclass(frozen=True, eq=False)
class TreesFit(FoldFitted):
    """Trees with the labels they were grown on.

    Attributes:
        trees: what was learned.
        columns: what it reads of a graph.
        nodes: the labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        in_sample: logits of the labelled nodes, float64 [m, k].
    """

    trees: TreesModel
    columns: HopColumns
    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    in_sample: Tensor

    @property
    def fold(self) -> Tensor:  # type: ignore[override]  # the trees' own
        """See `FoldFitted`."""
        return torch.from_numpy(self.trees.fold).to(self.nodes.device)

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        return torch.from_numpy(self.trees.own_logits).to(self.nodes.device)

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`."""
        return [nodes] if graph is None else self.columns.parts_of(graph, nodes)

    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ColumnField:
        """See `Fitted.evaluation_field`."""
        if graph is None:
            raise ValueError("graph must be given with trees, got None")
        if nodes is None:
            x = self.columns.of(graph).x
            assert isinstance(x, Tensor)
            return ColumnField(torch.arange(graph.n_nodes, device=x.device), x)
        check_nodes("evaluation_field", nodes, graph.n_nodes)
        return ColumnField(nodes, self.columns.at(graph, nodes))

    def logits_at(self, field: ColumnField) -> Tensor:
        """See `Fitted.logits_at`; float64."""
        return torch.from_numpy(self.trees.logits(field.columns.cpu().numpy())).to(field.nodes.device)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.in_sample

    def logits_without_folds(self, field: ColumnField) -> Tensor:
        """See `FoldFitted.logits_without_folds`."""
        return torch.from_numpy(self.trees.logits_without(field.columns.cpu().numpy())).to(field.nodes.device)

    def state(self) -> State:
        """See `Fitted.state`."""
        (trees, grown), (columns, how) = self.trees.state(), self.columns.state()
        own = {name: getattr(self, name) for name in ("nodes", "targets", "sample_weights", "in_sample")}
        return prefixed("trees", trees) | prefixed("columns", columns) | own, {"trees": grown, "columns": how}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` told."""
        trees = TreesModel.from_state(unprefixed("trees", tensors), facts["trees"])
        columns = HopColumns.from_state(unprefixed("columns", tensors), facts["columns"])
        names = ("nodes", "targets", "sample_weights", "in_sample")
        return cls(trees, columns, *(tensors[name] for name in names))


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
        """Of folds and trees."""
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
        return TreesFit(grown, columns, nodes, graph.y[nodes], weights, in_sample)

    def read(self, graph: Graph, nodes: Tensor) -> tuple[HopColumns, Labels]:
        """Returns the columns, and what they say of labelled nodes: arguments and errors of `fit`."""
        if graph.y is None or bool((graph.y[nodes] < 0).any()):
            raise ValueError(f"fit: nodes must be labelled, but one of graph {graph.name!r} has no label")
        columns = HopColumns.fit(graph, self.hops, self.seed, nodes) if self.columns is None else self.columns
        rows, targets = columns.at(graph, nodes).cpu().numpy(), graph.y[nodes].cpu().numpy()
        return columns, self.growing.labels_of(rows, targets, graph.n_classes)
