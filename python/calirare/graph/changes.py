"""Changes to a graph, checked one by one and held beside it, and the graph with all of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph.arrays import csr_of_scipy, scipy_of_csr
from calirare.graph.columns import check_columns
from calirare.graph.edges import EdgeRules, build_adjacency
from calirare.graph.graph import Graph
from calirare.graph.name_faults import why_unknown
from calirare.graph.splits import PARTS, Split
from calirare.graph.validation import MAX_FEATURE
from calirare_ext import Csr

Record = dict[str, Any]
Step = Callable[[], None]
Row = tuple[NumpyArray, NumpyArray]  # columns and values of what is not 0
KEYS = {
    "add node": {"do", "x", "edges", "name"},
    "remove node": {"do", "node"},
    "add edge": {"do", "edge", "weight"},
    "remove edge": {"do", "edge"},
    "set features": {"do", "node", "x"},
}
MAY_SAY = {"add node": {"scored"}}  # and what such a change may say beside


class Changes:
    """What becomes of a graph, change by change.

    Nodes are known by their names or, where they have none, by numbers: those of the graph, then n, n + 1, ... in the
    order in which they were added. The number of a removed node is not given again, and no other node's moves.

    Args:
        graph: as it was.
        where: put in front of a message.

    Raises:
        InputError: the graph has typed or directed relations.
    """

    def __init__(self, graph: Graph, where: str) -> None:
        if graph.relations:
            raise InputError(f"{where}: a graph with typed or directed relations cannot be changed: build it again")
        self.before, self.where = graph.to("cpu"), where
        self.n_ever = graph.n_nodes
        self.n_changes = 0
        self._gone: set[int] = set()
        self._unscored: set[int] = set()  # of those that were added
        self._rows: dict[int, NumpyArray | Row] = {}
        self._edges: dict[tuple[int, int], float | None] = {}
        self._added: list[str] = []
        self._places: dict[str, int] | None = None
        a = self.before.adjacency
        self._indptr, self._indices = a.indptr.numpy(), a.indices.numpy()

    def checked(self, record: Any) -> Step:
        """Returns what makes a change, which is checked now; it must be called before the next one is checked.

        Args:
            record: `do`, one of `KEYS`, and what it needs; see `GraphLog`, which writes them.

        Raises:
            InputError: the change cannot be made.
        """
        does = record.get("do") if isinstance(record, dict) else None
        if not isinstance(does, str) or record.keys() - MAY_SAY.get(does, set()) != KEYS.get(does):
            raise InputError(f"{self.where}: a change must be one of {', '.join(KEYS)} with its parts, got another")
        step: Step = getattr(self, f"_{does.replace(' ', '_')}")(record)
        return partial(self._make, step)

    def numbers(self) -> NumpyArray:
        """Returns the number in `graph` of each node that ever was, by its number here, -1 for removed ones, int64."""
        alive = np.ones(self.n_ever, dtype=bool)
        alive[list(self._gone)] = False
        return np.where(alive, np.cumsum(alive) - 1, -1)

    def graph(self) -> Graph:
        """Returns the graph with every change: nodes in their order, added ones at the end without labels."""
        before = self.before
        if not self.n_changes:
            return before
        numbers = self.numbers()
        kept = torch.from_numpy(numbers[: before.n_nodes] >= 0)
        new = torch.from_numpy(numbers[before.n_nodes :] >= 0)
        split = before.split
        if split is not None:
            train, val, test = (torch.from_numpy(numbers)[getattr(split, part)] for part in PARTS)
            split = Split(train[train >= 0], val[val >= 0], test[test >= 0], split.name)
        names = before.node_names
        if names is not None:
            added = np.asarray(self._added, dtype=str)[new.numpy()]
            names = np.concatenate([np.asarray(names, dtype=str)[kept.numpy()], added])
        unknown = torch.full((int(new.sum()),), -1)
        labels: dict[str, Any] = {
            name: None if y is None else torch.cat([y[kept], unknown])
            for name, y in (("y", before.y), ("original_y", before.original_y))
        }
        scored = before.scored
        if scored is not None:
            told = [n not in self._unscored for n in range(before.n_nodes, self.n_ever)]
            scored = torch.cat([scored[kept], torch.tensor(told, dtype=torch.bool)[new]])
        return dataclasses.replace(
            before,
            adjacency=self._adjacency(numbers),
            x=self._features(numbers),
            split=split,
            node_names=names,
            scored=scored,
            posterior=None,  # of another graph
            where=self.where,
            **labels,
        )

    def _adjacency(self, numbers: NumpyArray) -> Csr:
        """Returns the adjacency by the new numbers of nodes."""
        a, n = self.before.adjacency, self.before.n_nodes
        rows, cols = a.rows().numpy(), self._indices.astype(np.int64)
        keep = (numbers[rows] >= 0) & (numbers[cols] >= 0)
        pairs = np.array(list(self._edges), dtype=np.int64).reshape(-1, 2)
        pairs = np.concatenate([pairs, pairs[pairs[:, 0] != pairs[:, 1], ::-1]])
        known = pairs[(pairs < n).all(1)]
        keys, wanted = rows * n + cols, known[:, 0] * n + known[:, 1]
        at = np.searchsorted(keys, wanted)
        at, wanted = at[at < len(keys)], wanted[at < len(keys)]
        keep[at[keys[at] == wanted]] = False
        there = [
            (u, v, weight)
            for (u, v), weight in self._edges.items()
            if weight is not None and numbers[u] >= 0 and numbers[v] >= 0
        ]
        ends = np.array([(u, v) for u, v, _ in there], dtype=np.int64).reshape(-1, 2)
        weights = np.array([weight for _, _, weight in there], dtype=np.float32)
        edges = np.concatenate([np.stack([rows[keep], cols[keep]], 1), ends, ends[:, ::-1]])
        values = np.concatenate([a.values.numpy()[keep], weights, weights])
        n_nodes = int((numbers >= 0).sum())
        return build_adjacency(numbers[edges], values, n_nodes, EdgeRules(self_loops="keep"), self.where)

    def _features(self, numbers: NumpyArray) -> Tensor | Csr:
        """Returns the features by the new numbers of nodes."""
        x, n = self.before.x, self.before.n_nodes
        told = [node for node in self._rows if numbers[node] >= 0]
        if isinstance(x, Csr):
            return self._sparse_features(x, told, numbers)
        found = torch.empty(int((numbers >= 0).sum()), x.shape[1])
        kept = numbers[:n] >= 0
        found[: kept.sum()] = x if kept.all() else x[torch.from_numpy(kept)]
        if told:
            found[torch.from_numpy(numbers[told])] = torch.from_numpy(np.stack([self._rows[node] for node in told]))
        return found

    def _sparse_features(self, x: Csr, told: list[int], numbers: NumpyArray) -> Csr:
        import scipy.sparse as sp

        rows: list[Any] = [self._rows[node] for node in told]
        indptr = np.cumsum([0, *(len(columns) for columns, _ in rows)])
        columns = np.concatenate([np.zeros(0, dtype=np.int64), *(columns for columns, _ in rows)])
        values = np.concatenate([np.zeros(0, dtype=np.float32), *(values for _, values in rows)])
        own = sp.csr_array((values, columns, indptr), shape=(len(rows), x.n_cols))
        source = np.arange(self.n_ever)
        source[told] = x.n_rows + np.arange(len(told))
        found = sp.vstack([scipy_of_csr(x), own]).tocsr()[source[numbers >= 0]]
        return csr_of_scipy(found)

    def _make(self, step: Step) -> None:
        step()
        self.n_changes += 1

    def _add_node(self, record: Record) -> Step:
        row, name = self._row(record["x"], "a new node"), record["name"]
        if self.before.node_names is None and name is not None:
            raise InputError(f"{self.where}: nodes have numbers in this graph, so a new one has no name, got {name!r}")
        if self.before.node_names is not None:
            self._check_name(name)
        given = record["edges"]
        if not isinstance(given, list) or not all(isinstance(each, list) and len(each) == 2 for each in given):
            raise InputError(f"{self.where}: edges of a new node must be pairs of a node and a weight, got others")
        ends = [self.number(node) for node, _ in given]
        if len(set(ends)) < len(ends):
            twice = next(node for (node, _), end in zip(given, ends, strict=True) if ends.count(end) > 1)
            raise InputError(
                f"{self.where}: a new node must name each neighbour once, but {twice!r} is there twice: add up the "
                "weights instead"
            )
        weights, scored = [self._weight(weight) for _, weight in given], record.get("scored", True)
        if not isinstance(scored, bool):
            raise InputError(f"{self.where}: scored must be true or false, got {scored!r}")
        if not scored and self.before.scored is None:
            raise InputError(
                f"{self.where}: every node of this graph is scored, so a new one is too: leave scored out, or train on "
                "a graph that says which nodes are scored"
            )
        return partial(self._put_node, row, name, dict(zip(ends, weights, strict=True)), scored)

    def _put_node(self, row: NumpyArray | Row, name: str | None, edges: dict[int, float], scored: bool) -> None:
        node, self.n_ever = self.n_ever, self.n_ever + 1
        if not scored:
            self._unscored.add(node)
        self._rows[node] = row
        self._edges |= {(end, node): weight for end, weight in edges.items()}
        if name is not None:
            self._added.append(name)
            self._numbers_of_names()[name] = node

    def _remove_node(self, record: Record) -> Step:
        node = self.number(record["node"])
        if self.n_ever - len(self._gone) == 1:
            raise InputError(f"{self.where}: node {record['node']!r} is the last one, and a graph keeps at least one")
        return partial(self._take_node, node, record["node"])

    def _take_node(self, node: int, name: Any) -> None:
        self._gone.add(node)
        if self._places is not None:
            del self._places[name]

    def _add_edge(self, record: Record) -> Step:
        pair, weight = self._pair(record["edge"]), self._weight(record["weight"])
        u, v = record["edge"]
        if pair[0] == pair[1]:
            raise InputError(f"{self.where}: an edge must join two nodes, got {u!r} twice")
        if self._has_edge(pair):
            raise InputError(
                f"{self.where}: there is an edge between {u!r} and {v!r} already: remove it first to change its weight"
            )
        return partial(self._edges.__setitem__, pair, weight)

    def _remove_edge(self, record: Record) -> Step:
        pair = self._pair(record["edge"])
        if not self._has_edge(pair):
            u, v = record["edge"]
            raise InputError(f"{self.where}: there is no edge between {u!r} and {v!r} to be removed")
        return partial(self._edges.__setitem__, pair, None)

    def _set_features(self, record: Record) -> Step:
        node = self.number(record["node"])
        return partial(self._rows.__setitem__, node, self._row(record["x"], f"node {record['node']!r}"))

    def number(self, node: Any) -> int:
        """Returns the number here of a node that is there.

        Raises:
            InputError: there is none.
        """
        named = self.before.node_names is not None
        if named and isinstance(node, str):
            found = self._numbers_of_names().get(node, -1)
        else:
            found = node if type(node) is int and not named and 0 <= node < self.n_ever else -1
        if found < 0 or found in self._gone:
            gone = " any more" if found in self._gone else ""
            known = "give one that is there by its name" if named else f"give a number from 0 to {self.n_ever - 1:,}"
            why = why_unknown(str(node), self._numbers_of_names()) if named and not gone else ""
            raise InputError(f"{self.where}: there is no node {node!r}{gone}: {why or known}")
        return found

    def _numbers_of_names(self) -> dict[str, int]:
        """Returns the numbers of nodes by their names; made when the first name is asked for."""
        if self._places is None:
            names = self.before.node_names
            self._places = {} if names is None else {str(name): i for i, name in enumerate(names)}
        return self._places

    def _check_name(self, name: Any) -> None:
        fits = isinstance(name, str) and name != "" and "\0" not in name and name.isprintable()
        if not fits:
            raise InputError(f"{self.where}: a new node must have a name of letters that can be shown, got {name!r}")
        if name in self._numbers_of_names():
            raise InputError(f"{self.where}: there is a node {name!r} already: give the new one another name")

    def _pair(self, edge: Any) -> tuple[int, int]:
        if not isinstance(edge, list) or len(edge) != 2:
            raise InputError(f"{self.where}: an edge must be a pair of nodes, got {edge!r}")
        u, v = sorted(self.number(node) for node in edge)
        return u, v

    def _has_edge(self, pair: tuple[int, int]) -> bool:
        if pair in self._edges:
            return self._edges[pair] is not None
        u, v = pair
        if v >= self.before.n_nodes:
            return False
        row = self._indices[self._indptr[u] : self._indptr[u + 1]]
        at = int(np.searchsorted(row, v))
        return at < len(row) and int(row[at]) == v

    def _weight(self, weight: Any) -> float:
        with np.errstate(over="ignore"):
            value = float(np.float32(weight)) if _is_number(weight) else math.nan
        if not 0 < value < math.inf:
            raise InputError(
                f"{self.where}: the weight of an edge must be finite and above 0 in float32, got {_shown(weight)}: "
                "leave an edge out that has none"
            )
        return value

    def _row(self, x: Any, whose: str) -> NumpyArray | Row:
        """Returns the features of a node: dense float32 [d], or columns and values where those of the graph are sparse.

        Raises:
            InputError: they do not fit the graph's.
        """
        before = self.before
        if isinstance(before.x, Csr):
            return self._sparse_row(x, whose)
        if not isinstance(x, list) or len(x) != before.n_features:
            got = len(x) if isinstance(x, list) else "another thing"
            raise InputError(f"{self.where}: {whose} must have {before.n_features} features, got {got}")
        row = self._values(x, whose, missing=bool(before.columns))
        if before.columns:
            try:
                check_columns(before.columns, torch.from_numpy(row)[None], f"{self.where}: {whose}")
            except InputError as error:
                raise InputError(str(error).removesuffix(" at node 0")) from error
        return row

    def _sparse_row(self, x: Any, whose: str) -> Row:
        d = self.before.n_features
        parts = [x.get("columns"), x.get("values")] if isinstance(x, dict) and len(x) == 2 else [None, None]
        columns, values = (part if isinstance(part, list) else None for part in parts)
        fits = columns is not None and all(type(column) is int and 0 <= column < d for column in columns)
        if columns is None or values is None or not fits or len(columns) != len(values):
            raise InputError(f"{self.where}: {whose} must have values in columns from 0 to {d - 1}, got others")
        if any(right <= left for left, right in pairwise(columns)):
            raise InputError(f"{self.where}: {whose} must have ascending columns, each once, got {columns!r}")
        return np.array(columns, dtype=np.int64), self._values(values, whose, missing=False)

    def _values(self, x: list[Any], whose: str, *, missing: bool) -> NumpyArray:
        """Returns numbers as float32; None is NaN, for a missing value."""
        for at, value in enumerate(x):
            good = missing if value is None else _is_number(value) and abs(value) <= MAX_FEATURE
            if not good:
                raise InputError(
                    f"{self.where}: features of {whose} must be finite numbers of at most {MAX_FEATURE:g}, got "
                    f"{_shown(value)} at place {at}, counted from 0: fill it in"
                )
        return np.array([math.nan if value is None else value for value in x], dtype=np.float32)


def _is_number(value: Any) -> bool:
    """Returns whether a value of JSON is a number that a float holds."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _shown(value: Any) -> str:
    """Returns how a message shows a number of JSON, where null stands for what is none."""
    return "nan" if value is None else repr(value)
