"""What new, other and forgotten labels changed in a run: nodes, alerts and measures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import amount, quoted
from calirare._util.arrays import brief
from calirare._util.errors import without_middle
from calirare.graph import Graph
from calirare.metrics import auprc, nll
from calirare.run.data_settings import Labels
from calirare.run.outcome import Outcome
from calirare.run.probabilities import Probabilities, log_loss_change

SHOWN, KEPT = 10, 1000  # rows on the screen, rows of changes.csv beside changed alerts
MEASURES = {"auprc": "AUPRC", "accuracy": "accuracy", "log_loss": "log loss", "mean_p": "mean P(rare)"}
WIDTH, ROOM = 80, 20  # characters of a line, and of a name
ALERT_CHANGED = {(0, 1): "now an alert", (1, 0): "no alert any more"}


@dataclass(frozen=True, eq=False)
class Side:
    """A run before or after the change.

    Attributes:
        p: P of every class for the run's target, float64 [n, k]; of a rare class for the population.
        decided: likeliest class of every node, int64 [n]; of a rare class 1 of a scored node that is an alert.
        threshold: of alerts.
        graph: with its labels and split.
        trained: nodes whose labels the detector has seen, int64.
    """

    p: Tensor
    decided: Tensor
    threshold: float
    graph: Graph
    trained: Tensor

    @classmethod
    def of(cls, found: Probabilities, threshold: float, graph: Graph, trained: Tensor, *, many: bool) -> Self:
        """Returns a side from probabilities of every node."""
        if many:
            p = found.chosen.cpu().double()
            return cls(p, p.argmax(1), threshold, graph, trained.cpu())
        rare, scored = found.rare.cpu(), torch.zeros(graph.n_nodes, dtype=torch.bool)
        scored[graph.scored_nodes.cpu()] = True
        decided = (found.alert.cpu() & scored).long()
        return cls(torch.stack([1 - rare, rare], 1), decided, threshold, graph, trained.cpu())


@dataclass(frozen=True, eq=False)
class Updated:
    """A run trained again with other labels, and what that changed.

    Attributes:
        outcome: the new run.
        labels: the changed labels, and those that changed their part of the split.
        changed: the changed labels only.
        before: the run as it was.
        after: as it is.
        calibrates: whether the same labels can be given to `update_calibrators`.
    """

    outcome: Outcome
    labels: Labels
    changed: Labels
    before: Side
    after: Side
    calibrates: bool = False

    __repr__ = brief

    @property
    def many(self) -> bool:
        """Whether every class is taken as it is, and none is the rare one."""
        return self.outcome.settings.many

    @cached_property
    def moved(self) -> Tensor:
        """Change of every node, float64 [n]: of P(rare), 0 of one that is not scored.

        Of many classes half the sum of |change| over classes, in [0, 1].
        """
        change = self.after.p - self.before.p
        if self.many:
            return change.abs().sum(1) / 2
        out, nodes = torch.zeros(len(change), dtype=torch.float64), self.after.graph.scored_nodes.cpu()
        out[nodes] = change[nodes, 1]
        return out

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many labels are new, others than before, forgotten, and the same in another part of the split."""
        graph, now = self.before.graph, self.changed.y
        assert graph.y is not None
        had = graph.y.cpu()[self.changed.nodes]
        kinds = {
            "new": (had < 0) & (now >= 0),
            "changed": (had != now) & (had >= 0) & (now >= 0),
            "forgotten": now < 0,
            "moved": had == now,
        }
        return {name: int(which.sum()) for name, which in kinds.items()}

    @cached_property
    def measures(self) -> dict[str, dict[str, Any]] | None:
        """Measures of the test nodes that neither run was trained on; None where there are none.

        AUPRC, log loss and mean P(rare); of many classes accuracy and log loss. And the `change` of the log loss.
        """
        split, labels = self.after.graph.split, self.after.graph.y
        assert split is not None
        assert labels is not None
        seen, nodes = torch.cat([self.before.trained, self.after.trained]), split.test.cpu()
        nodes = nodes[(labels.cpu()[nodes] >= 0) & ~torch.isin(nodes, seen)]
        y = labels.cpu()[nodes]
        if not len(y) or (not self.many and len(y.unique()) < 2):
            return None
        out = dict[str, dict[str, Any]]()
        for name, side in (("before", self.before), ("after", self.after)):
            p = side.p[nodes]
            out[name] = {"nodes": float(len(y)), "log_loss": float(nll(y, p))}
            if self.many:
                out[name]["accuracy"] = float((p.argmax(1) == y).double().mean())
            else:
                rates = {"observed": float(y.double().mean()), "mean_p": float(p[:, 1].mean())}
                out[name] |= rates | {"auprc": float(auprc(y, p[:, 1]))}
        return out | {"change": log_loss_change(y, self.before.p[nodes], self.after.p[nodes])}

    @property
    def warning(self) -> str:
        """That the log loss of the test nodes is clearly larger than before, and what to do; empty where it is not."""
        if self.measures is None or self.measures["change"]["answer"] != "worse":
            return ""
        was, now = (self.measures[side]["log_loss"] for side in ("before", "after"))
        tested = f"{self.measures['after']['nodes']:,.0f} test {self.outcome.graph.unit}s"
        return (
            f"worse: log loss {now:.4f} on {tested}, before {was:.4f}. Keep the old run"
            + ", or fit only its calibrators again (--calibrator-only)" * self.calibrates
        )

    def to_frame(self) -> pd.DataFrame:
        """Returns the scored nodes that moved most and all whose alert or predicted class changed.

        The largest change comes first. Columns: node; p_before and p_after, P(rare); change; alert_before and
        alert_after, 0 or 1; label, of this update.
        Of many classes node; prediction_before and prediction_after; confidence_before and confidence_after, their
        probabilities; moved, see `moved`; label.
        """
        graph, sides = self.after.graph, {"before": self.before, "after": self.after}
        now = {name: side.decided for name, side in sides.items()}
        order = torch.argsort(self.moved.abs(), descending=True, stable=True)
        kept = (torch.arange(len(order)) < KEPT) | (now["before"] != now["after"])[order]
        nodes = order[kept]
        nodes = nodes[torch.isin(nodes, graph.scored_nodes.cpu())]
        columns: dict[str, Any] = {"node": [graph.node_name(node) for node in nodes.tolist()]}
        if self.many:
            for name in sides:
                columns[f"prediction_{name}"] = [graph.class_names[c] for c in now[name][nodes].tolist()]
            for name, side in sides.items():
                columns[f"confidence_{name}"] = side.p[nodes].max(1).values.numpy()
            columns["moved"] = self.moved[nodes].numpy()
        else:
            columns |= {f"p_{name}": side.p[nodes, 1].numpy() for name, side in sides.items()}
            columns["change"] = self.moved[nodes].numpy()
            columns |= {f"alert_{name}": alert[nodes].numpy() for name, alert in now.items()}
        label = dict(zip(self.changed.nodes.tolist(), self.changed.y.tolist(), strict=True))
        words = (*graph.class_names, "unknown")
        columns["label"] = [words[label[node]] if node in label else "" for node in nodes.tolist()]
        return pd.DataFrame(columns)

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it, the warning first."""
        scored = self.after.graph.scored_nodes.cpu()
        moved, facts = self.moved[scored].abs(), dict[str, Any](warning=self.warning)
        sides = {"before": self.before, "after": self.after}
        was, now = (side.decided[scored] for side in sides.values())
        if self.many:
            facts["task"] = "classes"
            facts["predictions_changed"] = int((was != now).sum())
            names = self.after.graph.class_names
            means = {name: side.p[scored].mean(0).tolist() for name, side in sides.items()}
            facts["estimated_shares"] = {name: dict(zip(names, mean, strict=True)) for name, mean in means.items()}
        else:
            which = {"before": was, "after": now, "appeared": now > was, "vanished": now < was}
            facts["alerts"] = {name: int(some.sum()) for name, some in which.items()}
            facts["threshold"] = {name: side.threshold for name, side in sides.items()}
        return facts | {
            "labels": self.counts,
            "trained_on": {"before": len(self.before.trained), "after": len(self.after.trained)},
            "moved": {"largest": float(moved.max()), "mean": float(moved.mean())},
            "test": self.measures,
            "made_by": "a training from scratch with the settings of the run before",
        }

    def summary(self, width: int = WIDTH) -> str:
        """Returns what changed, as text of some width."""
        facts, lines = self.to_mapping(), list[str]()
        kinds = ", ".join(f"{number:,} {quoted(name)}" for name, number in facts["labels"].items() if number)
        m, labels = facts["trained_on"], "label" if sum(facts["labels"].values()) == 1 else "labels"
        sentences = [
            *filter(None, [self.warning]),
            f"{kinds} {labels}; trained from scratch on {m['after']:,} (before: {m['before']:,}), nothing of the old "
            "run was kept but its settings",
            *self._sentences(facts),
        ]
        for words in sentences:
            lines += textwrap.wrap(words, width, subsequent_indent="  ")
        return "\n".join([*lines, "", *self._measured_rows(), *self._first()]) + "\n"

    def _sentences(self, facts: dict[str, Any]) -> Iterator[str]:
        """Yields the sentences of the summary about nodes, by `to_mapping`."""
        moved = "moved by {mean:.4f} on average, at most by {largest:.3f}".format(**facts["moved"])
        if self.many:
            changed = amount(facts["predictions_changed"], self.outcome.graph.unit)
            yield f"the predicted class of {changed} changed; probabilities {moved}"
            return
        alerts = facts["alerts"]
        yield f"P(rare) {moved}"
        yield (
            f"alerts, labelled ones among them: {alerts['after']:,} (before: {alerts['before']:,}), "
            f"{alerts['appeared']:,} appeared and {alerts['vanished']:,} vanished"
        )

    def _measured_rows(self) -> list[str]:
        if self.measures is None:
            return ["no labelled test nodes that both runs have not seen: nothing to measure by", ""]
        was, now = self.measures["before"], self.measures["after"]
        head = f"{int(now['nodes']):,} test {self.outcome.graph.unit}s"
        rows = [f"{label:<24} {was[key]:>9.4f} {now[key]:>9.4f}" for key, label in MEASURES.items() if key in now]
        observed = [f"{'observed rate':<34} {now['observed']:>9.4f}"] if "observed" in now else []
        return [f"{head:<24} {'before':>9} {'after':>9}", *rows, *observed, self.measures["change"]["sentence"], ""]

    def _first(self) -> list[str]:
        """Returns the first rows of the table: node, before, after, and whether an alert came or went."""
        rows = [(self.outcome.graph.unit, "before", "after", "")]
        for row in self.to_frame().head(SHOWN).to_dict("records"):
            name = without_middle(str(row["node"]), ROOM)
            if self.many:
                pairs = [(str(row[f"prediction_{at}"]), row[f"confidence_{at}"]) for at in ("before", "after")]
                was, now = (f"{without_middle(kind, ROOM - 6)} {p:.3f}" for kind, p in pairs)
                rows.append((name, was, now, ""))
            else:
                flag = ALERT_CHANGED.get((row["alert_before"], row["alert_after"]), "")
                rows.append((name, f"{row['p_before']:.3f}", f"{row['p_after']:.3f}", flag))
        rooms = [max(len(row[i]) for row in rows) for i in range(3)]
        return [
            " ".join(f"{cell:<{room}}" for cell, room in zip(row, [*rooms, 0], strict=True)).rstrip() for row in rows
        ]
