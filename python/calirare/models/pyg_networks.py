"""Networks with the parameters of PyTorch Geometric's layers that prepare once what no parameter changes."""

from __future__ import annotations

import abc
import linecache
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.torch_state import seeded
from calirare.models.attention import Incoming, attention, weighted_sums
from calirare_ext import Csr, dropout_factors, propagate

Prepared = tuple[Any, ...]  # what a network is called with
SPARSE_BELOW = 0.2  # share of features that are not zero, from which a dense product is faster


def _is_sparse(x: Tensor) -> bool:
    return bool(x.count_nonzero() <= SPARSE_BELOW * x.numel())


def _compact(x: Tensor) -> Tensor | Csr:
    """Returns x as a Csr where that saves work, which keeps what its backward pass needs; torch's makes it anew.

    Features that require a gradient stay as they are: a Csr passes none on to its values.
    """
    return Csr.from_dense(x) if not x.requires_grad and _is_sparse(x) else x


def _linear(layer: nn.Linear, x: Tensor | Csr) -> Tensor:
    """Returns x W^T + b."""
    return propagate(x, layer.weight.T) + layer.bias if isinstance(x, Csr) else layer(x)


@dataclass(frozen=True, eq=False)
class Reach:
    """What two layers read to tell the logits of some nodes: those first, then nodes one edge away, then two.

    Attributes:
        x: features of them all, [a, d].
        first: edges into the nodes at most one edge away, int64 [2, m1].
        second: edges into the nodes themselves, int64 [2, m2].
        n_middle: number of nodes at most one edge away.
        n: number of nodes themselves.
    """

    x: Tensor
    first: Tensor
    second: Tensor
    n_middle: int
    n: int


def whole(x: Tensor, edges: Tensor) -> Reach:
    """Returns what two layers read of a whole graph, with features x [n, d] and edge_index [2, m]."""
    return Reach(x, edges, edges, x.shape[0], x.shape[0])


def around(x: Tensor, edges: Tensor, nodes: Tensor) -> Reach:
    """Returns what two layers read around some distinct nodes, int64 [m], of a graph."""
    order, into = [nodes], list[Tensor]()
    inside = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
    for _ in range(2):
        inside[order[-1]] = True
        into.append(edges[:, inside[edges[1]]])
        reached = torch.zeros_like(inside).index_fill_(0, into[-1][0], value=True)
        order.append((reached & ~inside).nonzero()[:, 0])
    nodes = torch.cat(order)
    place = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    place[nodes] = torch.arange(nodes.numel(), device=x.device)
    n = order[0].numel()
    return Reach(x[nodes], place[into[1]], place[into[0]], n + order[1].numel(), n)


def _sums(edges: Tensor, n_targets: int, n_sources: int, dtype: torch.dtype) -> Csr:
    """Returns the matrix that adds up what comes over the edges, [n_targets, n_sources]."""
    return Csr.from_coo(edges[1], edges[0], None, (n_targets, n_sources)).to(dtype)


def _means(edges: Tensor, n_targets: int, n_sources: int, dtype: torch.dtype) -> Csr:
    """Returns the matrix of the mean of what comes over the edges, 0 where none comes, [n_targets, n_sources]."""
    sums = _sums(edges, n_targets, n_sources, dtype)
    per_row = sums.indptr.diff()
    shares = (1 / per_row.to(dtype)).repeat_interleave(per_row)
    return Csr.unchecked(sums.indptr, sums.indices, shares, n_sources)


class PreparedNetwork(nn.Module, abc.ABC):
    """Two layers; what no parameter changes is prepared once, the rest is done at every step.

    Attributes:
        dropout: probability of dropping a unit while training.
        draws: what dropout on the CPU draws from; None: torch's own generator, which all threads share.
    """

    dropout: float
    draws: torch.Generator | None = None

    @abc.abstractmethod
    def prepared(self, reach: Reach) -> Prepared:
        """Returns what no parameter changes."""

    @abc.abstractmethod
    def mapped(self, *inputs: Any) -> Tensor:
        """Returns what the first linear map makes of what was prepared: affine in the features, [.., units]."""

    @abc.abstractmethod
    def after(self, mapped: Tensor, *inputs: Any) -> Tensor:
        """Returns the logits [n, k] of the nodes that were reached, from what the first linear map made."""

    def from_prepared(self, *inputs: Any) -> Tensor:
        """Returns the same from what was prepared."""
        return self.after(self.mapped(*inputs), *inputs)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Returns logits [n, k] of features [n, d] and edge_index [2, m]."""
        return self.from_prepared(*self.prepared(whole(x, edges)))

    @contextmanager
    def drawing(self, draws: torch.Generator, device: torch.device) -> Iterator[None]:
        """Lets dropout draw as a generator would for a while, whatever other threads draw meanwhile.

        On a GPU it draws as torch's own would, seeded alike, and trainings wait for each other.
        """
        if device.type != "cpu":
            with seeded(draws.initial_seed(), device):
                yield
            return
        self.draws = draws
        try:
            yield
        finally:
            self.draws = None

    def kept(self, rows: int, units: int, like: Tensor) -> Tensor:
        """Returns what dropout multiplies with, [rows, units], drawn as torch's seed rules; torch's takes longer."""
        if like.device.type != "cpu":
            return F.dropout(like.new_ones(rows, units), self.dropout)
        key = int(torch.randint(2**62, (), generator=self.draws))
        return dropout_factors(rows, units, self.dropout, key, like.dtype)

    def dropped(self, x: Tensor) -> Tensor:
        """Returns dropout of x [n, d]."""
        return x * self.kept(x.shape[0], x.shape[1], x) if self.training and self.dropout else x


class OnPrepared(nn.Module):
    """A network that is called with what it has prepared, again and again."""

    def __init__(self, network: PreparedNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Any) -> Tensor:
        """Returns logits [n, k]."""
        return self.network.from_prepared(*inputs)


@contextmanager
def no_files_left() -> Iterator[None]:
    """Removes the modules that PyTorch Geometric's layers write into the folder of passing files and read from it."""
    before = set(sys.modules)
    yield
    for name in sys.modules.keys() - before:
        path = Path(getattr(sys.modules[name], "__file__", None) or "")
        if path.parent == Path(tempfile.gettempdir()) and path.name.startswith(name):
            lines = linecache.getlines(str(path))
            linecache.cache[str(path)] = (len("".join(lines)), None, lines, str(path))  # for who looks at the source
            path.unlink(missing_ok=True)


class GAT(PreparedNetwork):
    """Attention heads with ELU, then one head."""

    def __init__(self, n_features: int, n_classes: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        self.dropout = dropout
        # Of PyTorch Geometric's layers the parameters alone, as it draws them.
        with no_files_left():
            self.first: Any = GATConv(n_features, hidden, heads=heads, dropout=dropout)
            self.second: Any = GATConv(hidden * heads, n_classes, heads=1, concat=False, dropout=dropout)

    def prepared(self, reach: Reach) -> Prepared:
        """Returns what no parameter changes: the features, where their entries are if sparse, edges of each layer."""
        x = _compact(reach.x)
        entries = Incoming(x.indptr, x.indices, x.n_cols) if isinstance(x, Csr) else None
        first = Incoming.of(reach.first, reach.n_middle, reach.x.shape[0])
        return x, entries, first, Incoming.of(reach.second, reach.n, reach.n_middle)

    def mapped(self, *inputs: Any) -> Tensor:
        """See `PreparedNetwork.mapped`."""
        x, entries, *_ = inputs
        weight = self.first.lin.weight
        if isinstance(x, Tensor):
            return self.dropped(x) @ weight.T
        values = self.dropped(x.values[:, None])  # zeros stay what they are
        return weighted_sums(entries, values, weight.T[:, None])[:, 0]

    def after(self, mapped: Tensor, *inputs: Any) -> Tensor:
        """See `PreparedNetwork.after`."""
        *_, first, second = inputs
        hidden = self.dropped(F.elu(self.attended(mapped, first)))
        return self._attended(self.second, self.second.lin(hidden), second)

    def attended(self, mapped: Tensor, edges: Incoming) -> Tensor:
        """Returns what the heads of the first layer say, [n, heads * hidden]."""
        return self._attended(self.first, mapped, edges)

    def _attended(self, layer: Any, mapped: Tensor, edges: Incoming) -> Tensor:
        """Returns what a layer says, [n, heads * units], from its linear map's, [n_sources, heads * units]."""
        heads = mapped.view(mapped.shape[0], layer.heads, layer.out_channels)
        drops = self.training and self.dropout > 0
        kept = self.kept(edges.sources.numel(), layer.heads, mapped) if drops else None
        return attention(edges, heads, layer.att_src[0], layer.att_dst[0], kept).flatten(1) + layer.bias


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

        with no_files_left():
            self.first, self.second = GINConv(perceptron(n_features, hidden)), GINConv(perceptron(hidden, n_classes))
        self.norm = norm()

    def prepared(self, reach: Reach) -> Prepared:
        """Returns what no parameter changes: each node's features and its neighbours' added up; the second sums."""
        x, n_middle = reach.x, reach.n_middle
        added = x[:n_middle] + propagate(_sums(reach.first, n_middle, x.shape[0], x.dtype), x)
        return _compact(added), _sums(reach.second, reach.n, n_middle, x.dtype)

    def mapped(self, *inputs: Any) -> Tensor:
        """See `PreparedNetwork.mapped`."""
        return _linear(self.first.nn[0], inputs[0])

    def after(self, mapped: Tensor, *inputs: Any) -> Tensor:
        """See `PreparedNetwork.after`."""
        _, sums = inputs
        hidden = F.relu(self.norm(self.first.nn[1:](mapped)))
        hidden = self.dropped(hidden)
        return self.second.nn(hidden[: sums.n_rows] + propagate(sums, hidden))


class SAGE(PreparedNetwork):
    """The neighbours' mean beside the node itself, twice."""

    def __init__(self, n_features: int, n_classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.dropout = dropout
        self.first = nn.Linear(2 * n_features, hidden)  # of the neighbours' mean and of the node itself
        with no_files_left():
            self.second = SAGEConv(hidden, n_classes)

    def prepared(self, reach: Reach) -> Prepared:
        """Returns what no parameter changes: the mean of each node's neighbours beside its own; the second means."""
        x, n_middle = reach.x, reach.n_middle
        mean = propagate(_means(reach.first, n_middle, x.shape[0], x.dtype), x)
        return _compact(torch.cat([mean, x[:n_middle]], 1)), _means(reach.second, reach.n, n_middle, x.dtype)

    def mapped(self, *inputs: Any) -> Tensor:
        """See `PreparedNetwork.mapped`."""
        return _linear(self.first, inputs[0])

    def after(self, mapped: Tensor, *inputs: Any) -> Tensor:
        """See `PreparedNetwork.after`; a mean of the classes' columns is one of fewer columns."""
        _, means = inputs
        hidden = self.dropped(F.relu(mapped))
        of_neighbours, own = self.second.lin_l, self.second.lin_r
        return propagate(means, hidden @ of_neighbours.weight.T) + of_neighbours.bias + own(hidden[: means.n_rows])
