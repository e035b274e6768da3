"""`hops`: a perceptron, or a linear model, on a node's hop columns, with every closed form of a graph convolution.

A graph convolution whose propagation is the identity is a perceptron, so leave-one-out, Gram forms and intervals are
those of `GcnFit`, and nothing is derived again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.models.columns import HopColumns
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network
from calirare.models.gcn_training import GcnTraining
from calirare.training import State, prefixed, unprefixed
from calirare_ext import ReceptiveField


@dataclass(frozen=True, eq=False, kw_only=True)
class HopsFit(GcnFit):
    """A perceptron on hop columns with its labels; attributes as of `GcnFit`.

    Attributes:
        columns: what it reads of a graph.
    """

    columns: HopColumns

    @property
    def hops(self) -> int:
        """See `GcnFit.hops`."""
        return self.columns.hops

    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `Fitted.evaluation_field`."""
        return super().evaluation_field(None if graph is None else self.columns.of(graph), nodes)

    def as_dtype(self, graph: Graph | None, dtype: torch.dtype) -> Self:
        """See `FittedNetwork.as_dtype`."""
        return super().as_dtype(None if graph is None else self.columns.of(graph), dtype)

    def state(self) -> State:
        """See `Fitted.state`."""
        (tensors, facts), (more, how) = super().state(), self.columns.state()
        return tensors | prefixed("columns", more), facts | {"columns": how}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """See `GcnFit.from_state`."""
        columns = HopColumns.from_state(unprefixed("columns", tensors), facts["columns"])
        return cls(**_values(GcnFit.from_state(tensors, facts)), columns=columns)


@dataclass(frozen=True)
class HopsTraining(GcnTraining):
    """How a perceptron on hop columns is trained; settings as of `GcnTraining`.

    Attributes:
        n_layers: 1 is a linear model (logistic regression).
        hops: how far the columns reach, see `HopColumns`; 0: a node's own features alone.
        columns: fitted columns to read; None: fitted on the graph.
    """

    hidden: int = 64
    hops: int = 2
    columns: HopColumns | None = None

    low_hops: ClassVar[int] = 0

    def start(self, graph: Graph, nodes: Tensor, sample_weights: Tensor | None = None) -> HopsFit:
        """See `GcnTraining.start`."""
        columns = HopColumns.fit(graph, self.hops, self.seed) if self.columns is None else self.columns
        view = columns.of(graph)
        model = self.network(view.n_features, graph.n_classes).to(graph.device)
        start = of_network(model, view, nodes, self.weight_decay, sample_weights)
        return HopsFit(**_values(start), columns=columns)

    def network(self, n_features: int, n_classes: int) -> GCN:
        """See `GcnTraining.network`; nothing is propagated in it."""
        return self._network(n_features, n_classes, hops=0)


def _values(fitted: GcnFit) -> dict[str, Any]:
    return {field.name: getattr(fitted, field.name) for field in fields(GcnFit)}
