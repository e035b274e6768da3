"""What a run predicts for another graph: its table of predictions, and one page about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import amount, count_of, quoted
from calirare._util.arrays import brief
from calirare.calibration import APART, COVERAGE, Calibrator, ExpectedCount, Prevalence, Target, are_apart
from calirare.drift import VERDICTS, Drift, Verdict
from calirare.run.parties import at_risk_words
from calirare.run.probabilities import Probabilities
from calirare.run.verdict import UNJUDGED
from calirare.run.verdict import Verdict as RunVerdict

PREVALENCE = ("share", "low", "high", "method")  # of a prevalence, what JSON holds


class Totals:
    """What is added up over blocks of nodes.

    Attributes:
        rare: P(rare), a tensor per block.
        classes: sum of P of each class, and how many nodes it is the likeliest of, [2, k].
    """

    def __init__(self, n_classes: int) -> None:
        self.rare = list[Tensor]()
        self.classes = torch.zeros(2, n_classes, dtype=torch.float64)

    def add(self, found: Probabilities) -> None:
        """Adds some nodes."""
        counts = torch.bincount(found.chosen.argmax(1), minlength=self.classes.shape[1])
        self.classes += torch.stack([found.chosen.sum(0), counts])
        self.rare.append(found.rare)


@dataclass(frozen=True, eq=False)
class Scored:
    """A graph scored by a run.

    Attributes:
        table: one row per node, the columns of `predictions.csv`; None where it was written as it was made.
        name: of the graph.
        nodes: number of nodes.
        drift: how the graph differs from the run's own; None of a graph without nodes.
        shares: where every class is taken as it is: mean P of each class, by its name.
        predicted: likewise how many nodes each class is the likeliest of. All that follows is of a rare class.
        mean: mean P(rare).
        expected: number of rare nodes to expect, with an interval; None where the run's calibrator knows none.
        alerts: number of alerts.
        threshold: of the run's decision.
        cut: the same in words; with cost_fn amount, where each node has its own, as 5 / (amount + 5).
        cost: with cost_fn amount: expected sum of the amounts missed and of the false alarms' costs; else None.
        rule: name of the decision's rule.
        prevalence: what P(rare) was corrected by; None where it was not.
        of_run: the verdict of the run.
        tied: how many nodes share a P(rare) at the cut of a budget, a sentence; empty where none do.
        hits: how many of the alerts are rare; None where the run's calibrator knows no interval, or without alerts.
        calibrators: what made P(rare), by their targets.
        queue: rows of the nodes to look at, the first one first; None where none were requested.
        run: name of the folder of the run that scored; empty where it has none.
    """

    table: pd.DataFrame | None
    name: str
    nodes: int
    drift: Drift | None
    shares: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, int] = field(default_factory=dict)
    mean: float = 0.0
    expected: ExpectedCount | None = None
    alerts: int = 0
    threshold: float = 0.0
    cut: str = ""
    cost: float | None = None
    rule: str = ""
    prevalence: Prevalence | None = None
    of_run: RunVerdict = UNJUDGED
    tied: str = ""
    hits: ExpectedCount | None = None
    calibrators: dict[Target, Calibrator] = field(default_factory=dict)
    queue: pd.DataFrame | None = None
    run: str = ""

    __repr__ = brief

    @property
    def verdict(self) -> Verdict:
        """Whether probabilities may be relied on in this graph: "ok", "caution" or "do not trust"."""
        drift: Verdict = "ok" if self.drift is None else self.drift.verdict
        return drift if self.shares else max(drift, self.of_run.level, key=VERDICTS.index)

    @property
    def caveat(self) -> str:
        """That no counts are promised, where the run's verdict does not allow them; else empty."""
        return "" if self.shares or self.of_run.level == "ok" else self.of_run.no_counts

    @property
    def drifted(self) -> bool:
        """Whether the graph differs so much from the run's own that its probabilities are not to be trusted."""
        return self.drift is not None and self.drift.verdict == "do not trust"

    @property
    def at_risk(self) -> tuple[float, float] | None:
        """Sums of P(rare) times the amount of transactions, of all and of alerts; None where there are no amounts."""
        if self.table is None or "expected_amount" not in self.table:
            return None
        amounts, alert = self.table["expected_amount"], self.table["alert"] == 1
        return float(amounts.sum()), float(amounts[alert].sum())

    def noted(self, say: Callable[[str], None]) -> pd.DataFrame:
        """Returns the table, and notes what keeps its probabilities from being relied on."""
        for note in self._warnings():
            say(note)
        if self.drift is not None and self.drift.verdict != "ok":
            say(f"drift: {self.drift.sentence}")
        return self.table

    def _warnings(self) -> Iterator[str]:
        if self.tied:
            yield f"ties: {self.tied}"
        if self.caveat:
            yield f"{self.of_run.level}: the run's verdict: {self.of_run}"

    def summary(self) -> str:
        """Returns a few lines for a person."""
        if self.shares:
            shares = ", ".join(f"{quoted(name)} {100 * share:.3g} %" for name, share in self.shares.items())
            lines = [f"expected among {amount(self.nodes, 'node')}: {shares}"]
        else:
            lines = self._rare_lines()
        if self.drift is not None:
            lines.append(f"drift: {self.drift.sentence}")
        return "\n".join(lines) + "\n"

    def _rare_lines(self) -> list[str]:
        nodes, count, total = amount(self.nodes, "node"), self.expected, self.mean * self.nodes
        mean, hits, cost = f"mean P(rare) {self.mean:.3g}", self.hits, self.cost
        if self.caveat:
            first, hits, cost = f"{mean} among {nodes}; {self.caveat}", None, None
        elif count is None:
            first = (
                f"expected {count_of(total)} rare among {nodes} (no interval: the run's calibrator gives none), {mean}"
            )
        else:
            first = f"expected {count} rare among {nodes} ({100 * COVERAGE:.0f} % interval), {mean}"
            if are_apart(total, count.expected, count.low, count.high):
                first += f"; P(rare) adds up to {count_of(total)}: {APART}"
        doubt = f"; do not trust it (see {'drift' if self.drifted else 'below'})" * (self.verdict == "do not trust")
        lines = [first + doubt]
        if self.prevalence is not None:
            lines.append(f"prevalence: {_in_words(self.prevalence)}: P(rare) is corrected to it")
        right = "" if hits is None else f", {hits} of them rare"
        lines.append(f"alerts: {self.alerts:,}{right}; P(rare) >= {self.cut}, decided by {self.rule}")
        lines += [] if self.at_risk is None else [f"amount at risk: {at_risk_words(*self.at_risk)}"]
        lines += [] if cost is None else [f"expected cost: {cost:,.0f} (amounts missed and false alarms)"]
        return [*lines, *self._warnings()]

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything but the table as JSON holds it."""
        drift = None if self.drift is None else self.drift.to_mapping()
        facts: dict[str, Any] = {"graph": self.name, "nodes": self.nodes, "verdict": self.verdict, "drift": drift}
        if self.shares:
            return facts | {"estimated_shares": self.shares, "predicted": self.predicted, "run": {"name": self.run}}
        count, prevalence = self.expected, self.prevalence
        return facts | {
            "caveat": self.caveat,
            "mean_p_rare": self.mean,
            "expected_rare": self.mean * self.nodes if count is None else count.expected,
            "expected_rare_low": None if count is None else count.low,
            "expected_rare_high": None if count is None else count.high,
            "coverage": None if count is None else COVERAGE,
            "alerts": self.alerts,
            "alerts_rare": None if self.hits is None else dataclasses.asdict(self.hits),
            "threshold": self.threshold,
            "cut": self.cut,
            "expected_cost": self.cost,
            "amount_at_risk": None if self.at_risk is None else dict(zip(("all", "alerts"), self.at_risk, strict=True)),
            "decision": self.rule,
            "prevalence": None if prevalence is None else {name: getattr(prevalence, name) for name in PREVALENCE},
            "tied": self.tied,
            "run": {"name": self.run, "answer": self.of_run.answer, "sentence": str(self.of_run)},
        }


def _in_words(prevalence: Prevalence) -> str:
    if prevalence.low == prevalence.high:
        return f"{100 * prevalence.share:.2g} %, {prevalence.method}"
    estimated = " (if each class looks as among the run's labels)" if prevalence.method == "em" else ""
    return f"{prevalence}{estimated}"
