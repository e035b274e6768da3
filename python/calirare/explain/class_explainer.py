"""Explains nodes of a run of many classes: P(class) through the calibration map, of the likeliest class or another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

from calirare._util.steps import counted
from calirare._util.torch_state import plain_torch, threads_for
from calirare.explain.context import ExplanationContext, Group
from calirare.explain.explainable_model import ExplainableModel
from calirare.explain.explainer import EVERY, SHOWN, Explainer
from calirare.explain.explanation import Explanation, Explanations, Needed
from calirare.explain.label_reasons import LabelReasons, growing
from calirare.explain.one_class import OneClass, probabilities

NODES = 1_000  # whose probabilities are made together


class ClassReasons(LabelReasons):
    """What labels say of P(class), and without which of them another class is the likeliest.

    Args:
        model: the class against the rest.
        context: what is explained.
        likeliest: returns the likeliest class of nodes (int64 [n]), int64 [n].
    """

    def __init__(self, model: OneClass, context: ExplanationContext, likeliest: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model, context)
        self.of_class, self.likeliest = model, likeliest

    def decided(self, nodes: Tensor, p: Tensor) -> Tensor:
        """See `LabelReasons.decided`: nodes of which no class is likelier."""
        del p
        return self.likeliest(nodes) == self.context.of

    def needed(self, nodes: Tensor, effects: Tensor) -> list[Needed | None]:
        """See `LabelReasons.needed`; here of the labels without which another class is the likeliest."""
        found = list[Needed | None]()
        for node, order, sizes in zip(nodes, *growing(effects), strict=True):
            if not sizes:
                found.append(None)
                continue
            after = self.of_class.probabilities_without(node[None], [order[:size] for size in sizes])[:, 0]
            found.append(self._first_other(order, sizes, after))
        return found

    def _first_other(self, order: Tensor, sizes: list[int], after: Tensor) -> Needed:
        """Returns the first of some numbers of labels without which, by P `after` [s, k], another class is likelier."""
        most, of = after.argmax(1).tolist(), self.context.of
        row = next((i for i, c in enumerate(most) if c != of), len(sizes) - 1)
        names = tuple(self.context.graph.node_name(int(self.context.labelled[i])) for i in order[: sizes[row]])
        return Needed(names, float(after[row, of]), most[row] != of, self.context.class_names[most[row]])


class ClassExplainer:
    """Explains nodes by any of many classes; what it needs of the labels is made once, for all classes.

    Args:
        model: the detector on the graph, of k > 2 classes.
        context: what is explained, with the calibration map of all classes.
    """

    def __init__(self, model: ExplainableModel, context: ExplanationContext) -> None:
        self.model, self.context = model, context
        self._by_class, self.lock = dict[int, Explainer](), threading.RLock()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what is held fixed and what is approximate."""
        return self.model.notes

    @plain_torch()
    def probabilities(self, nodes: Tensor) -> Tensor:
        """Returns P of every class of nodes (int64 [n]), calibrated, float64 [n, k]."""
        with self.lock:
            if nodes.numel() > NODES and self._of_all is not None:
                return self._of_all[nodes]
            return probabilities(self.model.log_odds(nodes), self.context.mapping)

    @cached_property
    def _of_all(self) -> Tensor | None:
        """P of every class of every node, which many explanations show of neighbours; None: of a large graph."""
        n = self.context.graph.n_nodes
        if n > EVERY:
            return None
        return probabilities(self.model.log_odds(torch.arange(n)), self.context.mapping)

    def likeliest(self, nodes: Tensor) -> Tensor:
        """Returns the likeliest class of nodes (int64 [n]), int64 [n]."""
        return self.probabilities(nodes).argmax(1)

    def of(self, c: int) -> Explainer:
        """Returns what explains P(class) of a class in [0, k) as if it were a rare one; its words are those of that."""
        if c not in self._by_class:
            model = OneClass(self.model, self.context.mapping, c)
            context = replace(self.context, mapping=None, threshold=torch.inf, of=c)
            self._by_class[c] = Explainer(
                model,
                context,
                lambda: None if self._of_all is None else self._of_all[:, c],
                lambda own, about: ClassReasons(own, about, self.likeliest),
                self.lock,
            )
        return self._by_class[c]

    @plain_torch()
    def explain(
        self, nodes: Tensor, of: int | None = None, shown: int = SHOWN, group: Group | None = None
    ) -> Explanations:
        """Returns why each of some nodes has its P(class).

        Args:
            nodes: int64 [n], each once.
            of: the class, in [0, k); None: of each node its likeliest.
            shown: labels of each that are told of.
            group: a column by whose values labels are left out together, see `ExplanationContext.groups`.

        Raises:
            InputError: there is no such column, or it has too many values.
        """
        with threads_for(self.context.graph.n_edges):
            p = self.probabilities(nodes)
        classes = p.argmax(1) if of is None else torch.full_like(nodes, of)
        found, names = dict[int, Explanation](), self.context.class_names
        rows = dict(zip(nodes.tolist(), p.tolist(), strict=True))
        every = chain.from_iterable(
            self.of(c).each_of(nodes[classes == c], shown, group) for c in classes.unique().tolist()
        )
        with self.lock:
            for each in counted("reasons", every, nodes.numel()):
                of_each = dict(zip(names, rows[each.node], strict=True))
                found[each.node] = replace(each, probabilities=of_each)
        return Explanations(tuple(found[node] for node in nodes.tolist()), self.notes)
