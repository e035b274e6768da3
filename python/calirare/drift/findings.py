"""The result of a comparison: one finding per difference, and the verdict of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from calirare._util.amounts import amount, quoted

Verdict = Literal["ok", "caution", "do not trust"]
Part = Literal["column", "edges", "P(rare)"]
VERDICTS: tuple[Verdict, ...] = ("ok", "caution", "do not trust")
FEW = 100  # nodes with which chance may make distances of .3 and more
MORE = 1.2  # times as many neighbours, from which on this is reported before what it moves
NAMED = 3  # findings that the sentence names


@dataclass(frozen=True)
class Limits:
    """Differences from which on a finding is "caution", and "do not trust"; below the first it is ok.

    A difference counts where it is beyond chance and large enough to matter. How large is a rule of thumb, the same for
    every graph: P(rare) of a tenth of the nodes may be off where a tenth of a column's numbers have moved.
    """

    caution: float
    distrust: float

    def verdict(self, difference: float, critical: float) -> Verdict:
        """Returns what a difference means."""
        if not difference > max(critical, self.caution):  # NaN is none
            return "ok"
        return "do not trust" if difference > self.distrust else "caution"


DISTANCE = Limits(0.15, 0.3)
NEVER_SEEN = Limits(0.01, 0.1)  # the rare class is itself a percent of the nodes
GAPS = Limits(0.05, 0.3)
EDGES = Limits(0.3, 0.5)  # a longer period or a larger crop has other degrees by itself
ISOLATED = Limits(0.05, 0.5)
APART = Limits(0.1, 0.5)
HUB = Limits(0.3, math.inf)
SCORES = Limits(DISTANCE.distrust, math.inf)  # most of it is among nodes that nobody would look at
CORRELATION = Limits(0.3, math.inf)
MEAN = Limits(math.log(1.5), math.log(5.0))  # of the ratio
STEADY = 0.05  # distance of P(rare) from the run's up to which columns that moved are at most "caution"
FEW_OF_MANY = 0.02  # of the weight of all columns, below which those that moved are at most "caution" together
LIGHT = 0.1  # weight of a column, of that of the heaviest, below which P(rare) hardly depends on it


@dataclass(frozen=True)
class Finding:
    """One comparison of a graph with the run's own.

    Attributes:
        part: what it is about.
        name: of the column, or of the property of edges or P(rare).
        what: "distance", "beyond the range", "new categories", "gaps", "proportion", "mean" or "correlation".
        current: in the graph; of a distance the distance.
        reference: in the run's graph; None of a distance.
        critical: what their difference stays below on graphs of the same law.
        verdict: what it means.
        why: in words; empty where it is ok.
        weight: of a column, of that of the heaviest: how much P(rare) goes with it, in [0, 1].
    """

    part: Part
    name: str
    what: str
    current: float
    reference: float | None
    critical: float
    verdict: Verdict
    why: str = ""
    weight: float = 1.0

    @property
    def difference(self) -> float:
        """Absolute difference of the two values."""
        return abs(self.current - (self.reference or 0.0))


def finding(
    part: Part,
    name: str,
    what: str,
    values: tuple[float, float | None, float],
    limits: Limits,
    why: str,
    difference: float | None = None,
) -> Finding:
    """Returns a finding with its verdict.

    Args:
        part: see `Finding`, also for name and what.
        name: as above.
        what: as above.
        values: current, reference and critical value.
        limits: of the difference.
        why: in words.
        difference: that is judged; None: of the two values.
    """
    found = Finding(part, name, what, *values, "ok")
    verdict = limits.verdict(found.difference if difference is None else difference, found.critical)
    return found if verdict == "ok" else Finding(part, name, what, *values, verdict, why)


def percent(proportion: float) -> str:
    """Returns a proportion as a sentence shows it."""
    return f"{100 * proportion:.0f} %" if proportion >= 0.1 or proportion == 0 else f"{100 * proportion:.2g} %"


@dataclass(frozen=True)
class Drift:
    """How a graph differs from the one that a run was trained on, and whether P(rare) may be relied on there.

    Attributes:
        findings: every comparison.
        n_nodes: nodes of the graph.
        n_columns: columns looked at.
        scored: whether P(rare) of the run's graph is known, of nodes outside the training labels.
        sample: number of nodes in a random sample without edges; None where all were compared.
        neighbours: usual number of neighbours here and in the run's graph; None where chance may make the difference.
    """

    findings: tuple[Finding, ...]
    n_nodes: int
    n_columns: int
    scored: bool
    sample: int | None = None
    neighbours: tuple[float, float] | None = None

    @cached_property
    def verdict(self) -> Verdict:
        """The worst of the findings; of columns "caution" at most where P(rare) is steady or depends little on them."""
        worst = _worst(finding for finding in self.findings if finding not in self.light)
        return "caution" if self.columns_only else worst

    @cached_property
    def steady(self) -> bool:
        """Whether P(rare) is known to be distributed as in the run's graph."""
        scores = [finding for finding in self.findings if finding.part == "P(rare)"]
        return (
            bool(scores)
            and all(finding.verdict == "ok" for finding in scores)
            and all(f.current <= max(f.critical, STEADY) for f in scores if f.what == "distance")
        )

    @cached_property
    def light(self) -> tuple[Finding, ...]:
        """The findings about columns that P(rare), which is steady, hardly depends on: they change no verdict."""
        return tuple(f for f in self.found if f.part == "column" and f.weight < LIGHT and self.steady)

    @cached_property
    def columns_only(self) -> bool:
        """Whether only columns are not to be trusted, and P(rare) is steady or depends little on all of them."""
        worst = [f for f in self.findings if f.verdict == VERDICTS[-1] and f not in self.light]
        inside = all(finding.what in ("distance", "gaps") for finding in worst)  # beyond the range models extrapolate
        little = inside and _weight(worst) < FEW_OF_MANY * _weight(self.findings)
        return bool(worst) and (self.steady or little) and all(finding.part == "column" for finding in worst)

    @property
    def found(self) -> tuple[Finding, ...]:
        """The findings that are not ok, the worst first, then by how far they are beyond chance."""
        some = [finding for finding in self.findings if finding.verdict != "ok"]
        return tuple(sorted(some, key=lambda f: (-VERDICTS.index(f.verdict), -f.difference / max(f.critical, 1e-12))))

    @property
    def sentence(self) -> str:
        """One line: the verdict, what differs and why."""
        if self.verdict == "ok":
            more = " and P(rare)" if self.scored else ""
            columns = amount(self.n_columns, "column")
            n, noun = (self.n_nodes, "node") if self.sample is None else (self.sample, "random node")
            few = f" as far as {amount(n, noun)} can tell"
            few = few if self.sample is not None or self.n_nodes < FEW else ""
            edges = "edges" if self.sample is None else "numbers of neighbours"
            light = f"; columns that P(rare) hardly depends on differ: {_listed(self.light)}" if self.light else ""
            return (
                f"ok{few}: {columns}, {edges}{more} differ from the run's graph by no more than sampling noise, or by "
                f"little{light}"
            )
        some = [finding for finding in self.found if finding not in self.light]
        worst = [finding for finding in some if finding.verdict == _worst(some)]
        why = (
            "is distributed as in the run's graph"
            if self.steady
            else f"depends little on {'it' if len(worst) == 1 else 'them'}"
        )
        but = f"; but P(rare) {why}" if self.columns_only else ""
        return f"{self.verdict}: {', '.join(filter(None, [self.cause, _listed(worst)]))}{but}"

    @property
    def cause(self) -> str:
        """What may be behind the findings: edges of a longer or shorter time, which move what is read of neighbours.

        Empty where nodes have about as many neighbours as in the run's graph, or nothing was found.
        """
        now, then = self.neighbours or (0.0, 0.0)
        if self.verdict == "ok" or min(now, then) <= 0 or 1 / MORE < now / then < MORE:
            return ""
        time = "longer" if now > then else "shorter"
        times = f"{now / then:.2g} times as many neighbours as in training"
        return f"nodes have {times} (the edges may cover a {time} time)"

    def to_mapping(self) -> dict[str, Any]:
        """Returns verdict, sentence, cause and findings as JSON holds them, those that are not ok before the others."""
        rest = [finding for finding in self.findings if finding.verdict == "ok"]
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "cause": self.cause,
            "findings": [asdict(finding) for finding in (*self.found, *rest)],
        }


def _weight(findings: Iterable[Finding]) -> float:
    """Returns the weight of the columns that findings are about, each once."""
    return sum({finding.name: finding.weight for finding in findings if finding.part == "column"}.values())


def _worst(findings: Iterable[Finding]) -> Verdict:
    return max((finding.verdict for finding in findings), key=VERDICTS.index, default="ok")


def _listed(findings: Iterable[Finding]) -> str:
    """Returns each name once, with its first reason."""
    reasons: dict[str, str] = {}
    for found in findings:
        reasons.setdefault(found.name, found.why)
    words = [f"{quoted(name)} ({why})" for name, why in list(reasons.items())[:NAMED]]
    more = len(reasons) - len(words)
    return ", ".join(words) + (f", and {more:,} more" if more > 0 else "")
