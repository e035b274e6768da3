"""What `calirare.train` returns: a run's values, and what can be done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from calirare._util.brief import brief
from calirare.explain import Explainer, Explanations
from calirare.explain.audit import AT_LEAST, Audit
from calirare.graph import Graph
from calirare.run.audits import audit_run
from calirare.run.explaining import explained, explainer_of
from calirare.run.folder import CONFIG, MODEL, save_model, write_json
from calirare.run.next_labels import NEXT_BY, NextBy, NextLabels, next_labels
from calirare.run.pictures import draw
from calirare.run.prevailing import Prevailing
from calirare.run.probabilities import p_rare
from calirare.run.report import report
from calirare.run.resolved import write_config
from calirare.run.result import RunResult
from calirare.run.scored import Scored
from calirare.run.scoring import Say, Scorer, to_stderr
from calirare.run.settings import IntervalNodes
from calirare.run.summary import WIDTH, summary_of
from calirare.run.tables import REVIEWED, predictions, write_review, write_table


@dataclass(eq=False)
class Outcome(RunResult):
    """A trained and calibrated network with everything computed on the way (attributes: see `RunResult`).

    Example:
        >>> import calirare
        >>> outcome = calirare.train(calirare.load_dataset("digits"), epochs=60, folds=0)
        >>> outcome.to_frame().columns.tolist()[:5]
        ['node', 'split', 'y', 'p_rare', 'p_balanced']
    """

    __repr__ = brief

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Everything `metrics.json` holds: plain numbers and strings."""
        return report(self)

    def summary(self, width: int = WIDTH) -> str:
        """Returns measures before and after calibration, coverage, the verdict and notes, as text of some width."""
        return summary_of(self.metrics, width)

    def to_frame(self) -> pd.DataFrame:
        """Returns one row per node: probabilities, alert, interval, uncertainty, ICE (columns of `predictions.csv`)."""
        return predictions(self.graph, self.for_tables(), self.jackknife, self.graph.split)

    def predict(self, graph: Graph, say: Say = to_stderr) -> pd.DataFrame:
        """Returns the same of another graph with the same features; `score` says more, of which this notes a drift."""
        return self.score(graph, say).noted(say)

    def score(
        self,
        graph: Graph,
        say: Say = to_stderr,
        *,
        prevalence: Prevailing = None,
        interval_nodes: IntervalNodes | None = None,
    ) -> Scored:
        """Returns predictions, what to expect and how the graph differs from the run's own, see `Scorer.score`."""
        return Scorer.of(self).score(graph, say, prevalence=prevalence, interval_nodes=interval_nodes)

    def audit(self, at_least: float = AT_LEAST) -> Audit:
        """Returns which labels are probably wrong, and why.

        Args:
            at_least: P(wrong) from which a label is flagged, in (0, 1].

        Raises:
            InputError: there are not two classes, or too few labels of one.
        """
        mapped = self.graph if self.mapped is None else self.mapped
        damping = self.jackknife.facts.damping
        return audit_run(self.fit, self.graph, mapped, self.settings, damping, self.held_out, at_least)

    def next_labels(self, k: int, by: NextBy = NEXT_BY[0], among: Tensor | None = None) -> NextLabels:
        """Returns the nodes that are worth a label next: those whose labels would teach most of all the others.

        Args:
            k: how many.
            by: "value" (expected fall of the total expected error, in closed form), or "uncertainty".
            among: nodes that can be labelled, int64; None: every node without a label.

        Raises:
            InputError: there are not so many, or the detector cannot be asked.
        """
        return next_labels(self.explainer, k, by, among)

    def review(self) -> Tensor:
        """Returns the nodes without a label in the order in which a human should look at them, int64.

        First the likeliest rare one, unless the settings say otherwise (`by`); see `Deciding`. Where every node has a
        label, nodes that neither trained nor calibrated.
        """
        order = super().review()
        if self.settings.decision.by != "value-of-label" or self.fit.n_classes != 2 or not order.numel():
            return order
        worth = self.next_labels(min(REVIEWED, order.numel()), among=order).nodes
        first = torch.from_numpy(worth).to(order.device)
        return torch.cat([first, order[~torch.isin(order, first)]])

    @cached_property
    def explainer(self) -> Explainer:
        """What explains the graph's nodes, made once."""
        mapped = self.graph if self.mapped is None else self.mapped
        return explainer_of(Scorer.of(self), self.graph, mapped, lambda: p_rare(self.logits, self.calibrators).cpu())

    def explain(
        self,
        nodes: Sequence[str | int] | Tensor | None = None,
        *,
        top: int | None = None,
        labels: int = 10,
        group: str | None = None,
    ) -> Explanations:
        """Returns why nodes have their P(rare): labels, edges and features that speak for and against it.

        Args:
            nodes: names of nodes, numbers where the graph has no names; a tensor of int64 holds numbers. None: alerts.
            top: how many of the likeliest alerts, in place of nodes.
            labels: how many labels of each node are told of.
            group: a column of the node table, such as a ring or an investigator: labels of nodes with one value of it
                are left out together; dates by the month.

        Raises:
            InputError: a node or the column is unknown, there is no alert, or the detector cannot be explained.
        """
        return explained(self.explainer, nodes, top, labels, group)

    def write(self, folder: Path) -> None:
        """Writes what a run's folder holds into an empty folder."""
        graph = self.graph
        write_config(self, folder / CONFIG)
        write_json(self.metrics, folder / "metrics.json")
        said = self.for_tables()
        write_table(graph, said, self.jackknife, graph.split, folder)
        write_review(graph, said, self.jackknife, graph.split, self.review(), folder)
        save_model(self, folder / MODEL)
        draw(self, folder)
