"""Explains nodes of a graph: P(rare) through the calibration map, with and without labels, edges and features."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calirare.calibration import Calibrator
from calirare.explain.explanation import EdgeEffect, Explanation, Explanations, FeatureShare, LabelEffect, Needed
from calirare.explain.shares import stretched
from calirare.explain.voice import Shares, Voice, log_odds_of, probability
from calirare.explain.words import Values, neighbours
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

    def label_of(self, node: int) -> str | None:
        """Returns the class of a node that the detector learned from, None of any other."""
        own = (self.labelled == node).nonzero().flatten()
        return self.class_names[int(self.targets[own[0]])] if own.numel() else None


class Explainer:
    """Explains nodes; what it needs of the labels is made when it is built, and kept.

    Args:
        voice: the detector on the graph.
        subject: what is explained.
    """

    def __init__(self, voice: Voice, subject: Subject) -> None:
        self.voice, self.subject = voice, subject
        self.values = Values(subject.graph)

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
        shares, p_around = self.feature_shares(nodes), self._around(nodes)
        out = []
        for i, node in enumerate(nodes.tolist()):
            plain = self._one(node, float(p[i]), effects[i], shown)
            said = (
                {} if shares is None else {"base": float(shares.base[i]), "features": self._features(node, shares, i)}
            )
            out.append(replace(plain, needed=needed.get(i), edges=self._edges(node, float(p[i]), p_around), **said))
        return out

    def feature_shares(self, nodes: Tensor) -> Shares | None:
        """Returns what each column adds to the log-odds of P(rare) of nodes (int64 [n]); None where it is not known."""
        own = self.voice.shares(nodes)
        if own is None:
            return None
        base, p = probability(own.base, self.subject.mapping), self.p_rare(nodes)
        return stretched(own, log_odds_of(base), log_odds_of(p))

    def _features(self, node: int, shares: Shares, row: int) -> tuple[FeatureShare, ...]:
        """Returns every column, by |share|."""
        values = shares.values[row]
        order = torch.argsort(values.abs(), descending=True, stable=True).tolist()
        names = ((shares.names[place], float(values[place])) for place in order)
        return tuple(FeatureShare(name, share, self.values.of(node, name)) for name, share in names)

    def edge_effects(self, node: int) -> tuple[Tensor, Tensor]:
        """Returns the neighbours of a node, int64 [b], and its uncalibrated log-odds without the edge to each, [b]."""
        others = neighbours(self.subject.graph, node)
        ends = torch.stack([torch.full_like(others, node), others], 1)
        return others, self.voice.without_edges(node, ends) if others.numel() else others.double()

    def _around(self, nodes: Tensor) -> dict[int, float]:
        """Returns P(rare) of every neighbour of some nodes."""
        around = torch.unique(torch.cat([neighbours(self.subject.graph, node) for node in nodes.tolist()]))
        return dict(zip(around.tolist(), self.p_rare(around).tolist(), strict=True)) if around.numel() else {}

    def _edges(self, node: int, p: float, p_around: dict[int, float]) -> tuple[EdgeEffect, ...]:
        """Returns every edge of a node, by |effect|."""
        others, after = self.edge_effects(node)
        without = probability(after, self.subject.mapping)
        added = _logit(p) - log_odds_of(without)
        order = torch.argsort(added.abs(), descending=True, stable=True).tolist()
        return tuple(
            EdgeEffect(
                other := int(others[i]),
                self.subject.graph.node_name(other),
                self.subject.label_of(other),
                p_around[other],
                p - float(without[i]),
                float(without[i]),
                float(added[i]),
            )
            for i in order
        )

    def _one(self, node: int, p: float, effects: Tensor, shown: int) -> Explanation:
        subject = self.subject
        return Explanation(
            node=node,
            name=subject.graph.node_name(node),
            p_rare=p,
            threshold=subject.threshold,
            log_odds=_logit(p),
            label=subject.label_of(node),
            labels=self._strongest(node, p, effects, shown),
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
    return float(log_odds_of(torch.tensor(p, dtype=torch.float64)))
