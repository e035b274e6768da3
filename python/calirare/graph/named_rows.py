"""Features of new nodes by the names of their columns: records, as a service gets them, and tables of pandas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.graph.category_names import BLANK, TRUTH, places_of_names, plain_name
from calirare.graph.columns import Column, named
from calirare.graph.graph import Graph
from calirare.graph.table_files import days_of

OF_TABLES = {"to_dicts": (), "to_pylist": (), "to_dict": ("records",)}  # how polars, Arrow and pandas give records
SHOWN = 10  # names of columns in a message


def is_named(x: Any, graph: Graph) -> bool:
    """Returns whether features come by name: a record, a list of records, or a row or table of pandas.

    Of a graph whose features have no names a row or table is read in its order.
    """
    if isinstance(x, Sequence) and not isinstance(x, str):
        return len(x) > 0 and all(isinstance(each, Mapping) for each in x)
    return isinstance(x, Mapping) or (bool(graph.feature_names) and any(hasattr(x, each) for each in OF_TABLES))


def is_one(x: Any) -> bool:
    """Returns whether named features are of one node."""
    return isinstance(x, Mapping) or getattr(x, "ndim", 0) == 1


def of_names(x: Any, graph: Graph) -> tuple[Tensor, tuple[Column, ...]]:
    """Returns features float32 [b, d] in the order of a graph's columns, and the columns: new categories come behind.

    Args:
        x: see `is_named`. Numbers, names of categories, and dates as pandas reads them or as text in ISO 8601,
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
            known = named([each.name for each in columns], SHOWN)
            raise InputError(f"new nodes: x must have a value or None for each of {known}, but has no {column.name!r}")
        column, out[:, i] = _read(column, [None if _is_missing(cell) else cell for cell in cells])
        made.append(column)
    return torch.from_numpy(out).float(), tuple(made) if graph.columns else ()


def _records(x: Any) -> list[dict[str, Any]]:
    if is_one(x):
        return [dict(x)]
    for method, how in OF_TABLES.items():
        if hasattr(x, method):
            return list(getattr(x, method)(*how))
    return [dict(each) for each in x]


def _is_missing(cell: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(cell)) if np.ndim(cell) == 0 and not isinstance(cell, str) else not str(cell).strip(BLANK)


def _read(column: Column, cells: list[Any]) -> tuple[Column, list[float]]:
    """Returns a column with the categories that its cells have, and the cells as numbers."""
    if column.kind == "categorical":
        names = ["" if cell is None else _name(cell) for cell in cells]
        place = places_of_names(column.categories)
        new = [name for name in dict.fromkeys(names) if name and name not in place]
        place |= {name: len(column.categories) + k for k, name in enumerate(new)}
        column = replace(column, categories=(*column.categories, *new)) if new else column
        return column, [place[name] if name else math.nan for name in names]
    numbers = [math.nan if cell is None else _number(column, cell) for cell in cells]
    return column, numbers


def _name(cell: Any) -> str:
    """Returns the name of a category as tables give it."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else plain_name(str(cell))


def _number(column: Column, cell: Any) -> float:
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
