"""Where a query finds the nodes and edges: tables and columns."""

from __future__ import annotations

from dataclasses import dataclass

from calirare._util.errors import InputError


@dataclass(frozen=True)
class Names:
    """What the tables and columns that a query reads are called.

    Attributes:
        nodes: table with one row per node; parts divided by points, as in schema.table.
        edges: table with one row per edge.
        features: table of sparse features with columns `node`, `feature` and `value`; None: columns of `nodes`.
        id: column of `nodes` that the edges refer to.
        source: column of `edges` where an edge starts.
        target: column of `edges` where an edge ends.
        weight: column of `edges` with weights; None: every edge counts once.
        salt: keys over which a join with a hub's neighbours is spread; 1: none. For Spark.

    Raises:
        InputError: the salt is out of range.
    """

    nodes: str = "nodes"
    edges: str = "edges"
    features: str | None = None
    id: str = "node"
    source: str = "source"
    target: str = "target"
    weight: str | None = None
    salt: int = 1

    def __post_init__(self) -> None:
        """Checks the salt."""
        if not 1 <= self.salt <= 1000:
            raise InputError(f"export: --salt must be from 1 to 1000, got {self.salt}")

    def prefix(self) -> str:
        """Returns what the names of a query's own parts begin with, and none of the tables'."""
        words = [word.lower() for table in (self.nodes, self.edges, self.features or "") for word in table.split(".")]
        prefix = "cr_"
        while any(word.startswith(prefix) for word in words):
            prefix += "_"
        return prefix
