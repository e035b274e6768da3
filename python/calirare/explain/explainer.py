"""Explains nodes of a graph: P(rare) through the calibration map, with and without labels, edges and features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.calibration import Calibrator
from calirare.explain.explanation import Explanation, Explanations, LabelEffect, Needed
from calirare.explain.voice import Voice, probability
from calirare.graph import Graph

SHOWN = 10  # labels of a node that are told of
SIZES = (*range(1, 13), 16, 24, 32)  # numbers of labels that are left out together
TOGETHER = 16  # nodes
BLOCK = 4_000_000  # numbers of labels times nodes worked on together


@dataclass(frozen=True, eq=False)
class Subject:
    """What is explained, and how it is spoken of.

    Attributes:
        graph: with the user's names.
        labelled: nodes the detector learned from, int64 [m].
        targets: their classes, int64 [m].
        class_names: names of both classes.
        mapping: of P(rare) for the population; None: there is no map.
        threshold: P(rare) from which a node is an alert.
    """

    graph: Graph
    labelled: Tensor
    targets: Tensor
    class_names: tuple[str, ...]
    mapping: Calibrator | None
    threshold: float


class Explainer:
    """Explains nodes; what it needs of the labels is made when it is built, and kept.

    Args:
        voice: the detector on the graph.
        subject: what is explained.
    """

    def __init__(self, voice: Voice, subject: Subject) -> None:
        self.voice, self.subject = voice, subject

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what is held fixed and what is approximate."""
        return self.voice.notes

    def p_rare(self, nodes: Tensor) -> Tensor:
        """Returns P(rare) of nodes (int64 [n]), float64 [n]."""
        return probability(self.voice.log_odds(nodes), self.subject.mapping)

    def label_effects(self, nodes: Tensor) -> Tensor:
        """Returns P(rare) with each label minus P(rare) without it, float64 [n, m]."""
        m = max(self.subject.labelled.numel(), 1)
        return torch.cat([self._label_effects(part) for part in nodes.split(max(1, BLOCK // m))])

    def _label_effects(self, nodes: Tensor) -> Tensor:
        without = probability(self.voice.without_each_label(nodes), self.subject.mapping)
        return (self.p_rare(nodes) - without).T

    def explain(self, nodes: Tensor, shown: int = SHOWN) -> Explanations:
        """Returns why each of some nodes has its P(rare).

        Args:
            nodes: int64 [n].
            shown: labels of each that are told of.
        """
        parts = nodes.split(TOGETHER)
        return Explanations(tuple(each for part in parts for each in self._explain(part, shown)), self.notes)

    def _explain(self, nodes: Tensor, shown: int) -> list[Explanation]:
        p, effects = self.p_rare(nodes), self.label_effects(nodes)
        alerts = (p >= self.subject.threshold).nonzero().flatten()
        needed = dict(zip(alerts.tolist(), self._needed(nodes[alerts], effects[alerts]), strict=True))
        return [self._one(int(nodes[i]), float(p[i]), effects[i], needed.get(i), shown) for i in range(nodes.numel())]

    def _one(self, node: int, p: float, effects: Tensor, needed: Needed | None, shown: int) -> Explanation:
        subject = self.subject
        own = (subject.labelled == node).nonzero().flatten()
        return Explanation(
            node=node,
            name=subject.graph.node_name(node),
            p_rare=p,
            threshold=subject.threshold,
            log_odds=_logit(p),
            label=subject.class_names[int(subject.targets[own[0]])] if own.numel() else None,
            labels=self._strongest(node, p, effects, shown),
            needed=needed,
        )

    def _strongest(self, node: int, p: float, effects: Tensor, shown: int) -> tuple[LabelEffect, ...]:
        """Returns the labels with the largest |effect|."""
        places = torch.argsort(effects.abs(), descending=True, stable=True)[:shown]
        return tuple(self._label(node, p, int(place), float(effects[place])) for place in places)

    def _label(self, node: int, p: float, place: int, effect: float) -> LabelEffect:
        subject = self.subject
        whose = int(subject.labelled[place])
        label, without = subject.class_names[int(subject.targets[place])], p - effect
        added = _logit(p) - _logit(without)
        return LabelEffect(whose, subject.graph.node_name(whose), label, effect, without, added, whose == node)

    def _needed(self, nodes: Tensor, effects: Tensor) -> list[Needed | None]:
        """Returns, of each alert, the fewest of the labels that speak most for it without which it is none.

        Labels are taken by their effect alone, the strongest first; what so many do together is computed as one.
        """
        orders = [torch.argsort(row, descending=True, stable=True)[: int((row > 0).sum())] for row in effects]
        sizes = [[size for size in SIZES if size <= order.numel()] for order in orders]
        sets = [order[:size] for order, own in zip(orders, sizes, strict=True) for size in own]
        if not sets:
            return [None] * nodes.numel()
        after = probability(self.voice.without_labels(nodes, sets), self.subject.mapping)
        out, first = list[Needed | None](), 0
        for i, (order, own) in enumerate(zip(orders, sizes, strict=True)):
            out.append(self._first_enough(order, own, after[first : first + len(own), i].tolist()))
            first += len(own)
        return out

    def _first_enough(self, order: Tensor, sizes: list[int], after: list[float]) -> Needed | None:
        """Returns the first of some numbers of labels without which a node is no alert, else the last."""
        if not sizes:
            return None
        pairs = list(zip(sizes, after, strict=True))
        size, p = next(((n, p) for n, p in pairs if p < self.subject.threshold), pairs[-1])
        names = tuple(self.subject.graph.node_name(int(self.subject.labelled[place])) for place in order[:size])
        return Needed(names, p, p < self.subject.threshold)


def _logit(p: float) -> float:
    """Returns the log-odds of a probability, of 0 and 1 those of the nearest number that is neither."""
    p = min(max(p, math.ulp(0.0)), 1 - math.ulp(0.5))
    return math.log(p) - math.log1p(-p)
