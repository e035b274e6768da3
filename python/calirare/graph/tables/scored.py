"""Nodes of tables that are not scored: ends of edges without a row of their own, and rows of another kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.graph.arrays import Parts
from calirare.graph.columns import Column, names_in_words
from calirare.graph.spelling import is_value, plain_name
from calirare.graph.tables.files import Table, as_names, header_of, is_empty, read_arrow, read_table
from calirare.graph.tables.name_faults import look_alikes, lost_digits, why_any_unknown
from calirare.graph.tables.sources import Source

LISTED = "listed"  # the feature that says which nodes have a row
MOST_SHOWN = 10


class Nodes(NamedTuple):
    """What a node table holds.

    Attributes:
        parts: features, labels, the split and which nodes are scored.
        ids: names of the nodes, a column of pandas, or None.
    """

    parts: Parts
    ids: Any

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.parts["x"])


def ends_as_names(edges: Source, columns: tuple[str, str]) -> tuple[Any, Any]:
    """Returns the two columns of the ends of an edge table as names, None where a cell is empty."""
    if header_of(edges) is None:
        table = read_table(edges, lambda names: [name for name in names if name in columns]).cells
    else:
        table = read_arrow(edges, list(dict.fromkeys(columns)))
    first, second = (as_names(table[column]) for column in columns)
    return first.where(~is_empty(first), None), second.where(~is_empty(second), None)


def lead_to_nodes_without_rows(edges: Source, columns: tuple[str, str], ids: Any) -> bool:
    """Returns whether all cells of one end name nodes, and none of the other does, as from accounts to devices.

    A name that differs from a node's only in how it is written is a mistake, and no node without a row.
    """
    names = as_names(ids)
    ends = [end.dropna().drop_duplicates() for end in ends_as_names(edges, columns)]
    known = [end.isin(names) for end in ends]
    inside = [bool(each.all()) for each in known]
    outside = [end for end, each in zip(ends, known, strict=True) if not each.any()]
    return any(inside) and len(outside) == 1 and not len(look_alikes(outside[0], names))


def with_edge_only_nodes(
    nodes: Nodes, edges: Source, columns: tuple[str, str], faults: list[str], until: NumpyArray | None = None
) -> Nodes:
    """Returns nodes with those that edges lead to and that have no row: without features, labels and P(rare).

    A feature `listed` says which nodes have a row. `until` says which rows of the edge table count, bool; None: all.
    """
    import pandas as pd

    (parts, ids), both = nodes, ends_as_names(edges, columns)
    both = both if until is None else (both[0][until], both[1][until])
    ends = pd.concat(both).dropna().drop_duplicates()
    names = as_names(ids)
    new = ends[~ends.isin(names)].sort_values()
    for column, end in zip(columns, both, strict=True):
        faults += lost_digits(end.where(end.isin(new)).rename(column), edges, text=True)
    if LISTED in parts["feature_names"]:
        faults.append(f"{edges}: nodes without a row make a feature {LISTED!r}, which is there: rename that column")
    whole = ids.dtype.kind in "iu" and new.str.fullmatch(r"-?\d{1,18}").all()
    more = new.astype("int64") if whole else new
    every = pd.concat([ids if whole else as_names(ids), more], ignore_index=True).rename(ids.name)
    n, m = len(ids), len(new)
    listed = torch.arange(n + m) < n
    x: Tensor = parts["x"]
    x = torch.cat([x, torch.full((m, x.shape[1]), torch.nan)])
    columns_of_x = parts["columns"] or tuple(map(Column, parts["feature_names"]))
    scored = torch.ones(n, dtype=torch.bool) if parts["scored"] is None else parts["scored"]
    longer: Parts = {
        "x": torch.cat([x, listed.float()[:, None]], 1),
        "columns": (*columns_of_x, Column(LISTED)),
        "feature_names": (*parts["feature_names"], LISTED),
        "y": None if parts["y"] is None else torch.cat([parts["y"], torch.full((m,), -1)]),
        "scored": torch.cat([scored, torch.zeros(m, dtype=torch.bool)]),
        "time": None if parts["time"] is None else torch.cat([parts["time"], torch.full((m,), torch.nan).double()]),
    }
    if m:
        note = f"nodes: {m:,} nodes of the edges have no row: they become auxiliary nodes, without features and "
        longer["notes"] = (*parts["notes"], f"{note}P(rare){why_any_unknown(new, names)}")
    return Nodes(parts | longer, every)


def rows_where(table: Table, wanted: str, option: str) -> Tensor | None:
    """Returns which rows of a table are meant, bool [n]: those `COLUMN=VALUE` or `COLUMN=VALUE,VALUE`."""
    column, _, values = wanted.partition("=")
    words = list(filter(None, map(plain_name, values.split(","))))
    there = list(map(str, table.cells.columns))
    fault = "rows are chosen by a column and its values, such as kind=account"
    if column in there and words:
        cells = as_names(table.cells[column])
        chosen = [is_value(cells, word) for word in words]
        absent = [word for word, rows in zip(words, chosen, strict=True) if not rows.any()]
        if not absent:
            return torch.from_numpy(np.logical_or.reduce(chosen))
        there, fault = sorted(cells.dropna().unique().tolist()), f"no row has {column} = {absent[0]}"
    shown = names_in_words(there[: MOST_SHOWN + 1], MOST_SHOWN) if there else "none"
    table.faults.append(f"{table.path}: {fault}, got {wanted!r}; there are {shown} ({option})")
    return None
