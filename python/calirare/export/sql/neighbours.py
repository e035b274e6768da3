"""Edges, degrees, means of neighbours and graph convolutions: one join and one GROUP BY for each hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from calirare.export.sql.names import Names
from calirare.export.sql.nodes import Nodes
from calirare.export.sql.script import Script


@dataclass(frozen=True)
class EdgeReading:
    """What becomes of the rows of an edge table.

    Attributes:
        added: whether repeated edges are added up; else each counts once.
        loops: whether edges of a node to itself are kept.
    """

    added: bool
    loops: bool


class Neighbours:
    """The adjacency in a query; its parts are added when they are first asked for.

    Args:
        script: the query.
        names: of the tables.
        nodes: where they are read.
        reading: of the edges.
    """

    def __init__(self, script: Script, names: Names, nodes: Nodes, reading: EdgeReading) -> None:
        self.script, self.names, self.nodes, self.reading = script, names, nodes, reading

    @cached_property
    def edges(self) -> str:
        """Part with every edge both ways: u, v and the weight w."""
        d, names, nodes = self.script.dialect, self.names, self.nodes
        source, target = (nodes.end(self.script, column) for column in (names.source, names.target))
        one = d.as_double("1")
        weight = one if names.weight is None else d.as_single(d.as_double(f"e.{d.name_of(names.weight)}"))
        kept = "" if self.reading.loops else " WHERE a.u <> a.v"
        rows = self.script.add(
            "rows",
            f"SELECT a.u, a.v, {'SUM(a.w)' if self.reading.added else one} AS w FROM (\n    "
            f"SELECT s.{nodes.id} AS u, t.{nodes.id} AS v, {weight} AS w\n    "
            f"FROM {d.table(names.edges)} e\n    "
            f"JOIN {nodes.table} s ON s.{nodes.id} = {source}\n    "
            f"JOIN {nodes.table} t ON t.{nodes.id} = {target}\n  "
            f") a{kept} GROUP BY a.u, a.v",
        )
        both = f"SELECT u, v, w FROM {rows} UNION ALL SELECT v AS u, u AS v, w FROM {rows}"
        return self.script.add("edges", f"SELECT b.u, b.v, AVG(b.w) AS w FROM ({both}) b GROUP BY b.u, b.v")

    @cached_property
    def degrees(self) -> str:
        """Part with the number of neighbours n and the sum of weights s of each node that has an edge."""
        of = f"SELECT u AS node, COUNT(*) AS n, SUM(w) AS s FROM {self.edges} GROUP BY u"
        return self.script.add("degree", of)

    @cached_property
    def shares(self) -> str:
        """Part with D^-1 A, whose rows sum to 1."""
        of = f"SELECT e.u, e.v, e.w / g.s AS w FROM {self.edges} e JOIN {self.degrees} g ON g.node = e.u"
        return self.script.add("shares", of)

    @cached_property
    def convolution(self) -> str:
        """Part with A_hat: D^-1/2 (A + I) D^-1/2, I where a node has no edge to itself."""
        d, edges = self.script.dialect, self.edges
        node = f"n.{self.nodes.id}"
        bare = f" WHERE NOT EXISTS (SELECT 1 FROM {edges} l WHERE l.u = {node} AND l.v = {node})"
        loops = f"SELECT {node} AS u, {node} AS v, {d.as_double('1')} AS w FROM {self.nodes.table} n"
        if self.reading.loops:
            loops += bare
        looped = self.script.add("looped", f"SELECT u, v, w FROM {edges} UNION ALL {loops}")
        scale = self.script.add("scale", f"SELECT u AS node, 1 / SQRT(SUM(w)) AS r FROM {looped} GROUP BY u")
        return self.script.add(
            "a_hat",
            f"SELECT l.u, l.v, l.w * p.r * q.r AS w FROM {looped} l JOIN {scale} p ON p.node = l.u "
            f"JOIN {scale} q ON q.node = l.v",
        )

    def propagated(self, source: str, columns: Sequence[str]) -> str:
        """Returns a part with A_hat times the columns of another."""
        return self._summed(self.convolution, source, [(f"SUM(a.w * h.{c})", c) for c in columns])

    def means(self, source: str, columns: Sequence[str]) -> str:
        """Returns a part with the neighbours' weighted means of columns, of nodes that have neighbours."""
        part = self._summed(self.shares, source, [(f"SUM(a.w * h.{c})", c) for c in columns])
        rounded = [(self.script.dialect.as_single(c), c) for c in columns]
        return self.script.select("means", [("node", "node"), *rounded], f"FROM {part}")

    def _summed(self, matrix: str, source: str, columns: Sequence[tuple[str, str]]) -> str:
        """Returns a part with sums over the entries of each row of a matrix."""
        salt = self.names.salt
        joined = f"{matrix} a JOIN {source} h ON h.node = a.v"
        if salt > 1:
            keys = ", ".join(f"({i})" for i in range(salt))
            salts = self.script.add("salts", f"VALUES {keys}", ["salt"])
            many = self.script.add("salted", f"SELECT h.*, k.salt FROM {source} h CROSS JOIN {salts} k")
            joined = f"{matrix} a JOIN {many} h ON h.node = a.v AND h.salt = pmod(hash(a.u), {salt})"
        summed = f"FROM {joined} GROUP BY a.u"
        if self.script.dialect.few_groups:  # no row of so many nodes: the next hop's join is taken for a large one
            nothing = ", ".join(["NULL"] * (1 + len(columns)))
            summed += f"\n  UNION ALL SELECT {nothing} FROM {self.nodes.table} WHERE 0"
        return self.script.select("hop", [("a.u", "node"), *columns], summed)
