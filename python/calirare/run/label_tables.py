"""Tables of labels: new ones, others than the data's, and `unknown` for those that are to be forgotten."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.text_tables import read_text
from calirare.explain import nodes_named
from calirare.graph import NO_PART, PARTS, Graph, named, relabelled
from calirare.run.tables import INERT

COLUMNS = ("node", "label", "split")
NODE, LABEL = ("node", "id"), ("label", "y", "class")
UNKNOWN = ("", "unknown", "-1")
SHOWN = 3


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of some nodes of a graph, in the place of those that it has.

    Attributes:
        nodes: distinct, int64 [b].
        y: 1 rare, 0 rest, -1 unknown, int64 [b].
        parts: number in `PARTS`, or `NO_PART` where it follows from the label, int64 [b].
    """

    nodes: Tensor
    y: Tensor
    parts: Tensor

    @classmethod
    def read(cls, path: str | Path, graph: Graph) -> Self:
        """Reads a table with a column `node` (or id), `label` (or y, class) and, where wanted, `split`.

        Args:
            path: CSV or TSV. Labels are names of classes, before or after they were merged, 1 or 0 for the rare class
                and the rest, and unknown, -1 or nothing where there is none; parts are train, val, test or nothing.
            graph: whose nodes they are.

        Raises:
            InputError: the file cannot be read, or a node, label or part is unknown or there twice.
        """
        table = _read(Path(path))
        node, label = (_column(table, names, Path(path)) for names in (NODE, LABEL))
        parts = _cells(table["split"]) if "split" in table else [""] * len(table)
        return cls(
            _nodes(_cells(table[node]), graph, Path(path)),
            torch.tensor(_classes(_cells(table[label]), graph, Path(path)), dtype=torch.int64),
            torch.tensor(_parts(parts, Path(path)), dtype=torch.int64),
        )

    @classmethod
    def forgotten(cls, path: str | Path, graph: Graph) -> Self:
        """Reads a table of nodes (column `node` or id) whose labels are to be forgotten.

        Raises:
            InputError: the file cannot be read, or a node is unknown, there twice or without a label.
        """
        table = _read(Path(path))
        nodes = _nodes(_cells(table[_column(table, NODE, Path(path))]), graph, Path(path))
        assert graph.y is not None
        never = [graph.node_name(node) for node in nodes[graph.y.cpu()[nodes] < 0].tolist()]
        if never:
            raise InputError(
                f"{path}: only labels can be forgotten, but {named(never, SHOWN)} has none: remove the row"
            )
        return cls(nodes, torch.full_like(nodes, -1), torch.full_like(nodes, NO_PART))

    def of(self, graph: Graph) -> Graph:
        """Returns the graph with these labels."""
        return relabelled(graph, self.nodes, self.y, self.parts)

    def over(self, earlier: Labels) -> Labels:
        """Returns these and, of other nodes, those of an earlier table."""
        kept = ~torch.isin(earlier.nodes, self.nodes)
        pairs = ((earlier.nodes, self.nodes), (earlier.y, self.y), (earlier.parts, self.parts))
        nodes, y, parts = (torch.cat([old[kept], new]) for old, new in pairs)
        return Labels(nodes, y, parts)

    def to_frame(self, graph: Graph) -> pd.DataFrame:
        """Returns the table that `read` reads."""
        names = [*graph.class_names, "unknown"]
        return pd.DataFrame(
            {
                "node": [graph.node_name(node) for node in self.nodes.tolist()],
                "label": [names[label] for label in self.y.tolist()],
                "split": ["" if part == NO_PART else PARTS[part] for part in self.parts.tolist()],
            }
        )


def _read(path: Path) -> pd.DataFrame:
    try:
        table: pd.DataFrame = read_text(path, lambda names: names)
    except InputError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: the labels cannot be read: {error}") from error
    if table.empty:
        raise InputError(f"{path}: there must be a row for each node, got none")
    return table


def _cells(column: Any) -> list[str]:
    return list(column.fillna("").astype(str).str.strip())


def _column(table: pd.DataFrame, names: tuple[str, ...], path: Path) -> str:
    found = [name for name in table.columns if str(name).strip().lower() in names]
    if len(found) != 1:
        there = named([str(name) for name in table.columns], 10)
        raise InputError(f"{path}: one column must be called {' or '.join(names)}, got {there}")
    return str(found[0])


def _nodes(names: list[str], graph: Graph, path: Path) -> Tensor:
    """Returns the nodes; what stands in front of a formula in tables that we wrote is taken off."""
    if graph.node_names is not None:
        known = set(map(str, graph.node_names))
        names = [name if name in known else re.sub(INERT, "", name) for name in names]
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: every node must stand in one row, got {name!r} twice: remove one of them")
        seen.add(name)
    return nodes_named(graph, names, str(path)).cpu()


def _classes(words: list[str], graph: Graph, path: Path) -> list[int]:
    known = {"0": 0, "1": 1} | {name: int(k == graph.minority) for k, name in enumerate(graph.original_class_names)}
    known |= {name: k for k, name in enumerate(graph.class_names)} | dict.fromkeys(UNKNOWN, -1)
    words = [word if word in known else re.sub(INERT, "", word) for word in words]
    wrong = next((row for row, word in enumerate(words) if word not in known), None)
    if wrong is not None:
        classes = named(list(dict.fromkeys((*graph.class_names, *graph.original_class_names))), 10)
        raise InputError(
            f"{path}: a label must be one of {classes} or unknown, got {words[wrong]!r} in row {wrong + 1}: mend it"
        )
    return [known[word] for word in words]


def _parts(words: list[str], path: Path) -> list[int]:
    wrong = next((row for row, word in enumerate(words) if word not in ("", *PARTS)), None)
    if wrong is not None:
        raise InputError(f"{path}: split must be train, val, test or nothing, got {words[wrong]!r} in row {wrong + 1}")
    return [PARTS.index(word) if word else NO_PART for word in words]
