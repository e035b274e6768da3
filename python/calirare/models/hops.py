"""`hops`: a perceptron, or a linear model, on a node's hop columns, with every closed form of a graph convolution.

A graph convolution whose propagation is the identity is a perceptron, so leave-one-out, Gram forms and intervals are
those of `GcnFit`, and nothing is derived again.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from calirare.graph import Graph, check_nodes
from calirare.models.columns import HopColumns
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network
from calirare.models.gcn_training import GcnTraining
from calirare.models.horner import first_layer
from calirare.training import Progress, State, prefixed, unprefixed
from calirare_ext import Csr, ReceptiveField, as_dense, as_matrix, receptive_field


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

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`."""
        return [nodes] if graph is None else self.columns.parts_of(graph, nodes)

    def logits_of(
        self, graph: Graph | None, nodes: Tensor | None = None, *, progress: Progress | None = None
    ) -> Tensor:
        """See `Fitted.logits_of`; of all nodes of a large graph by Horner's scheme, where columns have affine maps."""
        (weight, bias), *later = self.model.layers()
        if graph is None or nodes is not None or weight.dtype != torch.float32 or not self.columns.blockwise(graph):
            return super().logits_of(graph, nodes, progress=progress)
        with torch.no_grad():
            z = first_layer(self.columns.rows(graph), self.columns.scaled, weight, bias)
            if z is None:
                return super().logits_of(graph, nodes, progress=progress)
            for weight, bias in later:
                z = torch.addmm(bias, z.relu_(), weight)
        return z

    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `Fitted.evaluation_field`."""
        if graph is not None and nodes is not None and self.columns.blockwise(graph):
            check_nodes("evaluation_field", nodes, graph.n_nodes)
            return column_field(self.columns, graph, nodes, self.model)
        return super().evaluation_field(None if graph is None else self.columns.of(graph), nodes)

    def scoring_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `Fitted.scoring_field`."""
        return self.evaluation_field(graph, nodes)

    def as_dtype(self, graph: Graph | None, dtype: torch.dtype) -> Self:
        """See `FittedNetwork.as_dtype`; what is read of the labelled nodes is only stored otherwise."""
        field = self.field
        kept = ReceptiveField(field.rows, as_matrix(field.features).to(dtype), tuple(b.to(dtype) for b in field.blocks))
        model = copy.deepcopy(self.model).to(dtype)
        return replace(self, model=model, field=kept, sample_weights=self.sample_weights.to(dtype))

    def without_constant(self, constant: float) -> Self:
        """Returns the same perceptron on the columns alone: what a constant last column added is in its biases."""
        field, model = self.field, free_of_constant(self.model, constant)
        alone = as_dense(field.features)[:, :-1].contiguous()
        return replace(self, model=model, field=ReceptiveField(field.rows, alone, field.blocks))

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
        constant: number of one more column, the same for every node; 0: none. Its weights do what the biases of the
            first layer do at a penalty 1 / constant^2 as large; `HopsFit.without_constant` makes biases of them, and
            only then can other nodes than the labelled be asked about.

    Raises:
        ValueError: a setting is out of range.
    """

    hidden: int = 64
    hops: int = 2
    columns: HopColumns | None = None
    constant: float = 0.0

    low_hops: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Checks ranges."""
        super().__post_init__()
        if not 0 <= self.constant < math.inf:
            raise ValueError(f"HopsTraining: constant must be finite and at least 0, got {self.constant}")

    def start(self, graph: Graph, nodes: Tensor, sample_weights: Tensor | None = None) -> HopsFit:
        """See `GcnTraining.start`."""
        columns = HopColumns.fit(graph, self.hops, self.seed, nodes) if self.columns is None else self.columns
        model = self.network(columns.n_features + bool(self.constant), graph.n_classes).to(graph.device)
        alone = columns.blockwise(graph) or self.constant
        field = column_field(columns, graph, nodes, model, self.constant) if alone else None
        view = graph if field is not None else columns.of(graph)
        start = of_network(model, view, nodes, self.weight_decay, sample_weights, field)
        return HopsFit(**_values(start), columns=columns)

    def network(self, n_features: int, n_classes: int) -> GCN:
        """See `GcnTraining.network`; nothing is propagated in it."""
        return self._network(n_features, n_classes, hops=0)


def free_of_constant(model: GCN, constant: float) -> GCN:
    """Returns a copy of a perceptron without its last column, a constant; see `HopsTraining.constant`."""
    free = copy.deepcopy(model)
    with torch.no_grad():
        free.biases[0] += constant * free.weights[0][-1]
        free.weights[0] = torch.nn.Parameter(free.weights[0][:-1].clone())
    return free


def column_field(columns: HopColumns, graph: Graph, nodes: Tensor, model: GCN, constant: float = 0.0) -> ReceptiveField:
    """Returns what a perceptron reads of some nodes (distinct, int64 [m]), their columns made for them alone."""
    below, place = torch.unique(nodes, return_inverse=True)
    m, dtype = below.numel(), model.weights[0].dtype
    if m < nodes.numel():
        raise ValueError(f"receptive_field: nodes must be distinct, got {nodes.numel()} ids with repetitions")
    x = columns.at(graph, below).to(dtype)
    if constant:
        x = torch.cat([x, x.new_full((m, 1), constant)], 1)
    every = torch.arange(m + 1, device=x.device)
    identity = Csr.unchecked(every, every[:-1].to(torch.int32), x.new_ones(m), m)
    local = receptive_field(identity, x, place, model.n_layers)
    return ReceptiveField(tuple(below[rows] for rows in local.rows), local.features, local.blocks)


def _values(fitted: GcnFit) -> dict[str, Any]:
    return {field.name: getattr(fitted, field.name) for field in fields(GcnFit)}
