"""Graphs with raw columns for tests: no edge says anything here."""

import datetime

import numpy as np
import torch

from calirare.graph import Column, Graph
from calirare_ext import Csr

EPOCH = datetime.datetime(2000, 1, 1)


def graph_of(columns: dict[str, object], y: object = None, **changes) -> Graph:
    """A ring of nodes with raw columns: numbers, None for missing; names as text; dates as `datetime`."""
    described, values = [], []
    for name, cells in columns.items():
        column, numbers = _column(name, list(cells))
        described.append(column)
        values.append(numbers)
    n = len(values[0])
    parts = {
        "adjacency": ring(n),
        "x": torch.from_numpy(np.stack(values, axis=1).astype(np.float32)),
        "columns": tuple(described),
        "y": None if y is None else torch.as_tensor(y),
        "name": "raw",
    }
    return Graph(**(parts | changes))


def plain_graph(x: object, **changes) -> Graph:
    """A ring of nodes with numbers for features, or a sparse matrix of them."""
    x = x if isinstance(x, Csr) else torch.as_tensor(x, dtype=torch.float32)
    return Graph(**({"adjacency": ring(x.shape[0]), "x": x, "name": "plain"} | changes))


def ring(n: int) -> Csr:
    """The adjacency of a ring."""
    at = torch.arange(n)
    ends = torch.cat([torch.stack([at, (at + 1) % n]), torch.stack([(at + 1) % n, at])], 1)
    if n < 3:
        ends = ends[:, :n]
    return Csr.from_coo(ends[0], ends[1], None, (n, n))


def _column(name: str, cells: list) -> tuple[Column, np.ndarray]:
    here = [cell for cell in cells if cell is not None]
    if any(isinstance(cell, str) for cell in here):
        names = tuple(sorted(set(here)))
        return Column(name, "categorical", names), _numbers(cells, names.index)
    if any(isinstance(cell, datetime.datetime) for cell in here):
        return Column(name, "date"), _numbers(cells, lambda day: (day - EPOCH) / datetime.timedelta(days=1))
    return Column(name), _numbers(cells, float)


def _numbers(cells: list, of) -> np.ndarray:
    return np.array([np.nan if cell is None else of(cell) for cell in cells], dtype=np.float64)
