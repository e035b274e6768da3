"""What a graph convolution reads of a graph: A_hat, and A_hat X or A_hat^K X computed once."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calirare.graph.arrays import csr_of_scipy, scipy_of_csr
from calirare.graph.features import normalize_features
from calirare.graph.graph import Graph
from calirare_ext import Csr, ReceptiveField, gcn_norm, propagate, receptive_field

DENSE_ABOVE = 0.25  # a product with more non-zeros than this share is faster as a dense matrix
LARGE = 50_000  # nodes from which A_hat X is made at the rows that are asked for
WHOLE = 0.25  # share of the nodes from which "the rows asked for" are best taken from the whole product
BLOCK = 65_536  # rows of A_hat X made together


@dataclass(frozen=True, eq=False)
class Propagation:
    """The constant part of a graph convolution on one graph.

    Attributes:
        a_hat: D^-1/2 (A + I) D^-1/2, [n, n].
        inputs: A_hat^hops X with the features scaled as the data set wants, [n, d], dense or sparse.
    """

    a_hat: Csr
    inputs: Tensor | Csr

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.a_hat.n_rows

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.inputs.shape[1]

    def field(self, nodes: Tensor, n_layers: int) -> ReceptiveField:
        """Returns the receptive field of `nodes` (int64 [m]) under an `n_layers` network."""
        return receptive_field(self.a_hat, self.inputs, nodes, n_layers)

    def to(self, dtype: torch.dtype) -> Propagation:
        """Returns the same in another floating-point type."""
        return self if dtype == self.a_hat.dtype else Propagation(self.a_hat.to(dtype), self.inputs.to(dtype))


class LazyPropagation(Propagation):
    """The same for a large graph with dense features: A_hat X is made at the rows that are asked for.

    Training touches the receptive field of the labelled nodes alone, and `calirare.intervals.streaming` makes the rest
    a block of rows at a time, so that A_hat X never exists as a whole. What asks for `inputs` gets all of it, kept.

    Args:
        a_hat: D^-1/2 (A + I) D^-1/2, [n, n].
        x: features, scaled, propagated once less than the inputs, [n, d], in memory or memory-mapped.
    """

    def __init__(self, a_hat: Csr, x: Tensor) -> None:
        object.__setattr__(self, "a_hat", a_hat)
        object.__setattr__(self, "x", x)

    x: Tensor

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.x.shape[1]

    def __getattr__(self, name: str) -> Tensor:
        """Makes `inputs` on first use."""
        if name != "inputs":
            raise AttributeError(name)
        object.__setattr__(self, "inputs", propagate(self.a_hat, self.x))
        return self.__dict__["inputs"]

    def field(self, nodes: Tensor, n_layers: int) -> ReceptiveField:
        """Returns the receptive field of `nodes` (int64 [m]) under an `n_layers` network."""
        if "inputs" in self.__dict__ or nodes.numel() > WHOLE * self.n_nodes:
            return super().field(nodes, n_layers)
        bare = receptive_field(self.a_hat, self.x[:, :0], nodes, n_layers)
        rows = bare.rows[0]
        inputs = torch.cat([propagate(self.a_hat.select_rows(part), self.x) for part in rows.split(BLOCK)])
        return ReceptiveField(bare.rows, inputs, bare.blocks)

    def to(self, dtype: torch.dtype) -> Propagation:
        """Returns the same in another floating-point type."""
        return self if dtype == self.a_hat.dtype else LazyPropagation(self.a_hat.to(dtype), self.x.to(dtype))


_KEPT: WeakKeyDictionary[Graph, dict[int, Propagation]] = WeakKeyDictionary()


def propagation(graph: Graph, hops: int = 1) -> Propagation:
    """Returns the graph's propagation, computed once per graph and kept as long as the graph lives.

    Args:
        graph: the graph.
        hops: how often the features are propagated: the inputs are A_hat^hops X. 1 is Kipf & Welling's GCN; more is
            the idea of SGC (Wu et al., 2019) with a network behind it, which sees further at the same cost. 0 is no
            propagation at all: the inputs are X, and A_hat is the identity.

    Raises:
        ValueError: `hops` is negative.
    """
    if hops < 0:
        raise ValueError(f"propagation: hops must be at least 0, got {hops}")
    kept = _KEPT.setdefault(graph, {})
    if hops == 0 and 0 not in kept:
        kept[0] = Propagation(_identity(graph), normalize_features(graph).x)
    if hops not in kept:
        x = propagated_features(graph, hops)
        a_hat = gcn_norm(graph.adjacency) if hops == 1 else kept[hops - 1].a_hat
        if isinstance(x, Csr):
            kept[hops] = Propagation(a_hat, _sparse_product(a_hat, x))
        elif graph.n_nodes >= LARGE:
            kept[hops] = LazyPropagation(a_hat, x)
        else:
            kept[hops] = Propagation(a_hat, propagate(a_hat, x))
    return kept[hops]


def _identity(graph: Graph) -> Csr:
    """Returns the identity [n, n]."""
    every = torch.arange(graph.n_nodes + 1, device=graph.device)
    a = graph.adjacency
    ones = torch.ones(graph.n_nodes, dtype=a.values.dtype, device=graph.device)
    return Csr(every.to(a.indptr.dtype), every[:-1].to(a.indices.dtype), ones, graph.n_nodes)


def propagated_features(graph: Graph, hops: int = 1) -> Tensor | Csr:
    """Returns what a network of so many hops propagates last: A_hat^(hops - 1) X, scaled as the graph wants, [n, d]."""
    return normalize_features(graph).x if hops == 1 else propagation(graph, hops - 1).inputs


def _sparse_product(a: Csr, x: Csr) -> Tensor | Csr:
    """Returns A X for two sparse matrices, dense where it is no longer sparse."""
    product = (scipy_of_csr(a) @ scipy_of_csr(x)).tocsr()
    product.sort_indices()
    if product.nnz > DENSE_ABOVE * product.shape[0] * product.shape[1]:
        return torch.from_numpy(product.toarray()).to(a.values)
    return csr_of_scipy(product).to(a.device)
