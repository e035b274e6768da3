"""What several methods share at one place: trained networks, held-out and leave-one-out logits, each made once."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import torch
from torch import Tensor

from calirare.graph import Graph, Split
from calirare.leave_one_out import OwnLogits
from calirare.models import GCN, GcnFit, GcnTraining, cross_fitted_logits, fit, loo_loss
from calirare_lab.baselines import OfficialSettings, train_official
from calirare_lab.paper.choosing import choose
from calirare_lab.paper.protocol import Place

# The paper's base network: Kipf & Welling's settings.
PAPER_TRAINING = GcnTraining(order="propagated")


class Context:
    """A graph with its split, and a store of what was computed on it.

    Args:
        place: the data and the seed.
        graph: the graph; None: the one of the place.

    Attributes:
        place: as given.
        graph: as given or loaded.
    """

    def __init__(self, place: Place, graph: Graph | None = None) -> None:
        self.place = place
        self.graph = place.load() if graph is None else graph
        self._fits: dict[tuple[str, GcnTraining], GcnFit] = {}
        self._cross: dict[GcnTraining, Tensor] = {}
        self._loo: dict[GcnTraining, Tensor] = {}
        self._official: dict[tuple[GcnTraining, OfficialSettings], GCN] = {}
        self._decays: dict[tuple[GcnTraining, tuple[float, ...]], float] = {}

    @property
    def split(self) -> Split:
        """The split."""
        assert self.graph.split is not None
        return self.graph.split

    @property
    def y(self) -> Tensor:
        """Labels of every node."""
        assert self.graph.y is not None
        return self.graph.y

    @cached_property
    def both(self) -> Tensor:
        """Training nodes, then validation nodes."""
        return torch.cat([self.split.train, self.split.val])

    @property
    def val_rows(self) -> slice:
        """Where the validation nodes stand in `both`."""
        return slice(self.split.train.numel(), None)

    def settings(self, base: GcnTraining, network: int = 0) -> GcnTraining:
        """Returns settings with this place's seed; `network` tells the networks of an ensemble apart."""
        return dataclasses.replace(base, seed=self.place.seed + 1000 * network)

    def fit(self, nodes: str, training: GcnTraining) -> GcnFit:
        """Returns the cost-sensitive GCN trained on "train" or on "both"."""
        key = (nodes, training)
        if key not in self._fits:
            self._fits[key] = fit(self.graph, self.both if nodes == "both" else self.split.train, training)
        return self._fits[key]

    def logits(self, nodes: str, training: GcnTraining, at: Tensor) -> Tensor:
        """Returns the logits of the network of `fit` at the given nodes, [m, k]."""
        model = self.fit(nodes, training).model
        with torch.no_grad():
            return model(self.graph, at)

    def cross_fitted(self, training: GcnTraining) -> Tensor:
        """Returns 5-fold cross-fitted logits of `both`, [m, k]."""
        if training not in self._cross:
            self._cross[training] = cross_fitted_logits(self.graph, self.both, training)
        return self._cross[training]

    def leave_one_out(self, training: GcnTraining) -> Tensor:
        """Returns each labelled node's logits without itself, damped by the weight decay, as `both`, float64 [m, k]."""
        if training not in self._loo:
            linearised = self.fit("both", training).linearisation
            self._loo[training] = OwnLogits(linearised, linearised.kernel)(training.weight_decay)
        return self._loo[training]

    def official(self, training: GcnTraining, settings: OfficialSettings) -> GCN:
        """Returns the network trained on "train" as by the authors' code."""
        key = (training, settings)
        if key not in self._official:
            self._official[key] = train_official(self.graph, self.split.train, training, settings)
        return self._official[key]

    def weight_decay(self, training: GcnTraining, candidates: tuple[float, ...]) -> float:
        """Returns the candidate with the lowest leave-one-out loss on the validation nodes (`choose`)."""
        key = (training, candidates)
        if key not in self._decays:
            self._decays[key] = choose(
                lambda decay: self._loss(dataclasses.replace(training, weight_decay=decay)), candidates, "weight decay"
            )
        return self._decays[key]

    def hops(self, training: GcnTraining, candidates: tuple[int, ...]) -> int:
        """Returns the number of hops with the lowest leave-one-out loss on the validation nodes (`choose`)."""
        return choose(lambda hops: self._loss(dataclasses.replace(training, hops=hops)), candidates, "hops")

    def _loss(self, training: GcnTraining) -> float:
        """Returns the leave-one-out loss on the validation nodes of the first network."""
        return loo_loss(self.leave_one_out(self.settings(training))[self.val_rows], self.y[self.split.val])
