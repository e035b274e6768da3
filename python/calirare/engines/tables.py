"""Tables of nodes and edges as ibis expressions: edges cleaned as `calirare predict` does, sums over neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ibis

from calirare._util.errors import FaultsError, InputError
from calirare.graph import WEIGHT, EdgeRules, TableColumns, TableOptions
from calirare.graph.tables.roles import column_with_role, ends_of, node_roles
from calirare.run import Data

LARGEST = 3.4028234663852886e38  # of float32
NODES, EDGES = "node table", "edge table"  # as messages call them
MENDED = (
    f"{EDGES}: engines leave out self loops and count repeated edges once (with weights: add them up), but the run has "
    "self_loops {} and duplicates {}: use calirare predict --graph"
)


@dataclass(frozen=True, eq=False)
class Tables:
    """A node table and an edge table, and which of their columns mean what.

    Attributes:
        nodes: the node table with its names in the column `node`, next to its own columns.
        features: the columns of features, in order.
        label: the column of labels, or None.
        ends: the edge table: the columns `begin` and `end`, names of nodes, and `weight` where edges are weighted.
        drop: whether edges of nodes without a row are left out.
        scored: nodes that are scored; None: all.
    """

    nodes: Any
    features: tuple[str, ...]
    label: str | None
    ends: Any
    drop: bool
    scored: Any

    @classmethod
    def of(cls, nodes: Any, edges: Any, data: Data, found: TableColumns) -> Tables:
        """Returns two tables of ibis as they are read.

        Args:
            nodes: one row per node.
            edges: one row per edge.
            data: which columns mean what, and the rules for edges.
            found: columns of the run's own tables, for what `data` leaves open.

        Raises:
            InputError: a column is missing, or a rule for edges is one that engines do not follow.
        """
        names, faults = list(nodes.columns), list[str]()
        id_ = data.id or (found.id if found.id in names else None)
        options = TableOptions(label=data.label, id=id_, drop_columns=data.drop_columns, need_label=False)
        roles = node_roles(names, options, NODES, faults)
        if roles.ids is None:
            faults.append(f"{NODES}: one column must name the nodes: call it node or id, or say which it is (--id)")
        ends = _ends_of(edges, data, found, faults)
        if faults:
            raise FaultsError(faults)
        features = tuple(name for name in names if name not in (*roles, *data.drop_columns))
        name, begin, end = nodes[roles.ids], ends.begin, ends.end
        if begin.type().is_integer() and end.type().is_integer() and name.type().is_integer():
            ends = ends.mutate(begin=begin.cast(name.type()), end=end.cast(name.type()))
        elif not begin.type() == end.type() == name.type():
            name, ends = name.cast("string"), ends.mutate(begin=begin.cast("string"), end=end.cast("string"))
        nodes, drop = nodes.mutate(node=name), data.unknown_ends == "drop"
        scored = None
        if data.target_nodes is not None:
            column, _, values = data.target_nodes.partition("=")
            if column not in names:
                raise InputError(
                    f"{NODES}: there is no column {column!r} of {data.target_nodes!r}: name another (--target-nodes)"
                )
            scored = nodes.filter(nodes[column].cast("string").isin(values.split(",")))
        return cls(nodes, features, roles.label, ends, drop, scored)

    def check(self, fetched: Callable[[Any], Any]) -> bool:
        """Checks names and ends; returns whether there are edges of nodes without a row, which are left out.

        Args:
            fetched: returns the rows of an expression as a table of pyarrow.

        Raises:
            InputError: a node has no name or two rows, an edge no end, a wrong weight, or an end without a row.
        """
        node, ends = self.nodes.node, self.ends
        found = self.nodes.aggregate(n=self.nodes.count(), names=node.nunique(), empty=node.isnull().sum())
        n, names, empty = fetched(found).to_pylist()[0].values()
        if empty or names < n:
            raise InputError(
                f"{NODES}: every node must have a name of its own, but of {n:,} rows {int(empty or 0):,} have none and "
                f"{n - names - int(empty or 0):,} repeat one: keep one row per node"
            )
        wrong = ends.begin.isnull() | ends.end.isnull()
        if "weight" in ends.columns:
            wrong |= ends.weight.isnull() | ~(ends.weight > 0) | (ends.weight > LARGEST)
        row = fetched(ends.filter(wrong).limit(1)).to_pylist()
        if row:
            raise InputError(
                f"{EDGES}: every edge must have two ends, and a weight that is finite and > 0 where there are weights, "
                f"got {row[0]}: fix the edge or leave it out"
            )
        for end in ("begin", "end"):
            strange = fetched(ends.anti_join(self.nodes, ends[end] == self.nodes.node).limit(1)).to_pylist()
            if not strange:
                continue
            if not self.drop:
                raise InputError(
                    f"{EDGES}: each end of an edge needs a row in the node table, but {strange[0][end]!r} has none: "
                    "add the row, or leave such edges out (--unknown-ends drop)"
                )
            return True
        return False

    def links(self, *, strange: bool) -> Any:
        """Returns the distinct edges without loops in one direction; of weighted edges both, with their weight.

        Args:
            strange: whether edges of nodes without a row are left out.
        """
        ends, names = self.ends, self.nodes.select("node")
        ends = ends.filter(ends.begin != ends.end)
        if strange:
            ends = ends.semi_join(names, ends.begin == names.node)
            ends = ends.semi_join(names, ends.end == names.node)
        if "weight" not in ends.columns:
            return ends.select(
                begin=ibis.least(ends.begin, ends.end), end=ibis.greatest(ends.begin, ends.end)
            ).distinct()
        one_way = ends.group_by("begin", "end").agg(weight=ends.weight.sum())
        both = both_ways(one_way).group_by("begin", "end")
        return both.agg(weight=ibis._.weight.mean().cast("float32").cast("float64"))


def _ends_of(edges: Any, data: Data, found: TableColumns, faults: list[str]) -> Any:
    """Returns the ends of edges, and weights where there are any; adds what is wrong to the faults."""
    names, wanted = list(edges.columns), (data.source_column, data.target_column)
    if not any(wanted) and {found.source, found.target} <= set(names):
        wanted = (found.source, found.target)
    (source, target), wrong = ends_of(names, wanted, EDGES)
    usual = () if data.weight or data.unweighted or found.unweighted else (WEIGHT,)
    weight = column_with_role(names, data.weight, usual, "weights", EDGES, faults)
    given: dict[str, Any] = {"duplicates": data.duplicates, "self_loops": data.self_loops}
    rules = EdgeRules(**given).for_table(weighted=weight is not None)
    if rules.self_loops != "drop" or rules.duplicates == "error" or (weight and rules.duplicates == "drop"):
        wrong = [*wrong, MENDED.format(rules.self_loops, rules.duplicates)]
    faults += wrong
    if wrong:
        return None
    columns = {"begin": edges[source], "end": edges[target]}
    if weight or rules.duplicates == "sum":
        columns["weight"] = (edges[weight].cast("float32") if weight else ibis.literal(1.0)).cast("float64")
    return edges.select(**columns)


def both_ways(links: Any) -> Any:
    """Returns edges and their opposite directions."""
    return links.union(links.rename(begin="end", end="begin").select(links.columns))


def with_degrees(nodes: Any, pairs: Any) -> Any:
    """Returns nodes with their number of neighbours, `degree`, and the sum of their edges' weights, `total`.

    Args:
        nodes: with the column `node`.
        pairs: each edge in both directions: begin, end and, with weights, weight.
    """
    total = pairs.weight.sum() if "weight" in pairs.columns else pairs.count()
    degrees = pairs.group_by("begin").agg(degree=pairs.count(), total=total.cast("float64"))
    joined = nodes.left_join(degrees, nodes.node == degrees.begin).drop("begin")
    return joined.mutate(degree=joined.degree.fill_null(0), total=joined.total.fill_null(0.0))


def with_sums(nodes: Any, pairs: Any, values: dict[str, str]) -> Any:
    """Returns nodes with sums over their neighbours, by the weights of the edges, 0 without neighbours.

    Args:
        nodes: with the column `node`.
        pairs: see `with_degrees`.
        values: columns of the nodes that are summed up, and names of their sums.
    """
    near = pairs.join(nodes.select("node", *values), pairs.end == nodes.node)
    terms = {new: near[old].cast("float64") for old, new in values.items()}
    if "weight" in pairs.columns:
        terms = {new: term * near.weight for new, term in terms.items()}
    sums = near.group_by("begin").agg(**{new: term.sum() for new, term in terms.items()})
    joined = nodes.left_join(sums, nodes.node == sums.begin).drop("begin")
    return joined.mutate(**{new: joined[new].fill_null(0.0) for new in values.values()})
