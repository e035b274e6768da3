"""The nodes in a query: the rows of the node table, and with them the ends of edges that joined the run's graph."""

from __future__ import annotations

from dataclasses import dataclass

from calirare.export.sql.dialects import Dialect
from calirare.export.sql.names import Names
from calirare.export.sql.script import Script
from calirare.export.sql.words import named
from calirare.features import FeatureMap
from calirare.graph import LISTED, plain_name
from calirare.run import Scorer


@dataclass(frozen=True)
class Nodes:
    """Where a query reads nodes.

    Attributes:
        table: a table or a part with a row per node.
        id: its column of names.
        rows: what follows FROM where columns of the node table are read, with `n` for it.
        node: the name of a node there.
        listed: whether a node has a row, 1 or 0; None: each has.
        said: condition on `node` of those that P(rare) is told of; empty where it is of all.
        as_text: whether names are compared as text.
    """

    table: str
    id: str
    rows: str
    node: str
    listed: str | None
    said: str
    as_text: bool

    @classmethod
    def of(cls, script: Script, names: Names, scorer: Scorer) -> Nodes:
        """Returns the nodes of a run; what it needs is added to the query."""
        d = script.dialect
        table, column = d.table(names.nodes), d.name_of(names.id)
        given, ends = f"n.{column}", (names.source, names.target)
        kept = scored_rows(script, scorer.settings.data.scored or scorer.tables.scored)
        if "add" not in (scorer.settings.data.unknown_ends, scorer.tables.unknown_ends):
            said = f"node IN (SELECT {given} FROM {table} n WHERE {kept})" if kept else ""
            return cls(table, column, f"{table} n", given, None, said, False)
        text = _as_name(d, given)
        each = (f"SELECT {_as_name(d, f'e.{d.name_of(end)}')} AS node FROM {d.table(names.edges)} e" for end in ends)
        found = script.add("ends", f"SELECT a.node FROM ({' UNION '.join(each)}) a WHERE a.node <> ''")
        part = script.add("nodes", f"SELECT {text} AS node FROM {table} n UNION SELECT node FROM {found}")
        rows = f"{part} k LEFT JOIN {table} n ON {text} = k.node"
        listed = f"CASE WHEN {given} IS NULL THEN 0 ELSE 1 END"
        said = f"node IN (SELECT {text} FROM {table} n{f' WHERE {kept}' if kept else ''})"
        return cls(part, "node", rows, "k.node", listed, said, True)

    def end(self, script: Script, column: str) -> str:
        """Returns an end of an edge `e`, as names of nodes are compared."""
        given = f"e.{script.dialect.name_of(column)}"
        return _as_name(script.dialect, given) if self.as_text else given

    def column(self, script: Script, features: FeatureMap, i: int) -> str:
        """Returns the raw column i of a map of features."""
        name = features.inputs[i].name
        return self.listed if self.listed and name == LISTED else f"n.{script.dialect.name_of(name)}"


def _as_name(dialect: Dialect, given: str) -> str:
    """Returns a column as names of nodes in text: of a whole number without a point, as a column with gaps has them."""
    return f"({dialect.whole.format(x=f'CAST({given} AS {dialect.text})')})"


def scored_rows(script: Script, wanted: str | None) -> str:
    """Returns the condition on rows `n` of the node table that `--scored COLUMN=VALUE,..` says; empty where none is."""
    if not wanted:
        return ""
    column, _, values = wanted.partition("=")
    words = list(filter(None, map(plain_name, values.split(","))))
    d = script.dialect
    return f"{named(f'n.{d.name_of(column)}', words, d)} IN ({', '.join(map(d.string, words))})"
