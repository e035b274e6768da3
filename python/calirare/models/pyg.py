"""GAT (Velickovic et al. 2017), GIN (Xu et al. 2018), GraphSAGE (Hamilton et al. 2017) with a cost-sensitive loss.

The parameters are those of PyTorch Geometric's layers, what is added up over edges are our products. Its import takes
seconds and is done inside the functions.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.torch_state import DrawnFrom
from calirare.graph import Graph
from calirare.models.module_fit import ModuleFit, pyg_inputs
from calirare.models.pyg_networks import GAT, GIN, SAGE, OnPrepared, Prepared, PreparedNetwork, around, whole
from calirare.training import Loss, class_weights, cross_entropy


@dataclass(frozen=True, kw_only=True)
class PygTraining(abc.ABC):
    """How a network of PyTorch Geometric's layers is trained; each with its published settings for citation graphs.

    Attributes:
        epochs: gradient steps on all labelled nodes.
        learning_rate: of Adam.
        weight_decay: of Adam.
        hidden: width of the layers; of GAT units per head.
        dropout: of the hidden layer; of GAT of inputs and attention.
        seed: of the weights and the dropout.

    Raises:
        ValueError: a setting is out of range.
    """

    epochs: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    hidden: int = 64
    dropout: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks ranges."""
        for name in ("epochs", "hidden"):
            self._check_at_least_one(name)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"{type(self).__name__}: dropout must be in [0, 1), got {self.dropout}")

    def _check_at_least_one(self, name: str) -> None:
        if getattr(self, name) < 1:
            raise ValueError(f"{type(self).__name__}: {name} must be at least 1, got {getattr(self, name)}")

    @abc.abstractmethod
    def network(self, n_features: int, n_classes: int) -> PreparedNetwork:
        """Returns an untrained network: forward(x [n, d], edge_index [2, m]) gives logits [n, k]."""

    @property
    def whole_graph(self) -> bool:
        """Whether every step reads all nodes, and not those alone that reach the loss."""
        return False

    def fit(
        self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None, loss: Loss = cross_entropy
    ) -> ModuleFit:
        """Trains a network with class weights inverse to class share.

        Args:
            graph: the graph with labels.
            nodes: labelled nodes to train on, int64 [m].
            sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
            loss: of logits [m, k], targets int64 [m] and the weights of each node [m].

        Returns:
            The network with its labels: `logits()` of every node, and what `calirare.jackknife` takes. Its model is
            called with what the first layer prepares once; `model.network(x, edge_index)` is the network itself. The
            same settings give the same network.

        Raises:
            ValueError: a node has no label.
        """
        if graph.y is None or bool((graph.y[nodes] < 0).any()):
            raise ValueError(f"fit: nodes must be labelled, but one of graph {graph.name!r} has no label")
        x, edges = pyg_inputs(graph)
        targets = graph.y[nodes]
        weights = class_weights(targets, graph.n_classes)[targets] if sample_weights is None else sample_weights
        weights = weights.to(x)
        draws = torch.Generator().manual_seed(self.seed)
        with DrawnFrom(draws):
            model = self.network(graph.n_features, graph.n_classes).to(graph.device)
        steps = Steps(model, x, edges, nodes, lambda logits: loss(logits, targets, weights), self)
        steps.take(self.epochs, draws)
        inputs = model.prepared(whole(x, edges))
        return ModuleFit(OnPrepared(model).eval(), inputs, nodes, targets, weights, self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class GatTraining(PygTraining):
    """GAT: heads of `hidden` units with ELU, then one head.

    Attributes:
        heads: of the first layer.
    """

    learning_rate: float = 0.005
    hidden: int = 8
    dropout: float = 0.6
    heads: int = 8

    def __post_init__(self) -> None:
        """Checks ranges."""
        super().__post_init__()
        self._check_at_least_one("heads")

    def network(self, n_features: int, n_classes: int) -> PreparedNetwork:
        """See `PygTraining.network`."""
        return GAT(n_features, n_classes, self.hidden, self.heads, self.dropout)


@dataclass(frozen=True, kw_only=True)
class GinTraining(PygTraining):
    """GIN: two layers, each with a perceptron of one hidden layer.

    Attributes:
        batch_norm: after every hidden linear map, as in its authors' code; over all nodes of the graph.
    """

    batch_norm: bool = False

    def network(self, n_features: int, n_classes: int) -> PreparedNetwork:
        """See `PygTraining.network`."""
        return GIN(n_features, n_classes, self.hidden, self.dropout, batch_norm=self.batch_norm)

    @property
    def whole_graph(self) -> bool:
        """With batch normalisation."""
        return self.batch_norm


@dataclass(frozen=True, kw_only=True)
class SageTraining(PygTraining):
    """GraphSAGE: two layers of the neighbours' mean beside the node itself."""

    def network(self, n_features: int, n_classes: int) -> PreparedNetwork:
        """See `PygTraining.network`."""
        return SAGE(n_features, n_classes, self.hidden, self.dropout)


class Steps:
    """A network in training: the gradient steps on the nodes that reach the loss, two edges around a label.

    Args:
        model: the network, moved in place.
        x: features of all nodes, [n, d].
        edges: edge_index of the graph.
        nodes: the nodes whose logits the loss reads, int64 [m].
        loss: of their logits [m, k].
        settings: of the training.
    """

    def __init__(
        self,
        model: PreparedNetwork,
        x: Tensor,
        edges: Tensor,
        nodes: Tensor,
        loss: Callable[[Tensor], Tensor],
        settings: PygTraining,
    ) -> None:
        self.model, self.loss, self.device = model, loss, x.device
        self.near = everywhere(model, x, edges, nodes) if settings.whole_graph else near(model, x, edges, nodes)
        self.optimiser = torch.optim.Adam(
            model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def take(self, steps: int, draws: torch.Generator | None = None) -> None:
        """Takes some steps; dropout draws from the generator, None: from torch's own."""
        self.model.train()
        with nullcontext() if draws is None else self.model.drawing(draws, self.device):
            for _ in range(steps):
                self.optimiser.zero_grad()
                self.loss(self.near.logits(self.model)).backward()
                self.optimiser.step()

    def mean_squares(self) -> Tensor:
        """Returns the mean square of each parameter's gradient, penalty included, as Adam holds it, float32 [p]."""
        _, decay = self.optimiser.param_groups[0]["betas"]
        held = [self.optimiser.state[p] for p in self.model.parameters()]
        return torch.cat([(each["exp_avg_sq"] / (1 - decay ** float(each["step"]))).flatten() for each in held])


@dataclass(frozen=True, eq=False)
class Near:
    """What a network reads to tell the logits of some nodes.

    Attributes:
        inputs: what it prepared.
        rows: places of the nodes among those that it tells, int64 [m].
    """

    inputs: Prepared
    rows: Tensor

    def logits(self, model: PreparedNetwork) -> Tensor:
        """Returns the nodes' logits, [m, k]."""
        return model.from_prepared(*self.inputs)[self.rows]


def everywhere(model: PreparedNetwork, x: Tensor, edges: Tensor, nodes: Tensor) -> Near:
    """Returns what a network reads of a whole graph to tell the logits of some nodes."""
    return Near(model.prepared(whole(x, edges)), nodes)


def near(model: PreparedNetwork, x: Tensor, edges: Tensor, nodes: Tensor) -> Near:
    """Returns what a network reads around some nodes, two edges far."""
    distinct, rows = torch.unique(nodes, return_inverse=True)
    return Near(model.prepared(around(x, edges, distinct)), rows)
