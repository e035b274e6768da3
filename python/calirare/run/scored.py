"""What a run says of another graph: its table of predictions, and one page about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calirare._util.amounts import amount
from calirare._util.arrays import brief
from calirare.calibration import APART, NO_DOUBT, Doubt, ExpectedCount, Prevalence, are_apart
from calirare.drift import VERDICTS, Drift, Verdict
from calirare.run.probabilities import Undecided

PREVALENCE = ("share", "low", "high", "method")  # of a prevalence, what JSON holds


@dataclass(frozen=True, eq=False)
class Scored:
    """A graph scored by a run.

    Attributes:
        table: one row per node, the columns of `predictions.csv`; None where it was written as it was made.
        name: of the graph.
        nodes: number of nodes.
        mean: mean P(rare).
        expected: number of rare nodes to expect, with an interval; None where the run's map knows none.
        alerts: number of alerts.
        threshold: of the run's decision.
        rule: name of the decision's rule.
        drift: how the graph differs from the run's own; None of a graph without nodes.
        prevalence: what P(rare) was corrected by; None where it was not.
        undecided: what is left open; None where every node is decided.
        assumed: what P(rare) rests on where rare nodes alone were labelled, or none at random, a sentence; else empty.
        at_best: the verdict that this leaves.
        doubt: what the run says against P(rare) of nodes without a label.
        tied: how many nodes share a P(rare) at the cut of a budget, a sentence; empty where none do.
    """

    table: pd.DataFrame | None
    name: str
    nodes: int
    mean: float
    expected: ExpectedCount | None
    alerts: int
    threshold: float
    rule: str
    drift: Drift | None
    prevalence: Prevalence | None = None
    assumed: str = ""
    at_best: Verdict = "ok"
    undecided: Undecided | None = None
    doubt: Doubt = NO_DOUBT
    tied: str = ""

    __repr__ = brief

    @property
    def verdict(self) -> Verdict:
        """Whether P(rare) may be relied on in this graph: "ok", "caution" or "do not trust"."""
        drift: Verdict = "ok" if self.drift is None else self.drift.verdict
        doubt: Verdict = "ok" if self.doubt.verdict == "trust" else self.doubt.verdict
        return max(drift, self.at_best, doubt, key=VERDICTS.index)

    @property
    def drifted(self) -> bool:
        """Whether the graph differs so much from the run's own that P(rare) is not to be trusted."""
        return self.drift is not None and self.drift.verdict == "do not trust"

    def noted(self, say: Callable[[str], None]) -> pd.DataFrame:
        """Returns the table, and says what keeps its P(rare) from being relied on."""
        if self.assumed:
            say(f"the run has {self.assumed}")
        if self.tied:
            say(self.tied)
        if self.doubt.sentence:
            say(f"{self.doubt.verdict}: by the check of the run's labels {self.doubt.sentence}")
        if self.drift is not None and self.drift.verdict != "ok":
            say(f"drift: {self.drift.sentence}")
        return self.table

    def summary(self) -> str:
        """Returns a few lines for a person."""
        nodes = amount(self.nodes, "node")
        if self.expected is not None:
            coverage = f"{100 * self.expected.coverage:.0f} %"
            expected = f"expected {self.expected} rare among {nodes} ({coverage} interval)"
        else:
            expected = f"expected {self.mean * self.nodes:.3g} rare among {nodes}"
            expected += " (no interval: the run's map does not know its uncertainty)"
        doubt = f", not to be trusted (see {'drift' if self.drifted else 'below'})" * (self.verdict == "do not trust")
        lines = [f"{expected}, mean P(rare) {self.mean:.3g}{self._apart()}{doubt}"]
        if self.prevalence is not None:
            lines.append(f"prevalence: {self._prevalence(self.prevalence)}: P(rare) is corrected to it")
        lines.append(
            f"alerts: {self.alerts:,}, from P(rare) of {self.threshold:.3g} on (the run's decision: {self.rule})"
        )
        if self.tied:
            lines.append(f"ties: {self.tied}")
        if self.undecided is not None:
            lines.append(self.undecided.sentence)
        if self.assumed:
            lines.append(f"{self.at_best}: the run has {self.assumed}")
        if self.doubt.sentence:
            lines.append(f"{self.doubt.verdict}: by the check of the run's labels {self.doubt.sentence}")
        if self.drift is not None:
            lines.append(f"drift: {self.drift.sentence}")
        return "\n".join(lines) + "\n"

    def _apart(self) -> str:
        """Returns what to say where the expected number is not the sum of P(rare), or nothing."""
        count, total = self.expected, self.mean * self.nodes
        if count is None or not are_apart(total, count.expected, count.low, count.high):
            return ""
        return f", in sum {total:.3g}: {APART}"

    def _prevalence(self, told: Prevalence) -> str:
        if told.low == told.high:
            return f"{100 * told.share:.2g} %, {told.method}"
        estimated = " (if each class looks as among the run's labels)" if told.method == "em" else ""
        return f"{told}{estimated}"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the table as JSON holds it."""
        count, told = self.expected, self.prevalence
        return {
            "graph": self.name,
            "nodes": self.nodes,
            "mean_p_rare": self.mean,
            "expected_rare": self.mean * self.nodes if count is None else count.expected,
            "expected_rare_low": None if count is None else count.low,
            "expected_rare_high": None if count is None else count.high,
            "coverage": None if count is None else count.coverage,
            "alerts": self.alerts,
            "threshold": self.threshold,
            "decision": self.rule,
            "prevalence": None if told is None else {name: getattr(told, name) for name in PREVALENCE},
            "undecided": None if self.undecided is None else self.undecided.to_mapping(),
            "tied": self.tied,
            "assumed": self.assumed,
            "doubt": self.doubt.sentence,
            "verdict": self.verdict,
            "drift": None if self.drift is None else self.drift.to_mapping(),
        }
