"""Labels as reasons: the strongest, and the fewest without which a node is no alert."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.explain.context import ExplanationContext
from calirare.explain.explainable_model import ExplainableModel, log_odds_of
from calirare.explain.explanation import LabelEffect, Needed

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # numbers of labels that are left out together
BLOCK = 4_000_000  # numbers of labels times nodes worked on together
ROUNDING = 1e-9  # of P(class): a smaller effect of a label is rounding and counts as none


class LabelReasons:
    """What labels do to P(class) of nodes.

    Args:
        model: the detector on the graph.
        context: what is explained.
    """

    def __init__(self, model: ExplainableModel, context: ExplanationContext) -> None:
        self.model, self.context = model, context

    def effects(self, nodes: Tensor, of: int, p: Tensor) -> Tensor:
        """Returns P(class) `p` of nodes [n] minus P(class) without each label, float64 [n, m]; 0 if it is rounding."""
        step = max(1, BLOCK // max(self.context.labelled.numel() * len(self.context.class_names), 1))
        parts = zip(nodes.split(step), p.split(step), strict=True)
        found = torch.cat([(whole - self._p(self.model.without_each_label(part), of)).T for part, whole in parts])
        return torch.where(found.abs() > ROUNDING * p[:, None], found, 0.0)

    def strongest(self, node: int, p: float, effects: Tensor, shown: int) -> tuple[LabelEffect, ...]:
        """Returns the labels with the largest |effect|, of effects [m]; none where no label has one."""
        if not bool(effects.any()):
            return ()
        places = torch.argsort(effects.abs(), descending=True, stable=True)[:shown]
        return tuple(self._label(node, p, int(place), float(effects[place])) for place in places)

    def _label(self, node: int, p: float, place: int, effect: float) -> LabelEffect:
        context, without = self.context, p - effect
        whose = int(context.labelled[place])
        whole, less = log_odds_of(torch.tensor([p, without], dtype=torch.float64)).tolist()
        label = context.label_at(place)
        own = whose == context.own_node(node)
        return LabelEffect(whose, context.name_at(place), label, effect, without, whole - less, own)

    def needed(self, nodes: Tensor, of: int, effects: Tensor) -> list[Needed | None]:
        """Returns the fewest labels in favour of each node's class without which it is no alert, or of another class.

        Labels are taken by their own effect, the strongest first; the effect of so many together is computed as one.

        Args:
            nodes: alerts, or nodes whose likeliest class it is, int64 [n].
            of: the class.
            effects: of the labels, [n, m].
        """
        orders = [torch.argsort(row, descending=True, stable=True)[: int((row > 0).sum())] for row in effects]
        out: list[Needed | None] = []
        for part in torch.arange(len(orders)).split(1 if self.context.many else max(len(orders), 1)):
            some = [(orders[i], [size for size in SIZES if size <= len(orders[i])]) for i in part.tolist()]
            sets = [order[:size] for order, sizes in some for size in sizes]
            if not sets:
                out += [None] * len(some)
                continue
            after, first = self.context.probabilities(self.model.without_labels(nodes[part], sets)), 0
            for i, (order, sizes) in enumerate(some):
                out.append(self._first_enough(nodes[part][i], order, sizes, of, after[first : first + len(sizes), i]))
                first += len(sizes)
        return out

    def _first_enough(self, node: Tensor, order: Tensor, sizes: list[int], of: int, after: Tensor) -> Needed | None:
        """Returns the first of some numbers of labels, by P `after` [s, k], that are enough, else the last."""
        if not sizes:
            return None
        context, enough = self.context, ~self.context.chosen(after, of, node)
        row = int(enough.int().argmax()) if bool(enough.any()) else len(sizes) - 1
        names = tuple(context.name_at(int(place)) for place in order[: sizes[row]])
        instead = context.class_names[int(after[row].argmax())] if context.many else None
        return Needed(names, float(after[row, of]), bool(enough[row]), instead)

    def _p(self, logits: Tensor, of: int) -> Tensor:
        return self.context.probabilities(logits)[..., of]
