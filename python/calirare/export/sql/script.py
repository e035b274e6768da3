"""A query that grows part by part, each a table of its own that is computed once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.export.sql.dialects import Dialect, number

MOST_BYTES = 64_000_000  # of a query
MOST_COLUMNS = 800  # of a part: Postgres takes 1,664, and ranks need two at a time
TOGETHER = 24  # terms of a sum within one pair of parentheses: SQLite takes 1,000 levels


@dataclass(frozen=True)
class Columns:
    """A part with a node per row.

    Attributes:
        part: its name.
        names: of its columns, `node` aside.
    """

    part: str
    names: tuple[str, ...]


def numbered(n: int) -> tuple[str, ...]:
    """Returns the names of n columns of a part."""
    return tuple(f"c{i}" for i in range(n))


@dataclass
class Script:
    """The parts of a query.

    Attributes:
        dialect: of the engine.
        prefix: of the names of the parts, which no table of the user's has.
        parts: name and body of each part.
    """

    dialect: Dialect
    prefix: str
    parts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, body: str, columns: Sequence[str] = ()) -> str:
        """Adds a part and returns its name in the query; a second one of its name is numbered."""
        taken = {part.partition("(")[0] for part, _ in self.parts}
        full, i = f"{self.prefix}{name}", 1
        while full in taken:
            i += 1
            full = f"{self.prefix}{name}_{i}"
        self.parts.append((f"{full}({', '.join(columns)})" if columns else full, body))
        return full

    def select(self, name: str, columns: Iterable[tuple[str, str]], source: str) -> str:
        """Adds a part with a node per row and returns its name.

        Args:
            name: of the part.
            columns: expression and name of each column.
            source: what stands after SELECT and its columns.

        Raises:
            InputError: there are more columns than engines take.
        """
        listed = [f"{what} AS {called}" for what, called in columns]
        if len(listed) > 2 * MOST_COLUMNS + 1:
            raise InputError(
                f"export: a query can hold {2 * MOST_COLUMNS:,} columns of a node, but the run reads "
                f"{len(listed) - 1:,}: train with fewer features, or sparse ones with --scale svd"
            )
        return self.add(name, "SELECT " + ",\n    ".join(listed) + f"\n  {source}")

    def constants(self, name: str, keys: Sequence[str], numbers: NumpyArray, columns: Sequence[str]) -> str:
        """Adds a table of constants and returns its name: `feature` by a literal each, and numbers [d, k]."""
        rows = [f"({key}, {', '.join(map(number, row))})" for key, row in zip(keys, numbers.tolist(), strict=True)]
        return self.add(name, "VALUES " + ",\n  ".join(rows), ["feature", *columns])

    def text(self, last: str) -> str:
        """Returns the query that ends in a SELECT.

        Raises:
            InputError: it is larger than engines read.
        """
        body = ",\n".join(f"{name} AS {self.dialect.kept}(\n  {part}\n)" for name, part in self._kept())
        query = f"WITH {body}\n{last}"
        if len(query) > MOST_BYTES:
            raise InputError(
                f"export: the query would have {len(query) / 1e6:,.0f} MB, engines read up to {MOST_BYTES / 1e6:.0f}: "
                "train with --model gcn, with --scale svd or with fewer features"
            )
        return query

    def _kept(self) -> Iterator[tuple[str, str]]:
        """Yields the parts, each that is read twice with a condition where nothing else has it computed once."""
        words = Counter(word for _, part in self.parts for word in re.findall(rf"\b{self.prefix}\w+", part))
        for name, part in self.parts:
            shared = self.dialect.pinned and words[name.partition("(")[0]] > 1
            yield name, f"SELECT * FROM (\n  {part}\n  ) WHERE {self.dialect.pinned}" if shared else part


def total(terms: Sequence[str]) -> str:
    """Returns the sum of expressions, in parentheses that are nested no deeper than engines take."""
    rest = list(terms) or ["0.0e0"]
    while len(rest) > 1:
        groups = [rest[i : i + TOGETHER] for i in range(0, len(rest), TOGETHER)]
        rest = ["(" + " + ".join(group) + ")" if len(group) > 1 else group[0] for group in groups]
    return rest[0]


def linear(columns: Sequence[str], weights: Sequence[float], constant: float = 0.0) -> str:
    """Returns the sum of weighted columns and a constant; weights of 0 are left out."""
    terms = [f"{number(w)} * {column}" for column, w in zip(columns, weights, strict=True) if w]
    return total([*terms, number(constant)] if constant or not terms else terms)
