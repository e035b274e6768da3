"""From a list of edges to the symmetric adjacency of a graph: the rules for what real edge lists contain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare._util.errors import FaultsError, InputError
from calirare_ext import Csr

STRICT = ("error", None)  # what refuses
BLOCK = 1 << 20  # edges that are handled together where all at once would take memory


UnknownEnds = Literal["error", "drop", "add"]


class EdgeOptions(TypedDict, total=False):
    """The keywords of `EdgeRules`, as the functions that read a graph take them."""

    symmetrize: bool
    duplicates: Literal["error", "drop", "sum"]
    self_loops: Literal["error", "drop", "keep"]


class FileOptions(EdgeOptions, total=False):
    """Further keywords for tables in files, see `calirare.graph.tables.TableOptions`."""

    id: str | None
    source_column: str | None
    target_column: str | None
    one_hot: tuple[str, ...]
    leave_out: tuple[str, ...]
    impute: Literal["median", "zero", "error"] | None
    need_label: bool
    relation: str | None
    directed: bool
    time: str | None
    as_of: str | None
    edge_columns: tuple[str, ...]
    unknown_ends: UnknownEnds | None
    scored: str | None
    kinds: Mapping[str, str] | None
    unweighted: bool
    unknown: Sequence[str | int]


@dataclass(frozen=True)
class EdgeRules:
    """What to do with edges a symmetric adjacency without repetition cannot hold as they are.

    None is strict, but for the tables of `read_tables`, which are mended, see `for_table`.

    Attributes:
        symmetrize: give every edge its opposite direction. Where both directions are there with different weights,
            both take the mean. Without it an edge list must hold each edge in both directions.
        duplicates: an ordered pair of nodes listed more than once is refused ("error"), kept once with the weight
            listed first ("drop"), or kept once with the sum of the weights ("sum").
        self_loops: an edge from a node to itself is refused ("error"), left out ("drop") or kept ("keep").

    Raises:
        InputError: `duplicates` or `self_loops` is none of the above.
    """

    symmetrize: bool | None = None
    duplicates: Literal["error", "drop", "sum"] | None = None
    self_loops: Literal["error", "drop", "keep"] | None = None

    @classmethod
    def of(cls, where: str, options: Mapping[str, Any]) -> EdgeRules:
        """Returns the rules of options; TypeError names one that there is not."""
        known = list(EdgeOptions.__annotations__)
        _check_known(options, known, known, f"{where}: options of edges are {', '.join(known)}")
        return cls(**options)

    def for_table(self, *, weighted: bool) -> EdgeRules:
        """Returns the rules with what was left open as tables of events need it: every edge counts once, both ways.

        Args:
            weighted: whether edges have weights; those of repeated edges are added then.
        """
        symmetrize = True if self.symmetrize is None else self.symmetrize
        return EdgeRules(symmetrize, self.duplicates or ("sum" if weighted else "drop"), self.self_loops or "drop")

    @classmethod
    def split(cls, options: FileOptions) -> tuple[EdgeRules, dict[str, Any]]:
        """Returns the rules among options, and the others; TypeError names one that there is not."""
        known = FileOptions.__annotations__
        near = [*known, "labels", "weight"]
        _check_known(options, known, near, "from_edges: options must be those of calirare.graph.tables")
        own = {name: options[name] for name in EdgeOptions.__annotations__ if name in options}  # type: ignore[literal-required]
        return cls(**own), {name: value for name, value in options.items() if name not in own}

    def __post_init__(self) -> None:
        """Checks the two words."""
        for name, value, words in (
            ("duplicates", self.duplicates, ("error", "drop", "sum")),
            ("self_loops", self.self_loops, ("error", "drop", "keep")),
        ):
            if value is not None and value not in words:
                raise InputError(f"edges: {name} must be one of {', '.join(words)}, got {value!r}")


def _edge(number: int) -> str:
    return f"edge {number}"


@dataclass(frozen=True)
class Naming:
    """What a message calls nodes and edges.

    Attributes:
        node: the name of a node by its number.
        edge: the place of an edge by its number in the list.
    """

    node: Callable[[int], str] = str
    edge: Callable[[int], str] = _edge


NUMBERS = Naming()


def build_adjacency(
    edges: NumpyArray,
    weights: NumpyArray | None,
    n_nodes: int,
    rules: EdgeRules,
    where: str,
    naming: Naming = NUMBERS,
) -> Csr:
    """Returns the adjacency of an edge list; its symmetry is checked when the graph is built.

    Args:
        edges: integer [m, 2], one directed edge per row, each end in [0, n_nodes).
        weights: real [m], finite and > 0, or None for ones.
        n_nodes: number of nodes n.
        rules: what to do with repeated edges, self loops and missing opposite directions.
        where: where the edges come from, put in front of a message.
        naming: what a message calls nodes and edges.

    Returns:
        The adjacency [n, n] with float32 weights.

    Raises:
        InputError: an end or a weight is out of range, or the list breaks one of the `rules`; all faults are named.
    """
    edges = _check_edges(edges, n_nodes, where)
    if weights is not None:
        weights = _as_weights(weights, edges, where)
    rows, cols = edges[:, 0], edges[:, 1]
    loops = rows == cols
    wrong = _wrong(weights) if weights is not None else None
    if (wrong is not None and wrong.any()) or (rules.self_loops in STRICT and loops.any()):
        raise FaultsError([f"{where}: {fault}" for fault in edge_faults(edges, weights, n_nodes, rules, naming)])
    if rules.self_loops != "keep" and loops.any():
        rows, cols = rows[~loops], cols[~loops]
        weights = None if weights is None else weights[~loops]
    key = keys_of(rows, cols, n_nodes)
    del rows, cols, loops  # as long as the edges, as is whatever is let go here
    united = unite_duplicates(key, weights, rules)
    if united is None:
        raise FaultsError([f"{where}: {fault}" for fault in edge_faults(edges, weights, n_nodes, rules, naming)])
    key, weights = united
    del united
    if rules.symmetrize:
        key, weights = _symmetrize(key, weights, n_nodes)
    return _csr_of_keys(key, weights, n_nodes)


def _check_edges(edges: NumpyArray, n_nodes: int, where: str) -> NumpyArray:
    """Returns the edges as int64 [m, 2], each end in range."""
    if edges.ndim != 2 or edges.shape[1] != 2:
        mend = "transpose it" if edges.ndim == 2 and edges.shape[0] == 2 else "put both ends of each edge into a row"
        mend = "scipy.sparse.csr_array makes an adjacency of it" if edges.shape == (n_nodes, n_nodes) else mend
        raise InputError(
            f"{where}: edges must be a table of two columns, one edge per row, got shape {edges.shape}: {mend}"
        )
    if edges.dtype.kind not in "iu" and edges.size:
        mend = "take .astype(int)" if edges.dtype.kind == "f" else "Graph.from_tables reads names of nodes"
        raise InputError(f"{where}: the ends of edges must be whole numbers, got {edges.dtype}: {mend}")
    wrong = (edges < 0) | (edges >= n_nodes)
    if wrong.any():
        at = int(np.flatnonzero(wrong.any(1))[0])
        u, v = (int(end) for end in edges[at])
        raise InputError(
            f"{where}: edge {at} ({u}, {v}) must join nodes from 0 to {n_nodes - 1}: the graph has {n_nodes} nodes "
            "(rows of the features)"
        )
    return edges if edges.dtype == np.int32 else edges.astype(np.int64, copy=False)


def _check_known(options: Iterable[str], known: Collection[str], near: Sequence[str], wanted: str) -> None:
    """Checks that there are such options; TypeError says of another what is `wanted`, and which of `near` it is."""
    wrong = next((name for name in options if name not in known), None)
    if wrong is not None:
        close = get_close_matches(wrong, near, 1)
        mend = f"did you mean {close[0]!r}?" if close else "leave it out"
        raise TypeError(f"{wanted}, got {wrong!r}: {mend}")


def keys_of(rows: NumpyArray, cols: NumpyArray, n_nodes: int) -> NumpyArray:
    """Returns row * n_nodes + column of edges, int64: a number for each pair of nodes."""
    key = rows.astype(np.int64)
    key *= n_nodes
    key += cols
    return key


def directed(edges: NumpyArray, weights: NumpyArray | None, n_nodes: int, rules: EdgeRules) -> Csr:
    """Returns the matrix of a list of directed edges, each there once; see `relations_of`."""
    rows, cols = edges[:, 0], edges[:, 1]
    if rules.self_loops != "keep":
        kept = rows != cols
        rows, cols = rows[kept], cols[kept]
        weights = None if weights is None else weights[kept]
    duplicates: Literal["sum", "drop"] = "sum" if rules.duplicates == "sum" else "drop"
    united = unite_duplicates(keys_of(rows, cols, n_nodes), weights, replace(rules, duplicates=duplicates))
    assert united is not None
    return _csr_of_keys(*united, n_nodes)


def edge_faults(
    edges: NumpyArray, weights: NumpyArray | None, n_nodes: int, rules: EdgeRules, naming: Naming
) -> list[str]:
    """Returns every kind of fault of an edge list under the rules, a sentence each, with the first edge at fault.

    Args:
        edges: int64 [m, 2], each end in [0, n_nodes).
        weights: float32 [m], or None.
        n_nodes: number of nodes n.
        rules: what may be in the list.
        naming: what a sentence calls nodes and edges.
    """
    faults, rows, cols = [], edges[:, 0], edges[:, 1]

    def joined(at: int) -> str:
        return f"{naming.edge(at)} ({naming.node(int(rows[at]))}, {naming.node(int(cols[at]))})"

    wrong = np.zeros(len(edges), dtype=bool) if weights is None else _wrong(weights)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        assert weights is not None
        faults.append(
            f"edge weights must be finite and positive in float32, got {weights[at]:g} at {joined(at)}"
            f"{_such(wrong)}: remove the edge or mend its weight"
        )
    loops = rows == cols
    if rules.self_loops in STRICT and loops.any():
        at = int(np.flatnonzero(loops)[0])
        faults.append(
            f"edges must not join a node to itself, but {naming.edge(at)} joins node {naming.node(int(rows[at]))} to "
            f"itself{_such(loops)}: pass self_loops='drop' or 'keep' (command line: --self-loops drop)"
        )
    key = keys_of(rows, cols, n_nodes)
    listed, first, times = np.unique(key, return_index=True, return_counts=True)
    if rules.duplicates in STRICT and (times > 1).any():
        at = int(first[times > 1].min())
        faults.append(
            f"edges must be listed once, but {joined(at)} is listed {int((key == key[at]).sum())} times "
            f"({int((times - 1).sum())} repeated): pass duplicates='drop' or 'sum' (command line: --duplicates drop)"
        )
    alone = ~np.isin(keys_of(cols, rows, n_nodes), listed)
    if not rules.symmetrize and alone.any():
        at = int(np.flatnonzero(alone)[0])
        back = f"({naming.node(int(cols[at]))}, {naming.node(int(rows[at]))})"
        faults.append(
            f"every edge must be listed in both directions, but {joined(at)} has no opposite edge {back}"
            f"{_such(alone)}: pass symmetrize=True (command line: --symmetrize)"
        )
    return faults


def _such(wrong: NumpyArray) -> str:
    return f" ({int(wrong.sum()):,} such)" if wrong.sum() > 1 else ""


def _as_weights(weights: NumpyArray, edges: NumpyArray, where: str) -> NumpyArray:
    """Returns the weights as float32 [m]."""
    if weights.shape != (len(edges),):
        raise InputError(
            f"{where}: edge weights must be one number per edge, got shape {weights.shape} for {len(edges)} edges"
        )
    if weights.dtype.kind not in "biuf":  # of an adjacency such as A > 0 each True is an edge
        raise InputError(f"{where}: edge weights must be numbers, got {weights.dtype}")
    with np.errstate(over="ignore"):
        return weights.astype(np.float32, copy=False)


def _wrong(weights: NumpyArray) -> NumpyArray:
    """Returns which weights are not finite and positive, bool [m]."""
    return ~(np.isfinite(weights) & (weights > 0))


def unite_duplicates(
    key: NumpyArray, weights: NumpyArray | None, rules: EdgeRules
) -> tuple[NumpyArray, NumpyArray | None] | None:
    """Returns the keys in rising order without repetition, and their weights; None where none may be repeated.

    The keys may be sorted in place.
    """
    if bool((key[1:] > key[:-1]).all()):
        return key, weights
    if weights is None and rules.duplicates != "sum":
        key.sort()
        repeated = bool((key[1:] == key[:-1]).any())
        return None if repeated and rules.duplicates in STRICT else (_distinct_(key), None)
    order = np.argsort(key, kind="stable")
    key = key[order]
    weights = None if weights is None else weights[order]
    first = np.ones(len(key), dtype=bool)
    first[1:] = key[1:] != key[:-1]
    if first.all():
        return key, weights
    if rules.duplicates in STRICT:
        return None
    starts = np.flatnonzero(first)
    if rules.duplicates == "sum":
        weights = np.add.reduceat(np.ones(len(key)) if weights is None else weights.astype(np.float64), starts)
    else:
        weights = None if weights is None else weights[starts]
    return key[starts], weights


def _symmetrize(key: NumpyArray, weights: NumpyArray | None, n_nodes: int) -> tuple[NumpyArray, NumpyArray | None]:
    """Returns keys and weights with every opposite direction; where both were there, their mean weight."""
    if weights is None:
        both = np.concatenate([key, key])
        back = both[len(key) :]
        back %= n_nodes
        back *= n_nodes
        back += key // n_nodes
        both.sort()
        return _distinct_(both), None
    rows, cols = np.divmod(key, n_nodes)
    opposite = cols * n_nodes + rows
    united, inverse = np.unique(np.concatenate([key, opposite]), return_inverse=True)
    both = np.concatenate([weights, weights]).astype(np.float64)
    return united, np.bincount(inverse, both) / np.bincount(inverse)


def _distinct_(key: NumpyArray) -> NumpyArray:
    """Returns sorted keys without repetition, moved in place, so that no second array is needed."""
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    n = 0
    for start in range(0, len(key), BLOCK):
        some = key[start : start + BLOCK][first[start : start + BLOCK]]
        key[n : n + len(some)] = some
        n += len(some)
    return key[:n]


def _csr_of_keys(key: NumpyArray, weights: NumpyArray | None, n_nodes: int) -> Csr:
    """Returns the matrix whose entries have the given keys (row * n_nodes + column, rising)."""
    degree, indices = np.zeros(n_nodes, dtype=np.int64), np.empty(len(key), dtype=np.int32)
    for start in range(0, len(key), BLOCK):
        rows, indices[start : start + BLOCK] = np.divmod(key[start : start + BLOCK], n_nodes)
        lowest = int(rows[0])
        counts = np.bincount(rows - lowest)
        degree[lowest : lowest + len(counts)] += counts
    indptr = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(degree, out=indptr[1:])
    values = np.ones(len(key), dtype=np.float32) if weights is None else weights.astype(np.float32)
    return Csr.unchecked(torch.from_numpy(indptr), torch.from_numpy(indices), torch.from_numpy(values), n_nodes)
