"""What is explained: graph, labels, classes and calibrator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from calirare.calibration import Calibrator
from calirare.explain.explainable_model import probabilities
from calirare.explain.words import neighbours
from calirare.graph import Graph

DRAWN = "none, drawn"  # of a node that stands for the rest, in the place of its class


@dataclass(frozen=True, eq=False)
class ExplanationContext:
    """What is explained.

    Attributes:
        graph: with the user's names; its nodes are explained.
        labelled: nodes the detector learned from, int64 [m]; of `trained_on`.
        targets: their classes, int64 [m].
        class_names: names of both classes, or of all.
        mapping: of P(rare) for the population, or of P of every class; None: there is no map.
        threshold: P(rare) from which a node is an alert, or of each node [n]; None: many classes, without alerts.
        columns: names of the features as the detector reads them; None: as the graph has them.
        positive_only: rare nodes alone have labels; the others of the labelled nodes were drawn to stand for the rest.
        own: the graph that the detector was trained on, where it is another one; None: it is `graph`.
        own_places: number in `own` of each node of `graph`, -1 where it is new, int64 [n]; None: all are new.
    """

    graph: Graph
    labelled: Tensor
    targets: Tensor
    class_names: tuple[str, ...]
    mapping: Calibrator | None
    threshold: float | Tensor | None
    columns: tuple[str, ...] | None = None
    positive_only: bool = False
    own: Graph | None = None
    own_places: Tensor | None = None

    @property
    def trained_on(self) -> Graph:
        """The graph of the labels."""
        return self.graph if self.own is None else self.own

    def own_node(self, node: int) -> int:
        """Returns the number of a node in `trained_on`; -1: it is new."""
        return node if self.own is None else -1 if self.own_places is None else int(self.own_places[node])

    @property
    def many(self) -> bool:
        """Whether classes are taken as they are; else class 1 is a rare one, with alerts."""
        return self.threshold is None

    def probabilities(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities of logits, float64 [.., k]."""
        return probabilities(logits, self.mapping)

    def threshold_of(self, nodes: Tensor | int) -> Any:
        """Returns the P(rare) from which nodes are alerts; infinite with many classes."""
        threshold = torch.inf if self.threshold is None else self.threshold
        return threshold[nodes] if isinstance(threshold, Tensor) else threshold

    def chosen(self, p: Tensor, of: int, nodes: Tensor) -> Tensor:
        """Returns of which nodes with P [.., k] a class is chosen: rare for an alert, or else the likeliest."""
        return p.argmax(-1) == of if self.threshold is None else p[..., of] >= self.threshold_of(nodes)

    @cached_property
    def _places(self) -> dict[int, int]:
        """Where each labelled node stands among them; of a repeated one the first place."""
        return {node: place for place, node in reversed(list(enumerate(self.labelled.tolist())))}

    def label_of(self, node: int) -> str | None:
        """Returns the label of a node that the detector learned from, None of any other."""
        own = self._places.get(self.own_node(node))
        if own is None or (self.positive_only and int(self.targets[own]) == 0):
            return None
        return self.label_at(own)

    def label_at(self, place: int) -> str:
        """Returns what the detector took a labelled node for, by its place among these."""
        target = int(self.targets[place])
        return DRAWN if self.positive_only and target == 0 else self.class_names[target]

    def name_at(self, place: int) -> str:
        """Returns what the user calls a labelled node, by its place among these."""
        return self.trained_on.node_name(int(self.labelled[place]))

    def known_around(self, node: int, but: int = -1) -> Tensor:
        """Returns the places of the labels of a node's neighbours but one, there and where the labels are from."""
        around = neighbours(self.graph.adjacency, node)
        around = around[around != but]
        if self.own is not None:
            shared = around[:0] if self.own_places is None else self.own_places[around]
            there, gone = self.own_node(node), self.own_node(but) if but >= 0 else -1
            more = neighbours(self.own.adjacency, there) if there >= 0 else around[:0]
            around = torch.cat([shared, more[more != gone]])
        return torch.isin(self.labelled, around.to(self.labelled.device)).nonzero().flatten()

    def labels_beyond(self, node: int, but: int, of: int = 1) -> str:
        """Returns in words what labels the neighbours of a node have, but one of them."""
        at = self.known_around(node, but)
        n_rare, rare = int((self.targets[at] == of).sum()), self.class_names[of]
        n = n_rare if self.positive_only else at.numel()
        return f"{n_rare} of {n} {rare if self.many else 'rare'}" if n else "no label"

    def types_of_edges(self, node: int, others: Tensor) -> dict[int, tuple[str, ...]]:
        """Returns by neighbour the types of the edge to it, see `EdgeEffect`; nothing where edges have no types."""
        found: dict[int, list[str]] = {other: [] for other in others.tolist()} if self.graph.relations else {}
        for relation in self.graph.relations:
            ways = [set(neighbours(matrix, node).tolist()) for matrix in (relation.out, relation.into)]
            for other in found.keys() & (ways[0] | ways[1]):
                way = "" if other in ways[0] & ways[1] else " to" if other in ways[0] else " from"
                found[other].append(relation.name + way)
        return {other: tuple(types) for other, types in found.items()}
