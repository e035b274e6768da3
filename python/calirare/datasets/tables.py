"""Graphs from two tables: a list of edges and a list of nodes, each CSV (also .tsv, .gz) or Parquet.

The edge table has the columns `source` and `target` (otherwise its first two columns are taken) and optionally
`weight`; other columns are not read. The node table has one row per node: optionally a column `node` or `id` that
the edges refer to (otherwise nodes are numbered from 0 in the order of the rows), optionally `label` or `y` (empty or
-1 for unknown) and `split` (train, val, test or empty); every other column is a feature.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from calirare.arrays import as_features
from calirare.edges import Array, EdgeRules, build_adjacency
from calirare.errors import InputError
from calirare.graph import Graph
from calirare.splits import PARTS, Split
from calirare.validation import located

TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLE_SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
ID_COLUMNS, LABEL_COLUMNS = ("node", "id"), ("label", "y")

# A CSV line counts from 1 and the first is the header.
FIRST_LINE = 2


def read_tables(
    edges: str | Path,
    nodes: str | Path | None = None,
    rules: EdgeRules | None = None,
    *,
    label: str | None = None,
    weight: str | None = None,
) -> Graph:
    """Returns the graph of an edge table and a node table.

    Args:
        edges: path of the edge table.
        nodes: path of the node table; None for the file beside it whose name has "nodes" in place of "edges".
        rules: what to do with repeated edges, self loops and missing opposite directions; None refuses them.
        label: name of the label column; None for `label` or `y` if there is one.
        weight: name of the weight column; None for `weight` if there is one.

    Returns:
        The graph with its classes in order of their names (numbers by size), and the split of the node table.

    Raises:
        InputError: a table is missing or damaged, or a cell does not fit.
    """
    edges = Path(edges)
    nodes = _beside(edges) if nodes is None else Path(nodes)
    table = read_table(nodes)
    if len(table) == 0:
        raise InputError(f"{nodes}: the table of nodes has a header but no rows: write one row per node")
    ids = next((name for name in ID_COLUMNS if name in table.columns), None)
    label = _column(table, label, LABEL_COLUMNS, nodes)
    features = [name for name in table.columns if name not in (ids, label, "split")]
    x = as_features(_numbers(table, features, nodes), str(nodes))
    y, class_names = (None, ()) if label is None else _labels(table[label], nodes)
    split = _split(table["split"], nodes) if "split" in table.columns else None
    ends, weights = _edges(read_table(edges), weight, None if ids is None else table[ids], edges)
    adjacency = build_adjacency(ends, weights, len(table), rules or EdgeRules(), str(edges))
    with located(str(edges)):
        return Graph(
            adjacency,
            x,
            y,
            split=split,
            class_names=class_names,
            name=edges.name.split(".")[0],
            node_names=None if ids is None else table[ids].to_numpy().astype(str),
        )


def read_table(path: Path) -> Any:
    """Returns a table as a pandas DataFrame.

    Args:
        path: `.csv`, `.tsv` (either may be `.gz`) or `.parquet`.

    Returns:
        The table.

    Raises:
        InputError: the file is missing, empty, damaged or of another kind.
    """
    import pandas as pd

    if not path.is_file():
        raise InputError(f"{path}: there is no such file: check the path")
    try:
        if path.name.endswith(TEXT_SUFFIXES):
            table = pd.read_csv(path, sep="\t" if ".tsv" in path.suffixes else ",")
        elif path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            raise InputError(f"{path}: a table must end in {', '.join(TABLE_SUFFIXES)}: convert it")
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow: pip install 'calirare[parquet]', or convert to CSV"
        ) from error
    except InputError:
        raise
    # pandas and pyarrow raise many kinds of errors for a damaged file, most of them ValueErrors.
    except (ValueError, OSError, EOFError, ArithmeticError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: the table cannot be read ({reason}): mend the file or write it again") from error
    return table


def _beside(edges: Path) -> Path:
    """Returns the node table that belongs to an edge table by its name."""
    if "edges" in edges.name:
        nodes = edges.with_name(edges.name.replace("edges", "nodes"))
        if nodes.is_file():
            return nodes
    raise InputError(
        f"{edges}: an edge table needs a table of nodes with their features: pass features=PATH (command line: "
        "--features PATH), or name the two files alike with 'edges' and 'nodes'"
    )


def _column(table: Any, wanted: str | None, usual: tuple[str, ...], path: Path) -> str | None:
    """Returns the name of a column: the one wanted, else the first usual one, else None."""
    if wanted is not None and wanted not in table.columns:
        raise InputError(f"{path}: there is no column {wanted!r}; the columns are {', '.join(map(str, table.columns))}")
    return wanted or next((name for name in usual if name in table.columns), None)


def _place(row: int, path: Path) -> str:
    """Returns how a message calls a row."""
    return f"line {row + FIRST_LINE}" if path.name.endswith(TEXT_SUFFIXES) else f"row {row}"


def _numbers(table: Any, columns: list[str], path: Path) -> Array:
    """Returns columns of numbers as float32 [n, d]."""
    if not columns:
        raise InputError(f"{path}: the node table must have at least one feature column: add one")
    values = np.empty((len(table), len(columns)), dtype=np.float32)
    for i, name in enumerate(columns):
        column = table[name]
        if column.dtype.kind not in "biuf":
            raise InputError(
                f"{path}: features must be numbers, but column {name!r} is {column.dtype}: encode it as numbers or "
                "remove it"
            )
        numbers = column.to_numpy(dtype=np.float64)
        with np.errstate(over="ignore"):
            values[:, i] = numbers
        wrong = np.flatnonzero(~np.isfinite(values[:, i]))
        if len(wrong):
            raise InputError(
                f"{path}: features must be finite, but column {name!r} holds {numbers[wrong[0]]} in "
                f"{_place(int(wrong[0]), path)}: fill it in or remove the node"
            )
    return values


def _labels(column: Any, path: Path) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Returns the labels as numbers, -1 for unknown, and the names of the classes."""
    known = column.notna().to_numpy().copy()
    if column.dtype.kind in "iuf":
        known &= (column != -1).to_numpy()
        numbers = column.to_numpy()[known]
        if (numbers != np.floor(numbers)).any():
            at = int(np.flatnonzero(known)[np.argmax(numbers != np.floor(numbers))])
            raise InputError(
                f"{path}: labels must be whole numbers or names, but column {column.name!r} holds {column.iloc[at]} in "
                f"{_place(at, path)}: is it the label column?"
            )
        classes, inverse = np.unique(numbers.astype(np.int64), return_inverse=True)
    elif column.dtype.kind == "b":
        classes, inverse = np.unique(column.to_numpy().astype(np.int64), return_inverse=True)
    else:
        classes, inverse = np.unique(column.to_numpy()[known].astype(str), return_inverse=True)
    y = np.full(len(column), -1, dtype=np.int64)
    y[known] = inverse
    return torch.from_numpy(y), tuple(str(name) for name in classes)


def _split(column: Any, path: Path) -> Split:
    """Returns the split that a column of part names stands for."""
    parts = column.where(column.notna(), "").astype(str)
    wrong = np.flatnonzero(~parts.isin((*PARTS, "")).to_numpy())
    if len(wrong):
        raise InputError(
            f"{path}: the column 'split' must hold train, val, test or nothing, got {parts.iloc[int(wrong[0])]!r} in "
            f"{_place(int(wrong[0]), path)}: mend it or rename the column"
        )
    train, val, test = (torch.from_numpy(np.flatnonzero((parts == part).to_numpy())) for part in PARTS)
    return Split(train, val, test, "given")


def _edges(table: Any, weight: str | None, ids: Any, path: Path) -> tuple[Array, Array | None]:
    """Returns the edges as node numbers [m, 2] and their weights."""
    if len(table.columns) < 2:
        raise InputError(f"{path}: an edge table must have two columns, source and target, got {list(table.columns)}")
    named = {"source", "target"} <= set(table.columns)
    columns = ["source", "target"] if named else list(table.columns[:2])
    for name in columns:
        missing = np.flatnonzero(table[name].isna().to_numpy())
        if len(missing):
            raise InputError(
                f"{path}: both ends of an edge must be given, but {name!r} is empty in {_place(int(missing[0]), path)}"
            )
    weight = _column(table, weight, ("weight",), path)
    weights = None if weight is None else table[weight].to_numpy()
    if ids is None:
        return table[columns].to_numpy(), weights
    ends = np.stack([_numbers_of(table[name], ids, path) for name in columns], axis=1)
    return ends, weights


def _numbers_of(column: Any, ids: Any, path: Path) -> Array:
    """Returns the row of the node table that each entry of an edge column names."""
    import pandas as pd

    if column.dtype.kind not in "iu" or ids.dtype.kind not in "iu":
        column, ids = column.astype(str), ids.astype(str)
    index = pd.Index(ids)
    if index.has_duplicates:
        raise InputError(
            f"{path}: the node table lists node {index[index.duplicated()][0]} more than once: keep one row of it"
        )
    numbers = index.get_indexer(column)
    if (numbers < 0).any():
        at = int(np.argmax(numbers < 0))
        raise InputError(
            f"{path}: {_place(at, path)} names node {column.iloc[at]!r}, which has no row in the node table: add "
            "the row or remove the edge"
        )
    return numbers.astype(np.int64)
