"""From which difference on a finding is worth a word, and from which on P(rare) is not to be relied on.

A difference counts where it is beyond chance and large enough to matter. How large is a rule of thumb, the same for
every graph: P(rare) of a tenth of the nodes may be off where a tenth of a column's numbers have moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from calirare.drift.findings import Finding, Part, Verdict
from calirare.drift.kinds import KindsNow
from calirare.drift.numbers import NumbersNow
from calirare.drift.scores import ScoresNow
from calirare.drift.structure import EdgesNow


@dataclass(frozen=True)
class Limits:
    """Differences from which on a finding is "caution", and "do not trust"; below the first it is ok."""

    caution: float
    distrust: float

    def verdict(self, difference: float, by_chance: float) -> Verdict:
        """Returns what a difference means."""
        if not difference > max(by_chance, self.caution):  # NaN is none
            return "ok"
        return "do not trust" if difference > self.distrust else "caution"


DISTANCE = Limits(0.15, 0.3)
NEVER_SEEN = Limits(0.01, 0.1)  # the rare class is itself a percent of the nodes
GAPS = Limits(0.05, 0.3)
EDGES = Limits(0.3, 0.5)  # a longer period or a larger crop has other degrees by itself
ISOLATED = Limits(0.05, 0.5)
APART = Limits(0.1, 0.5)
ALIKE = Limits(0.3, math.inf)
MEAN = Limits(math.log(1.5), math.log(5.0))  # of the ratio


def of_numbers(name: str, now: NumbersNow) -> Iterable[Finding]:
    """Yields the findings of a column of numbers."""
    where = f"{now.low:.4g} to {now.high:.4g} where it was {now.low_then:.4g} to {now.high_then:.4g}"
    why = f"{_percent(now.beyond)} of the values are outside the run's range, {where}"
    yield _finding("column", name, "beyond the range", now.beyond, 0.0, now.beyond_by_chance, NEVER_SEEN, why)
    yield _distance("column", name, now.distance, now.distance_by_chance, "values")
    yield _gaps(name, now)


def of_kinds(name: str, now: KindsNow) -> Iterable[Finding]:
    """Yields the findings of a column of categories."""
    why = f"{_percent(now.unseen)} of the values are of categories that the run's graph did not have"
    yield _finding("column", name, "new categories", now.unseen, 0.0, now.unseen_by_chance, NEVER_SEEN, why)
    # Chi-squared says whether the shares differ at all, the distance by how much.
    yield _distance("column", name, now.distance, 0.0 if now.told else 1.0, "categories")
    yield _gaps(name, now)


def of_edges(now: EdgesNow) -> Iterable[Finding]:
    """Yields the findings of a graph's edges."""
    found, chance = now.degrees.distance, now.degrees.distance_by_chance
    why = f"the distribution is {found:.2f} apart from the run's, on a scale from 0 to 1"
    yield _finding("edges", "number of neighbours", "distance", found, None, chance, EDGES, why)
    for name, share, limits in (
        ("isolated nodes", now.isolated, ISOLATED),
        ("nodes apart from the main part", now.apart, APART),
    ):
        if share is None:
            continue
        why = f"{_percent(share[0])} of the nodes where it was {_percent(share[1])}"
        yield _finding("edges", name, "share", *share, limits, why)


def of_scores(now: ScoresNow) -> Iterable[Finding]:
    """Yields the findings of P(rare)."""
    part: Part = "P(rare)"
    beyond = abs(now.mean - now.mean_then) > now.mean_by_chance
    both = min(now.mean, now.mean_then) > 0
    ratio = abs(math.log(now.mean / now.mean_then)) if both else math.inf if beyond else 0.0
    why = f"{now.mean:.3g} where it was {now.mean_then:.3g}"
    verdict = MEAN.verdict(ratio, 0.0 if beyond else math.inf)
    said = "" if verdict == "ok" else why
    yield Finding(part, "mean P(rare)", "mean", now.mean, now.mean_then, now.mean_by_chance, verdict, said)
    limits = Limits(DISTANCE.distrust, math.inf)  # most of it is among nodes that nobody would look at
    found = now.numbers.distance
    yield _distance(part, "P(rare)", found, now.numbers.distance_by_chance, "probabilities", limits)
    if math.isfinite(now.alike) and math.isfinite(now.alike_then):
        why = f"rank correlation {now.alike:.2f} along edges where it was {now.alike_then:.2f}"
        name = "neighbours' P(rare)"
        yield _finding(part, name, "correlation", now.alike, now.alike_then, now.alike_by_chance, ALIKE, why)


def _distance(part: Part, name: str, found: float, by_chance: float, noun: str, limits: Limits = DISTANCE) -> Finding:
    why = f"{noun} are distributed {found:.2f} apart from the run's, on a scale from 0 to 1"
    return _finding(part, name, "distance", found, None, by_chance, limits, why)


def _gaps(name: str, now: NumbersNow | KindsNow) -> Finding:
    why = f"{_percent(now.gaps)} of the values are missing where it was {_percent(now.gaps_then)}"
    return _finding("column", name, "gaps", now.gaps, now.gaps_then, now.gaps_by_chance, GAPS, why)


def _finding(
    part: Part, name: str, what: str, now: float, then: float | None, by_chance: float, limits: Limits, why: str
) -> Finding:
    verdict = limits.verdict(abs(now - (then or 0.0)), by_chance)
    return Finding(part, name, what, now, then, by_chance, verdict, "" if verdict == "ok" else why)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.2g} %"
