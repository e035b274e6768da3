"""Graphs from two tables: a list of edges and a list of nodes, each CSV (also .tsv, .gz) or Parquet.

The edge table has the columns `source` and `target` (or another pair of `END_COLUMNS`; a table of two columns may name
them as it likes) and optionally `weight`; other columns are not read. The node table has one row per node: optionally
a column `node` or `id` that the edges refer to (otherwise nodes are numbered from 0 in the order of the rows),
optionally `label` or `y` (empty or -1 for unknown) and `split` (train, val, test or empty); every other column is a
feature. These names may have capitals. Names of nodes and classes are text and stay as they are written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare._util.text_tables import TEXT_SUFFIXES, is_text, read_text
from calirare.graph.arrays import Parts, as_features
from calirare.graph.edges import EdgeRules, build_adjacency
from calirare.graph.splits import PARTS, Split

TABLE_SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
ID_COLUMNS, LABEL_COLUMNS, SPLIT_COLUMNS = ("node", "id"), ("label", "y"), ("split",)
END_COLUMNS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))

# A CSV line counts from 1 and the first is the header.
FIRST_LINE = 2
# Whole numbers up to this one are told apart in float64; the next one, 2^53, is also what 2^53 + 1 becomes.
MAX_WHOLE = 2**53 - 1
# What programs write for a missing number; beside numbers it is no name of a class.
MISSING_NUMBERS = ("nan", "na", "n/a", "null", "none")


class _Roles(NamedTuple):
    """Columns of a node table that are no features; None for one that is not there."""

    ids: str | None
    label: str | None
    split: str | None


def read_tables(
    edges: Path, nodes: str | Path | None, rules: EdgeRules, *, label: str | None = None, weight: str | None = None
) -> Parts:
    """Returns the parts of the graph of an edge table and a node table.

    Args:
        edges: path of the edge table.
        nodes: path of the node table; None for the file beside it whose name has "nodes" in place of "edges".
        rules: what to do with repeated edges, self loops and missing opposite directions.
        label: name of the label column; None for `label` or `y` if there is one.
        weight: name of the weight column; None for `weight` if there is one.

    Returns:
        The parts: classes in order of their names (numbers by size), and the split of the node table.

    Raises:
        InputError: a table is missing or damaged, or a cell does not fit.
    """
    path = _beside(edges) if nodes is None else Path(nodes)
    table = _read_table(path, lambda names: [name for name in _roles(names, label, path) if name is not None])
    if len(table) == 0:
        raise InputError(f"{path}: the table of nodes has a header but no rows: write one row per node")
    roles = _roles(list(table.columns), label, path)
    features = [name for name in table.columns if name not in roles]
    x = as_features(_numbers(table, features, path, roles.ids), str(path))
    y, class_names = (None, ()) if roles.label is None else _labels(table[roles.label], path)
    split = None if roles.split is None else _split(table[roles.split], path)
    ids = None if roles.ids is None else _ids(table[roles.ids], path)
    ends, weights = _edges(edges, weight, ids, len(table))
    return {
        "adjacency": build_adjacency(ends, weights, len(table), rules, str(edges)),
        "x": x,
        "y": y,
        "split": split,
        "class_names": class_names,
        "name": edges.name.split(".")[0],
        "node_names": None if ids is None else ids.to_numpy().astype(str),
        "feature_names": tuple(map(str, features)),
        "where": str(edges),
    }


def _read_table(path: Path, as_text: Callable[[list[str]], Sequence[str]]) -> Any:
    """Returns a table as a pandas DataFrame; `as_text` chooses the columns of a text file that stay text."""
    import pandas as pd

    if not path.is_file():
        raise InputError(f"{path}: there is no such file: check the path")
    try:
        if is_text(path):
            return read_text(path, as_text)
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(path)
            # A named index is a column that pandas put aside when the file was written.
            return table.reset_index(drop=all(name is None for name in table.index.names))
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet needs pyarrow: pip install 'calirare[parquet]', or convert to CSV"
        ) from error
    except InputError:
        raise
    # pandas and pyarrow raise many kinds of errors for a damaged file, most of them ValueErrors.
    except (ValueError, OSError, EOFError, ArithmeticError, LookupError, TypeError, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: the table cannot be read ({reason}): mend the file or write it again") from error
    raise InputError(f"{path}: a table must end in {', '.join(TABLE_SUFFIXES)}: convert it")


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


def _roles(names: list[str], label: str | None, path: Path) -> _Roles:
    """Returns which columns of a node table are no features."""
    unnamed = [i for i, name in enumerate(names) if str(name).startswith("Unnamed: ")]
    if unnamed:
        raise InputError(
            f"{path}: every column must have a name, but column {unnamed[0] + 1} has none: name it, or remove it if it "
            "numbers the rows (pandas: index=False) or comes from a separator at the end of the header"
        )
    ids = _column(names, None, ID_COLUMNS, "names of the nodes", path)
    split = _column(names, None, SPLIT_COLUMNS, "split", path)
    return _Roles(ids, _column(names, label, LABEL_COLUMNS, "labels", path), split)


def _column(names: list[str], wanted: str | None, usual: tuple[str, ...], what: str, path: Path) -> str | None:
    """Returns the one column with a role: the one wanted, else the one with a usual name, else None."""
    if wanted is not None and wanted not in names:
        raise InputError(f"{path}: there is no column {wanted!r}; the columns are {', '.join(map(str, names))}")
    found = [name for name in names if name == wanted or str(name).lower() in usual]
    if len(found) > 1:
        raise InputError(
            f"{path}: one column must hold the {what}, got {' and '.join(map(repr, found))}: remove all but one, or "
            "rename what is something else"
        )
    return found[0] if found else None


def _place(row: int, path: Path) -> str:
    """Returns how a message calls a row."""
    return f"line {row + FIRST_LINE}" if is_text(path) else f"row {row}"


def _numbers(table: Any, columns: list[str], path: Path, ids: str | None) -> NumpyArray:
    """Returns columns of numbers as float32 [n, d]."""
    if not columns:
        raise InputError(f"{path}: the node table must have at least one feature column: add one")
    values = np.empty((len(table), len(columns)), dtype=np.float32)
    for i, name in enumerate(columns):
        column = table[name]
        if column.dtype.kind not in "biuf":
            mend = "or remove it"
            if ids is None:
                mend = "remove it, or name it 'node' or 'id' if it holds the names of the nodes"
            raise InputError(
                f"{path}: features must be numbers, but column {name!r} {_no_number(column, path)}: encode it as "
                f"numbers{',' * (ids is None)} {mend}"
            )
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        with np.errstate(over="ignore"):
            values[:, i] = numbers
        wrong = np.flatnonzero(~np.isfinite(values[:, i]))
        if len(wrong):
            raise InputError(
                f"{path}: features must be finite, but column {name!r} holds {numbers[wrong[0]]} in "
                f"{_place(int(wrong[0]), path)}: fill it in or remove the node"
            )
    return values


def _no_number(column: Any, path: Path) -> str:
    """Returns what a column holds that is no number."""
    wrong = np.flatnonzero(np.isnan(_as_float(column)) & column.notna().to_numpy())
    if not len(wrong):
        return f"is {column.dtype}"
    return f"holds {str(column.iloc[wrong[0]])!r} in {_place(int(wrong[0]), path)}"


def _as_float(column: Any) -> NumpyArray:
    """Returns a column as float64, NaN for what is no number."""
    import pandas as pd

    cells = column if column.dtype.kind in "iuf" else column.astype(str)
    return np.asarray(pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


def _labels(column: Any, path: Path) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Returns the labels as numbers, -1 for unknown, and the names of the classes."""
    cells = column.astype(str).where(column.notna(), "").str.strip()
    numbers = _as_float(cells.str.lower().replace({"true": "1", "false": "0"}))
    known = (cells != "").to_numpy() & (numbers != -1)
    cells, numbers = cells[known], numbers[known]
    words = np.isnan(numbers)
    missing = cells.str.lower().isin(MISSING_NUMBERS).to_numpy()
    # Classes such as 007 are names: as numbers they would come back without their zeros.
    if cells.str.fullmatch(r"0\d+").any() or (words & ~missing).any() or words.all():
        classes, inverse = np.unique(cells.to_numpy().astype(str), return_inverse=True)
    else:
        wrong = words | (numbers != np.floor(numbers)) | (numbers < 0) | (numbers > MAX_WHOLE)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                f"{path}: labels must be names or whole numbers from 0, empty or -1 where unknown, but column "
                f"{column.name!r} holds {cells.iloc[at]} in {_place(int(np.flatnonzero(known)[at]), path)}: mend the "
                "cell or name the label column (command line: --label)"
            )
        classes, inverse = np.unique(numbers.astype(np.int64), return_inverse=True)
    y = np.full(len(column), -1, dtype=np.int64)
    y[known] = inverse
    return torch.from_numpy(y), tuple(str(name) for name in classes)


def _split(column: Any, path: Path) -> Split:
    """Returns the split that a column of part names stands for."""
    parts = column.astype(str).where(column.notna(), "")
    wrong = np.flatnonzero(~parts.isin((*PARTS, "")).to_numpy())
    if len(wrong):
        raise InputError(
            f"{path}: the column {column.name!r} must hold train, val, test or nothing, got "
            f"{parts.iloc[int(wrong[0])]!r} in {_place(int(wrong[0]), path)}: mend it or rename the column"
        )
    if (parts == "").all():
        raise InputError(
            f"{path}: the column {column.name!r} must hold train, val and test, but it is empty in every row: fill it "
            "in, or remove it for a random split"
        )
    train, val, test = (torch.from_numpy(np.flatnonzero((parts == part).to_numpy())) for part in PARTS)
    return Split(train, val, test, "given")


def _ids(column: Any, path: Path) -> Any:
    """Returns the names of the nodes, each there once."""
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise InputError(
            f"{path}: every node must have a name, but {column.name!r} is empty in {_place(int(missing[0]), path)}: "
            "fill it in or remove the row"
        )
    twice = np.flatnonzero(column.duplicated().to_numpy())
    if len(twice):
        raise InputError(
            f"{path}: the node table lists node {column.iloc[twice[0]]} more than once, again in "
            f"{_place(int(twice[0]), path)}: keep one row of it"
        )
    return column


def _ends(names: list[str], path: Path) -> list[str]:
    """Returns the names of the two columns that hold the ends of the edges."""
    lower = [str(name).lower() for name in names]
    for pair in END_COLUMNS:
        if set(pair) <= set(lower):
            return [names[lower.index(end)] for end in pair]
    if len(names) == 2 and not any(_is_number(name) for name in names):
        return names
    pairs = ", ".join(" and ".join(pair) for pair in END_COLUMNS[1:])
    raise InputError(
        f"{path}: an edge table must have two columns, source and target (or {pairs}), named in its first line, got "
        f"{', '.join(map(str, names))}: write a first line with these names, or rename the columns"
    )


def _is_number(name: object) -> bool:
    try:
        float(str(name))
    except ValueError:
        return False
    return True


def _edges(path: Path, weight: str | None, ids: Any, n_nodes: int) -> tuple[NumpyArray, NumpyArray | None]:
    """Returns the edges as node numbers [m, 2] and their weights."""
    table = _read_table(path, lambda names: _ends(names, path))
    if len(table) == 0:
        raise InputError(f"{path}: the table of edges has a header but no rows: write one row per edge")
    columns = _ends(list(table.columns), path)
    named = any({name.lower() for name in columns} == set(pair) for pair in END_COLUMNS)
    if not named and ids is not None and ids.astype(str).isin(columns).any():
        raise InputError(
            f"{path}: the first line must name the columns, but {' and '.join(map(repr, columns))} are names of nodes: "
            "write a first line with source and target above the edges"
        )
    for name in columns:
        missing = np.flatnonzero(table[name].isna().to_numpy())
        if len(missing):
            raise InputError(
                f"{path}: both ends of an edge must be given, but {name!r} is empty in {_place(int(missing[0]), path)}"
            )
    weight = _column(list(table.columns), weight, ("weight",) if weight is None else (), "weights", path)
    weights = None if weight is None else table[weight].to_numpy()
    if ids is None:
        return np.stack([_row_numbers(table[name], n_nodes, path) for name in columns], axis=1), weights
    return np.stack([_rows_of(table[name], ids, path) for name in columns], axis=1), weights


def _row_numbers(column: Any, n_nodes: int, path: Path) -> NumpyArray:
    """Returns the entries of an edge column as rows of a node table without names."""
    numbers = _as_float(column)
    wrong = ~((numbers >= 0) & (numbers < n_nodes) & (numbers == np.floor(numbers)))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{path}: ends of edges must be whole numbers from 0 to {n_nodes - 1}, the rows of the node table, which "
            f"has no column 'node' or 'id', got {str(column.iloc[at])!r} in {_place(at, path)}: name the column with "
            "the names of the nodes so, or add the row"
        )
    return numbers.astype(np.int64)


def _rows_of(column: Any, ids: Any, path: Path) -> NumpyArray:
    """Returns the row of the node table that each entry of an edge column names."""
    import pandas as pd

    if column.dtype.kind not in "iu" or ids.dtype.kind not in "iu":
        column, ids = column.astype(str), ids.astype(str)
    numbers = pd.Index(ids).get_indexer(column)
    if (numbers < 0).any():
        at = int(np.argmax(numbers < 0))
        raise InputError(
            f"{path}: {_place(at, path)} names node {str(column.iloc[at])!r}, which has no row in the node table: add "
            "the row or remove the edge"
        )
    return numbers.astype(np.int64)
