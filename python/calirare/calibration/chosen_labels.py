"""Whether labels can be a random sample of the nodes: their scores held against those of nodes without a label."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calirare._util.arrays import differ
from calirare.calibration.doubt import sample_mend

LEVEL = 0.001  # of each of the two tests: that labels are refused by chance is rarer than one run in 100
FEWEST = 10  # nodes of either kind that a comparison needs
FAR, TIMES = 0.1, 1.33  # distance of the distributions, and ratio of mean P, below which a difference does no harm
# The same of a network by itself: a closed form's scores of few labels lie apart from those of nodes that were not left
# out, also of random labels.
FEWEST_ALONE, FAR_ALONE, TIMES_ALONE = 100, 0.3, 2.0
DRAWS = 1_000  # random subsets that the mean is held against


@dataclass(frozen=True)
class Exchangeable:
    """Scores of labels without themselves beside those of nodes without a label.

    Attributes:
        distance: largest distance of the distribution functions (Kolmogorov-Smirnov), in [0, 1].
        p_distance: chance of one as large if labels are a random sample.
        labelled: mean P(rare) of the labels, each without itself.
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
        """Returns what a user should know, "" where nothing speaks against a random sample; `kind` names the class."""
        if not self.doubtful:
            return ""
        side, or_else, mend, p = "wrong", "", "", f"P({kind or 'rare'})"
        if self.labelled > self.others:
            side, mend = "too high", "leave these out, "
            or_else = ", or far too low where columns or edges that came with the case give labels away"
        chance = min(self.p_distance, self.p_mean)
        return (
            "the labels are no random sample of the nodes: they are scored otherwise than nodes without a label (mean "
            f"{p} {self.labelled:.2g} against {self.others:.2g}, distributions {self.distance:.2f} apart, chance "
            f"{chance:.1g}), as labels that a model has chosen are; {p} may be {side} on the whole{or_else}: {mend}"
            f"{sample_mend(kind)}"
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
    """Returns the chance that a random subset's mean is as far from that of all as the labels': the larger of two.

    The share of drawn subsets tells it where few labels make the mean skewed, the normal tail where it is small.
    """
    pool, m = np.concatenate([labelled, others]), len(labelled)
    whole, draw = pool.mean(), np.random.default_rng(seed)
    own = abs(labelled.mean() - whole)
    spread = pool.std() * math.sqrt((1 / m) * (1 - m / len(pool)))
    normal = math.erfc(own / spread / math.sqrt(2)) if differ(pool) else 1.0
    if normal >= LEVEL:
        return normal
    drawn = np.array([pool[draw.choice(len(pool), m, replace=False)].mean() for _ in range(DRAWS)])
    return max(normal, float((np.abs(drawn - whole) >= own).mean()))
