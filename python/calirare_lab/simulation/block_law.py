"""Nodes of a block model in closed form: any end of an edge is drawn without a list of all nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calirare._util.array_files import NumpyArray

GOLDEN = (math.sqrt(5) - 1) / 2
SMALL_POWERS = range(1, 17)  # taken by products: np.power takes five times as long as the cube


@dataclass(frozen=True)
class Places:
    """Which node has which rank: affine, so that the nodes of a block and its hubs are spread over all numbers.

    The rest has the ranks 0 to n - n_rare - 1, the rare block those after it, in each the node of largest expected
    degree first; rank r is node (factor r + shift) mod n.

    Attributes:
        n: number of nodes, below 2^31.
        n_rare: nodes of the rare block.
        factor: without a common divisor with n.
        shift: the node of rank 0.
    """

    n: int
    n_rare: int
    factor: int
    shift: int

    @classmethod
    def drawn(cls, n: int, n_rare: int, rng: np.random.Generator) -> Places:
        """Returns places drawn near the golden section of n, whose multiples lie more evenly than any others'."""
        factor = round(n * (GOLDEN + 1e-3 * (rng.random() - 0.5))) % n
        while math.gcd(factor, n) != 1:
            factor = (factor + 1) % n
        return cls(n, n_rare, factor, int(rng.integers(n)))

    def nodes(self, block: int, x: NumpyArray) -> NumpyArray:
        """Returns the nodes, int64, at the shares `x`, in [0, 1], of the ranks of a block, 0 rest or 1 rare."""
        size = self.n_rare if block else self.n - self.n_rare
        rank = (x * size).astype(np.int64)
        np.minimum(rank, size - 1, out=rank)
        return self.of_ranks(rank + (self.n - self.n_rare) * block)

    def of_ranks(self, rank: NumpyArray) -> NumpyArray:
        """Returns the nodes, int64, of ranks, int64."""
        node = rank * self.factor
        node += self.shift
        # numpy divides by a number with vector instructions, and takes remainders without.
        node -= node // self.n * self.n
        return node

    def is_rare(self, start: int, stop: int) -> NumpyArray:
        """Returns which of the nodes from `start` to `stop` - 1 are in the rare block, bool."""
        rank = np.arange(start - self.shift, stop - self.shift, dtype=np.int64) % self.n
        return rank * pow(self.factor, -1, self.n) % self.n >= self.n - self.n_rare


@dataclass(frozen=True)
class DegreeLaw:
    """Expected degrees proportional to (x + offset)^(-1 / (exponent - 1)), x in [0, 1] the share of ranks before.

    Attributes:
        offset: flattens the power law at its top.
        power: (exponent - 1) / (exponent - 2), of the inverse of the distribution function.
    """

    offset: float
    power: float

    @classmethod
    def cut(cls, n: int, mean_degree: float, exponent: float) -> DegreeLaw:
        """Returns the law whose largest expected degree is sqrt(n mean_degree): two such hubs share one edge."""
        power = (exponent - 1) / (exponent - 2)
        top = math.sqrt(n / mean_degree)  # of the largest expected degree and the mean
        low, high = -300 * math.log(10), 300 * math.log(10)
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if _top_over_mean(math.exp(middle), power) > top else (low, middle)
        return cls(math.exp(low), power)

    def drawn(self, uniform: NumpyArray) -> NumpyArray:
        """Returns x drawn by expected degree, float64, of uniform numbers, which are overwritten."""
        low, high = self.offset ** (1 / self.power), (1 + self.offset) ** (1 / self.power)
        uniform *= high - low
        uniform += low
        x = _power(uniform, self.power)
        x -= self.offset
        return np.maximum(x, 0, out=x)


def _top_over_mean(offset: float, power: float) -> float:
    """Returns the expected degree at x = 0 by the mean expected degree."""
    rise = math.expm1(math.log1p(1 / offset) / power)  # of (1 + x / offset)^(1 / power) from x = 0 to 1
    return 1 / (offset * power * rise)


def _power(base: NumpyArray, power: float) -> NumpyArray:
    """Returns base^power, by products where the power is a small whole number."""
    if power not in SMALL_POWERS:
        return np.power(base, power)
    result = base.copy()
    for _ in range(round(power) - 1):
        result *= base
    return result
