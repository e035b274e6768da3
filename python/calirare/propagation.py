"""What a graph convolution reads of a graph: A_hat, and A_hat X computed once."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from calirare.datasets.features import normalize_features
from calirare.graph import Graph
from calirare_ext import Csr, ReceptiveField, gcn_norm, propagate, receptive_field

DENSE_ABOVE = 0.25  # a product with more non-zeros than this share is faster as a dense matrix


@dataclass(frozen=True, eq=False)
class Propagation:
    """The constant part of a graph convolution on one graph.

    Attributes:
        a_hat: D^-1/2 (A + I) D^-1/2, [n, n].
        inputs: A_hat X with the features scaled as the data set wants, [n, d], dense or sparse.
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
        return Propagation(self.a_hat.to(dtype), self.inputs.to(dtype))


_KEPT: WeakKeyDictionary[Graph, Propagation] = WeakKeyDictionary()


def propagation(graph: Graph) -> Propagation:
    """Returns the graph's propagation, computed once per graph and kept as long as the graph lives."""
    if graph not in _KEPT:
        a_hat = gcn_norm(graph.adjacency)
        x = normalize_features(graph).x
        _KEPT[graph] = Propagation(a_hat, _sparse_product(a_hat, x) if isinstance(x, Csr) else propagate(a_hat, x))
    return _KEPT[graph]


def _sparse_product(a: Csr, x: Csr) -> Tensor | Csr:
    """Returns A X for two sparse matrices, dense where it is no longer sparse."""
    product = (_scipy(a) @ _scipy(x)).tocsr()
    product.sort_indices()
    if product.nnz > DENSE_ABOVE * product.shape[0] * product.shape[1]:
        return torch.from_numpy(product.toarray()).to(a.values)
    return Csr(
        torch.from_numpy(product.indptr.astype(np.int64)),
        torch.from_numpy(product.indices.astype(np.int32)),
        torch.from_numpy(product.data),
        x.n_cols,
    ).to(a.device)


def _scipy(a: Csr) -> scipy.sparse.csr_array:
    parts = (a.values.cpu().numpy(), a.indices.cpu().numpy(), a.indptr.cpu().numpy())
    return scipy.sparse.csr_array(parts, shape=a.shape)
