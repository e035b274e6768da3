"""Bounds on the differences between two graphs with the same distribution.

Each bound is passed with a probability of at most `LEVEL` / number of tests, so that all tests of one graph together
raise a false alarm with at most `LEVEL`. Nodes that depend on their neighbours enter by their design effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEVEL = 0.05  # of false alarms per graph, over all columns together


@dataclass(frozen=True)
class Noise:
    """The tests of one graph.

    Attributes:
        tests: how many there are, >= 1.
        level: probability of a false alarm in any of them.
    """

    tests: int
    level: float = LEVEL

    @property
    def nats(self) -> float:
        """Minus the logarithm of the level of one side of one test."""
        return math.log(2 * max(self.tests, 1) / self.level)

    def distance(self, n: float, m: float, effect: float) -> float:
        """Returns what the largest distance of two distribution functions stays below (Dvoretzky, Kiefer, Wolfowitz).

        Args:
            n: values of one sample, > 0.
            m: of the other, > 0.
            effect: design effect, >= 1.
        """
        return math.sqrt(self.nats / 2 * effect * (1 / n + 1 / m))

    def mean(self, n: float, m: float, effect: float, variance: float) -> float:
        """Returns what the difference of two means of values in [0, 1] stays below (Bernstein).

        Args:
            n: values of one sample, > 0.
            m: of the other, > 0.
            effect: design effect, >= 1.
            variance: of a value.
        """
        rate = effect * (1 / n + 1 / m)
        return math.sqrt(2 * self.nats * variance * rate) + 2 / 3 * self.nats * rate

    def proportions(self, n: float, m: float, effect: float, first: float, second: float) -> float:
        """Returns what the difference of two proportions stays below: `mean` with the variance of the pooled one."""
        pooled = (first * n + second * m) / (n + m)
        return self.mean(n, m, effect, pooled * (1 - pooled))

    def beyond(self, n: float, m: float, effect: float) -> float:
        """Returns how many of m values may lie beyond the range of n others.

        Of exchangeable values, the farthest of those that remain is one of the m with probability m / (n + m).

        Args:
            n: values that make the range, > 0.
            m: values compared with it, > 0.
            effect: design effect, >= 1.
        """
        return 2 * effect * self.nats / math.log1p(n / m)

    def unseen(self, n: float, m: float, effect: float, single: float) -> float:
        """Returns what the share of values of categories never seen stays below (Good and Turing).

        Args:
            n: values seen, > 0.
            m: values looked at, > 0.
            effect: design effect, >= 1.
            single: how many of the categories were seen once.
        """
        nats = self.nats * effect
        mass = min(1.0, (single + 2 * math.sqrt(single * nats) + nats) / n)
        return mass + math.sqrt(2 * mass * nats / m) + nats / m

    def chi_squared(self, freedom: int, effect: float) -> float:
        """Returns what a statistic of chi-squared stays below (Rao and Scott: the effect multiplies it).

        Args:
            freedom: degrees of freedom, >= 1.
            effect: design effect, >= 1.
        """
        from scipy.special import chdtri

        return effect * float(chdtri(freedom, 2 * math.exp(-self.nats)))

    @property
    def deviations(self) -> float:
        """Standard deviations that a normal number stays within."""
        from scipy.special import ndtri

        return -float(ndtri(math.exp(-self.nats)))
