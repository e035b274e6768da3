"""How a list of edges and tables are read: the rules for edges, and which columns mean what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from calirare._util.errors import InputError, check_one_of
from calirare.graph.spelling import words_of

UnknownEnds = Literal["error", "drop", "add"]


@dataclass(frozen=True)
class EdgeRules:
    """What to do with edges a symmetric adjacency without repetition cannot hold as they are.

    None is strict, but for the tables of `read_tables`, which are mended, see `for_table`.

    Attributes:
        symmetrize: give every edge its opposite direction. Where both directions are there with different weights,
            both take the mean. Without it an edge list must hold each edge in both directions.
        duplicates: an ordered pair of nodes listed more than once is refused ("error"), kept once with the weight
            listed first ("drop"), or kept once with the sum of the weights ("sum").
        self_loops: an edge from a node to itself is refused ("error"), left out ("drop") or kept ("keep").

    Raises:
        InputError: `duplicates` or `self_loops` is none of the above.
    """

    symmetrize: bool | None = None
    duplicates: Literal["error", "drop", "sum"] | None = None
    self_loops: Literal["error", "drop", "keep"] | None = None

    def for_table(self, *, weighted: bool) -> EdgeRules:
        """Returns the rules with what was left open as tables of events need it: every edge counts once, both ways.

        Args:
            weighted: whether edges have weights; those of repeated edges are added then.
        """
        symmetrize = True if self.symmetrize is None else self.symmetrize
        return EdgeRules(symmetrize, self.duplicates or ("sum" if weighted else "drop"), self.self_loops or "drop")

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[EdgeRules, dict[str, Any]]:
        """Returns the rules among options, and the others."""
        own = {each.name: options[each.name] for each in fields(cls) if each.name in options}
        return cls(**own), {name: value for name, value in options.items() if name not in own}

    def __post_init__(self) -> None:
        """Checks the two words."""
        for name, value, words in (
            ("duplicates", self.duplicates, ("error", "drop", "sum")),
            ("self_loops", self.self_loops, ("error", "drop", "keep")),
        ):
            if value is not None:
                check_one_of("edges", name, value, words)


WEIGHT = "weight"  # the column of weights, unless told otherwise


@dataclass(frozen=True)
class TableColumns:
    """Columns of an edge table and a node table as they were read, named by the user or found; None: there is none.

    Attributes:
        id: of the node table: the names that the edges refer to.
        source: of the edge table: where an edge starts.
        target: of the edge table: where it ends.
        weight: of the edge table: the weights.
        unknown_ends: what became of ends without a row in the node table.
        target_nodes: column of the node table and its values that say which nodes are scored.
        unweighted: whether a column of weights was not to be read.
    """

    id: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    unknown_ends: str | None = None
    target_nodes: str | None = None
    unweighted: bool = False


@dataclass(frozen=True)
class TableOptions:
    """Which columns of two tables mean what; None for the usual names.

    Attributes:
        label: of the node table: the classes.
        weight: of the edge table: the weights.
        id: of the node table: the names that the edges refer to.
        source_column: of the edge table: where an edge starts.
        target_column: of the edge table: where it ends.
        one_hot: of the node table: columns whose cells are names of categories, though they look like numbers.
        drop_columns: of the node table: columns that are not read, such as what is known only after the case.
        impute: "error" refuses empty cells among the features.
        need_label: a label column that was named must be there.
        relation: of the edge table: the types of the edges, of which each becomes one of `Graph.relations`.
        directed: edges keep their direction too, in `Graph.relations`.
        time: of the edge table: when an edge came to be; of the node table: when a node did; a number or a date. Where
            only edges have one, a node's is that of its first edge.
        as_of: edges after it are left out, after the end of a date without a time; none: all are there.
        edge_columns: of the edge table: numbers and times that become features of the nodes.
        unknown_ends: nodes of the edges that the node table does not have: "error" refuses them, "drop" leaves their
            edges out, "add" joins them as nodes without features that are not scored; None: refused, but added where
            all ends of one column are so.
        target_nodes: of the node table: `COLUMN=VALUE`, the rows that are scored; the others only carry edges.
        kinds: of the node table: what the columns of a run hold, by their names, see `SavedRun.kinds`; their cells are
            read as that, though in this table they may look like something else.
        unweighted: of the edge table: no column holds weights, not even one called weight.
        unknown: of the node table: values of the label column that stand for no label, next to an empty cell and -1.
    """

    label: str | None = None
    weight: str | None = None
    id: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    one_hot: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    impute: Literal["median", "zero", "error"] | None = None
    need_label: bool = True
    relation: str | None = None
    directed: bool = False
    time: str | None = None
    as_of: str | None = None
    edge_columns: tuple[str, ...] = ()
    unknown_ends: UnknownEnds | None = None
    target_nodes: str | None = None
    kinds: Mapping[str, str] | None = None
    unweighted: bool = False
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the word, and that weights are not both named and left out; raises an InputError."""
        object.__setattr__(self, "unknown", words_of(self.unknown))
        if self.unknown_ends is not None:
            check_one_of("tables", "unknown_ends", self.unknown_ends, get_args(UnknownEnds))
        if self.unweighted and self.weight is not None:
            raise InputError(f"tables: unweighted must be left out where weight names a column, got {self.weight!r}")

    @property
    def ends(self) -> tuple[str | None, str | None]:
        """Columns of the edge table that hold the ends, None for one that is not named."""
        return self.source_column, self.target_column
