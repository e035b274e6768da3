"""A detector that asks a node's neighbours too, and theirs: a logarithmic opinion pool (Genest & Zidek 1986).

With p(v) what the detector says of a node, r the classes' shares in the loss it was trained on, d_v the number of a
node's neighbours and M = D^-1 A their mean, a node, its neighbours, theirs and so on say

    e_0(v) = log p(v) - log r,    e_t(v) = log((d_v (M^t p)(v) + c r) / (d_v + c)) - log r,    t = 1 .. 3

and the logits of the pool are log r + sum_t w_t e_t(v). The constant c is a part of one more neighbour of no class: few
neighbours count less than many, and a node without neighbours has e_t = 0.

The weights maximise the likelihood of the labels by models without them, under the prior N((1, 0, 0, 0), I): few labels
leave a node to itself. For a label, its neighbours and theirs are scored by the model without that label: models that
have learnt it would give the answer away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration import effective_shares, newton_minimum
from calirare.graph import Graph
from calirare.models.fitted import FoldFitted, Progress, Wrapper
from calirare_ext import Csr, neighbour_means

# Chosen on DBLP, FaceBook and digits (docs/research/record.md), where twice or half as much hardly differs.
HOPS = 3
FLOOR = 0.2  # c, in neighbours
WEIGHT_SD = 1.0  # of a weight: the neighbours may count as much as the node
JEFFREYS = 0.5  # labels of each class that its share among the labels begins with


def log_shares(targets: Tensor, sample_weights: Tensor | None, n_classes: int) -> Tensor:
    """Returns log r, float64 [k], see `effective_shares`."""
    shares = effective_shares(targets, sample_weights, n_classes)
    return torch.tensor(shares, dtype=torch.float64, device=targets.device).log()


def evidence(logits: Tensor, adjacency: Csr, shares: Tensor) -> Tensor:
    """Returns e_t of every node, float64 [T + 1, n, k].

    Args:
        logits: of every node [n, k].
        adjacency: A.
        shares: log r, float64 [k].
    """
    own = torch.log_softmax(logits.double(), 1)
    degree, said, out = adjacency.indptr.diff(), own.exp().float(), [own - shares]
    for _ in range(HOPS):
        said = neighbour_means(adjacency, said)
        out.append(aggregate_neighbours(said, degree, shares))
    return torch.stack(out)


def own_evidence(without: Tensor, fold: Tensor, nodes: Tensor, adjacency: Csr, shares: Tensor) -> Tensor:
    """Returns e_t of labels by the models without them, float64 [T + 1, m, k]; see `evidence`.

    Args:
        without: logits of every node by the model without each fold, [K, n, k].
        fold: of each label, int64 [m].
        nodes: the labelled nodes, int64 [m].
        adjacency: A.
        shares: log r, float64 [k].
    """
    out = without.new_empty(HOPS + 1, len(nodes), without.shape[2], dtype=torch.float64)
    for k, logits in enumerate(without):
        mine = fold == k
        out[:, mine] = evidence(logits, adjacency, shares)[:, nodes[mine]]
    return out


def aggregate_neighbours(mean: Tensor, degree: Tensor, shares: Tensor) -> Tensor:
    """Returns e_t of some nodes by M^t p and d of them, float64 [r, k]; see `evidence`."""
    d = degree.double()[:, None]
    return ((d * mean.double() + FLOOR * shares.exp()) / (d + FLOOR)).log() - shares


def pool_weights(own: Tensor, labels: Tensor) -> Tensor:
    """Returns w: minus the log likelihood, with the labels' own shares in the place of r, is convex; Newton's method.

    Args:
        own: e_t of each label by models without it, float64 [T + 1, m, k].
        labels: int64 [m].

    Returns:
        float64 [T + 1].
    """
    m, k = own.shape[1:]
    shares = (torch.bincount(labels, minlength=k).double() + JEFFREYS).log()
    start = F.one_hot(labels.new_zeros(()), len(own)).double()
    wanted = F.one_hot(labels, k).double()

    def logits(w: Tensor) -> Tensor:
        return torch.einsum("t,tmk->mk", w, own) + shares

    def loss(w: Tensor) -> Tensor:
        away = (w - start) / WEIGHT_SD
        return (F.cross_entropy(logits(w), labels, reduction="sum") + away @ away / 2) / max(m, 1)

    def derivatives(w: Tensor) -> tuple[Tensor, Tensor]:
        p, prior = torch.softmax(logits(w), 1), (w - start) / WEIGHT_SD**2
        mean = torch.einsum("tmk,mk->tm", own, p)
        spread = torch.einsum("smk,tmk->st", own * p, own) - mean @ mean.T
        hessian = spread + torch.eye(len(own)).to(own) / WEIGHT_SD**2
        return (torch.einsum("tmk,mk->t", own, p - wanted) + prior) / max(m, 1), hessian / max(m, 1)

    return newton_minimum(loss, start, derivatives)


def pooled(weights: Tensor, said: Tensor, shares: Tensor) -> Tensor:
    """Returns the logits of the pool, float64 [n, k], by e_t [T + 1, n, k]."""
    return torch.einsum("t,tnk->nk", weights, said) + shares


@dataclass(frozen=True, eq=False)
class NeighbourPool(Wrapper):
    """A detector with folds, and how much the neighbours of a node count.

    Attributes:
        base: the detector.
        weights: w, float64 [T + 1].
        own_logits: see `FoldFitted`.
        in_sample: logits of the labelled nodes by the models that know them, float64 [m, k].
    """

    base: FoldFitted
    weights: Tensor
    own_logits: Tensor
    in_sample: Tensor

    @classmethod
    def of(cls, base: FoldFitted, graph: Graph) -> Self:
        """Returns a detector with weights by the labels it was trained on, in the graph it was trained on.

        Cost: the detector and its model without each fold are evaluated at every node, 8 K n k bytes.
        """
        every, without = base.all_logits_of(graph)
        shares = log_shares(base.targets, base.sample_weights, every.shape[1])
        own = own_evidence(without, base.fold, base.nodes, graph.adjacency, shares)
        weights = pool_weights(own, base.targets)
        in_sample = pooled(weights, evidence(every, graph.adjacency, shares)[:, base.nodes], shares)
        return cls(base, weights, pooled(weights, own, shares), in_sample)

    @property
    def sentence(self) -> str:
        """How much each counts, for a person."""
        own, *others = (f"{weight:.2g}" for weight in self.weights.tolist())
        return f"neighbour pooling weights: node itself {own}; nodes 1 to {HOPS} edges away {', '.join(others)}"

    @property
    def inner(self) -> FoldFitted:
        """See `Wrapper.inner`."""
        return self.base

    @property
    def fold(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        return self.base.fold

    @property
    def shares(self) -> Tensor:
        """The logarithms of r, float64 [k]."""
        return log_shares(self.targets, self.sample_weights, self.n_classes)

    def pooled(self, graph: Graph, logits: Tensor) -> Tensor:
        """Returns the pool's logits of every node of a graph by its detector's, float64 [.., n, k]."""
        if logits.ndim > 2:
            return torch.stack([self.pooled(graph, each) for each in logits])
        return pooled(self.weights, evidence(logits, graph.adjacency, self.shares), self.shares)

    def evaluate(
        self, graph: Graph | None, nodes: Tensor | None = None, *, folds: bool = False, progress: Progress | None = None
    ) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate`; whatever the nodes, the detector is evaluated at all."""
        if graph is None:
            raise ValueError("graph must be given with neighbours, got None")
        found = [self.pooled(graph, z) for z in self.base.evaluate(graph, folds=folds, progress=progress)]
        return tuple(found if nodes is None else [z[..., nodes, :] for z in found])

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.in_sample
