"""`hops`: a perceptron, or a linear model, on a node's hop columns, with every closed form of a graph convolution.

A graph convolution whose propagation is the identity is a perceptron, so leave-one-out, Gram forms and intervals are
those of `GcnFit`, and nothing is derived again.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.models.columns import HopColumns
from calirare.models.fitted import State, prefixed, unprefixed
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network
from calirare.models.gcn_training import GcnTraining
from calirare_ext import Csr, ReceptiveField, as_matrix, field_of_propagated


@dataclass(frozen=True, eq=False, kw_only=True)
class MlpFit(GcnFit):
    """A perceptron on hop columns with its labels; attributes as of `GcnFit`.

    Attributes:
        columns: what it reads of a graph.
    """

    columns: HopColumns = field()

    def logits_of_columns(self, columns: Tensor) -> Tensor:
        """See `Fitted.logits_of_columns`."""
        return perceptron(self.model, columns)

    def reading(self, columns: HopColumns) -> Self:
        """See `Fitted.reading`."""
        return replace(self, columns=columns)

    @property
    def hops(self) -> int:
        """See `GcnFit.hops`."""
        return self.columns.hops

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`."""
        return [nodes] if graph is None else self.columns.parts_of(graph, nodes)

    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `Fitted.evaluation_field`."""
        if graph is not None and nodes is not None and self.columns.blockwise(graph):
            return column_field(self.columns, graph, nodes, self.model)
        return super().evaluation_field(None if graph is None else self.columns.of(graph), nodes)

    def scoring_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `Fitted.scoring_field`."""
        return self.evaluation_field(graph, nodes)

    def as_dtype(self, graph: Graph | None, dtype: torch.dtype) -> Self:
        """See `FittedNetwork.as_dtype`; what is read of the labelled nodes is only stored otherwise."""
        own = self.field
        kept = ReceptiveField(own.rows, as_matrix(own.features).to(dtype), tuple(b.to(dtype) for b in own.blocks))
        model = copy.deepcopy(self.model).to(dtype)
        return replace(self, model=model, field=kept, sample_weights=self.sample_weights.to(dtype))

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
class MlpTraining(GcnTraining):
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

    def start(self, graph: Graph, nodes: Tensor, sample_weights: Tensor | None = None) -> MlpFit:
        """See `GcnTraining.start`."""
        columns = HopColumns.fit(graph, self.hops, self.seed, nodes) if self.columns is None else self.columns
        model = self.network(columns.n_features, graph.n_classes).to(graph.device)
        read = column_field(columns, graph, nodes, model) if columns.blockwise(graph) else None
        view = graph if read is not None else columns.of(graph)
        start = of_network(model, view, nodes, self.weight_decay, sample_weights, read)
        return MlpFit(**_values(start), columns=columns)


@torch.no_grad()
def perceptron(model: GCN, rows: Tensor) -> Tensor:
    """Returns the logits of a network without propagation at rows of its inputs, [b, d] -> [b, k]."""
    (weight, bias), *later = model.layers()
    z = torch.addmm(bias, rows.to(weight), weight)
    for weight, bias in later:
        z = torch.addmm(bias, z.relu_(), weight)
    return z


def column_field(columns: HopColumns, graph: Graph, nodes: Tensor, model: GCN) -> ReceptiveField:
    """Returns what a perceptron reads of some nodes (distinct, int64 [m]), their columns made for them alone."""
    below, place = torch.unique(nodes, return_inverse=True)
    m, dtype = below.numel(), model.weights[0].dtype
    if m < nodes.numel():
        raise ValueError(f"receptive_field: nodes must be distinct, got {nodes.numel()} ids with repetitions")
    x = columns.at(graph, below).to(dtype)
    every = torch.arange(m + 1, device=x.device)
    identity = Csr.unchecked(every, every[:-1].to(torch.int32), x.new_ones(m), m)
    local = field_of_propagated(identity, x, place, model.n_layers)
    return ReceptiveField(tuple(below[rows] for rows in local.rows), local.features, local.blocks)


def _values(fitted: GcnFit) -> dict[str, Any]:
    return {each.name: getattr(fitted, each.name) for each in fields(GcnFit)}
