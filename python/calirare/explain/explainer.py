"""Explains nodes of a graph: P(rare), or P of a class, with and without labels, edges and features."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.steps import counted
from calirare._util.torch_state import plain_torch, threads_for
from calirare.explain.context import ExplanationContext
from calirare.explain.explainable_model import ExplainableModel, Shares, class_log_odds, difference, two_columns
from calirare.explain.explanation import EdgeEffect, Explanation, Explanations, FeatureShare, Needed
from calirare.explain.label_propagation import NEARBY
from calirare.explain.label_reasons import LabelReasons
from calirare.explain.shares import passed_on, stretched
from calirare.explain.words import Values, neighbours

SHOWN = 10  # labels of a node that are reported
LABEL_WORK = 5e10  # multiply-adds up to which label effects are made without being requested: some seconds
TOO_MANY = "the effects of {:,} labels were not computed, which takes long; --labels {} (in Python labels={}) does it"
TOGETHER = 32  # nodes
MANY_COLUMNS = 1_000  # of which most add nothing to a node
EVERY = 50_000  # nodes of a graph whose probabilities are made of all at once


class Explainer:
    """Explains nodes; what it needs of the labels is made when it is built, and kept.

    Threads that use the same one take turns: a model keeps what it has worked out.

    Args:
        model: the detector on the graph.
        context: what is explained.
        stored: of a rare class reads P(rare) of every node as the run stored it, float64 [n], or returns None.
        no_labels: why effects of labels cannot be made, a sentence; empty: they can.
    """

    def __init__(
        self,
        model: ExplainableModel,
        context: ExplanationContext,
        stored: Callable[[], Tensor | None] = lambda: None,
        no_labels: str = "",
    ) -> None:
        self.no_labels = no_labels
        self.model, self.context, self._stored, self.lock = model, context, stored, threading.RLock()
        self._used = False  # whether what all explanations share was made
        self.labels, self.values = LabelReasons(model, context), Values(context.graph, context.columns)

    @plain_torch()
    def probabilities(self, nodes: Tensor) -> Tensor:
        """Returns P of every class of nodes (int64 [n]), calibrated, float64 [n, k]."""
        with self.lock, threads_for(self.context.graph.n_edges if nodes.numel() > EVERY else 0):
            return self.context.probabilities(self.model.logits(nodes))

    def stored_probabilities(self, nodes: Tensor) -> Tensor:
        """Returns the same as it was stored, where it was: for nodes that are many, or not explained themselves."""
        return self.probabilities(nodes) if self._of_all is None else self._of_all[nodes]

    def p_rare(self, nodes: Tensor) -> Tensor:
        """Returns P(rare) of nodes (int64 [n]), float64 [n]."""
        return self.probabilities(nodes)[:, 1]

    @plain_torch()
    def edge_effects(self, node: int) -> tuple[Tensor, Tensor]:
        """Returns the neighbours of a node, int64 [b], and P of every class without the edge to each, [b, k]."""
        others = neighbours(self.context.graph.adjacency, node)
        ends = torch.stack([torch.full_like(others, node), others], 1)
        with self.lock:
            if not others.numel():
                return others, torch.zeros(0, len(self.context.class_names), dtype=torch.float64)
            return others, self.context.probabilities(self.model.without_edges(node, ends))

    @plain_torch()
    def feature_shares(self, nodes: Tensor, of: int = 1) -> Shares | None:
        """Returns what each column adds to the log-odds of P(class) of nodes; None where it is not known."""
        with self.lock:
            own = self.model.shares(nodes)
        if own is None:
            return None
        if own.base.shape[1] == 2:  # only their difference counts
            own = Shares(two_columns(difference(own.base)), own.names, two_columns(difference(own.values)))
        found = passed_on(own, lambda logits: class_log_odds(self.context.probabilities(logits), of)[..., None])
        found = stretched(found, found.base, class_log_odds(self.probabilities(nodes), of)[:, None])
        return Shares(found.base[:, 0], found.names, found.values[:, :, 0])

    @plain_torch()
    def explain(self, nodes: Tensor, shown: int | None = None, of: int | None = None) -> Explanations:
        """Returns why each of some nodes has its P(rare), or P(class).

        Args:
            nodes: int64 [n].
            shown: labels of each that are reported; None: `SHOWN`, but none where their effects take long.
            of: with many classes the class, in [0, k); None: of each node its likeliest.

        Raises:
            InputError: effects of labels are wanted and cannot be made.
        """
        number = (SHOWN if self.labels_are_quick else 0) if shown is None else shown
        if self.no_labels and number:
            raise InputError(f"explain: {self.no_labels}")
        with self.lock:
            each = counted("reasons", self._each(nodes, number, of), nodes.numel())
            found = {explanation.node: explanation for explanation in each}
            left_out = self.no_labels or TOO_MANY.format(self.context.labelled.numel(), SHOWN, SHOWN)
            notes = self.model.label_notes if number else () if shown == 0 else (left_out,)
        return Explanations(tuple(found[node] for node in nodes.tolist()), (*notes, *self.model.notes))

    @property
    def labels_are_quick(self) -> bool:
        """Whether label effects take seconds at most, so that every explanation has them."""
        return not self.no_labels and self.model.label_work <= LABEL_WORK

    def _each(self, nodes: Tensor, shown: int, of: int | None) -> Iterator[Explanation]:
        """Yields the same, one after the other, class by class."""
        if of is None and self.context.many:
            with threads_for(self.context.graph.n_edges):
                classes = self.probabilities(nodes).argmax(1)
        else:
            classes = torch.full_like(nodes, 1 if of is None else of)
        for c in classes.unique().tolist():
            for part in nodes[classes == c].split(TOGETHER):
                with threads_for(0 if self._used else self.context.graph.n_edges):  # many small steps, once large ones
                    yield from self._explain(part, c, shown)
                self._used = True

    def _explain(self, nodes: Tensor, of: int, shown: int) -> Iterator[Explanation]:
        context, every = self.context, self.probabilities(nodes)
        p, log_odds = every[:, of], class_log_odds(every, of).tolist()
        effects, needed = None, dict[int, Needed | None]()
        if shown:
            effects = self.labels.effects(nodes, of, p)
            chosen = context.chosen(every, of, nodes).nonzero().flatten()
            needed = dict(zip(chosen.tolist(), self.labels.needed(nodes[chosen], of, effects[chosen]), strict=True))
        shares, p_around = self.feature_shares(nodes, of), self._around(nodes, of)
        shares = None if shares is None else self.values.plain(shares)
        for i, node in enumerate(nodes.tolist()):
            yield Explanation(
                node=node,
                name=context.graph.node_name(node),
                p=float(p[i]),
                threshold=float(context.threshold_of(node)),
                log_odds=log_odds[i],
                label=context.label_of(node),
                labels=() if effects is None else self.labels.strongest(node, float(p[i]), effects[i], shown),
                needed=needed.get(i),
                edges=self._edges(node, of, float(p[i]), log_odds[i], p_around),
                features=() if shares is None else self._features(node, of, shares, i),
                base=None if shares is None else float(shares.base[i]),
                of=context.class_names[of],
                probabilities=dict(zip(context.class_names, every[i].tolist(), strict=True)) if context.many else None,
            )

    def _around(self, nodes: Tensor, of: int) -> dict[int, float]:
        """Returns P(class) of every neighbour of some nodes."""
        around = torch.unique(torch.cat([neighbours(self.context.graph.adjacency, node) for node in nodes.tolist()]))
        if not around.numel():
            return {}
        return dict(zip(around.tolist(), self.stored_probabilities(around)[:, of].tolist(), strict=True))

    @cached_property
    def _of_all(self) -> Tensor | None:
        """P of every class of every node, which explanations show of neighbours; None: of a large graph, not stored."""
        stored, n = None if self.context.many else self._stored(), self.context.graph.n_nodes
        if stored is not None:
            return torch.stack([1 - stored, stored], 1)
        return self.probabilities(torch.arange(n)) if n <= EVERY else None

    def _edges(
        self, node: int, of: int, p: float, log_odds: float, p_around: dict[int, float]
    ) -> tuple[EdgeEffect, ...]:
        """Returns every edge of a node, by what it adds to the log-odds."""
        context, (others, after) = self.context, self.edge_effects(node)
        without, added, out = after[:, of], log_odds - class_log_odds(after, of), list[EdgeEffect]()
        types = context.types_of_edges(node, others)
        order = torch.argsort(added.abs(), descending=True, stable=True)
        for other, less, worth in zip(*(each[order].tolist() for each in (others, without, added)), strict=True):
            name, label = context.graph.node_name(other), context.label_of(other)
            effect = EdgeEffect(other, name, label, p_around[other], p - less, less, worth)
            if context.graph.scored is not None and not bool(context.graph.scored[other]):
                effect = replace(effect, p_rare=None, beyond=context.labels_beyond(other, node, of))
            out.append(replace(effect, types=types[other]) if types else effect)
        return tuple(out)

    def _features(self, node: int, of: int, shares: Shares, row: int) -> tuple[FeatureShare, ...]:
        """Returns every column, by |share|; of many, such as words, those that have one."""
        order = torch.argsort(shares.values[row].abs(), descending=True, stable=True)
        if order.numel() > MANY_COLUMNS:
            order = order[shares.values[row, order] != 0]
        out = list[FeatureShare]()
        for place, share in zip(order.tolist(), shares.values[row, order].tolist(), strict=True):
            name, field = shares.names[place], self.values.of(node, shares.names[place])
            value, usual = (None, "") if field is None else (field.value, field.usual)
            value = self.context.labels_beyond(node, -1, of) if name == NEARBY else value
            out.append(FeatureShare(name, share, value, usual))
        return tuple(out)
