"""What compares a graph, or the features of new nodes, with another graph: checksums, relations, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from torch import Tensor

from calirare._util.array_files import checksum
from calirare._util.errors import InputError
from calirare.graph.columns import Column, columns_to_text, names_in_words
from calirare.graph.graph import Graph
from calirare.graph.relations import Relation
from calirare.graph.tables.files import Table, read_table
from calirare.graph.tables.node_cells import NodeCells
from calirare.graph.tables.sources import TableInMemory
from calirare_ext import Csr


def same_but_labels(graph: Graph, other: str) -> bool:
    """Returns whether a graph has the edges and features, and so the nodes, of one whose `fingerprint` is known."""
    place = 6 if isinstance(graph.x, Csr) else 4  # of the labels' checksum, after those of edges and features
    own, parts = fingerprint(graph).split("-"), other.split("-")
    if graph.y is not None:
        del own[place]
    return own == parts[:place] + parts[place + 1 :]


def fingerprint(graph: Graph) -> str:
    """Returns a checksum of everything a training reads of a graph: edges, features and what they mean, labels."""
    matrices = [graph.adjacency] + ([graph.x] if isinstance(graph.x, Csr) else [])
    parts = [part for matrix in matrices for part in (matrix.indptr, matrix.indices, matrix.values)]
    parts += [] if isinstance(graph.x, Csr) else [graph.x]
    parts += [] if graph.y is None else [graph.y]
    parts += [part for each in graph.relations for part in (each.out.indptr, each.out.indices, each.out.values)]
    sums = [checksum(part) for part in parts]
    if graph.columns:
        sums.append(crc32(columns_to_text(graph.columns).encode()))
    return "-".join(f"{each:08x}" for each in sums)


def with_relations(graph: Graph, names: tuple[str, ...] | None, say: Callable[[str], None]) -> Graph:
    """Returns a graph with the relations that another has, by name: those it lacks without an edge, and no others.

    `say` takes a note on the difference; an InputError where the other has relations, and this graph knows of none.
    """
    if names is None or names == tuple(relation.name for relation in graph.relations):
        return graph
    here = {relation.name: relation for relation in graph.relations}
    if names and not here and graph.n_edges:
        raise InputError(
            f"graph {graph.name!r}: its edges must have types or directions like the run's graph, "
            f"{names_in_words(names)}: name the column of types (--relation COLUMN), or pass --directed"
        )
    lacking, more = [n for n in names if n not in here], [n for n in here if n not in names]
    if lacking and graph.n_nodes:
        say(f"no edge is of type {names_in_words(lacking)}, but the run's graph has such edges")
    if more and names:
        say(f"edges of type {names_in_words(more)} count as edges without a type: the run's graph has none of them")
    if more and not names:
        say("types and directions of edges are ignored, because the run's graph has none")
    no_edge = Csr.zeros(graph.n_nodes, graph.device)
    found = tuple(here.get(name) or Relation(name, no_edge, no_edge) for name in names)
    return replace(graph, relations=found, trusted=True)


def has_weights(graph: Graph) -> bool:
    """Returns whether edges have weights other than 1."""
    return bool((graph.adjacency.values != 1).any())


def note_weights(weighted: bool | None, here: bool, say: Callable[[str], None]) -> None:
    """Says where edges have weights and those of another graph had none (False), or the other way round."""
    if weighted is None or weighted == here:
        return
    what = (
        "edges have weights, but those of the run's graph have none"
        if here
        else "no edge has a weight, but those of the run's graph have"
    )
    mend = (
        "leave the weights out (table: --unweighted)"
        if here
        else "name the column of weights (--weight COLUMN, edge_weight of a Data)"
    )
    say(f"{what}, so P may be wrong: {mend}")


SHOWN = 10  # names of columns in a message


def has_column_names(x: Any, graph: Graph) -> bool:
    """Returns whether features come by name: a record, a list of records, or a row or table of pandas, polars or Arrow.

    Of a graph whose features have no names a row or table is read in its order.
    """
    if isinstance(x, Sequence) and not isinstance(x, str):
        return len(x) > 0 and all(isinstance(each, Mapping) for each in x)
    table = hasattr(x, "to_dict") or hasattr(x, "__arrow_c_stream__")
    return isinstance(x, Mapping) or (bool(graph.feature_names) and table)


def is_single_node(x: Any) -> bool:
    """Returns whether named features are of one node."""
    return isinstance(x, Mapping) or getattr(x, "ndim", 0) == 1


def features_by_name(x: Any, graph: Graph) -> tuple[Tensor, tuple[Column, ...]]:
    """Returns features float32 [b, d] in the order of a graph's columns, and what each column holds.

    Cells are read as those of a node table; what the graph has no column for is not read. An InputError where a feature
    is not there, a cell is something else, or the graph's features have no names.
    """
    import pandas as pd

    columns = graph.columns or tuple(Column(name) for name in graph.feature_names)
    if not columns:
        raise InputError(
            f"new nodes: x must be numbers in the order of the features of graph {graph.name!r}, which have no names"
        )
    rows = [dict(x)] if is_single_node(x) else list(x) if isinstance(x, Sequence) else None
    given = read_table(TableInMemory.of("new nodes", x)).cells if rows is None else pd.DataFrame(rows)
    names = [column.name for column in columns]
    absent = [name for name in names if name not in given or any(name not in row for row in rows or ())]
    if absent:
        known = names_in_words(names, SHOWN)
        raise InputError(f"new nodes: x must have a value or None for each of {known}, but has no {absent[0]!r}")
    table = Table(given, "new nodes")
    values, made = NodeCells(table, {each.name: each.kind for each in columns}).read(names)
    table.check()
    return values, (made or graph.columns) if graph.columns else ()
