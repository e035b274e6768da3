"""A saved run of many classes with labels that are new, others or forgotten, and what that changed."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import amount, quoted
from calirare._util.arrays import brief
from calirare._util.errors import without_middle
from calirare.graph import Graph
from calirare.metrics import nll
from calirare.pipeline.changes import KEPT, SHOWN, WIDTH, kinds_of
from calirare.run import Labels, Outcome

NAME = 20  # characters of a name in the summary


@dataclass(frozen=True, eq=False)
class UpdatedClasses:
    """A run of many classes trained again with other labels, and what that changed.

    Attributes:
        outcome: the new run.
        labels: the changed labels, and those that changed their part of the split.
        changed: the changed labels alone.
        before: the graph with the labels of before.
        p: probabilities of every node for the run's target before and after, each float64 [n, k].
        trained: nodes that trained before and after, each int64.
    """

    outcome: Outcome
    labels: Labels
    changed: Labels
    before: Graph
    p: tuple[Tensor, Tensor]
    trained: tuple[Tensor, Tensor]

    __repr__ = brief

    @cached_property
    def moved(self) -> Tensor:
        """How far the probabilities of each node moved: half the sum of |change| over classes, in [0, 1], [n]."""
        return (self.p[1] - self.p[0]).abs().sum(1) / 2

    @cached_property
    def measures(self) -> dict[str, dict[str, float]] | None:
        """Accuracy and log loss of the test nodes that neither run was trained on; None where there is none."""
        graph = self.outcome.graph
        assert graph.split is not None
        assert graph.y is not None
        test = graph.split.test
        nodes = test[(graph.y[test] >= 0) & ~torch.isin(test, torch.cat(self.trained))]
        if not nodes.numel():
            return None
        labels, out = graph.y[nodes], dict[str, dict[str, float]]()
        for side, every in zip(("before", "after"), self.p, strict=True):
            p = every[nodes]
            right = float((p.argmax(1) == labels).double().mean())
            out[side] = {"nodes": float(len(labels)), "accuracy": right, "log_loss": float(nll(labels, p))}
        return out

    def to_frame(self) -> pd.DataFrame:
        """Returns the nodes that moved most and all whose predicted class changed, the largest change first.

        Columns: node; prediction_before and prediction_after; confidence_before and confidence_after, their
        probabilities; moved, half the sum of the changes of all probabilities; label, of this update.
        """
        graph, (was, now) = self.outcome.graph, self.p
        names, order = graph.class_names, torch.argsort(self.moved, descending=True, stable=True)
        kept = torch.zeros(len(order), dtype=torch.bool)
        kept[:KEPT] = True
        nodes = order[kept | (was.argmax(1) != now.argmax(1))[order]]
        nodes = nodes[torch.isin(nodes, self.before.scored_nodes)]
        label = dict(zip(self.changed.nodes.tolist(), self.changed.y.tolist(), strict=True))
        columns: dict[str, Any] = {"node": [graph.node_name(node) for node in nodes.tolist()]}
        sides = [("before", *was[nodes].max(1)), ("after", *now[nodes].max(1))]
        for side, _, classes in sides:
            columns[f"prediction_{side}"] = [names[c] for c in classes.tolist()]
        for side, confidence, _ in sides:
            columns[f"confidence_{side}"] = confidence.numpy()
        words = (*names, "unknown")
        columns["moved"] = self.moved[nodes].numpy()
        columns["label"] = [words[label[node]] if node in label else "" for node in nodes.tolist()]
        return pd.DataFrame(columns)

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it."""
        was, now = self.p
        names, moved = self.outcome.graph.class_names, self.moved[self.before.scored_nodes]
        shares = [dict(zip(names, p[self.before.scored_nodes].mean(0).tolist(), strict=True)) for p in (was, now)]
        return {
            "task": "classes",
            "labels": kinds_of(self.before, self.changed),
            "trained_on": {"before": len(self.trained[0]), "after": len(self.trained[1])},
            "predictions_changed": int((was.argmax(1) != now.argmax(1))[self.before.scored_nodes].sum()),
            "estimated_shares": {"before": shares[0], "after": shares[1]},
            "moved": {"largest": float(moved.max()), "mean": float(moved.mean())},
            "test": self.measures,
            "made_by": "a training from scratch with the settings of the run before",
        }

    def summary(self, width: int = WIDTH) -> str:
        """Returns what changed, as text of some width."""
        facts = self.to_mapping()
        told = ", ".join(f"{number:,} {quoted(name)}" for name, number in facts["labels"].items() if number)
        labels = "label" if sum(facts["labels"].values()) == 1 else "labels"
        m, changed = facts["trained_on"], facts["predictions_changed"]
        say = [
            f"{told} {labels}; trained from scratch on {m['after']:,} (before: {m['before']:,}), nothing of the old "
            "run was kept but its settings",
            f"the predicted class of {amount(changed, 'node')} changed; probabilities moved by "
            f"{facts['moved']['mean']:.4f} on average, at most by {facts['moved']['largest']:.3f}",
        ]
        lines = [line for words in say for line in textwrap.wrap(words, width, subsequent_indent="  ")]
        return "\n".join([*lines, "", *self._measured_rows(), *self._first()]) + "\n"

    def _measured_rows(self) -> list[str]:
        if self.measures is None:
            return ["no labelled test nodes that both runs have not seen: nothing to measure by", ""]
        was, now = self.measures["before"], self.measures["after"]
        head = f"{int(now['nodes']):,} test nodes"
        names = (("accuracy", "accuracy"), ("log_loss", "log loss"))
        rows = [f"{label:<24} {was[key]:>9.4f} {now[key]:>9.4f}" for key, label in names]
        return [f"{head:<24} {'before':>9} {'after':>9}", *rows, ""]

    def _first(self) -> list[str]:
        lines = [f"{'node':<{NAME}} {'before':<{NAME}} {'after':<{NAME}}"]
        for row in self.to_frame().head(SHOWN).itertuples():
            was, now = (f"{without_middle(str(name), NAME - 6)} {p:.3f}" for name, p in self._sides(row))
            lines.append(f"{without_middle(str(row.node), NAME):<{NAME}} {was:<{NAME}} {now:<{NAME}}".rstrip())
        return lines

    def _sides(self, row: Any) -> list[tuple[Any, float]]:
        return [(row.prediction_before, row.confidence_before), (row.prediction_after, row.confidence_after)]
