"""A network with one more network per fold of its labels, each trained without that fold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from calirare._util.steps import report_step
from calirare.graph import Graph
from calirare.models.columns import HopColumns
from calirare.models.crossfit import fold_of
from calirare.models.fitted import State, Wrapper, prefixed, unprefixed
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit
from calirare.models.gcn_training import GcnTraining
from calirare.models.row_space import RowSpace

TOLERANCE, MAX_STEPS = 1e-4, 100  # of a fold's network, in the network's own precision


@dataclass(frozen=True, eq=False)
class FoldedNetwork(Wrapper):
    """A network on all labels, and networks of the same kind without each fold.

    Attributes:
        network: on all labels.
        without: the network trained without each fold, K of them; they read what `network` reads.
        fold: of each label, int64 [m].
        own_logits: each label's logits by the network without its fold, float64 [m, k].
    """

    network: GcnFit
    without: tuple[GCN, ...]
    fold: Tensor
    own_logits: Tensor

    @property
    def inner(self) -> GcnFit:
        """See `Wrapper.inner`."""
        return self.network

    def reading(self, columns: HopColumns) -> Self:
        """See `Fitted.reading`."""
        return replace(self, network=self.network.reading(columns))

    def judged_by_folds(self, graph: Graph) -> Self:
        """See `FoldFitted.judged_by_folds`."""
        logits = self.all_logits_of(graph, self.nodes)[1]
        own = logits[self.fold, torch.arange(len(self.fold), device=logits.device)]
        return replace(self, own_logits=own.double())

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`."""
        return self.network.parts_of(graph, nodes)

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate_part`."""
        field = self.network.scoring_field(graph, nodes)
        own = self.network.logits_at(field)
        with torch.no_grad():
            return (own, torch.stack([model(field) for model in self.without])) if folds else (own,)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.network.label_logits

    def state(self) -> State:
        """See `Fitted.state`."""
        tensors, facts = self.network.state()
        out = prefixed("network", tensors) | {"fold": self.fold, "own_logits": self.own_logits}
        for i, model in enumerate(self.without):
            out |= prefixed(f"without.{i}", {name: value.detach() for name, value in model.state_dict().items()})
        kind = type(self.network).__name__
        return out, {"kind": kind, "network": facts, "folds": len(self.without)}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` was taken from."""
        network = cls.kinds[facts["kind"]].from_state(unprefixed("network", tensors), facts["network"])
        if not isinstance(network, GcnFit):
            raise LookupError(f"a {facts['kind']} is no network with folds")
        without = []
        for i in range(int(facts["folds"])):
            other = network.copy().model
            other.load_state_dict(unprefixed(f"without.{i}", tensors))
            without.append(other)
        return cls(network, tuple(without), tensors["fold"], tensors["own_logits"])


@dataclass(frozen=True, eq=False)
class Folds:
    """What a detector learned without each fold of the labels.

    Attributes:
        detector: how the networks were trained.
        fold: of each label, int64 [m].
        theta: parameters of the network without each fold, [K, p].
        own_logits: each label's logits by the network without its fold, float64 [m, k].
    """

    detector: GcnTraining
    fold: Tensor
    theta: Tensor
    own_logits: Tensor

    def around(self, network: GcnFit) -> FoldedNetwork:
        """Returns them with the network that was trained on all labels."""
        without = tuple(_moved(network, each) for each in self.theta)
        return FoldedNetwork(network, without, self.fold, self.own_logits)


def train_folds(detector: GcnTraining, graph: Graph, nodes: Tensor, sample_weights: Tensor, n_folds: int) -> Folds:
    """Returns a network of a detector without each fold of the labels, all trained side by side.

    Args:
        detector: how to train.
        graph: the graph with labels.
        nodes: distinct labelled nodes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        n_folds: K >= 2, at most as many as labels.
    """
    assert graph.y is not None
    fold = fold_of(graph.y[nodes], n_folds, detector.seed)
    report_step("folds", 0, n_folds)
    theta, own = detector.without_folds(
        graph, nodes, fold, sample_weights, progress=lambda done: report_step("folds", done, n_folds)
    )
    return Folds(detector, fold, theta, own.double())


def fold_network(detector: GcnTraining, graph: Graph, network: GcnFit, n_folds: int) -> FoldedNetwork:
    """Returns a trained network with one more per fold, trained side by side; own logits are those of the folds.

    Args:
        detector: what trained the network.
        graph: the graph.
        network: on all labels.
        n_folds: K >= 2, at most as many as labels.
    """
    return train_folds(detector, graph, network.nodes, network.sample_weights, n_folds).around(network)


def fold_converged(detector: GcnTraining, graph: Graph, network: GcnFit, n_folds: int) -> FoldedNetwork:
    """Returns the same of a network at its minimum, each fold's network brought to its own from there.

    Args:
        detector: see `fold_network`.
        graph: the graph.
        network: on all labels, converged.
        n_folds: K.
    """
    fold, without = fold_of(network.targets, n_folds, detector.seed), list[GCN]()
    own = torch.empty(*network.label_logits.shape, dtype=torch.float64, device=graph.device)
    space = RowSpace.of(network)
    for k in range(n_folds):
        part = _converged_without(network, space, fold == k)
        without.append(part.wide.model)
        own[fold == k] = part.fitted.label_logits[fold == k].double()
    return FoldedNetwork(network, tuple(without), fold, own)


def held_out_fold(detector: GcnTraining, network: GcnFit, n_folds: int) -> tuple[Tensor, Tensor]:
    """Returns which labels are in the first of K folds, bool [m], and their logits without it, float64 [m', k].

    Args:
        detector: see `fold_network`.
        network: on all labels, converged.
        n_folds: K.
    """
    held = fold_of(network.targets, n_folds, detector.seed) == 0
    part = _converged_without(network, RowSpace.of(network), held)
    return held, part.fitted.label_logits[held].double()


def _converged_without(network: GcnFit, space: RowSpace, held: Tensor) -> RowSpace:
    """Returns a network brought from its minimum to the one without some labels, bool [m]."""
    kept = (~held).to(network.sample_weights)
    part = space.copy(network.sample_weights * kept * (kept.numel() / kept.sum()))
    part.minimise(TOLERANCE, MAX_STEPS)
    return part


def _moved(network: GcnFit, theta: Tensor) -> GCN:
    """Returns a copy of a network's model at other parameters [p]."""
    other = network.copy()
    other.move_to(theta)
    return other.model
