"""Whether labels can be a random sample of the nodes: their scores, where they lie in the graph, their columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calirare._util.arrays import differ

LEVEL = 0.001  # of each of the two tests: that labels are refused by chance is rarer than one run in 100
FEWEST = 10  # nodes of either kind that a comparison needs
FAR, TIMES = 0.1, 1.33  # distance of the distributions, and ratio of mean P, below which a difference does no harm
# The same of a network by itself: a closed form's scores of few labels lie apart from those of nodes that were not left
# out, also of random labels.
FEWEST_ALONE, FAR_ALONE, TIMES_ALONE = 100, 0.3, 2.0
DRAWS = 1_000  # random subsets that the mean is compared with


@dataclass(frozen=True)
class Exchangeable:
    """Out-of-fold scores of labels compared with those of nodes without a label.

    Attributes:
        distance: largest distance of the distribution functions (Kolmogorov-Smirnov), in [0, 1].
        p_distance: chance of one as large if labels are a random sample.
        labelled: mean out-of-fold P(rare) of the labels.
        others: of nodes without a label.
        p_mean: chance of means as far apart.
        alike: whether both kinds of scores were made alike, by models without a fold.
    """

    distance: float
    p_distance: float
    labelled: float
    others: float
    p_mean: float
    alike: bool = True

    @property
    def doubtful(self) -> bool:
        """Whether the labels are no random sample of the nodes in what the detector sees."""
        low, high = sorted((self.labelled, self.others))
        least, times = (FAR, TIMES) if self.alike else (FAR_ALONE, TIMES_ALONE)
        far = self.p_distance < LEVEL and self.distance >= least
        return far or (self.p_mean < LEVEL and high >= times * low)

    def sentence(self, kind: str | None = None) -> str:
        """Returns a warning, "" if the labels may be a random sample; `kind` names the class."""
        if not self.doubtful:
            return ""
        side, or_else, p = "wrong", "", f"P({kind or 'rare'})"
        if self.labelled > self.others:
            side, or_else = "too high", ", or far too low if a column or the edges leak the labels"
        chance = min(self.p_distance, self.p_mean)
        return (
            f"the labels are not a random sample of the nodes: labelled nodes have mean {p} {self.labelled:.2g}, "
            f"unlabelled nodes {self.others:.2g} (KS distance {self.distance:.2f}, p = {chance:.1g}). Labels picked by "
            f"a model or rule look like this. {p} may be {side} on average{or_else}"
        )


def exchangeable(labelled: np.ndarray, others: np.ndarray, *, alike: bool = True, seed: int = 0) -> Exchangeable | None:
    """Returns how P(rare) of labels, each by models without it, compares with that of nodes without a label.

    A random sample of the nodes has the scores that any other random subset has, however nodes depend on one another,
    so that chance is that of drawing the subset. Two things are compared: the distributions, which uncertain nodes in
    their middle give away, and the means, which alerts in the tail do.

    Args:
        labelled: P(rare) of labelled nodes, in [0, 1], float [m].
        others: of nodes without a label, float [n].
        alike: whether both were made alike, by models without a fold; else differences must be larger.
        seed: of the random subsets.

    Returns:
        The comparison; None where there are fewer than `FEWEST` of either, of labels fewer than `FEWEST_ALONE` where
        both were not made alike.
    """
    m, n = len(labelled), len(others)
    if min(m, n) < FEWEST or (not alike and m < FEWEST_ALONE):
        return None
    from scipy.stats import ks_2samp

    found = ks_2samp(labelled, others, method="asymp")
    means = float(np.mean(labelled)), float(np.mean(others))
    return Exchangeable(float(found.statistic), float(found.pvalue), *means, _chance(labelled, others, seed), alike)


def _chance(labelled: np.ndarray, others: np.ndarray, seed: int) -> float:
    """Returns the chance that a random subset's mean is as far from that of all as the labels': the larger of two."""
    pool, m = np.concatenate([labelled, others]), len(labelled)
    whole, draw = pool.mean(), np.random.default_rng(seed)
    own = abs(labelled.mean() - whole)
    spread = pool.std() * math.sqrt((1 / m) * (1 - m / len(pool)))
    normal = math.erfc(own / spread / math.sqrt(2)) if differ(pool) else 1.0
    if normal >= LEVEL:
        return normal
    drawn = np.array([pool[draw.choice(len(pool), m, replace=False)].mean() for _ in range(DRAWS)])
    return max(normal, float((np.abs(drawn - whole) >= own).mean()))


FEWEST_ENDS = 20  # of edges between labelled nodes, below which their number says little
CLUSTERED = 2.0  # as many labelled neighbours as elsewhere, below which a difference does no harm
UNSEEN = 0.2  # of the nodes without a label, beyond what chance leaves unseen, below which a difference does no harm
SMALLEST = 1e-12  # of a spread that is divided by
ERRORS = 3.3  # standard errors of the logarithm of that ratio: once in 1,000 of two sides


@dataclass(frozen=True)
class LabelClustering:
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
        return own >= CLUSTERED * others and math.log(own / others) > ERRORS * error

    def sentence(self, kind: str | None = None) -> str:
        """Returns a warning, "" if the labels may be a random sample; `kind` names the class."""
        if not self.doubtful:
            return ""
        own, others = self.shares
        return (
            f"the labels are not a random sample of the nodes: they are clustered. {own:.0%} of the neighbours of "
            f"labelled nodes have a label, but {others:.1%} of those of other nodes. P({kind or 'rare'}) may be wrong "
            "elsewhere"
        )


@dataclass(frozen=True)
class UnseenValues:
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
        late = ": leave the column out if it is filled only after the case" if self.gap else ""
        return (
            f"the labels are not a random sample of the nodes: {self.share:.0%} of the nodes without a label {what} no "
            f"node with one of these labels {does}; in a random sample it would be {self.by_chance:.0%}. "
            f"P({kind or 'rare'}) may be wrong there{late}"
        )


def unseen_values(labelled: np.ndarray, others: np.ndarray, *, named: bool) -> UnseenValues:
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
    without = (
        UnseenValues(0.0, 0.0, 1.0) if gaps[0].any() else UnseenValues(lacking, lacking * missed, missed, gap=True)
    )
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
    return max(without, UnseenValues(share, by_chance, chance), key=lambda each: each.beyond_chance)


def _all_among(counts: np.ndarray, n: int, total: int) -> np.ndarray:
    """Returns the chance that c things are all among n of a total, drawn without putting back, for each count c."""
    places = np.arange(n)
    logs = np.concatenate([[0.0], np.log((n - places) / (total - places)).cumsum()])
    return np.where(counts <= n, np.exp(logs[np.minimum(counts, n)]), 0.0)
