"""A log of changes to a stored graph: nodes and edges that come and go, kept on the disk until they are folded in."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import numpy as np
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.claims import claimed, part_folder
from calirare._util.durable import sync, sync_folder
from calirare._util.errors import InputError
from calirare._util.record_files import RecordFile
from calirare.graph.arrays import as_features
from calirare.graph.changes import Changes, Record
from calirare.graph.checksum import fingerprint
from calirare.graph.graph import Graph
from calirare.graph.named_rows import is_named, of_names
from calirare_ext import Csr

FORMAT = "calirare graph log 1"
NUMBERS = "numbers.csv"  # old and new numbers of nodes without names, beside the arrays of a compacted graph


class GraphLog:
    """Changes to a graph, each on the disk when the call that makes it returns.

    The graph stays as it is; `graph` returns it with the changes, `compact` writes that as a folder. Nodes are told by
    their names or, where they have none, by numbers; added nodes then get n, n + 1, ..., and no number moves or is
    given again until `compact`. Each change is checked when it is made. A change that a crash cut off is dropped when
    the log is opened again, and `notes` says so. One process at a time holds a log; its threads share it.

    Args:
        graph: the graph, or the folder or `.npz` file that holds it.
        path: the log's file; made where it is not there. None: beside a stored graph, with its name and `.log`.

    Raises:
        InputError: the log is damaged, of another graph or held by another process, or the graph cannot be used.

    Example:
        >>> import calirare, tempfile
        >>> graph = calirare.load_dataset("digits")
        >>> with GraphLog(graph, tempfile.mkdtemp() + "/digits.log") as log:
        ...     new = log.add_node(graph.x[0], [1, 2, 3])
        ...     log.remove_node(2)
        ...     changed = log.graph()
        >>> new - graph.n_nodes, changed.n_nodes - graph.n_nodes
        (0, 0)
    """

    def __init__(self, graph: Graph | str | Path, path: str | Path | None = None) -> None:
        if isinstance(graph, Graph):
            if path is None:
                raise InputError("graph log: path must be given for a graph that lies in no file, got None")
            before = graph
        else:
            before, minority = Graph.read(graph)
            before = dataclasses.replace(before, minority=minority, trusted=True)
        self.path = Path(f"{Path(graph)}.log") if path is None and not isinstance(graph, Graph) else Path(str(path))
        self._where = f"graph log {self.path}"
        self._changes = Changes(before, self._where)
        self._turn, self._unsure = threading.RLock(), False
        self._file = RecordFile(self.path, {"format": FORMAT, "graph": _known_by(before)}, self._where)
        try:
            for line, record in self._file.read():
                self._replay(line, record)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets another process hold the log."""
        self._file.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was dropped when the log was opened, a sentence each."""
        return self._file.notes

    @property
    def before(self) -> Graph:
        """The graph without the changes."""
        return self._changes.before

    @property
    def n_changes(self) -> int:
        """Number of changes in the log."""
        return self._changes.n_changes

    def add_node(
        self,
        x: Any,
        neighbours: Iterable[Any] = (),
        *,
        weights: Iterable[Any] | None = None,
        name: Any = None,
        scored: bool = True,
    ) -> str | int:
        """Adds a node without a label and returns what it is called from now on.

        Args:
            x: its raw features [d], as `NodeScorer.score` takes them.
            neighbours: nodes that it has an edge to, added ones too.
            weights: of these edges, finite and above 0; None: 1.
            name: what it is called, where nodes have names.
            scored: whether P(rare) is told of it; False: it carries edges alone, as a device does, which only a graph
                that says which of its nodes are scored knows.

        Raises:
            InputError: a neighbour is unknown or named twice, every node is scored, or features, weights or the name do
                not fit.
        """
        ends = [self._called(node) for node in neighbours]
        given = [1.0] * len(ends) if weights is None else [_number(weight) for weight in weights]
        if len(given) != len(ends):
            raise InputError(f"{self._where}: weights must be one per neighbour, {len(ends)}, got {len(given)}")
        edges = [list(pair) for pair in zip(ends, given, strict=True)]
        with self._turn:
            number, name = self._changes.n_ever, None if name is None else str(name)
            beyond = {} if scored else {"scored": False}
            self._append({"do": "add node", "x": self._listed(x), "edges": edges, "name": name} | beyond)
        return number if name is None else name

    def remove_node(self, node: Any) -> None:
        """Removes a node and its edges.

        Raises:
            InputError: there is no such node, or no other.
        """
        self._append({"do": "remove node", "node": self._called(node)})

    def add_edge(self, u: Any, v: Any, weight: Any = 1.0) -> None:
        """Adds an edge between two nodes.

        Raises:
            InputError: there is no such node, they have an edge, or the weight is not finite and above 0.
        """
        self._append({"do": "add edge", "edge": [self._called(u), self._called(v)], "weight": _number(weight)})

    def remove_edge(self, u: Any, v: Any) -> None:
        """Removes the edge between two nodes.

        Raises:
            InputError: there is no such node or edge.
        """
        self._append({"do": "remove edge", "edge": [self._called(u), self._called(v)]})

    def set_features(self, node: Any, x: Any) -> None:
        """Replaces the features of a node.

        Raises:
            InputError: there is no such node, or the features do not fit.
        """
        self._append({"do": "set features", "node": self._called(node), "x": self._listed(x)})

    def graph(self) -> Graph:
        """Returns the graph with every change: nodes in their order, added ones at the end and without labels.

        It is made anew and checked, in memory. Numbers of nodes are without gaps: `numbers` translates them.
        """
        with self._turn:
            return self._changes.graph()

    def numbers(self) -> NumpyArray:
        """Returns the number in `graph` of each node that ever was, by its number in the log, -1 for removed ones."""
        with self._turn:
            return self._changes.numbers()

    def changed(self) -> tuple[Graph, NumpyArray]:
        """Returns `graph` and `numbers` of one moment, whatever other threads add meanwhile."""
        with self._turn:
            return self.graph(), self.numbers()

    def compact(self, out: str | Path) -> Graph:
        """Writes the graph with every change as a folder, whole or not at all, and returns it.

        The old graph and the log stay. Nodes without names are numbered anew: `numbers.csv` in the folder says how.

        Args:
            out: the folder; it must not be there.

        Raises:
            InputError: it is there, cannot be written, or does not hold what was written into it.
        """
        out = Path(out)
        graph, numbers = self.changed()
        if os.path.lexists(out):
            raise InputError(f"{out}: exists already: choose another folder or remove it")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with claimed(out, f"graph {out}"), part_folder(out.parent, out.name) as partial:
                graph.to_folder(partial / "graph")
                written, _ = Graph.read(partial / "graph")
                if _known_by(written) != _known_by(graph):
                    raise InputError(f"{out}: the disk does not hold what was written: choose another")
                if graph.node_names is None:
                    _write_numbers(numbers, partial / "graph" / NUMBERS)
                sync_folder(partial / "graph")
                os.rename(partial / "graph", out)
                sync(out.parent)
        except OSError as error:
            raise InputError(f"{out}: the folder cannot be written ({error.strerror}): make room") from error
        return graph

    def _append(self, record: Record) -> None:
        """Checks a change, writes it and makes it."""
        with self._turn:
            if self._unsure:
                raise InputError(f"{self._where}: a change was interrupted, on the disk or not: open the log again")
            make = self._changes.checked(record)
            self._unsure = True
            try:
                self._file.append(record)
            except InputError:
                self._unsure = False  # it is not in the file
                raise
            make()
            self._unsure = False

    def _replay(self, line: int, record: Any) -> None:
        try:
            self._changes.checked(record)()
        except InputError as error:
            why = str(error).removeprefix(f"{self._where}: ")
            raise InputError(f"{self._where}: line {line} cannot be followed ({why}): restore the file") from error

    def _called(self, node: Any) -> str | int:
        """Returns a node as a record has it."""
        if self._changes.before.node_names is not None:
            return str(node)
        try:
            return operator.index(node)
        except TypeError:
            raise InputError(f"{self._where}: nodes are told by numbers in this graph, got {node!r}") from None

    def _listed(self, x: Any) -> Any:
        """Returns features of one node as a record has them."""
        row, sparse = self._row(x), isinstance(self._changes.before.x, Csr)
        d = self._changes.before.n_features
        if tuple(row.shape) not in ((d,), (1, d)):
            raise InputError(f"{self._where}: a node must have {d} features, got shape {tuple(row.shape)}")
        dense: Tensor = (row.to_dense() if isinstance(row, Csr) else row).reshape(-1).cpu()
        values = [_number(value) for value in dense.tolist()]
        if not sparse:
            return values
        columns = dense.nonzero().flatten().tolist()
        return {"columns": columns, "values": [values[column] for column in columns]}

    def _row(self, x: Any) -> Tensor | Csr:
        """Returns features of one node as numbers, those told by the names of columns too."""
        graph = self._changes.before
        if not is_named(x, graph):
            return as_features(x, self._where)
        row, columns = of_names(x, graph, self._where)
        for old, new in zip(graph.columns, columns, strict=True):
            more = new.categories[len(old.categories) :]
            if more:
                raise InputError(
                    f"{self._where}: column {new.name!r} of the graph has no category {more[0]!r}: give None, or build "
                    "the graph anew with it"
                )
        return row


def _known_by(graph: Graph) -> str:
    """Returns a checksum of nodes, edges and features, by which a log finds its graph again."""
    none: dict[str, Any] = dict.fromkeys(("y", "original_y", "split", "posterior", "minority"))
    bare = dataclasses.replace(graph, class_names=(), original_class_names=(), trusted=True, **none)
    names = [] if graph.node_names is None else np.asarray(graph.node_names, dtype=str).tolist()
    return f"{fingerprint(bare)}-{crc32(chr(0).join(names).encode()):08x}"


def _number(value: Any) -> Any:
    """Returns a number as JSON has it: of float32, None for NaN; what is none is left for the check to refuse."""
    try:
        with np.errstate(over="ignore"):
            number = float(np.float32(value))
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return None if math.isnan(number) else number


def _write_numbers(numbers: NumpyArray, path: Path) -> None:
    """Writes old and new numbers of nodes; a removed one has no new number."""
    import pandas as pd

    new = pd.array(numbers, dtype="Int64")
    new[numbers < 0] = pd.NA
    pd.DataFrame({"old": np.arange(len(numbers)), "new": new}).to_csv(path, index=False)
