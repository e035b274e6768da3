"""Explains nodes of a graph: P(rare) through the calibration map, with and without labels, edges and features."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from calirare._util.steps import counted
from calirare._util.torch_state import plain_torch, threads_for
from calirare.explain.context import ExplanationContext, Group
from calirare.explain.explainable_model import ExplainableModel, Shares, log_odds_of, probability
from calirare.explain.explanation import EdgeEffect, Explanation, Explanations, FeatureShare
from calirare.explain.label_reasons import LabelReasons
from calirare.explain.shares import stretched
from calirare.explain.words import Values, neighbours

SHOWN = 10  # labels of a node that are told of
TOGETHER = 16  # nodes
MANY_COLUMNS = 1_000  # of which most add nothing to a node
EVERY = 50_000  # nodes of a graph whose P(rare) is made of all at once


class Explainer:
    """Explains nodes; what it needs of the labels is made when it is built, and kept.

    Threads that ask the same one are answered one after the other: a model keeps what it has worked out.

    Args:
        model: the detector on the graph.
        context: what is explained.
        stored: reads P(rare) of every node as the run stored it, float64 [n], or returns None.
        labels: makes what labels say of nodes, by model and context.
        lock: held by the thread that asks; of explainers that share a model the same.
    """

    def __init__(
        self,
        model: ExplainableModel,
        context: ExplanationContext,
        stored: Callable[[], Tensor | None] = lambda: None,
        labels: Callable[[Any, ExplanationContext], LabelReasons] = LabelReasons,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.lock = threading.RLock() if lock is None else lock
        self.model, self.context, self._stored = model, context, stored
        self._asked = False  # whether what all explanations share was made
        self.labels, self.values = labels(model, context), Values(context.graph, context.columns)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what is held fixed and what is approximate."""
        return self.model.notes

    @plain_torch()
    def p_rare(self, nodes: Tensor) -> Tensor:
        """Returns P(rare) of nodes (int64 [n]), float64 [n]."""
        with self.lock, threads_for(self.context.graph.n_edges if nodes.numel() > EVERY else 0):
            return probability(self.model.log_odds(nodes), self.context.mapping)

    def p_stored(self, nodes: Tensor) -> Tensor:
        """Returns the same as it was stored, where it was: for nodes that are many, or not explained themselves."""
        return self.p_rare(nodes) if self._p_of_all is None else self._p_of_all[nodes]

    @plain_torch()
    def label_effects(self, nodes: Tensor) -> Tensor:
        """Returns P(rare) with each label minus P(rare) without it, float64 [n, m]."""
        with self.lock:
            return self.labels.effects(nodes, self.p_rare(nodes))

    @plain_torch()
    def edge_effects(self, node: int) -> tuple[Tensor, Tensor]:
        """Returns the neighbours of a node, int64 [b], and its P(rare) without the edge to each, float64 [b]."""
        others = neighbours(self.context.graph.adjacency, node)
        ends = torch.stack([torch.full_like(others, node), others], 1)
        with self.lock:
            after = self.model.without_edges(node, ends) if others.numel() else others.double()
        return others, probability(after, self.context.mapping)

    @plain_torch()
    def feature_shares(self, nodes: Tensor) -> Shares | None:
        """Returns what each column adds to the log-odds of P(rare) of nodes (int64 [n]); None where it is not known."""
        with self.lock:
            own = self.model.shares(nodes)
        if own is None:
            return None
        base, p = probability(own.base, self.context.mapping), self.p_rare(nodes)
        return stretched(own, log_odds_of(base), log_odds_of(p))

    @plain_torch()
    def explain(self, nodes: Tensor, shown: int = SHOWN, group: Group | None = None) -> Explanations:
        """Returns why each of some nodes has its P(rare).

        Args:
            nodes: int64 [n].
            shown: labels of each that are told of.
            group: a column by whose values labels are left out together, see `ExplanationContext.groups`.

        Raises:
            InputError: there is no such column, or it has too many values.
        """
        with self.lock:
            each = tuple(counted("reasons", self.each_of(nodes, shown, group), nodes.numel()))
        return Explanations(each, self.notes)

    def each_of(self, nodes: Tensor, shown: int = SHOWN, group: Group | None = None) -> Iterator[Explanation]:
        """Yields the same, one after the other, to the thread that holds the lock."""
        groups = {} if group is None else self.context.groups(group)
        if nodes.numel() > TOGETHER:
            self.model.prepare(nodes)
        for part in nodes.split(TOGETHER):
            with threads_for(0 if self._asked else self.context.graph.n_edges):  # many small steps, once large ones
                yield from self._explain(part, shown, groups)
            self._asked = True

    def _explain(self, nodes: Tensor, shown: int, groups: dict[str, Tensor]) -> Iterator[Explanation]:
        context, p = self.context, self.p_rare(nodes)
        effects = self.labels.effects(nodes, p)
        alerts = self.labels.decided(nodes, p).nonzero().flatten()
        needed = dict(zip(alerts.tolist(), self.labels.needed(nodes[alerts], effects[alerts]), strict=True))
        grouped = self.labels.groups(nodes, p, groups) if groups else [()] * nodes.numel()
        shares, p_around = self.feature_shares(nodes), self._around(nodes)
        log_odds = log_odds_of(p).tolist()
        for i, node in enumerate(nodes.tolist()):
            yield Explanation(
                node=node,
                name=context.graph.node_name(node),
                p=float(p[i]),
                threshold=context.threshold,
                log_odds=log_odds[i],
                label=context.label_of(node),
                labels=self.labels.strongest(node, float(p[i]), effects[i], shown),
                needed=needed.get(i),
                edges=self._edges(node, float(p[i]), log_odds[i], p_around),
                features=() if shares is None else self._features(node, shares, i),
                base=None if shares is None else float(shares.base[i]),
                groups=grouped[i],
                of=context.class_names[context.of],
            )

    def _around(self, nodes: Tensor) -> dict[int, float]:
        """Returns P(rare) of every neighbour of some nodes."""
        around = torch.unique(torch.cat([neighbours(self.context.graph.adjacency, node) for node in nodes.tolist()]))
        return dict(zip(around.tolist(), self.p_stored(around).tolist(), strict=True)) if around.numel() else {}

    @cached_property
    def _p_of_all(self) -> Tensor | None:
        """P(rare) of every node, which many explanations show of neighbours; None: of a large graph, not stored."""
        stored, n = self._stored(), self.context.graph.n_nodes
        return self.p_rare(torch.arange(n)) if stored is None and n <= EVERY else stored

    def _edges(self, node: int, p: float, log_odds: float, p_around: dict[int, float]) -> tuple[EdgeEffect, ...]:
        """Returns every edge of a node, by what it adds to the log-odds."""
        context, (others, without) = self.context, self.edge_effects(node)
        added, out = log_odds - log_odds_of(without), list[EdgeEffect]()
        types = context.types_of_edges(node, others)
        order = torch.argsort(added.abs(), descending=True, stable=True)
        for other, less, worth in zip(*(each[order].tolist() for each in (others, without, added)), strict=True):
            name, label = context.graph.node_name(other), context.label_of(other)
            effect = EdgeEffect(other, name, label, p_around[other], p - less, less, worth)
            if context.graph.scored is not None and not bool(context.graph.scored[other]):
                effect = replace(effect, p_rare=None, beyond=context.labels_beyond(other, node))
            out.append(replace(effect, types=types[other]) if types else effect)
        return tuple(out)

    def _features(self, node: int, shares: Shares, row: int) -> tuple[FeatureShare, ...]:
        """Returns every column, by |share|; of many, such as words, those that have one."""
        order = torch.argsort(shares.values[row].abs(), descending=True, stable=True)
        if order.numel() > MANY_COLUMNS:
            order = order[shares.values[row, order] != 0]
        names = [shares.names[place] for place in order.tolist()]
        each = zip(names, shares.values[row, order].tolist(), strict=True)
        return tuple(FeatureShare(name, share, self.values.of(node, name)) for name, share in each)
