"""What every posterior of label noise gives: how likely each label is wrong, and how many of some are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
DRAWS = 10  # numbers of wrong labels from each world of the coarsened posterior
SMALLEST = 1e-12
VAGUE = (3, 5)  # an interval that ends above 3 times the expected number plus 5 tells nothing


def is_vague(expected: float, high: int) -> bool:
    """Returns whether an interval of a number of wrong labels is too wide to be an answer, see `VAGUE`."""
    return high > VAGUE[0] * expected + VAGUE[1]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Worlds that differ in how labels go wrong.

    Attributes:
        weight: of each world, [g], sums to 1.
        given: P(wrong) of each label given each world, [g, m].
        drawn: P(wrong) of each label in worlds of the coarsened posterior, of which intervals are, [w, m].
        clean: P(no label is wrong).
    """

    weight: Numbers
    given: Numbers
    drawn: Numbers
    clean: float

    @property
    def p_wrong(self) -> Numbers:
        """P(the label is wrong) of each label, [m]."""
        return np.asarray(self.weight @ self.given)

    def count(self, among: NDArray[np.bool_], level: float = 0.9) -> tuple[float, int, int]:
        """Returns how many labels of some are wrong: the expected number and the ends of an interval.

        Given the rates labels are wrong independently; their number, Poisson-binomial, is taken for the binomial one of
        the same mean and variance.

        Args:
            among: which labels, bool [m].
            level: of the interval, in (0, 1).
        """
        chosen, drawn = among.astype(np.float64), self._numbers(among)
        expected = float(self.weight @ np.einsum("gm,m->g", self.given, chosen))
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
        return expected, min(int(low), math.floor(expected)), max(int(high), math.ceil(expected))

    @property
    def none(self) -> float:
        """P(no label is wrong), by the same samples as the intervals."""
        return float((self._numbers(np.ones(self.given.shape[1], dtype=bool)) == 0).mean())

    def _numbers(self, among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Returns samples of the number of wrong labels of some."""
        chosen = among.astype(np.float64)  # sums without a copy: worlds times labels are many numbers
        mean = np.repeat(np.einsum("wm,m->w", self.drawn, chosen), DRAWS)
        squares = np.repeat(np.einsum("wm,wm,m->w", self.drawn, self.drawn, chosen), DRAWS)
        share = np.clip(squares / np.maximum(mean, SMALLEST), 0, 1)
        number = np.where(share > 0, np.rint(mean / np.maximum(share, SMALLEST)), 0)
        most = np.minimum(number, int(among.sum())).astype(np.int64)
        return np.random.default_rng(0).binomial(most, share)


def shares_of(log_weight: Numbers) -> Numbers:
    """Returns weights that sum to 1 by their logarithms, up to a constant."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())
