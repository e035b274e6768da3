"""The judge of an order of edges: what a graph convolution says of a node on the graph without some edges.

Written apart from `calirare.explain`: for every set of edges all that the node reads is made anew, degrees too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from detection.columns import scipy_of
from sklearn.metrics import roc_auc_score
from torch import Tensor

from calirare.explain import two_columns
from calirare.graph import Graph, normalize_features
from calirare.models import GcnFit
from calirare.run import Outcome
from calirare_ext import Csr

FIRST = (1, 2, 3, 5, 10)  # edges that are taken or put back
SHARES = 20  # steps of the whole order
NUMBERS = 1 << 22  # worked on together


@dataclass(frozen=True, eq=False)
class Field:
    """What a network of two layers reads at a node.

    Attributes:
        nodes: in the graph, int64 [r]; the node itself is the first.
        ends: places among them of the undirected edges with an end at the node or a neighbour, int64 [e, 2].
        weights: of these edges, float64 [e].
        loops: weight of each node's self loop, float64 [r].
        degree: of each node with all of its edges, float64 [r].
        read: nodes that the last layer reads, bool [r]: the node and its neighbours.
    """

    nodes: Tensor
    ends: Tensor
    weights: Tensor
    loops: Tensor
    degree: Tensor
    read: Tensor

    @property
    def edges(self) -> Tensor:
        """The edges' ends in the graph, int64 [e, 2]."""
        return self.nodes[self.ends]


class Judge:
    """A trained graph convolution of two layers on the graphs that lack some edges.

    Args:
        outcome: of a run with the model "gcn".
    """

    def __init__(self, outcome: Outcome) -> None:
        assert isinstance(outcome.fit, GcnFit)
        self.outcome, self.network = outcome, outcome.fit.model
        assert (self.network.n_layers, self.network.hops) == (2, 1)
        self.graph: Graph = normalize_features(outcome.mapped)
        a = scipy_of(self.graph.adjacency).astype(np.float64).tocsr()
        loops = a.diagonal()
        self.loops = torch.from_numpy(np.where(loops == 0, 1.0, loops))
        a.setdiag(0)
        a.eliminate_zeros()
        self.adjacency, self.degree = a, torch.from_numpy(a.sum(1)) + self.loops
        x = self.graph.x
        self.x = x.to_dense() if isinstance(x, Csr) else x
        (weight, self.bias), (after, last) = [
            tuple(part.detach().double() for part in p) for p in self.network.layers()
        ]
        self.y, self.after, self.last = self.x.double() @ weight, after[:, 1] - after[:, 0], last[1] - last[0]
        self.mapping = outcome.explainer.context.mapping

    def field(self, node: int) -> Field:
        """Returns what the network reads at a node."""
        near = np.unique(np.append(self.adjacency[[node]].indices, node))
        rows = self.adjacency[near].tocoo()
        ends, weights = np.stack([near[rows.row], rows.col], 1), rows.data
        ends, kept = np.unique(np.sort(ends, 1), axis=0, return_index=True)
        nodes = np.unique(np.append(ends, node))
        nodes = np.concatenate([[node], nodes[nodes != node]])
        place = np.empty(self.adjacency.shape[0], dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        to = torch.from_numpy(nodes.astype(np.int64))
        parts = torch.from_numpy(place[ends].reshape(-1, 2)), torch.from_numpy(weights[kept])
        return Field(to, *parts, self.loops[to], self.degree[to], torch.from_numpy(np.isin(nodes, near)))

    def p_rare(self, field: Field, kept: Tensor) -> Tensor:
        """Returns P(rare) of the node with some of the edges alone (bool [s, e]), float64 [s]."""
        step = max(1, NUMBERS // (2 * len(field.ends) * self.y.shape[1] + 1))
        odds = torch.cat([self.log_odds(field, some) for some in kept.split(step)]).double()
        return odds.sigmoid() if self.mapping is None else self.mapping.transform(two_columns(odds))[:, 1]

    def log_odds(self, field: Field, kept: Tensor, *, masked: bool = False) -> Tensor:
        """Returns the log-odds of the node with some of the edges alone (bool [s, e]), float64 [s].

        With `masked` degrees stay as they are, as where a mask hides what an edge carries.
        """
        weights = kept * field.weights
        lost = weights - field.weights
        degree = field.degree.expand(len(kept), -1)
        for side in () if masked else (0, 1):
            degree = degree.index_add(1, field.ends[:, side], lost)
        scale = degree**-0.5
        sent = scale[:, :, None] * self.y[field.nodes]
        total = field.loops[:, None] * sent
        for side in (0, 1):
            mine, theirs = field.ends[:, side], field.ends[:, 1 - side]
            there = field.read[mine]
            total = total.index_add(1, mine[there], weights[:, there, None] * sent[:, theirs[there]])
        hidden = torch.relu(scale[:, :, None] * total + self.bias) @ self.after
        out = field.loops[0] * scale[:, 0] * hidden[:, 0]
        for side in (0, 1):
            own = field.ends[:, side] == 0
            theirs = field.ends[own, 1 - side]
            out = out + (weights[:, own] * (scale * hidden)[:, theirs]).sum(1)
        return scale[:, 0] * out + self.last


def ordered(scores: Tensor, seed: int) -> Tensor:
    """Returns places by falling score, those of one score in random order."""
    mixed = torch.randperm(scores.numel(), generator=torch.Generator().manual_seed(seed))
    return mixed[torch.argsort(scores[mixed], descending=True, stable=True)]


def curves(p_rare: Callable[[Tensor], Tensor], order: Tensor) -> dict[str, Any]:
    """Returns what P(rare) is as edges are taken from the graph in an order, and as they are put into it.

    Args:
        p_rare: of sets of edges that are there, bool [s, e].
        order: places of the edges, int64 [e].

    Returns:
        "deletion" and "insertion": means over the first of `FIRST` edges; "deletion, all" and "insertion, all": areas
        over the share of all edges; "deletion at" and "insertion at": the curve at each of `FIRST`.
    """
    e = order.numel()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(e)
    shares = [round(e * step / SHARES) for step in range(SHARES + 1)]
    counts = torch.tensor([*(min(k, e) for k in FIRST), *shares])
    out = dict[str, Any]()
    for name, kept in (("deletion", rank[None] >= counts[:, None]), ("insertion", rank[None] < counts[:, None])):
        p = p_rare(kept)
        first, whole = p[: len(FIRST)], p[len(FIRST) :]
        out |= {name: float(first.mean()), f"{name}, all": float(torch.trapezoid(whole, dx=1 / SHARES))}
        out[f"{name} at"] = first.tolist()
    return out


def found(scores: Tensor, order: Tensor, motif: Tensor) -> dict[str, float]:
    """Returns how well the planted edges (bool [e]) are found: share among as many of the first ones, and AUROC."""
    first = motif[order[: int(motif.sum())]]
    return {"accuracy": float(first.double().mean()), "auroc": float(roc_auc_score(motif.numpy(), scores.numpy()))}
