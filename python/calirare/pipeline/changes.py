"""What new, other and forgotten labels changed in a run: nodes, alerts and measures, and which labels it was."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import quoted
from calirare._util.arrays import brief
from calirare._util.errors import without_middle
from calirare.graph import Graph
from calirare.metrics import auprc, nll
from calirare.run import Labels, Outcome, Probabilities

SHOWN, KEPT = 10, 1000  # rows on the screen, rows of changes.csv beside changed alerts
MEASURES = {
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "mean_p": "mean P(rare)",
}
WIDTH, ROOM = 80, 20  # characters of a line, and of a name
SMALL = 0.0005  # of a change of P(rare): less has more digits
LEAST, MOST = 0.2, 3.0  # of a node's change that a label must and may account for to be named as its reason
AGREES = 0.3  # correlation
UNTOLD = "; it does not agree on which nodes move, so reasons are not told"
ANEW = "no single label: maps and weights were fitted anew"


def kinds_of(graph: Graph, changed: Labels) -> dict[str, int]:
    """Returns how many labels are new, others than a graph's, forgotten, and the same in another part of the split."""
    assert graph.y is not None
    had = graph.y.cpu()[changed.nodes]
    other = had != changed.y
    kinds = {
        "new": (had < 0) & (changed.y >= 0),
        "changed": other & (had >= 0) & (changed.y >= 0),
        "forgotten": changed.y < 0,
        "moved": ~other,
    }
    return {name: int(which.sum()) for name, which in kinds.items()}


@dataclass(frozen=True, eq=False)
class Side:
    """A run before or after the change.

    Attributes:
        said: of every node.
        graph: with its labels and split.
        trained: nodes whose labels the detector has seen, int64.
    """

    said: Probabilities
    graph: Graph
    trained: Tensor

    @property
    def alert(self) -> Tensor:
        """Which scored nodes have P(rare) of at least the threshold, bool [n]."""
        out = torch.zeros(self.graph.n_nodes, dtype=torch.bool)
        nodes = self.graph.scored_nodes.cpu()
        out[nodes] = (self.said.rare >= self.said.threshold).cpu()[nodes]
        return out


@dataclass(frozen=True, eq=False)
class Foreseen:
    """What the run of before says in closed form of the labels that change, its weights as they are.

    Attributes:
        nodes: the nodes that moved most, int64 [n].
        effects: of each label alone on P(rare) of each node by the map of before, float64 [b, n].
        together: P(rare) of each node with all of them by the map of after, float64 [n].
        moved: change of the log-odds, before any map, by closed form and by training, each float64 [n].
    """

    nodes: Tensor
    effects: Tensor
    together: Tensor
    moved: tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Updated:
    """A run trained again with other labels, and what that changed; of many classes see `UpdatedClasses`.

    Attributes:
        outcome: the new run.
        labels: the changed labels, and those that changed their part of the split.
        changed: the changed labels alone.
        before: the run as it was.
        after: as it is.
        foreseen: what the closed form said of it; None where the detector cannot be asked.
    """

    outcome: Outcome
    labels: Labels
    changed: Labels
    before: Side
    after: Side
    foreseen: Foreseen | None

    __repr__ = brief

    @cached_property
    def moved(self) -> Tensor:
        """Change of P(rare) of every node, float64 [n]; 0 of one that is not scored."""
        out, nodes = torch.zeros(self.after.graph.n_nodes, dtype=torch.float64), self.after.graph.scored_nodes.cpu()
        out[nodes] = (self.after.said.rare - self.before.said.rare).cpu().double()[nodes]
        return out

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many labels are new, others than before, forgotten, and the same in another part of the split."""
        return kinds_of(self.before.graph, self.changed)

    @cached_property
    def distance(self) -> dict[str, float] | None:
        """How far the closed form was from the training: largest and mean |difference| of P(rare), and correlation.

        Over the nodes that moved most (all of them where the graph is small), P(rare) by the map of after. The
        correlation is that of the changes of the log-odds before any map; NaN where one of them is none.
        """
        found = self.foreseen
        if found is None:
            return None
        gap = (found.together - self.after.said.rare.cpu()[found.nodes]).abs()
        still = gap.numel() < 2 or min(float(each.std()) for each in found.moved) == 0
        r = float("nan") if still else float(torch.corrcoef(torch.stack(found.moved))[0, 1])
        return {"largest": float(gap.max()), "mean": float(gap.mean()), "correlation": r, "nodes": gap.numel()}

    @property
    def told(self) -> bool:
        """Whether changes of the log-odds in closed form agree with the training's, so that it tells reasons."""
        return self.distance is not None and self.distance["correlation"] >= AGREES

    @cached_property
    def measures(self) -> dict[str, dict[str, float]] | None:
        """AUPRC, log loss and mean P(rare) of the test nodes that neither run was trained on; None where none is."""
        nodes, y = self._judging()
        labels = y.numpy()
        if not labels.any() or labels.all():
            return None
        facts = {"nodes": float(len(labels)), "observed": float(labels.mean())}
        sides = (("before", self.before), ("after", self.after))
        return {name: facts | _measured(labels, side.said.rare.cpu()[nodes].double().numpy()) for name, side in sides}

    def _judging(self) -> tuple[Tensor, Tensor]:
        """Returns the labelled test nodes that neither run was trained on, and their labels, each int64."""
        split, y = self.after.graph.split, self.after.graph.y
        assert split is not None
        assert y is not None
        seen, nodes = torch.cat([self.before.trained, self.after.trained]), split.test.cpu()
        nodes = nodes[(y.cpu()[nodes] >= 0) & ~torch.isin(nodes, seen)]
        return nodes, y.cpu()[nodes]

    def _shown(self, differs: Tensor) -> tuple[Tensor, list[str]]:
        """Returns the scored nodes that moved most, and all that differ (bool [n]), with labels of this update."""
        graph, order = self.after.graph, torch.argsort(self.moved.abs(), descending=True, stable=True)
        kept = torch.zeros(len(order), dtype=torch.bool)
        kept[:KEPT] = True
        nodes = order[kept | differs[order]]
        nodes = nodes[torch.isin(nodes, graph.scored_nodes.cpu())]
        label = dict(zip(self.changed.nodes.tolist(), self.changed.y.tolist(), strict=True))
        words = (*graph.class_names, "unknown")
        return nodes, [words[label[node]] if node in label else "" for node in nodes.tolist()]

    def to_frame(self) -> pd.DataFrame:
        """Returns the scored nodes that moved most and all whose alert changed, the largest change first.

        Columns: node; p_before and p_after, P(rare); change; alert_before and alert_after, 0 or 1; label, of this
        update; why, the changed label that accounts for most of it in closed form.
        """
        graph, was, now = self.after.graph, self.before.alert, self.after.alert
        nodes, labels = self._shown(was != now)
        reasons = self._reasons
        return pd.DataFrame(
            {
                "node": [graph.node_name(node) for node in nodes.tolist()],
                "p_before": self.before.said.rare.cpu()[nodes].double().numpy(),
                "p_after": self.after.said.rare.cpu()[nodes].double().numpy(),
                "change": self.moved[nodes].numpy(),
                "alert_before": was[nodes].long().numpy(),
                "alert_after": now[nodes].long().numpy(),
                "label": labels,
                "why": [reasons.get(node, "") for node in nodes.tolist()],
            }
        )

    @cached_property
    def _reasons(self) -> dict[int, str]:
        """Returns, of the nodes that the closed form speaks of, the label that moved it most."""
        found = self.foreseen
        if found is None or not self.told:
            return {}
        graph, words, out = self.after.graph, (*self.after.graph.class_names, "unknown"), dict[int, str]()
        for column, node in enumerate(found.nodes[:KEPT].tolist()):
            change, effects = float(self.moved[node]), found.effects[:, column]
            row = int((effects * np.sign(change)).argmax())
            effect, whose = float(effects[row]), int(self.changed.nodes[row])
            if effect * change <= 0 or not LEAST * abs(change) <= abs(effect) <= MOST * abs(change):
                out[node] = ANEW
                continue
            name = "its own label" if whose == node else f"the label of {graph.node_name(whose)}"
            out[node] = f"{name}, now {words[int(self.changed.y[row])]}: {effect:+.{3 if abs(effect) >= SMALL else 6}f}"
        return out

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the run as JSON holds it."""
        moved = self.moved[self.after.graph.scored_nodes.cpu()].abs()
        return self._facts() | {
            "labels": self.counts,
            "trained_on": {"before": len(self.before.trained), "after": len(self.after.trained)},
            "moved": {"largest": float(moved.max()), "mean": float(moved.mean())},
            "test": self.measures,
            "made_by": "a training from scratch with the settings of the run before",
        }

    def _facts(self) -> dict[str, Any]:
        """Returns what JSON holds of a rare class."""
        was, now = self.before.alert, self.after.alert
        return {
            "alerts": {
                "before": int(was.sum()),
                "after": int(now.sum()),
                "appeared": int((now & ~was).sum()),
                "vanished": int((was & ~now).sum()),
            },
            "threshold": {"before": self.before.said.threshold, "after": self.after.said.threshold},
            "closed_form": self.distance,
        }

    def summary(self, width: int = WIDTH) -> str:
        """Returns what changed, as text of some width."""
        facts, lines = self.to_mapping(), list[str]()
        told = ", ".join(f"{number:,} {quoted(name)}" for name, number in facts["labels"].items() if number)
        m, labels = facts["trained_on"], "label" if sum(facts["labels"].values()) == 1 else "labels"
        say = [
            f"{told} {labels}; trained from scratch on {m['after']:,} (before: {m['before']:,}), nothing of the old "
            "run was kept but its settings",
            *self._sentences(facts),
        ]
        for words in say:
            lines += textwrap.wrap(words, width, subsequent_indent="  ")
        return "\n".join([*lines, "", *self._measured_rows(), *self._first(width)]) + "\n"

    def _sentences(self, facts: dict[str, Any]) -> Iterator[str]:
        """Yields what the summary says of nodes, by `to_mapping`."""
        alerts, moved = facts["alerts"], facts["moved"]
        yield f"P(rare) moved by {moved['mean']:.4f} on average, at most by {moved['largest']:.3f}"
        yield (
            f"alerts, labelled nodes among them: {alerts['after']:,} (before: {alerts['before']:,}), "
            f"{alerts['appeared']:,} appeared and {alerts['vanished']:,} vanished"
        )
        if self.distance is not None:
            far = self.distance
            yield (
                f"in closed form, without a training, P(rare) would be {far['mean']:.4f} off on average and "
                f"{far['largest']:.3f} at most" + ("" if self.told else UNTOLD)
            )

    def _measured_rows(self) -> list[str]:
        if self.measures is None:
            return ["no labelled test nodes that both runs have not seen: nothing to measure by", ""]
        was, now = self.measures["before"], self.measures["after"]
        head = f"{int(now['nodes']):,} test nodes"
        rows = [f"{label:<24} {was[key]:>9.4f} {now[key]:>9.4f}" for key, label in MEASURES.items() if key in now]
        observed = [f"{'observed share':<34} {now['observed']:>9.4f}"] if "observed" in now else []
        return [f"{head:<24} {'before':>9} {'after':>9}", *rows, *observed, ""]

    def _first(self, width: int) -> list[str]:
        table = self.to_frame().head(SHOWN)
        names = [without_middle(str(name), ROOM) for name in table["node"]]
        room = max(4, *map(len, names))
        lines = [f"{'node':<{room}} {'before':>7} {'after':>7}  why"]
        for name, row in zip(names, table.itertuples(), strict=True):
            flag = {(0, 1): "now an alert; ", (1, 0): "no alert any more; "}.get(
                (row.alert_before, row.alert_after), ""
            )
            why = textwrap.wrap(f"{flag}{row.why}".removesuffix("; "), max(width - room - 18, 20)) or [""]
            lines.append(f"{name:<{room}} {row.p_before:>7.3f} {row.p_after:>7.3f}  {why[0]}")
            lines += [" " * (room + 18) + each for each in why[1:]]
        return [line.rstrip() for line in lines]


def _measured(labels: np.ndarray, p: np.ndarray) -> dict[str, float]:
    return {"auprc": float(auprc(labels, p)), "log_loss": float(nll(labels, p)), "mean_p": float(p.mean())}
