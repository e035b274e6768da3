"""A trained graph convolutional network with its labels; the one place where network, weights and field meet."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from calirare._util.arrays import brief
from calirare._util.torch_state import threads_for
from calirare.curvature import GcnLinearisation, linearise
from calirare.graph import Graph, LazyPropagation, check_nodes
from calirare.graph.arrays import matrix_named, named_tensors
from calirare.graph.labelled import check_training_labels
from calirare.models.crossfit import class_weights, cross_entropy, labels_at
from calirare.models.fitted import FittedNetwork, State
from calirare.models.gcn import GCN, Shapes
from calirare_ext import Csr, Factored, Inputs, ReceptiveField, as_matrix, multiply_adds


@dataclass(frozen=True, eq=False)
class GcnFit(FittedNetwork):
    """A trained graph convolutional network with the labels it was trained on.

    Attributes:
        model: the network, in evaluation mode.
        field: receptive field of the labelled nodes.
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m], mean 1.
        weight_decay: mu of the penalty mu / 2 |theta|^2.
        losses: training loss of each epoch (with dropout, without penalty).
    """

    model: GCN
    field: ReceptiveField
    targets: Tensor
    sample_weights: Tensor
    weight_decay: float
    losses: tuple[float, ...] = ()

    __repr__ = brief

    @property
    def nodes(self) -> Tensor:  # type: ignore[override]  # the field's own
        """The labelled nodes, int64 [m]."""
        return self.field.nodes

    @property
    def hops(self) -> int:
        """How far its inputs reach, in edges."""
        return self.model.hops

    @property
    def epochs(self) -> int:
        """See `Fitted.epochs`."""
        return len(self.losses)

    @property
    def chosen(self) -> dict[str, Any]:
        """See `Fitted.chosen`."""
        return {"epochs": max(self.epochs, 1), "weight_decay": self.weight_decay, "hops": self.hops}

    def parameters(self) -> list[nn.Parameter]:
        """Returns the parameters in the order W_1, b_1, .., W_L, b_L."""
        return [part for layer in zip(self.model.weights, self.model.biases, strict=True) for part in layer]

    def __post_init__(self) -> None:
        """Checks labels, weights and weight decay."""
        check_training_labels("GcnFit", self.nodes.numel(), self.targets, self.sample_weights, self.weight_decay)

    def linearise(self, first: Tensor | None = None) -> GcnLinearisation:
        """Returns the network linearised at its labelled nodes; `first` as in `calirare_ext.record`."""
        with threads_for(step_work(self.field, self.model.hidden)):
            return linearise(self.field, self.model.layers(), self.targets, self.sample_weights, first=first)

    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `FittedNetwork.evaluation_field`; of all nodes without a copy of anything. In the network's dtype."""
        if graph is None:
            raise ValueError("graph must be given with a GCN, got None")
        kept = self.model.propagation(graph)
        if nodes is not None:
            check_nodes("evaluation_field", nodes, graph.n_nodes)
            return kept.field(nodes, self.model.n_layers)
        every = torch.arange(graph.n_nodes, device=graph.device)
        return ReceptiveField((every,) * self.model.n_layers, kept.features, (kept.a_hat,) * (self.model.n_layers - 1))

    def scoring_field(self, graph: Graph | None, nodes: Tensor | None = None) -> ReceptiveField:
        """See `Fitted.scoring_field`; of all nodes of a large graph X W is propagated, never X."""
        kept = None if graph is None or nodes is not None else self.model.propagation(graph)
        if graph is None or not isinstance(kept, LazyPropagation):
            return self.evaluation_field(graph, nodes)
        every = (torch.arange(graph.n_nodes, device=graph.device),) * self.model.n_layers
        return ReceptiveField(every, Factored(kept.a_hat, kept.x), (kept.a_hat,) * (self.model.n_layers - 1))

    def logits_at(self, field: ReceptiveField) -> Tensor:
        """See `FittedNetwork.logits_at`."""
        with torch.no_grad():
            return self.model(field)

    def logits_at_labels(self) -> Tensor:
        """See `FittedNetwork.logits_at_labels`."""
        return self.logits_at(self.field)

    @property
    def shapes(self) -> Shapes:
        """Shapes of each layer's weight and bias."""
        return [(weight.shape, bias.shape) for weight, bias in self.model.layers()]

    @torch.no_grad()
    def objective(self, theta: Tensor) -> tuple[float, Tensor]:
        """See `FittedNetwork.objective`; without automatic differentiation, the model stays as it is."""
        here = self.linearised_at(theta)
        loss = cross_entropy(here.logits, self.targets, self.sample_weights)
        loss = loss + self.weight_decay / 2 * theta.square().sum()
        return loss.item(), here.loss_gradient().add_(theta, alpha=self.weight_decay)

    def linearised_at(self, theta: Tensor) -> GcnLinearisation:
        """See `FittedNetwork.linearised_at`; the model stays as it is."""
        return linearise(self.field, unflatten(theta, self.shapes), self.targets, self.sample_weights)

    def gradient_norm(self) -> float:
        """See `FittedNetwork.gradient_norm`; without automatic differentiation."""
        linearised = self.linearisation
        assert isinstance(linearised, GcnLinearisation)
        return float((linearised.loss_gradient() + self.weight_decay * self.theta).norm())

    def as_dtype(self, graph: Graph | None, dtype: torch.dtype) -> Self:
        """See `FittedNetwork.as_dtype`."""
        if graph is None:
            raise ValueError("as_dtype: graph must be given with a GCN, got None")
        model = copy.deepcopy(self.model).to(dtype)
        field = model.propagation(graph).field(self.nodes, model.n_layers)
        return replace(self, model=model, field=field, sample_weights=self.sample_weights.to(dtype))

    def state(self) -> State:
        """See `Fitted.state`."""
        tensors = {name: value.detach() for name, value in self.model.state_dict().items()}
        tensors |= {"targets": self.targets, "sample_weights": self.sample_weights}
        tensors |= {f"rows.{i}": rows for i, rows in enumerate(self.field.rows)}
        features, matrices = self.field.features, {f"blocks.{i}": b for i, b in enumerate(self.field.blocks)}
        parts = {"first": features.a, "inputs": features.x} if isinstance(features, Factored) else {"inputs": features}
        for name, matrix in (parts | matrices).items():
            tensors |= named_tensors(name, as_matrix(matrix))
        facts = {"model": self.model.settings, "weight_decay": self.weight_decay, "losses": list(self.losses)}
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` was taken from.

        Raises:
            LookupError, ValueError, TypeError, RuntimeError: something is missing or does not fit.
        """
        model = GCN.of(facts["model"]).to(tensors["weights.0"].dtype)
        n_layers = model.n_layers
        model.load_state_dict({k: v for k, v in tensors.items() if k.startswith(("weights.", "biases."))})
        rows = tuple(tensors[f"rows.{i}"] for i in range(n_layers))
        blocks = tuple(cast(Csr, matrix_named(tensors, f"blocks.{i}")) for i in range(n_layers - 1))
        features: Inputs = matrix_named(tensors, "inputs")
        if "first.indptr" in tensors:
            features = Factored(cast(Csr, matrix_named(tensors, "first")), features)
        field = ReceptiveField(rows, features, blocks)
        decay, losses = float(facts["weight_decay"]), tuple(facts["losses"])
        return cls(model, field, tensors["targets"], tensors["sample_weights"], decay, losses)


def of_network(
    model: GCN,
    graph: Graph,
    nodes: Tensor,
    weight_decay: float,
    sample_weights: Tensor | None = None,
    field: ReceptiveField | None = None,
) -> GcnFit:
    """Returns a network together with labelled nodes of a graph: their receptive field and weights.

    Args:
        model: the network, trained or not.
        graph: the graph with labels.
        nodes: labelled nodes, int64 [m].
        weight_decay: mu.
        sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
        field: receptive field of the nodes; None: made of the graph.

    Raises:
        TypeError, ValueError: there is no node, or the nodes are not distinct labelled nodes of the graph.
    """
    check_nodes("fit", nodes, graph.n_nodes)
    if nodes.numel() == 0:
        raise ValueError("fit: nodes must name at least one labelled node, got none")
    targets = labels_at(graph, nodes)
    if sample_weights is None:
        sample_weights = class_weights(targets, model.n_classes)[targets]
    first = model.weights[0]
    if field is None:
        field = model.propagation(graph).field(nodes, model.n_layers)
    return GcnFit(model, field, targets, sample_weights.to(first), weight_decay)


def unflatten(theta: Tensor, shapes: Shapes) -> list[tuple[Tensor, Tensor]]:
    """Returns a vector [p] as weight and bias of each layer; W_1, b_1, .., W_L, b_L, row-major."""
    sizes = [math.prod(shape) for pair in shapes for shape in pair]
    parts = torch.split(theta, sizes)
    return [(parts[2 * i].view(*w), parts[2 * i + 1].view(*b)) for i, (w, b) in enumerate(shapes)]


def step_work(field: ReceptiveField, hidden: int) -> int:
    """Returns the multiply-adds of one forward pass, about."""
    return max(hidden, 1) * (multiply_adds(field.features) + sum(block.nnz for block in field.blocks))
