"""What a drift report says: one finding per comparison, and the verdict of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from calirare._util.amounts import quoted

Verdict = Literal["ok", "caution", "do not trust"]
Part = Literal["column", "edges", "P(rare)"]
VERDICTS: tuple[Verdict, ...] = ("ok", "caution", "do not trust")
FEW = 100  # nodes with which chance may make distances of .3 and more
MORE = 1.2  # times as many neighbours, from which on this is told before what it moves
NAMED = 5  # findings that the sentence names


@dataclass(frozen=True)
class Finding:
    """One thing looked at in a graph and in the run's own.

    Attributes:
        part: what it is about.
        name: of the column, or of the property of edges or P(rare).
        what: is compared: "distance", "beyond the range", "new categories", "gaps", "share", "mean" or "correlation".
        now: in the graph; of a distance the distance.
        then: in the run's graph; None of a distance.
        by_chance: what their difference stays below on graphs of the same law.
        verdict: what it means.
        why: in words; empty where it is ok.
    """

    part: Part
    name: str
    what: str
    now: float
    then: float | None
    by_chance: float
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class Drift:
    """How a graph differs from the one that a run was trained on, and whether P(rare) may be relied on there.

    Attributes:
        findings: every comparison.
        n_nodes: nodes of the graph.
        n_columns: columns looked at.
        scored: whether P(rare) of the run's graph is known, of nodes that did not teach it.
        sample: how many nodes were looked at where these were drawn at random, and no edges with them; else None.
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
        """The worst of the findings: "ok", "caution" or "do not trust"."""
        return max((finding.verdict for finding in self.findings), key=VERDICTS.index, default="ok")

    @property
    def found(self) -> tuple[Finding, ...]:
        """The findings that are not ok, the worst first, then by how far they are beyond chance."""
        some = [finding for finding in self.findings if finding.verdict != "ok"]
        return tuple(sorted(some, key=lambda f: (-VERDICTS.index(f.verdict), -_beyond(f))))

    @property
    def sentence(self) -> str:
        """One line: the verdict, what differs and why."""
        if self.verdict == "ok":
            more = " and P(rare)" if self.scored else ""
            columns = f"{self.n_columns:,} column{'' if self.n_columns == 1 else 's'}"
            told = self.n_nodes if self.sample is None else self.sample
            nodes = f"{'' if self.sample is None else 'random '}node{'' if told == 1 else 's'}"
            few = f" as far as {told:,} {nodes} can tell"
            few = few if self.sample is not None or self.n_nodes < FEW else ""
            edges = "edges" if self.sample is None else "numbers of neighbours"
            return (
                f"ok{few}: {columns}, {edges}{more} are as in the run's graph, or differ by no more than chance or "
                "little"
            )
        worst = [finding for finding in self.found if finding.verdict == self.verdict]
        return f"{self.verdict}: {', '.join(filter(None, [self.cause, _listed(worst)]))}"

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


def _beyond(finding: Finding) -> float:
    """Returns how many times its bound by chance a finding is."""
    away = abs(finding.now - (finding.then or 0.0))
    return away / max(finding.by_chance, 1e-12)


def _listed(findings: Iterable[Finding]) -> str:
    """Returns each name once, with its first reason."""
    said: dict[str, str] = {}
    for finding in findings:
        said.setdefault(finding.name, finding.why)
    words = [f"{quoted(name)} ({why})" for name, why in list(said.items())[:NAMED]]
    more = len(said) - len(words)
    return ", ".join(words) + (f", and {more:,} more" if more > 0 else "")
