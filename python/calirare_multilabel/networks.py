"""The networks behind multi-label training: a perceptron, a graph convolution and a small image network."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare_ext import Csr, gcn_norm, propagate
from calirare_multilabel.data import MultilabelData
from calirare_multilabel.drawing import DrawnFrom


class Perceptron(nn.Module):
    """One hidden layer with ReLU on a table of d features; K labels; arguments as in `build_network`."""

    def __init__(self, n_features: int, n_labels: int, *, hidden: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(n_features, hidden), nn.Linear(hidden, n_labels)
        self.dropout = dropout

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """Returns the logits [m, K] of some rows (int64 [m]) of x [n, d]."""
        hidden = F.relu(self.inner(x[rows]))
        return self.outer(F.dropout(hidden, self.dropout, self.training))


class GraphConvolution(nn.Module):
    """Two graph convolutions with ReLU between them on all nodes of a graph [n, n] (Kipf & Welling 2017)."""

    def __init__(
        self, adjacency: Csr, n_features: int, n_labels: int, *, hidden: int = 64, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(n_features, hidden), nn.Linear(hidden, n_labels)
        self.dropout = dropout
        self.a_hat = gcn_norm(adjacency)
        self._source: Tensor | None = None
        self._propagated: Tensor | None = None

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """Returns the logits [m, K] of some nodes (int64 [m]) of a graph with features x [n, d]."""
        if self._propagated is None or self._source is not x:  # A_hat x is the same in every step
            self._source, self._propagated = x, propagate(self.a_hat, x)
        hidden = F.dropout(F.relu(self.inner(self._propagated)), self.dropout, self.training)
        mixed = propagate(self.a_hat, hidden @ self.outer.weight.T)
        return mixed[rows] + self.outer.bias


class SmallConvolution(nn.Module):
    """Three convolutions with pooling on images, for sets too small to be worth a pretrained network."""

    def __init__(self, n_channels: int, n_labels: int, *, hidden: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [n_channels, max(hidden // 4, 1), max(hidden // 2, 1), hidden]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in itertools.pairwise(widths)
        )
        self.outer = nn.Linear(hidden, n_labels)
        self.dropout = dropout

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """Returns the logits [m, K] of some rows (int64 [m]) of images x [n, channels, height, width]."""
        h = x[rows]
        for convolution in self.convolutions:
            h = F.relu(convolution(h))
        return self.outer(F.dropout(h.mean((2, 3)), self.dropout, self.training))


def build_network(data: MultilabelData, *, hidden: int = 64, dropout: float = 0.0, seed: int = 0) -> nn.Module:
    """Returns the network that fits the data, images, a graph or a table: a module that maps (x, rows) to logits.

    Args:
        data: what will be learned.
        hidden: width of the hidden layer; of images, channels of the last convolution.
        dropout: probability of dropping a hidden unit while training.
        seed: of the initial weights; torch's global generator is left as it was.
    """
    with DrawnFrom(torch.Generator().manual_seed(seed)):
        width = data.x.shape[1]
        if data.x.dim() == 4:
            return SmallConvolution(width, data.n_labels, hidden=hidden, dropout=dropout)
        if data.adjacency is not None:
            return GraphConvolution(data.adjacency, width, data.n_labels, hidden=hidden, dropout=dropout)
        return Perceptron(width, data.n_labels, hidden=hidden, dropout=dropout)
