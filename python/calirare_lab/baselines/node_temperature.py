"""What CaGCN and GATS share: a small network that gives every node its own scale, trained on calibration labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.errors import NotConvergedError
from calirare.calibration import Target, target_weights
from calirare.calibration.base import check_logits, unit_of
from calirare.graph import Graph
from calirare_ext import Csr, SparseMatrix
from calirare_lab.baselines.own_logits import adjacency_of, calibration_nodes

EPOCHS = 200


class NodeTemperature(ABC):
    """Scales each node's logits by its own positive number; decisions stay as they are.

    The network computes in float32, whatever the logits' dtype, on logits in a usual unit (`unit_of`).

    Args:
        target: population the probabilities shall be right for, see `calirare.calibration.target_weights`.
        weight_decay: of Adam.
        epochs: gradient steps on all calibration labels.
        seed: of the weights and the dropout.

    Attributes:
        model: the fitted network, or None before fitting.
        unit: what logits are divided by before they enter the network.
        n_nodes: of the graph it was fitted on.
    """

    def __init__(self, *, target: Target, weight_decay: float, epochs: int = EPOCHS, seed: int = 0) -> None:
        if epochs < 1:
            raise ValueError(f"{type(self).__name__}: epochs must be at least 1, got {epochs}")
        self.target: Target = target
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.seed = seed
        self.model: nn.Module | None = None
        self.unit = 1.0
        self.n_nodes = 0

    @abstractmethod
    def build(self, adjacency: Csr, logits: Tensor) -> nn.Module:
        """Returns the untrained network; its forward gives each node's scale [n, 1] > 0 from logits [n, k]."""

    def loss(self, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Returns the training loss: the weighted negative log-likelihood."""
        return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()

    def fit(self, logits: Tensor, labels: Tensor, edges: Graph | SparseMatrix, nodes: Tensor | None = None) -> Self:
        """Fits the network.

        Args:
            logits: uncalibrated logits of every node [n, k].
            labels: classes of every node, int64 [n]; only those of `nodes` are read.
            edges: the `Graph`, its `edge_index` [2, E], or any other form of `calirare_ext.as_csr`.
            nodes: calibration nodes, a mask [n] or int64 [m]; None: all with a label >= 0.

        Returns:
            Itself.

        Raises:
            TypeError: dtype is wrong.
            ValueError: shape or range is wrong, or a logit is not finite.
            NotConvergedError: the fit left what float32 can hold.
        """
        op = type(self).__name__
        at = calibration_nodes(op, logits, labels, nodes)
        adjacency, labels = adjacency_of(op, edges, len(logits)), labels[at]
        unit = unit_of(logits)
        z = (logits.detach() / unit).float()
        weights = target_weights(labels, z.shape[1], self.target).to(z)
        with torch.random.fork_rng(devices=[z.device] if z.is_cuda else []):
            torch.manual_seed(self.seed)
            model = self.build(adjacency, z).to(z.device)
            _descend(model, self.epochs, self.weight_decay, lambda: self.loss((model(z) * z)[at], labels, weights))
        if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
            raise NotConvergedError(
                f"{type(self).__name__}: the fit is not finite, logits must be of one size, got from "
                f"{float(logits.min()):g} to {float(logits.max()):g}: clip the extreme ones"
            )
        self.model, self.unit, self.n_nodes = model.eval(), unit, len(logits)
        return self

    @torch.no_grad()
    def transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k] of every node of the graph it was fitted on."""
        if self.model is None:
            raise RuntimeError(f"{type(self).__name__}: call fit before transform")
        check_logits(type(self).__name__, logits)
        if len(logits) != self.n_nodes:
            raise ValueError(
                f"{type(self).__name__}: logits must have a row for each of the graph's {self.n_nodes:,} nodes, got "
                f"{len(logits):,}"
            )
        z = logits / self.unit
        # Below the largest logit: its product with a scale may be infinite, and infinities have no difference.
        return torch.softmax(self.model(z.float()) * (z - z.amax(1, keepdim=True)), 1).to(logits.dtype)


def _descend(model: nn.Module, epochs: int, weight_decay: float, loss: Callable[[], Tensor]) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=weight_decay)
    model.train()
    for _ in range(epochs):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
