"""Arithmetic that is written: an expression of a query, with parentheses where they are needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calirare.export.sql.dialects import Dialect, number

SUM, PRODUCT, WHOLE = range(3)  # how strongly an expression holds together
NAMES = {"Log": "LN"}
FAR = 700.0  # log-odds beyond which an exponential leaves float64's range


@dataclass(frozen=True)
class Term:
    """An expression.

    Attributes:
        dialect: of the engine.
        text: as it is written.
        binds: how strongly it holds together.
    """

    dialect: Dialect
    text: str
    binds: int = WHOLE

    def __str__(self) -> str:
        return self.text

    def written(self, text: str) -> Term:
        """Returns another expression, in one piece, of the same engine."""
        return Term(self.dialect, text)

    def __add__(self, other: Term | float) -> Term:
        return self._joined("+", other, SUM)

    def __sub__(self, other: Term | float) -> Term:
        return self._joined("-", other, SUM)

    def __rsub__(self, other: float) -> Term:
        return self._of(other) - self

    def __mul__(self, other: Term | float) -> Term:
        return self._joined("*", other, PRODUCT)

    def __truediv__(self, other: Term | float) -> Term:
        if not isinstance(other, Term) and np.isinf(other):
            return self * 0.0  # no query holds an infinity
        return self._joined("/", other, PRODUCT)

    def __neg__(self) -> Term:
        return Term(self.dialect, f"(-({self.text}))")

    def apply(self, operation: str) -> Term:
        """Returns what an operation of one argument makes of it: Log, Exp, Abs, .."""
        if operation == "Exp" and self.dialect.strict:
            return Term(self.dialect, f"EXP({self.at_least(-FAR)})")
        return Term(self.dialect, f"{NAMES.get(operation, operation.upper())}({self.text})")

    def at_most(self, bound: float) -> Term:
        """Returns the less of it and a bound; NULL of NULL, which LEAST of most engines passes over."""
        return self._cut(">", bound)

    def at_least(self, bound: float) -> Term:
        """Returns the greater of it and a bound; NULL of NULL."""
        return self._cut("<", bound)

    def probability(self) -> Term:
        """Returns 1 / (1 + exp(-it))."""
        x, far = self.text, number(FAR)
        near = f"1 / (1 + EXP(-({x})))"
        return Term(self.dialect, f"(CASE WHEN {x} < -{far} THEN 0.0e0 WHEN {x} > {far} THEN 1.0e0 ELSE {near} END)")

    def _cut(self, beyond: str, bound: float) -> Term:
        text = f"(CASE WHEN {self.text} {beyond} {number(bound)} THEN {number(bound)} ELSE {self.text} END)"
        return Term(self.dialect, text)

    def _of(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else Term(self.dialect, number(other))

    def _joined(self, sign: str, other: Term | float, binds: int) -> Term:
        right = self._of(other)
        before = self.text if self.binds >= binds else f"({self.text})"
        after = right.text if right.binds > binds else f"({right.text})"
        return Term(self.dialect, f"{before} {sign} {after}", binds)
