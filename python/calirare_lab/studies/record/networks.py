"""Base networks of the record: graph convolution and attention, stopped by validation nodes where a protocol is."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.models import FoldedNetwork, GcnFit, GcnTraining, ModuleFit, fold_of, pyg_inputs, train_folds
from calirare_lab.baselines import GAT, GatTraining, LossAndAccuracy, train_stopped

Network = GcnTraining | GatTraining
Trained = GcnFit | ModuleFit


class SingleAttention(GAT):
    """GETS' attention network: one layer of heads, and a linear map of what they say."""

    def __init__(self, n_features: int, n_classes: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__(n_features, n_classes, hidden, heads, dropout)
        self.second: Any = nn.Linear(hidden * heads, n_classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """See `GAT.forward`."""
        return self.second(self.first(self.dropped(x), edges))


@dataclass(frozen=True, kw_only=True)
class SingleAttentionTraining(GatTraining):
    """How it is trained."""

    def network(self, n_features: int, n_classes: int) -> SingleAttention:
        """See `NetworkTraining.network`."""
        return SingleAttention(n_features, n_classes, self.hidden, self.heads, self.dropout)


def fit(network: Network, graph: Graph, nodes: Tensor) -> Trained:
    """Returns a network trained for all its epochs, every label counting alike."""
    return network.fit(graph, nodes, sample_weights=torch.ones(nodes.numel(), device=graph.device))


def fit_stopped(network: Network, graph: Graph) -> tuple[Trained, int]:
    """Returns a network stopped by the validation nodes, and the epoch it was kept from.

    The epoch is the last whose accuracy and loss on the validation nodes were both no worse than any before; training
    ends 100 epochs after either was last reached (Velickovic et al. 2018).
    """
    assert graph.split is not None
    if isinstance(network, GcnTraining):
        return train_stopped(graph, graph.split.train, graph.split.val, network, LossAndAccuracy())
    return _attention_stopped(network, graph)


def _attention_stopped(network: GatTraining, graph: Graph) -> tuple[ModuleFit, int]:
    assert graph.split is not None
    assert graph.y is not None
    rule, inputs, nodes = LossAndAccuracy(), pyg_inputs(graph), graph.split.train
    targets, wanted = graph.y[nodes], graph.y[graph.split.val]
    kept = dict[str, Tensor]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(network.seed)
        model = network.network(graph.n_features, graph.n_classes)
        for epoch in network.steps(model, inputs, nodes, lambda logits: F.cross_entropy(logits, targets)):
            model.eval()
            with torch.no_grad():
                said = model(*inputs)[graph.split.val]
            if rule.improves(epoch, said, wanted):
                kept = copy.deepcopy(model.state_dict())
            if rule.over(epoch):
                break
    model.load_state_dict(kept)
    weights = torch.ones(nodes.numel())
    return ModuleFit(model.eval(), inputs, nodes, targets, weights, network.weight_decay), rule.epoch


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What networks trained without a fold of the labels say, every label counting alike.

    Attributes:
        fold: of each label, int64 [m].
        own: each label's logits by the network without its fold, float64 [m, k].
        every: all nodes' by each of them, float64 [K, n, k].
    """

    fold: Tensor
    own: Tensor
    every: Tensor


def held_out(network: Network, graph: Graph, trained: Trained, folds: int) -> HeldOut:
    """Returns the logits by networks without each fold of the labels that one was trained on."""
    nodes = trained.nodes
    if isinstance(network, GcnTraining):
        assert isinstance(trained, GcnFit)
        found = FoldedNetwork(trained, *train_folds(network, graph, nodes, torch.ones(nodes.numel()), folds))
        every = found.all_logits_of(graph)[1]
        return HeldOut(found.fold, found.own_logits, every.double())
    fold = fold_of(trained.targets, folds, network.seed)
    every = torch.stack([fit(network, graph, nodes[fold != k]).logits_of(graph).double() for k in range(folds)])
    return HeldOut(fold, every[fold, nodes], every)
