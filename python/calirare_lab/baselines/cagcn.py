"""CaGCN (Wang, Liu, Shi & Yang 2021): a graph convolution maps logits to each node's scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.calibration import Target
from calirare_ext import Csr, gcn_norm, propagate
from calirare_lab.baselines.node_temperature import EPOCHS, NodeTemperature

FLOOR = 1.1  # scale = ln(e^u + 1.1) > ln 1.1: the order of classes is kept


class CaGCN(NodeTemperature):
    """Scales logits by ln(exp(u_v) + 1.1), u a two-layer graph convolution of the logits.

    Trained on calibration labels with negative log-likelihood plus `confidence_weight` times the confidence
    regulariser: 1 - (p_1 - p_2) where the prediction is right and p_1 - p_2 where it is wrong, p_1 and p_2 the two
    largest probabilities.

    Args:
        confidence_weight: the paper's lambda.
        hidden: width of the hidden layer.
        dropout: of the logits and the hidden layer.
        target: see `NodeTemperature`.
        epochs: see `NodeTemperature`.
        seed: see `NodeTemperature`.
    """

    def __init__(
        self,
        *,
        confidence_weight: float = 0.5,
        hidden: int = 16,
        dropout: float = 0.5,
        target: Target = "population",
        epochs: int = EPOCHS,
        seed: int = 0,
    ) -> None:
        super().__init__(target=target, weight_decay=5e-3, epochs=epochs, seed=seed)
        self.confidence_weight = confidence_weight
        self.hidden = hidden
        self.dropout = dropout

    def build(self, adjacency: Csr, logits: Tensor) -> nn.Module:
        """Returns the untrained graph convolution of the logits."""
        return _ScaleGCN(gcn_norm(adjacency).to(logits.dtype), logits.shape[1], self.hidden, self.dropout)

    def loss(self, logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Returns negative log-likelihood plus the confidence regulariser."""
        top = torch.softmax(logits, 1).topk(2, 1)
        gap = top.values[:, 0] - top.values[:, 1]
        right = top.indices[:, 0] == labels
        confidence = (weights * torch.where(right, 1 - gap, gap)).mean()
        return super().loss(logits, labels, weights) + self.confidence_weight * confidence


class _ScaleGCN(nn.Module):
    def __init__(self, a_hat: Csr, n_classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.a_hat, self.dropout = a_hat, dropout
        self.first = nn.Linear(n_classes, hidden)
        self.second = nn.Linear(hidden, 1)
        nn.init.xavier_uniform_(self.first.weight)
        nn.init.xavier_uniform_(self.second.weight)
        nn.init.zeros_(self.first.bias)
        nn.init.zeros_(self.second.bias)

    def forward(self, logits: Tensor) -> Tensor:
        h = F.dropout(logits, self.dropout, self.training)
        h = F.relu(self.first(propagate(self.a_hat, h.contiguous())))
        h = F.dropout(h, self.dropout, self.training)
        u = propagate(self.a_hat, self.second(h).contiguous())
        return torch.logaddexp(u, u.new_tensor(math.log(FLOOR)))  # exp(u) itself overflows
