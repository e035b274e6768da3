"""Networks of PyTorch Geometric's layers that prepare once what no parameter changes."""

from __future__ import annotations

import abc
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare_ext import Csr, propagate

Prepared = Tensor | Csr  # what the first layer's linear map reads
SPARSE_BELOW = 0.2  # share of features that are not zero, from which a dense product is faster


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


class PreparedNetwork(nn.Module, abc.ABC):
    """Two layers, each with its edges; what no parameter changes is prepared once, the rest is done at every step."""

    @abc.abstractmethod
    def prepared(self, x: Tensor, edges: Tensor) -> Prepared:
        """Returns what no parameter changes."""

    @abc.abstractmethod
    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        """Returns logits [n, k] from what was prepared and the edges of each layer."""

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Returns logits [n, k] of features [n, d] and edge_index [2, m]."""
        return self.from_prepared(self.prepared(x, edges), edges, edges)


class OnPrepared(nn.Module):
    """A network that is called with what it has prepared, again and again."""

    def __init__(self, network: PreparedNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Prepared, edges: Tensor) -> Tensor:
        """Returns logits [n, k]."""
        return self.network.from_prepared(inputs, edges, edges)


class GAT(PreparedNetwork):
    """Attention heads with ELU, then one head."""

    def __init__(self, n_features: int, n_classes: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        self.dropout = dropout
        self.first = GATConv(n_features, hidden, heads=heads, dropout=dropout)
        self.second = GATConv(hidden * heads, n_classes, heads=1, concat=False, dropout=dropout)

    def prepared(self, x: Tensor, edges: Tensor) -> Tensor:
        """Returns what no parameter changes: the features."""
        return _torch_sparse(x) if _is_sparse(x) else x

    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        """See `PreparedNetwork.from_prepared`."""
        assert isinstance(inputs, Tensor)
        hidden = F.elu(self.attended(inputs, first))
        return self.second(F.dropout(hidden, self.dropout, self.training), second)

    def attended(self, inputs: Tensor, edges: Tensor) -> Tensor:
        """Returns what the heads of the first layer say, [n, heads * hidden]."""
        return self.first(_dropped(inputs, self.dropout, self.training), edges)


class GIN(PreparedNetwork):
    """Two GIN layers, each with a perceptron of one hidden layer."""

    def __init__(
        self, n_features: int, n_classes: int, hidden: int, dropout: float, *, batch_norm: bool = False
    ) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv

        self.dropout = dropout

        def norm() -> nn.Module:
            return nn.BatchNorm1d(hidden) if batch_norm else nn.Identity()

        def perceptron(d: int, k: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(d, hidden), norm(), nn.ReLU(), nn.Linear(hidden, k))

        self.first, self.second = GINConv(perceptron(n_features, hidden)), GINConv(perceptron(hidden, n_classes))
        self.norm = norm()

    def prepared(self, x: Tensor, edges: Tensor) -> Prepared:
        """Returns what no parameter changes: each node's features and its neighbours' added up."""
        from torch_geometric.nn import GINConv

        return _compact(GINConv(nn.Identity()).to(x.device)(x, edges))

    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        """See `PreparedNetwork.from_prepared`."""
        linear, *rest = self.first.nn
        hidden = F.relu(self.norm(nn.Sequential(*rest)(_linear(linear, inputs))))
        return self.second(F.dropout(hidden, self.dropout, self.training), second)


class SAGE(PreparedNetwork):
    """The neighbours' mean beside the node itself, twice."""

    def __init__(self, n_features: int, n_classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.dropout = dropout
        self.first = nn.Linear(2 * n_features, hidden)  # of the neighbours' mean and of the node itself
        self.second = SAGEConv(hidden, n_classes)

    def prepared(self, x: Tensor, edges: Tensor) -> Prepared:
        """Returns what no parameter changes: the mean of each node's neighbours beside its own features."""
        from torch_geometric.nn import MeanAggregation

        mean = MeanAggregation()(x[edges[0]], edges[1], dim_size=x.shape[0])
        return _compact(torch.cat([mean, x], 1))

    def from_prepared(self, inputs: Prepared, first: Tensor, second: Tensor) -> Tensor:
        """See `PreparedNetwork.from_prepared`."""
        hidden = F.relu(_linear(self.first, inputs))
        return self.second(F.dropout(hidden, self.dropout, self.training), second)
