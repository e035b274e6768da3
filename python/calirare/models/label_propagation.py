"""`spreading`: what the labels around a node say of it, whatever its features are (label spreading, Zhou et al. 2004).

With S = D^-1/2 A D^-1/2 and X the labels' weights, one column per class, what reaches a node in T steps is

    F = sum_{t = 1..T} alpha^t S^t X = alpha D^-1/2 A Y,   Y = D^-1/2 sum_{t < T} alpha^t S^t X

so that every node of the training graph tells its neighbours Y, which is kept, and any node of any graph that has some
of these as neighbours reads F of them: at the training graph's own nodes that is the sum to the last step. Its logits
are log(F_c + s / k): s is what is put in for no label at all, so that a far label does not speak as loudly as many near
ones. No node reads its own label but through others, and of a label's own prediction its fold's labels are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.array_files import NumpyArray
from calirare.graph import Graph
from calirare.models.crossfit import class_weights, time_folds
from calirare.models.fitted import FoldFitted
from calirare.models.known_nodes import KnownNodes
from calirare_ext import Csr, propagate, row_parts, row_sums

STEPS = 10
REACHES = (0.5, 0.8, 0.95)  # alpha
PRIORS = (0.03, 0.3, 3.0)  # s, in parts of what reaches a label on average
SLOPES = tuple(2.0 ** (i / 2) for i in range(-6, 7))  # of the logits, as the map will have one


@dataclass(frozen=True, eq=False)
class LabelPropagationFit(FoldFitted):
    """Labels that are spread over the edges of their graph.

    Logits are NaN where no label reaches: there is nothing to say of the node.

    Attributes:
        nodes: the labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        fold: see `FoldFitted`.
        sent: Y of every node of the training graph, float32 [n, (K + 1) k]: without each fold, and of all labels.
        known: the nodes of the training graph, found again in others.
        reach: alpha.
        prior: s.
        reached_own: F of each labelled node by the labels of other folds, float64 [m, k].
        reached_labels: F of each labelled node by all labels, float64 [m, k].
    """

    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    fold: Tensor
    sent: Tensor
    known: KnownNodes
    reach: float
    prior: float
    reached_own: Tensor
    reached_labels: Tensor
    _kept: dict[str, tuple[Graph, Any]] = field(default_factory=dict)

    def without_label_memory(self) -> LabelPropagationFit:
        """Returns the same that knows no node of any graph."""
        return replace(self, known=KnownNodes(self.known.keys[:0], ""), _kept={})

    def sent_in(self, graph: Graph) -> Tensor:
        """Returns Y of the nodes of a graph, 0 of those it does not know, float32 [n, (K + 1) k]; the last is kept."""
        return self._once("sent", graph, lambda: self.sent_at(self.places_in(graph), graph.n_nodes).to(graph.device))

    def places_in(self, graph: Graph) -> NumpyArray | None:
        """Returns the places of a graph's nodes among the known ones, see `KnownNodes.places_in`; the last are kept."""
        return self._once("places", graph, lambda: self.known.places_in(graph))

    def _once(self, what: str, graph: Graph, make: Callable[[], Any]) -> Any:
        if what not in self._kept or self._kept[what][0] is not graph:
            self._kept[what] = graph, make()
        return self._kept[what][1]

    def sent_at(self, places: NumpyArray | None, n: int) -> Tensor:
        """Returns Y of n nodes by their places among the known ones, int64 [n], -1 for none; None: none is known."""
        out = self.sent.new_zeros(n, self.sent.shape[1])
        if places is not None:
            here = torch.from_numpy(np.flatnonzero(places >= 0)).to(out.device)
            out[here] = self.sent[torch.from_numpy(places[places >= 0]).to(out.device)]
        return out

    def reached(self, rows: Csr, sent: Tensor) -> Tensor:
        """Returns F of nodes by their rows of the adjacency and Y of all nodes, float64 [n, sets, k]."""
        scale = self.reach * inverse_root(row_sums(rows))
        return (propagate(rows, sent).double() * scale[:, None]).unflatten(1, (-1, self.n_classes))

    def logits(self, reached: Tensor) -> Tensor:
        """Returns the logits of nodes by F [.., k], float64 [.., k]; NaN where nothing reaches."""
        nothing = reached.sum(-1, keepdim=True) <= 0
        return (reached + self.prior / self.n_classes).log().masked_fill(nothing, torch.nan)

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return self.reached_labels.shape[1]

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]  # of what is kept
        """See `FoldFitted`."""
        return self.logits(self.reached_own)

    def reached_in(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Returns F of nodes of a graph (None: all) by the labels without each fold, and by all, [n, K + 1, k]."""
        rows = graph.adjacency if nodes is None else graph.adjacency.select_rows(nodes)
        return self.reached(rows, self.sent_in(graph))

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate_part`."""
        assert graph is not None
        z = self.logits(self.reached_in(graph, nodes)).transpose(0, 1)
        return (z[-1], z[:-1])[: 1 + folds]

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.logits(self.reached_labels)


@dataclass(frozen=True)
class LabelPropagation:
    """How labels are spread over a graph; reach and prior are those of the lowest loss of labels without their fold.

    Attributes:
        folds: number of folds, at most the number of labels.
        seed: of the folds.
    """

    folds: int = 5
    seed: int = 0

    def kept_bytes(self, graph: Graph) -> int:
        """Returns what Y takes, and five times that is needed to make it."""
        return 4 * graph.n_nodes * (self.folds + 1) * graph.n_classes

    def fit(self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None) -> LabelPropagationFit:
        """Spreads the labels of nodes of a graph.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.

        Cost: `STEPS` products of the adjacency with (K + 1) k columns.
        """
        assert graph.y is not None
        targets, k = graph.y[nodes], graph.n_classes
        weights = class_weights(targets, k)[targets] if sample_weights is None else sample_weights
        fold = time_folds(graph, nodes, min(self.folds, nodes.numel()), self.seed)
        sent, found = _spread(graph, nodes, labels_of(graph.n_nodes, nodes, targets, weights, fold, k))
        n_sets, place = int(fold.max()) + 2, torch.arange(nodes.numel(), device=nodes.device)
        reached = {reach: each.double().unflatten(1, (n_sets, k)) for reach, each in found.items()}
        own = {reach: each[place, fold] for reach, each in reached.items()}
        tiny = torch.finfo(torch.float32).tiny
        trials = {
            (reach, share): max(share * float(reached[reach][:, -1].sum(1).mean()), tiny)
            for reach, share in product(REACHES, PRIORS)
        }
        reach, share = min(trials, key=lambda trial: _loss(own[trial[0]], trials[trial], targets, weights))
        return LabelPropagationFit(
            nodes=nodes,
            targets=targets,
            sample_weights=weights,
            fold=fold,
            sent=sent[reach],
            known=KnownNodes.of(graph),
            reach=reach,
            prior=trials[reach, share],
            reached_own=own[reach],
            reached_labels=reached[reach][:, -1].contiguous(),
        )


def labels_of(n: int, nodes: Tensor, targets: Tensor, weights: Tensor, fold: Tensor, k: int) -> Tensor:
    """Returns X without each fold's labels, and of all, float32 [n, (K + 1) k]."""
    n_folds = int(fold.max()) + 1
    x = torch.zeros(n, n_folds + 1, k, dtype=torch.float32, device=nodes.device)
    taken = fold[:, None] != torch.arange(n_folds + 1, device=nodes.device)
    x[nodes, :, targets] = taken * weights.float()[:, None]
    return x.flatten(1)


def propagation_step(graph: Graph) -> Csr:
    """Returns S = D^-1/2 A D^-1/2, float32."""
    a, root = graph.adjacency, root_of(graph)[:, 0]
    values = torch.empty_like(a.values)
    for first, last in row_parts(a):
        some = slice(int(a.indptr[first]), int(a.indptr[last]))
        own = root[first:last].repeat_interleave(a.indptr[first : last + 1].diff())
        values[some] = a.values[some] * own * root.index_select(0, a.indices[some])
    return Csr.unchecked(a.indptr, a.indices, values, a.n_cols)


def root_of(graph: Graph) -> Tensor:
    """Returns D^-1/2, 0 of a node without edges, float32 [n, 1]."""
    return inverse_root(row_sums(graph.adjacency)).float()[:, None]


def inverse_root(degree: Tensor) -> Tensor:
    """Returns degree^-1/2, 0 where it is 0, float64."""
    return torch.where(degree > 0, degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt(), 0.0)


def _spread(graph: Graph, nodes: Tensor, x: Tensor) -> tuple[dict[float, Tensor], dict[float, Tensor]]:
    """Returns Y [n, c] and F at the labelled nodes [m, c] by alpha, float32: the products are the same for each."""
    sent = {reach: x.clone() for reach in REACHES}
    reached = {reach: torch.zeros_like(x[nodes]) for reach in REACHES}
    step = propagation_step(graph)
    for t in range(1, STEPS + 1):
        x = propagate(step, x)
        for reach in REACHES:
            reached[reach] += reach**t * x[nodes]
            if t < STEPS:
                sent[reach].add_(x, alpha=reach**t)
    root = root_of(graph)
    for each in sent.values():
        each.mul_(root)
    return sent, reached


def _loss(reached: Tensor, prior: float, targets: Tensor, weights: Tensor) -> float:
    """Returns the mean loss of labels by what reaches them without their fold, at the best of some slopes."""
    z = (reached + prior / reached.shape[1]).log()
    slopes = torch.tensor(SLOPES, dtype=z.dtype, device=z.device)
    scaled = (slopes[:, None, None] * z).flatten(0, 1)
    losses = F.cross_entropy(scaled, targets.repeat(len(SLOPES)), reduction="none").view(len(SLOPES), -1)
    return float((losses @ weights.to(z.dtype)).min())
