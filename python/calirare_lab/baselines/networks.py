"""GAT (Velickovic et al. 2018) and GIN (Xu et al. 2019) with a cost-sensitive loss, as the paper compares with them.

The layers are PyTorch Geometric's. Its import takes seconds and is done inside the functions.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.models import Loss, ModuleFit, class_weights, cross_entropy, pyg_inputs


class GAT(nn.Module):
    """Attention heads with ELU, then one head.

    Args:
        n_features: d.
        n_classes: k.
        hidden: units of each head.
        heads: of the first layer.
        dropout: of the inputs of both layers and of the attention.
    """

    def __init__(self, n_features: int, n_classes: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        self.dropout = dropout
        self.first: Any = GATConv(n_features, hidden, heads=heads, dropout=dropout)
        self.second: Any = GATConv(hidden * heads, n_classes, heads=1, concat=False, dropout=dropout)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Returns logits [n, k] of features [n, d] and edge_index [2, m]."""
        hidden = F.elu(self.first(self.dropped(x), edges))
        return self.second(self.dropped(hidden), edges)

    def dropped(self, x: Tensor) -> Tensor:
        """Returns x after dropout, which is off in evaluation mode."""
        return F.dropout(x, self.dropout, self.training)


class GIN(nn.Module):
    """Two GIN layers, each with a perceptron of one hidden layer.

    Args:
        n_features: d.
        n_classes: k.
        hidden: units of every hidden layer.
        dropout: of what the first layer returns.
        batch_norm: whether every hidden linear map is normalised over the nodes, as in the authors' code.
    """

    def __init__(self, n_features: int, n_classes: int, hidden: int, dropout: float, *, batch_norm: bool) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv

        def norm() -> nn.Module:
            return nn.BatchNorm1d(hidden) if batch_norm else nn.Identity()

        def perceptron(d: int, k: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(d, hidden), norm(), nn.ReLU(), nn.Linear(hidden, k))

        self.dropout = dropout
        self.first: Any = GINConv(perceptron(n_features, hidden))
        self.second: Any = GINConv(perceptron(hidden, n_classes))
        self.norm = norm()

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Returns logits [n, k] of features [n, d] and edge_index [2, m]."""
        hidden = F.relu(self.norm(self.first(x, edges)))
        return self.second(F.dropout(hidden, self.dropout, self.training), edges)


@dataclass(frozen=True, kw_only=True)
class NetworkTraining(abc.ABC):
    """How a network is trained by Adam on the whole graph; each with its published settings for citation graphs.

    Attributes:
        epochs: gradient steps on all labelled nodes.
        learning_rate: of Adam.
        weight_decay: of Adam.
        hidden: width of the layers; of GAT units per head.
        dropout: of the hidden layer; of GAT of inputs and attention.
        seed: of the weights and the dropout.
    """

    epochs: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    hidden: int = 64
    dropout: float = 0.5
    seed: int = 0

    @abc.abstractmethod
    def network(self, n_features: int, n_classes: int) -> nn.Module:
        """Returns an untrained network: forward(x [n, d], edge_index [2, m]) gives logits [n, k]."""

    def fit(
        self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None, loss: Loss = cross_entropy
    ) -> ModuleFit:
        """Trains a network; the same settings give the same network.

        Args:
            graph: the graph.
            nodes: labelled nodes to train on, int64 [m].
            sample_weights: w_i [m]; None: inverse to the share of each node's class.
            loss: of logits [m, k], targets int64 [m] and the weights of each node [m].

        Returns:
            The network with its labels.
        """
        assert graph.y is not None
        inputs, targets = pyg_inputs(graph), graph.y[nodes]
        weights = class_weights(targets, graph.n_classes)[targets] if sample_weights is None else sample_weights
        weights = weights.to(inputs[0])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = self.network(graph.n_features, graph.n_classes).to(graph.device)
            for _ in self.steps(model, inputs, nodes, lambda logits: loss(logits, targets, weights)):
                pass
        return ModuleFit(model.eval(), inputs, nodes, targets, weights, self.weight_decay)

    def steps(
        self, model: nn.Module, inputs: tuple[Any, ...], nodes: Tensor, loss: Callable[[Tensor], Tensor]
    ) -> Iterator[int]:
        """Yields the number of every epoch, from 1, after its step.

        Args:
            model: the network, changed in place.
            inputs: what it is called with.
            nodes: those whose logits the loss takes, int64 [m].
            loss: of these logits, [m, k].
        """
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        for epoch in range(1, self.epochs + 1):
            model.train()
            optimiser.zero_grad()
            loss(model(*inputs)[nodes]).backward()
            optimiser.step()
            yield epoch


@dataclass(frozen=True, kw_only=True)
class GatTraining(NetworkTraining):
    """GAT: heads of `hidden` units with ELU, then one head.

    Attributes:
        heads: of the first layer.
    """

    learning_rate: float = 0.005
    hidden: int = 8
    dropout: float = 0.6
    heads: int = 8

    def network(self, n_features: int, n_classes: int) -> nn.Module:
        """See `NetworkTraining.network`."""
        return GAT(n_features, n_classes, self.hidden, self.heads, self.dropout)


@dataclass(frozen=True, kw_only=True)
class GinTraining(NetworkTraining):
    """GIN: two layers, each with a perceptron of one hidden layer.

    Attributes:
        batch_norm: after every hidden linear map, as in its authors' code; over all nodes of the graph.
    """

    batch_norm: bool = False

    def network(self, n_features: int, n_classes: int) -> nn.Module:
        """See `NetworkTraining.network`."""
        return GIN(n_features, n_classes, self.hidden, self.dropout, batch_norm=self.batch_norm)
