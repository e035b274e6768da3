"""What a graph convolution reads of a graph: A_hat, and A_hat X or A_hat^K X, multiplied out where that pays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calirare.graph.features import normalize_features
from calirare.graph.graph import Graph
from calirare_ext import (
    Csr,
    Factored,
    Inputs,
    ReceptiveField,
    as_dense,
    as_matrix,
    cut,
    field_of_propagated,
    gcn_norm,
    product_of,
    propagate,
    rows_of_inputs,
)

Order = Literal["auto", "propagated"]
LARGE = 50_000  # nodes from which A_hat X is made at the rows that are asked for
WHOLE = 0.25  # share of the nodes from which "the rows asked for" are best taken from the whole product
BLOCK = 65_536  # rows of A_hat X made together
# A multiply-add of a dense product costs this many of a sparse one (benchmarks/bench_epoch.py, "words").
DENSE_COST = 0.4
ROW_COST = 4.0  # likewise, of a row of X W that is written and read again
SAMPLE = 256  # rows of A_hat X that are made to count its entries


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

    @property
    def features(self) -> Inputs:
        """The inputs of all nodes as a network reads them fastest, [n, d]."""
        return self.inputs

    def features_at(self, rows: Tensor) -> Inputs:
        """Returns the inputs of some nodes (int64 [r]) as a network reads them fastest, [r, d]."""
        return rows_of_inputs(self.features, rows)

    def field(self, nodes: Tensor, n_layers: int) -> ReceptiveField:
        """Returns the receptive field of `nodes` (int64 [m]) under an `n_layers` network."""
        return field_of_propagated(self.a_hat, self.inputs, nodes, n_layers)

    def to(self, dtype: torch.dtype) -> Propagation:
        """Returns the same in another floating-point type."""
        return self if dtype == self.a_hat.dtype else Propagation(self.a_hat.to(dtype), self.inputs.to(dtype))


class LazyPropagation(Propagation):
    """The same for a large graph with dense features: A_hat X is made at the rows that are asked for.

    Training touches the receptive field of the labelled nodes only, and `leave_one_out.streaming` makes the rest a
    block of rows at a time, so that A_hat X never exists as a whole. What asks for `inputs` gets all of it, kept.

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

    @cached_property
    def inputs(self) -> Tensor:
        """A_hat X, made when it is first needed."""
        return propagate(self.a_hat, self.x)

    def field(self, nodes: Tensor, n_layers: int) -> ReceptiveField:
        """Returns the receptive field of `nodes` (int64 [m]) under an `n_layers` network."""
        if "inputs" in self.__dict__ or nodes.numel() > WHOLE * self.n_nodes:
            return super().field(nodes, n_layers)
        bare = _without_inputs(self.a_hat, nodes, n_layers)
        rows = bare.rows[0]
        inputs = torch.cat([propagate(self.a_hat.select_rows(part), self.x) for part in rows.split(BLOCK)])
        return ReceptiveField(bare.rows, inputs, bare.blocks)

    def to(self, dtype: torch.dtype) -> Propagation:
        """Returns the same in another floating-point type."""
        return self if dtype == self.a_hat.dtype else LazyPropagation(self.a_hat.to(dtype), self.x.to(dtype))


class FactoredPropagation(Propagation):
    """The same for sparse features: multiplied out, or left as two factors, whichever an epoch reads faster.

    A_hat X has several times the entries of sparse X, so that A_hat (X W) mostly beats (A_hat X) W; where rows of it
    fill up, or few rows of it are read, it is the other way round. The choice is made by `cheapest` for each receptive
    field. Numbers differ from those of `order="propagated"` by rounding.

    Args:
        a_hat: D^-1/2 (A + I) D^-1/2, [n, n].
        below: the features, scaled, or what is propagated once less.
    """

    def __init__(self, a_hat: Csr, below: Csr | Propagation) -> None:
        object.__setattr__(self, "a_hat", a_hat)
        object.__setattr__(self, "below", below)

    below: Csr | Propagation

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.below.n_features if isinstance(self.below, Propagation) else self.below.n_cols

    @cached_property
    def features(self) -> Inputs:
        """The inputs of all nodes as a network reads them fastest, [n, d]."""
        x = self.below.features if isinstance(self.below, Propagation) else self.below
        return cheapest(Factored(self.a_hat, x))

    @cached_property
    def inputs(self) -> Tensor | Csr:
        """The inputs as one matrix, made when they are first needed."""
        return as_matrix(self.features)

    def features_at(self, rows: Tensor) -> Inputs:
        """Returns the inputs of some nodes (int64 [r]) as a network reads them fastest, [r, d]."""
        block, columns = cut(self.a_hat, rows)
        below = self.below
        x = below.features_at(columns) if isinstance(below, Propagation) else below.select_rows(columns)
        whole = self.features if rows.numel() > WHOLE * self.n_nodes else None
        known = (whole, rows) if isinstance(whole, Factored) else None
        return cheapest(Factored(block, x, whole=known))

    def field(self, nodes: Tensor, n_layers: int) -> ReceptiveField:
        """Returns the receptive field of `nodes` (int64 [m]) under an `n_layers` network."""
        bare = _without_inputs(self.a_hat, nodes, n_layers)
        rows = bare.rows[0]
        everything = rows.numel() == self.n_nodes and bool(
            (rows == torch.arange(rows.numel(), device=rows.device)).all()
        )
        features = self.features if everything else self.features_at(rows)
        return ReceptiveField(bare.rows, features, bare.blocks)

    def to(self, dtype: torch.dtype) -> Propagation:
        """Returns the same in another floating-point type."""
        if dtype == self.a_hat.dtype:
            return self
        if "other" not in self.__dict__:  # there are two types
            object.__setattr__(self, "other", FactoredPropagation(self.a_hat.to(dtype), self.below.to(dtype)))
        return self.__dict__["other"]


def _without_inputs(a_hat: Csr, nodes: Tensor, n_layers: int) -> ReceptiveField:
    """Returns a receptive field without inputs."""
    return field_of_propagated(a_hat, a_hat.values.new_empty(a_hat.n_rows, 0), nodes, n_layers)


def cheapest(product: Factored) -> Inputs:
    """Returns a product as it costs an epoch least: its factors, or itself as a sparse or a dense matrix.

    Counted are the multiply-adds of one column of W, forward as backward: the entries of both factors and `ROW_COST`
    for each row that is made between them, the entries of the product, counted at up to `SAMPLE` of its rows, or
    `DENSE_COST` of all its places.
    """
    r, d = product.shape
    if isinstance(product.x, Tensor):  # dense features: the product has fewer rows and no more columns
        return propagate(product.a, product.x)
    if r == 0:
        return product.matrix()
    dense = DENSE_COST * r * d
    if _cost(product) <= min(_entries(product), dense):
        return product
    return propagate(product.a, as_dense(product.x)) if dense < _entries(product) else product.matrix()


def _cost(inputs: Inputs) -> float:
    """Returns the cost of a product with inputs as they are stored, in multiply-adds of a sparse matrix."""
    if isinstance(inputs, Factored):
        return inputs.a.nnz + ROW_COST * inputs.a.n_cols + _cost(inputs.x)
    return inputs.nnz if isinstance(inputs, Csr) else DENSE_COST * inputs.numel()


def _entries(product: Factored) -> float:
    """Returns how many entries of a product are not zero, from up to `SAMPLE` of its rows, evenly spaced."""
    if "entries" not in product._cache:
        r = product.shape[0]
        some = torch.arange(0, r, -(-r // SAMPLE), device=product.device)
        made = product_of(product.a.select_rows(some), as_matrix(product.x), dense_above=1.0)
        product._cache["entries"] = (made.nnz if isinstance(made, Csr) else made.numel()) * r / some.numel()
    return product._cache["entries"]


_KEPT: WeakKeyDictionary[Graph, dict[tuple[int, Order], Propagation]] = WeakKeyDictionary()


def propagation(graph: Graph, hops: int = 1, order: Order = "auto") -> Propagation:
    """Returns the graph's propagation, computed once per graph and kept as long as the graph lives.

    Args:
        graph: the graph.
        hops: how often the features are propagated: the inputs are A_hat^hops X. 1 is Kipf & Welling's GCN; more is
            the idea of SGC (Wu et al., 2019) with a network behind it, which sees further at the same cost. 0 is no
            propagation at all: the inputs are X, and A_hat is the identity.
        order: of products with sparse features: "propagated" multiplies A_hat^hops X out, as published numbers were
            made; "auto" does so only where that is the faster way. Dense features are always multiplied out.

    Raises:
        ValueError: `hops` is negative, or the order is unknown.
    """
    if hops < 0:
        raise ValueError(f"propagation: hops must be at least 0, got {hops}")
    if order not in get_args(Order):
        raise ValueError(f"propagation: order must be one of {', '.join(get_args(Order))}, got {order!r}")
    kept = _KEPT.setdefault(graph, {})
    if (hops, order) not in kept:
        kept[hops, order] = _propagation(graph, hops, order)
    return kept[hops, order]


def _propagation(graph: Graph, hops: int, order: Order) -> Propagation:
    if hops == 0:
        x = _scaled(graph)
        filled = isinstance(x, Csr) and x.nnz > DENSE_COST * x.n_rows * x.n_cols and order == "auto"
        return Propagation(_identity(graph), as_dense(x) if filled else x)
    if hops == 1:
        known = (made.a_hat for (above, _), made in _KEPT[graph].items() if above)
        a_hat, below = next(known, None) or gcn_norm(graph.adjacency), None
    else:
        below = propagation(graph, hops - 1, order)
        a_hat = below.a_hat
    source = _scaled(graph) if below is None else below
    if order == "auto" and isinstance(source, Csr | FactoredPropagation):
        return FactoredPropagation(a_hat, source)
    x = source.inputs if isinstance(source, Propagation) else source
    if isinstance(x, Csr):
        return Propagation(a_hat, product_of(a_hat, x))
    return Propagation(a_hat, propagate(a_hat, x)) if graph.n_nodes < LARGE else LazyPropagation(a_hat, x)


def _scaled(graph: Graph) -> Tensor | Csr:
    return normalize_features(graph).x


def _identity(graph: Graph) -> Csr:
    """Returns the identity [n, n]."""
    every = torch.arange(graph.n_nodes + 1, device=graph.device)
    a = graph.adjacency
    ones = torch.ones(graph.n_nodes, dtype=a.values.dtype, device=graph.device)
    return Csr(every.to(a.indptr.dtype), every[:-1].to(a.indices.dtype), ones, graph.n_nodes)


def propagated_features(graph: Graph, hops: int = 1) -> Tensor | Csr:
    """Returns what a network of so many hops propagates last: A_hat^(hops - 1) X, scaled as the graph wants, [n, d]."""
    return _scaled(graph) if hops == 1 else propagation(graph, hops - 1).inputs
