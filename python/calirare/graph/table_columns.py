"""Which columns of two tables a graph was read from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableColumns:
    """Columns of an edge table and a node table as they were read, named by the user or found; None: there is none.

    Attributes:
        id: of the node table: the names that the edges refer to.
        source: of the edge table: where an edge starts.
        target: of the edge table: where it ends.
        weight: of the edge table: the weights.
    """

    id: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
