"""What compares a graph, or the features of new nodes, with another graph: checksums, relations, categories, names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import checksum
from calirare._util.errors import InputError
from calirare.graph.columns import Column, columns_to_text, names_in_words
from calirare.graph.graph import Graph
from calirare.graph.relations import Relation
from calirare.graph.spelling import BLANK, TRUTH, plain_name, positions_of_names
from calirare.graph.tables.files import days_of
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
    """Returns a graph with the relations that another has: those it lacks without an edge, and no others.

    Args:
        graph: any.
        names: of the other's; None: they are not known, and it stays as it is.
        say: takes a note on relations that are not there, or not there in the other.

    Raises:
        InputError: the other has relations, and this graph knows of none.
    """
    if names is None or names == tuple(relation.name for relation in graph.relations):
        return graph
    plain = {plain_name(name): name for name in names}  # of an earlier release: in another spelling
    called = [plain.get(plain_name(relation.name), relation.name) for relation in graph.relations]
    here = {name: replace(relation, name=name) for name, relation in zip(called, graph.relations, strict=True)}
    if names and not here and graph.n_edges:
        raise InputError(
            f"graph {graph.name!r}: its edges must have types or directions as those of the run's graph, "
            f"{names_in_words(names)}: name the column of types (--relation COLUMN), or say --directed"
        )
    lacking, more = [n for n in names if n not in here], [n for n in here if n not in names]
    if lacking and graph.n_nodes:
        say(f"no edge is of type {names_in_words(lacking)}, of which the run's graph has some")
    if more and names:
        say(f"edges of type {names_in_words(more)} count as edges alone, as the run's graph has none of that type")
    if more and not names:
        say("types and directions of edges are left out, as the run's graph has none")
    indptr = torch.zeros(graph.n_nodes + 1, dtype=torch.int64, device=graph.device)
    no_edge = Csr(indptr, indptr.new_empty(0, dtype=torch.int32), torch.empty(0, device=graph.device), graph.n_nodes)
    found = tuple(here.get(name) or Relation(name, no_edge, no_edge) for name in names)
    return replace(graph, relations=found, trusted=True)


def has_weights(graph: Graph) -> bool:
    """Returns whether edges have weights other than 1."""
    return bool((graph.adjacency.values != 1).any())


def note_weights(weighted: bool | None, here: bool, say: Callable[[str], None]) -> None:
    """Says where edges have weights and those of another graph had none, or the other way round.

    Args:
        weighted: whether edges of the other graph have weights other than 1; None: it is not known.
        here: whether these have.
        say: takes the note.
    """
    if weighted and not here:
        say(
            "no edge has a weight, but those of the run's graph have, so that P is of another graph: name the column "
            "of weights (--weight COLUMN, edge_weight of a Data)"
        )
    if weighted is False and here:
        say(
            "edges have weights, but those of the run's graph have none, so that P is of another graph: leave them out "
            "(of a table: --unweighted)"
        )


def with_categories_of(graph: Graph, columns: Sequence[Column]) -> Graph:
    """Returns a graph with the names of another's categories, where they are its own but for how they are written.

    So a table is again the graph that an earlier release made of it, which had "10.0" and "True" for 10 and true, and
    empty text for a name.

    Args:
        graph: any.
        columns: of the other, in the same order.
    """
    if not isinstance(graph.x, Tensor) or [each.name for each in graph.columns] != [each.name for each in columns]:
        return graph
    x, made = graph.x.clone(), list(graph.columns)
    for i, (here, then) in enumerate(zip(graph.columns, columns, strict=True)):
        if here == then or {here.kind, then.kind} != {"categorical"}:
            continue
        places = positions_of_names(then.categories)
        if not all(name in places for name in here.categories):
            return graph
        known = ~x[:, i].isnan()
        numbers = torch.tensor([places[name] for name in here.categories], dtype=x.dtype, device=x.device)
        x[known, i] = numbers[x[known, i].long()]
        x[~known, i] = places.get("", torch.nan)
        made[i] = then
    return replace(graph, x=x, columns=tuple(made), trusted=True)


OF_TABLES = {"to_dicts": (), "to_pylist": (), "to_dict": ("records",)}  # how polars, Arrow and pandas give records


SHOWN = 10  # names of columns in a message


def has_column_names(x: Any, graph: Graph) -> bool:
    """Returns whether features come by name: a record, a list of records, or a row or table of pandas.

    Of a graph whose features have no names a row or table is read in its order.
    """
    if isinstance(x, Sequence) and not isinstance(x, str):
        return len(x) > 0 and all(isinstance(each, Mapping) for each in x)
    return isinstance(x, Mapping) or (bool(graph.feature_names) and any(hasattr(x, each) for each in OF_TABLES))


def is_single_node(x: Any) -> bool:
    """Returns whether named features are of one node."""
    return isinstance(x, Mapping) or getattr(x, "ndim", 0) == 1


def features_by_name(x: Any, graph: Graph) -> tuple[Tensor, tuple[Column, ...]]:
    """Returns features float32 [b, d] in the order of a graph's columns, and the columns: new categories come behind.

    Args:
        x: see `has_column_names`. Numbers, names of categories, and dates as pandas reads them or as text in ISO 8601,
            durations, which are days; None, NaN and empty text are missing values. What the graph has no column for
            is not read.
        graph: whose columns they are.

    Raises:
        InputError: the graph's features have no names, one is not there, or a cell is something else.
    """
    columns = graph.columns or tuple(Column(name) for name in graph.feature_names)
    if not columns:
        raise InputError(
            f"new nodes: x must be numbers in the order of the features of graph {graph.name!r}, which have no names"
        )
    rows = _records(x)
    made = list[Column]()
    out = np.empty((len(rows), len(columns)))
    for i, column in enumerate(columns):
        cells = [row.get(column.name, rows) for row in rows]  # `rows` stands for no such name
        if any(cell is rows for cell in cells):
            known = names_in_words([each.name for each in columns], SHOWN)
            raise InputError(f"new nodes: x must have a value or None for each of {known}, but has no {column.name!r}")
        column, out[:, i] = _read_cells(column, [None if _is_missing(cell) else cell for cell in cells])
        made.append(column)
    return torch.from_numpy(out).float(), tuple(made) if graph.columns else ()


def _records(x: Any) -> list[dict[str, Any]]:
    if is_single_node(x):
        return [dict(x)]
    for method, how in OF_TABLES.items():
        if hasattr(x, method):
            return list(getattr(x, method)(*how))
    return [dict(each) for each in x]


def _is_missing(cell: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(cell)) if np.ndim(cell) == 0 and not isinstance(cell, str) else not str(cell).strip(BLANK)


def _read_cells(column: Column, cells: list[Any]) -> tuple[Column, list[float]]:
    """Returns a column with the categories that its cells have, and the cells as numbers."""
    if column.kind == "categorical":
        names = ["" if cell is None else _category_of(cell) for cell in cells]
        place = positions_of_names(column.categories)
        new = [name for name in dict.fromkeys(names) if name and name not in place]
        place |= {name: len(column.categories) + k for k, name in enumerate(new)}
        column = replace(column, categories=(*column.categories, *new)) if new else column
        return column, [place[name] if name else math.nan for name in names]
    numbers = [math.nan if cell is None else _number_of(column, cell) for cell in cells]
    return column, numbers


def _category_of(cell: Any) -> str:
    """Returns the name of a category as tables give it."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else plain_name(str(cell))


def _number_of(column: Column, cell: Any) -> float:
    """Returns a number, or of a date its days since the start of 2000."""
    if column.kind == "date":
        import pandas as pd

        found = float(days_of(pd.Series([cell]))[0])
        what = "a date, such as 2024-01-31"
    else:
        what = "a number"
        cell = np.timedelta64(cell) / np.timedelta64(1, "D") if isinstance(cell, timedelta | np.timedelta64) else cell
        try:
            found = float(TRUTH.get(str(cell).lower(), cell))
        except (TypeError, ValueError):
            found = math.nan
    if not math.isfinite(found):
        raise InputError(f"new nodes: {column.name!r} must be {what}, got {cell!r}: mend it, or give None if unknown")
    return found
