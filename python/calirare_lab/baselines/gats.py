"""GATS (Hsu, Shen, Tomani & Cremers 2022): attention over neighbours' logits gives each node's temperature."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.calibration import Target
from calirare_ext import Csr
from calirare_lab.baselines.node_temperature import EPOCHS, NodeTemperature
from calirare_lab.baselines.own_logits import node_numbers

HEADS = 8
DISTANCES = 2  # own coefficients for training nodes and their neighbours; 1 beyond
MIN_TEMPERATURE = 0.01


class GATS(NodeTemperature):
    """Divides logits by T_v = T_0 - ln 2 + mean over heads of softplus(omega dc_v + sum_j alpha_vj gamma_j tau_j).

    tau_j is a linear map of node j's sorted logits, scaled to [0, 1] per node; alpha_vj the attention, a softmax over
    v's neighbours and v itself of LeakyReLU(z_v . z_j) of these scaled logits; dc_v how much more confident v is than
    its neighbours on average; gamma_j depends on how far j is from the nodes the network was trained on (0, 1, more:
    the last is 1).

    Args:
        train_nodes: nodes the network was trained on, a mask [n] or int64 numbers.
        target: see `NodeTemperature`.
        epochs: see `NodeTemperature`.
        seed: see `NodeTemperature`.
    """

    def __init__(
        self, train_nodes: Tensor, *, target: Target = "population", epochs: int = EPOCHS, seed: int = 0
    ) -> None:
        super().__init__(target=target, weight_decay=5e-3, epochs=epochs, seed=seed)
        self.train_nodes = train_nodes

    def build(self, adjacency: Csr, logits: Tensor) -> nn.Module:
        """Returns the untrained attention."""
        near = node_numbers("GATS", self.train_nodes, len(logits), "train_nodes")
        return _Attention(adjacency, near, logits.shape[1])


class _Attention(nn.Module):
    def __init__(self, adjacency: Csr, train_nodes: Tensor, n_classes: int) -> None:
        super().__init__()
        self.n = adjacency.n_rows
        rows, columns = adjacency.rows(), adjacency.indices.long()
        outside = rows != columns
        self.rows, self.columns = rows[outside], columns[outside]
        self.degree = torch.bincount(self.rows, minlength=self.n).clamp(min=1)
        self.distance = torch.full((self.n,), DISTANCES, dtype=torch.int64, device=rows.device)
        near = torch.zeros(self.n, dtype=torch.bool, device=rows.device)
        near[train_nodes] = True
        near_now = near.clone()
        near_now[self.rows[near[self.columns]]] = True
        self.distance[near_now] = 1
        self.distance[near] = 0
        self.tau = nn.Linear(n_classes, HEADS, bias=False)
        self.gamma = nn.Parameter(torch.ones(DISTANCES))
        self.omega = nn.Parameter(torch.zeros(1))
        self.base = nn.Parameter(torch.ones(1))

    def forward(self, logits: Tensor) -> Tensor:
        low, high = logits.min(1, keepdim=True).values, logits.max(1, keepdim=True).values
        scaled = (logits - low) / (high - low).clamp(min=1e-12)
        gamma = torch.cat([self.gamma, self.gamma.new_ones(1)]).index_select(0, self.distance)
        tau = gamma[:, None] * self.tau(scaled.sort(1, descending=True).values)
        confidence = torch.softmax(logits, 1).max(1).values
        others = torch.zeros_like(confidence).index_add(0, self.rows, confidence[self.columns]) / self.degree
        relative = torch.where(self._lonely(), torch.zeros_like(confidence), confidence - others)
        spread = self._attend(scaled, tau) + self.omega * relative[:, None]
        temperature = F.softplus(spread).mean(1, keepdim=True) + self.base - F.softplus(self.base.new_zeros(1))
        return 1 / temperature.clamp(min=MIN_TEMPERATURE)

    def _lonely(self) -> Tensor:
        alone = torch.ones(self.n, dtype=torch.bool, device=self.rows.device)
        alone[self.rows] = False
        return alone

    def _attend(self, scaled: Tensor, tau: Tensor) -> Tensor:
        """Returns sum_j alpha_vj tau_j over v's neighbours and itself, [n, heads]."""
        itself = torch.arange(self.n, device=self.rows.device)
        rows, columns = torch.cat([self.rows, itself]), torch.cat([self.columns, itself])
        score = F.leaky_relu((scaled[rows] * scaled[columns]).sum(1), 0.2)
        highest = torch.full_like(tau[:, 0], -torch.inf).scatter_reduce_(0, rows, score.detach(), "amax")
        weight = torch.exp(score - highest[rows])  # scores reach k, the number of classes
        total = torch.zeros(self.n, dtype=weight.dtype, device=weight.device).index_add(0, rows, weight)
        alpha = weight / total[rows]
        return torch.zeros_like(tau).index_add(0, rows, alpha[:, None] * tau.index_select(0, columns))
