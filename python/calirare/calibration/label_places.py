"""Whether labels can be a random sample of the nodes: where they lie in the graph, and in a column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calirare.calibration.doubt import sample_mend

FEWEST_ENDS = 20  # of edges between labelled nodes, below which their number says little
TIMES = 2.0  # as many labelled neighbours as elsewhere, below which a difference does no harm
UNSEEN = 0.2  # of the nodes without a label, beyond what chance leaves unseen, below which a difference does no harm
LEVEL = 0.001  # of all columns together
SMALLEST = 1e-12  # of a spread that is divided by
ERRORS = 3.3  # standard errors of the logarithm of that ratio: once in 1,000 of two sides


@dataclass(frozen=True)
class Together:
    """Ends of edges at labelled nodes and at nodes without a label.

    Attributes:
        inner: at labelled nodes, of edges to labelled nodes.
        own: at labelled nodes, of all edges.
        outer: at nodes without a label, of edges to labelled nodes.
        others: at nodes without a label, of all edges.
    """

    inner: int
    own: int
    outer: int
    others: int

    @property
    def shares(self) -> tuple[float, float]:
        """Share of neighbours with a label, of labelled nodes and of the others; half an edge more in doubt."""
        return self.inner / max(self.own, 1), (self.outer + 0.5) / max(self.others, 1)

    @property
    def doubtful(self) -> bool:
        """Whether labelled nodes have labelled neighbours more often than a random sample of the nodes would have.

        Of a random sample either share is that of labelled nodes, weighted with their degree. An edge between labelled
        nodes has both its ends among `inner`, so that half of these count.
        """
        if self.inner < FEWEST_ENDS or not self.others:
            return False
        own, others = self.shares
        error = math.sqrt(2 / self.inner + 1 / (self.outer + 0.5))
        return own >= TIMES * others and math.log(own / others) > ERRORS * error

    def sentence(self, kind: str | None = None) -> str:
        """Returns what a user should know, "" where nothing speaks against a random sample; `kind` names the class."""
        if not self.doubtful:
            return ""
        own, others = self.shares
        return (
            f"the labels are no random sample of the nodes: they lie together, {own:.0%} of the neighbours of labelled "
            f"nodes have a label and {others:.1%} of those of others, as where all are of one region; "
            f"P({kind or 'rare'}) may be wrong elsewhere: {sample_mend(kind)}"
        )


@dataclass(frozen=True)
class Unseen:
    """Values of a column at nodes without a label that no labelled node has.

    Attributes:
        share: of the nodes without a label that have such a value.
        by_chance: that share if labels were a random sample.
        chance: of one as large then.
        gap: whether it is that they have none.
    """

    share: float
    by_chance: float
    chance: float
    gap: bool = False

    @property
    def beyond_chance(self) -> float:
        """What chance does not leave unseen."""
        return self.share - self.by_chance

    def doubtful(self, columns: int) -> bool:
        """Whether the labels are no random sample of the nodes in one of so many columns."""
        return self.beyond_chance >= UNSEEN and self.chance * columns < LEVEL

    def sentence(self, column: str, kind: str | None = None) -> str:
        """Returns what a user should know of the column; `kind` names the class."""
        what = f"lack a value of {column!r}, and" if self.gap else f"have values of {column!r} that"
        does = "lacks it" if self.gap else "has"
        late = "leave it out if it is filled once a case is known, or " if self.gap else ""
        return (
            f"the labels are no random sample of the nodes: {self.share:.0%} of the nodes without a label {what} no "
            f"node with one of these labels {does}, where chance would leave {self.by_chance:.0%}; "
            f"P({kind or 'rare'}) may be wrong there: {late}{sample_mend(kind)}"
        )


def unseen(labelled: np.ndarray, others: np.ndarray, *, named: bool) -> Unseen:
    """Returns how many nodes without a label have values that no labelled node has.

    Of categories these are those without a label. If m nodes with a label and n without are both drawn at random, any m
    of the m + n are as likely to have the labels, and a value that c of them have is of none of these with chance
    n (n - 1) .. (n - c + 1) / ((m + n) .. (m + n - c + 1)): values that are rare are mostly missed. How likely as much
    is missed is bounded by Bernstein's inequality. Of numbers it is those beyond the least and the greatest of the
    labelled nodes, whose share is Beta(2, m - 1). Where values are missing, but of no labelled node, that is a category
    too.

    Args:
        labelled: the column at labelled nodes, NaN where there is no value, float [m].
        others: at nodes without a label, float [n].
        named: whether the numbers stand for categories.
    """
    gaps = np.isnan(labelled), np.isnan(others)
    m, n, lacking = len(labelled), len(others), float(gaps[1].mean())
    missed = float(_all_among(gaps[1].sum(keepdims=True), n, m + n)[0])
    without = Unseen(0.0, 0.0, 1.0) if gaps[0].any() else Unseen(lacking, lacking * missed, missed, gap=True)
    own, rest = labelled[~gaps[0]], others[~gaps[1]]
    if not len(own) or not len(rest):
        return without
    if named:
        values, counts = np.unique(np.concatenate([own, rest]), return_counts=True)
        none, sizes = _all_among(counts, len(rest), len(own) + len(rest)), counts / n
        share, by_chance = float(sizes[~np.isin(values, own)].sum()), float(sizes @ none)
        beyond = max(share - by_chance, 0.0)  # that one value is missed makes the others no likelier to be
        spread = float((sizes**2 * none * (1 - none)).sum()) + float(sizes.max()) * beyond / 3
        chance = math.exp(-(beyond**2) / max(2 * spread, SMALLEST))
    else:
        share, by_chance = float(((rest < own.min()) | (rest > own.max())).mean()), 2 / (len(own) + 1)
        chance = (1 - share) ** (len(own) - 1) * (1 + (len(own) - 1) * share)
    return max(without, Unseen(share, by_chance, chance), key=lambda each: each.beyond_chance)


def _all_among(counts: np.ndarray, n: int, total: int) -> np.ndarray:
    """Returns the chance that c things are all among n of a total, drawn without putting back, for each count c."""
    places = np.arange(n)
    logs = np.concatenate([[0.0], np.log((n - places) / (total - places)).cumsum()])
    return np.where(counts <= n, np.exp(logs[np.minimum(counts, n)]), 0.0)
