"""GAT (Velickovic et al. 2017), GIN (Xu et al. 2018), GraphSAGE (Hamilton et al. 2017) with a cost-sensitive loss.

The layers are PyTorch Geometric's, which is imported inside the functions: its import takes seconds.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.models.module_fit import ModuleFit, pyg_inputs
from calirare.training import Loss, class_weights, cross_entropy
from calirare_ext import Csr, propagate

Kind = Literal["gat", "gin", "sage"]
Prepared = Tensor | Csr  # what the first layer's linear map reads
DEFAULTS = {"gat": (0.005, 8, 0.6), "gin": (0.01, 64, 0.5), "sage": (0.01, 64, 0.5)}
SPARSE_BELOW = 0.2  # share of features that are not zero, from which a dense product is faster


@dataclass(frozen=True)
class PygTraining:
    """How a network of PyTorch Geometric's layers is trained; each network's published settings for citation graphs.

    Attributes:
        kind: "gat": 8 heads of 8 units with ELU, then one head; "gin": two GIN layers, each with a perceptron of one
            hidden layer; "sage": two layers of the neighbours' mean beside the node itself.
        epochs: gradient steps on all labelled nodes.
        learning_rate: of Adam; None: .005 (GAT), .01 (GIN, SAGE).
        weight_decay: of Adam.
        hidden: units per head (GAT) or width of the layers (GIN, SAGE); None: 8 (GAT), 64 (GIN, SAGE).
        heads: heads of the first GAT layer.
        dropout: of inputs and attention (GAT) or of the hidden layer (GIN, SAGE); None: .6 (GAT), .5 (GIN, SAGE).
        batch_norm: of GIN: after every hidden linear map, as in its authors' code; over all nodes of the graph.
        seed: of the weights and the dropout.

    Raises:
        ValueError: a setting is out of range.
    """

    kind: Kind
    epochs: int = 200
    learning_rate: float | None = None
    weight_decay: float = 5e-4
    hidden: int | None = None
    heads: int = 8
    dropout: float | None = None
    batch_norm: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks ranges and fills in what depends on the kind."""
        if self.kind not in DEFAULTS:
            raise ValueError(f"PygTraining: kind must be one of {', '.join(DEFAULTS)}, got {self.kind!r}")
        own = DEFAULTS[self.kind]
        for name, default in zip(("learning_rate", "hidden", "dropout"), own, strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        for name in ("epochs", "hidden", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"PygTraining: {name} must be at least 1, got {getattr(self, name)}")
        assert self.dropout is not None
        if self.batch_norm and self.kind != "gin":
            raise ValueError(f"PygTraining: batch_norm must be False with {self.kind}, got True: it is of gin")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"PygTraining: dropout must be in [0, 1), got {self.dropout}")

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
        with torch.random.fork_rng(devices=[graph.device] if graph.device.type == "cuda" else []):
            torch.manual_seed(self.seed)
            model = network(self, graph.n_features, graph.n_classes).to(graph.device)
            _train(model, x, edges, nodes, lambda logits: loss(logits, targets, weights), self)
            inputs = (model.prepared(x, edges), edges)
        return ModuleFit(_OnPrepared(model).eval(), inputs, nodes, targets, weights, self.weight_decay)


def network(settings: PygTraining, n_features: int, n_classes: int) -> _Network:
    """Returns an untrained network: forward(x [n, d], edge_index [2, m]) gives logits [n, k]."""
    kinds: dict[Kind, type[_GAT] | type[_GIN] | type[_SAGE]] = {"gat": _GAT, "gin": _GIN, "sage": _SAGE}
    return kinds[settings.kind](settings, n_features, n_classes)


def _train(
    model: _Network,
    x: Tensor,
    edges: Tensor,
    nodes: Tensor,
    loss: Callable[[Tensor], Tensor],
    settings: PygTraining,
) -> None:
    """Takes the gradient steps on the nodes that reach the loss: two edges around a label; all with batch_norm."""
    from torch_geometric.utils import k_hop_subgraph

    if settings.batch_norm:
        inputs, first, second, rows = model.prepared(x, edges), edges, edges, nodes
    else:
        near, edges, rows, _ = k_hop_subgraph(nodes, 2, edges, relabel_nodes=True, num_nodes=x.shape[0])
        inputs = model.prepared(x[near], edges)
        second = edges[:, torch.isin(edges[1], rows)]
        first = edges[:, torch.isin(edges[1], torch.cat([rows, second[0]]))]
    assert settings.learning_rate is not None
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    for _ in range(settings.epochs):
        optimiser.zero_grad()
        loss(model.from_prepared(inputs, first, second)[rows]).backward()
        optimiser.step()


def _is_sparse(x: Tensor) -> bool:
    return bool(x.count_nonzero() <= SPARSE_BELOW * x.numel())


def _compact(x: Tensor) -> Prepared:
    """Returns x as a Csr where that saves work, which keeps what its backward pass needs; torch's makes it anew."""
    return Csr.from_dense(x) if _is_sparse(x) else x


def _torch_sparse(x: Tensor) -> Tensor:
    """Returns x as torch's sparse tensor, which the linear map inside PyG's layers takes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


def _linear(layer: nn.Linear, x: Prepared) -> Tensor:
    """Returns x W^T + b."""
    return propagate(x, layer.weight.T) + layer.bias if isinstance(x, Csr) else layer(x)


def _dropped(x: Tensor, dropout: float, training: bool) -> Tensor:
    """Returns dropout of x; of a sparse x its entries: zeros stay what they are."""
    if x.layout == torch.strided:
        return F.dropout(x, dropout, training)
    values = F.dropout(x.values(), dropout, training)
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)


class _Network(nn.Module, abc.ABC):
    """Two layers, each with its edges; what no parameter changes is prepared once, the rest is done at every step."""

    @abc.abstractmethod
    def prepared(self, x: Tensor, edges: Tensor) -> Prepared: ...

    @abc.abstractmethod
    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor: ...

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.from_prepared(self.prepared(x, edges), edges, edges)


class _OnPrepared(nn.Module):
    """A network that is called with what it has prepared, again and again."""

    def __init__(self, network: _Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Prepared, edges: Tensor) -> Tensor:
        return self.network.from_prepared(inputs, edges, edges)


class _GAT(_Network):
    def __init__(self, settings: PygTraining, n_features: int, n_classes: int) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        assert settings.hidden is not None
        assert settings.dropout is not None
        self.dropout = settings.dropout
        self.first = GATConv(n_features, settings.hidden, heads=settings.heads, dropout=settings.dropout)
        width = settings.hidden * settings.heads
        self.second = GATConv(width, n_classes, heads=1, concat=False, dropout=settings.dropout)

    def prepared(self, x: Tensor, edges: Tensor) -> Tensor:
        """Returns what no parameter changes: the features."""
        return _torch_sparse(x) if _is_sparse(x) else x

    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        assert isinstance(inputs, Tensor)
        hidden = F.elu(self.first(_dropped(inputs, self.dropout, self.training), first))
        return self.second(F.dropout(hidden, self.dropout, self.training), second)


class _GIN(_Network):
    def __init__(self, settings: PygTraining, n_features: int, n_classes: int) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv

        assert settings.hidden is not None
        assert settings.dropout is not None
        self.dropout, h = settings.dropout, settings.hidden

        def perceptron(d: int, k: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(d, h), self._norm(settings), nn.ReLU(), nn.Linear(h, k))

        self.first, self.second = GINConv(perceptron(n_features, h)), GINConv(perceptron(h, n_classes))
        self.norm = self._norm(settings)

    @staticmethod
    def _norm(settings: PygTraining) -> nn.Module:
        assert settings.hidden is not None
        return nn.BatchNorm1d(settings.hidden) if settings.batch_norm else nn.Identity()

    def prepared(self, x: Tensor, edges: Tensor) -> Prepared:
        """Returns what no parameter changes: each node's features and its neighbours' added up."""
        from torch_geometric.nn import GINConv

        return _compact(GINConv(nn.Identity())(x, edges))

    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        linear, *rest = self.first.nn
        hidden = F.relu(self.norm(nn.Sequential(*rest)(_linear(linear, inputs))))
        return self.second(F.dropout(hidden, self.dropout, self.training), second)


class _SAGE(_Network):
    def __init__(self, settings: PygTraining, n_features: int, n_classes: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        assert settings.hidden is not None
        assert settings.dropout is not None
        self.dropout = settings.dropout
        self.first = nn.Linear(2 * n_features, settings.hidden)  # of the neighbours' mean and of the node itself
        self.second = SAGEConv(settings.hidden, n_classes)

    def prepared(self, x: Tensor, edges: Tensor) -> Prepared:
        """Returns what no parameter changes: the mean of each node's neighbours beside its own features."""
        from torch_geometric.nn import MeanAggregation

        mean = MeanAggregation()(x[edges[0]], edges[1], dim_size=x.shape[0])
        return _compact(torch.cat([mean, x], 1))

    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        hidden = F.relu(_linear(self.first, inputs))
        return self.second(F.dropout(hidden, self.dropout, self.training), second)
