"""Labels as reasons: the strongest, the fewest without which a node is no alert, and groups of them."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.explain.context import ExplanationContext
from calirare.explain.explainable_model import ExplainableModel, log_odds_of, probability
from calirare.explain.explanation import GroupEffect, LabelEffect, Needed

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # numbers of labels that are left out together
BLOCK = 4_000_000  # numbers of labels times nodes worked on together
ROUNDING = 1e-9  # of P(rare): a smaller effect of a label is rounding and counts as none


class LabelReasons:
    """What labels say of nodes.

    Args:
        model: the detector on the graph.
        context: what is explained.
    """

    def __init__(self, model: ExplainableModel, context: ExplanationContext) -> None:
        self.model, self.context = model, context

    def effects(self, nodes: Tensor, p: Tensor) -> Tensor:
        """Returns P(rare) `p` of nodes [n] minus P(rare) without each label, float64 [n, m]; 0 where it is rounding."""
        step = max(1, BLOCK // max(self.context.labelled.numel(), 1))
        parts = zip(nodes.split(step), p.split(step), strict=True)
        found = torch.cat([(whole - self._p(self.model.without_each_label(part))).T for part, whole in parts])
        return torch.where(found.abs() > ROUNDING * p[:, None], found, 0.0)

    def strongest(self, node: int, p: float, effects: Tensor, shown: int) -> tuple[LabelEffect, ...]:
        """Returns the labels with the largest |effect|, of effects [m]; none where a detector tells of none."""
        if not bool(effects.any()):
            return ()
        places = torch.argsort(effects.abs(), descending=True, stable=True)[:shown]
        return tuple(self._label(node, p, int(place), float(effects[place])) for place in places)

    def _label(self, node: int, p: float, place: int, effect: float) -> LabelEffect:
        context, without = self.context, p - effect
        whose = int(context.labelled[place])
        whole, less = log_odds_of(torch.tensor([p, without], dtype=torch.float64)).tolist()
        label = context.label_at(place)
        return LabelEffect(whose, context.graph.node_name(whose), label, effect, without, whole - less, whose == node)

    def decided(self, nodes: Tensor, p: Tensor) -> Tensor:
        """Returns which nodes [n], of P(rare) `p`, are what their labels may be needed for, alerts; bool [n]."""
        del nodes
        return p >= self.context.threshold

    def needed(self, nodes: Tensor, effects: Tensor) -> list[Needed | None]:
        """Returns, of each alert, the fewest of the labels that speak most for it without which it is none.

        Labels are taken by their effect alone, the strongest first; what so many do together is computed as one.

        Args:
            nodes: int64 [n].
            effects: of the labels, [n, m].
        """
        orders, sizes = growing(effects)
        sets = [order[:size] for order, own in zip(orders, sizes, strict=True) for size in own]
        if not sets:
            return [None] * nodes.numel()
        after, first, out = self._p(self.model.without_labels(nodes, sets)), 0, list[Needed | None]()
        for i, (order, own) in enumerate(zip(orders, sizes, strict=True)):
            out.append(self._first_enough(order, own, after[first : first + len(own), i].tolist()))
            first += len(own)
        return out

    def _first_enough(self, order: Tensor, sizes: list[int], after: list[float]) -> Needed | None:
        """Returns the first of some numbers of labels without which a node is no alert, else the last."""
        if not sizes:
            return None
        pairs = list(zip(sizes, after, strict=True))
        size, p = next(((n, p) for n, p in pairs if p < self.context.threshold), pairs[-1])
        names = tuple(self.context.graph.node_name(int(self.context.labelled[place])) for place in order[:size])
        return Needed(names, p, p < self.context.threshold)

    def groups(self, nodes: Tensor, p: Tensor, groups: dict[str, Tensor]) -> list[tuple[GroupEffect, ...]]:
        """Returns, of each node, what all labels of a group do together, by |effect|."""
        after = self._p(self.model.without_labels(nodes, list(groups.values())))
        out = []
        for i, whole in enumerate(p.tolist()):
            pairs = zip(groups.items(), after[:, i].tolist(), strict=True)
            each = [GroupEffect(value, len(places), whole - less, less) for (value, places), less in pairs]
            out.append(tuple(sorted(each, key=lambda effect: -abs(effect.effect))))
        return out

    def _p(self, log_odds: Tensor) -> Tensor:
        return probability(log_odds, self.context.mapping)


def growing(effects: Tensor) -> tuple[list[Tensor], list[list[int]]]:
    """Returns, of each node, the labels that speak for it, the strongest first, and how many are removed in turn.

    Args:
        effects: of the labels, [n, m].
    """
    orders = [torch.argsort(row, descending=True, stable=True)[: int((row > 0).sum())] for row in effects]
    return orders, [[size for size in SIZES if size <= order.numel()] for order in orders]
