"""What a formula asks of the numbers it is written for: columns of a query, or values of a graph of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeVar

from calirare.models import SMALLEST_P


class Number(Protocol):
    """A number of each node, or a row of them, of which an export writes what becomes."""

    def __add__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __rsub__(self, other: float, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __truediv__(self, other: Any, /) -> Self: ...
    def __neg__(self) -> Self: ...

    def apply(self, operation: str) -> Self:
        """Returns what an operation of one argument makes of it: Log, Exp, Abs, Sign, .."""

    def at_most(self, bound: float) -> Self:
        """Returns the less of it and a bound."""

    def at_least(self, bound: float) -> Self:
        """Returns the greater of it and a bound."""

    def probability(self) -> Self:
        """Returns 1 / (1 + exp(-it))."""


N = TypeVar("N", bound=Number)


def mixed(odds: Sequence[tuple[float, N]]) -> N:
    """Returns the log-odds of the average of probabilities, each given by its weight and its log-odds."""

    def logarithm(parts: Sequence[tuple[float, N]]) -> N:
        total, *rest = (each.probability() * weight for weight, each in parts)
        for part in rest:
            total = total + part
        return total.at_least(SMALLEST_P).apply("Log")

    return logarithm(odds) - logarithm([(weight, -each) for weight, each in odds])
