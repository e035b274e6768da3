"""From a list of edges to the symmetric adjacency of a graph: the rules for what real edge lists contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import FaultsError, InputError
from calirare.graph.arrays import csr_of_scipy
from calirare.graph.options import EdgeRules
from calirare_ext import Csr

STRICT = ("error", None)  # what refuses


@dataclass(frozen=True)
class Naming:
    """What a message calls nodes and edges.

    Attributes:
        node: the name of a node by its number.
        edge: the place of an edge by its number in the list.
    """

    node: Callable[[int], str] = str
    edge: Callable[[int], str] = "edge {}".format


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
    wrong = weights is not None and _wrong(weights).any()
    wrong = wrong or (rules.self_loops in STRICT and (edges[:, 0] == edges[:, 1]).any())
    matrix = None if wrong else directed(edges, weights, n_nodes, rules)
    if matrix is None:
        raise FaultsError([f"{where}: {fault}" for fault in edge_faults(edges, weights, n_nodes, rules, naming)])
    return as_csr(_symmetrize(matrix) if rules.symmetrize else matrix)


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


def keys_of(rows: NumpyArray, cols: NumpyArray, n_nodes: int) -> NumpyArray:
    """Returns row * n_nodes + column of edges, int64: a number for each pair of nodes."""
    key = rows.astype(np.int64)
    key *= n_nodes
    key += cols
    return key


def directed(edges: NumpyArray, weights: NumpyArray | None, n_nodes: int, rules: EdgeRules) -> Any:
    """Returns the matrix of scipy of directed edges, each there once; None where one may not be repeated.

    Weights are float64; without them the entries are True, or the numbers of repetitions where these are summed.
    """
    import scipy.sparse as sp

    rows, cols = edges[:, 0], edges[:, 1]
    kept: Any = slice(None) if rules.self_loops == "keep" else rows != cols
    if rules.duplicates == "drop" and weights is not None:
        first = np.unique(keys_of(rows, cols, n_nodes), return_index=True)[1]
        kept = first if isinstance(kept, slice) else first[kept[first]]
    short = np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64  # half the memory of the matrix's making
    rows, cols = (ends[kept].astype(short, copy=False) for ends in (rows, cols))
    summed = rules.duplicates == "sum"
    data = np.ones(len(rows), np.float64 if summed else bool) if weights is None else weights[kept].astype(np.float64)
    matrix = sp.coo_array((data, (rows, cols)), shape=(n_nodes, n_nodes)).tocsr()  # adds repetitions
    return None if rules.duplicates in STRICT and matrix.nnz < len(rows) else matrix


def _symmetrize(matrix: Any) -> Any:
    """Returns a matrix with every opposite direction; where both were there, their mean weight."""
    import scipy.sparse as sp

    opposite = matrix.T.tocsr()
    both = matrix + opposite
    if matrix.dtype != bool:
        ones = (sp.csr_array((np.ones(a.nnz, np.int8), a.indices, a.indptr), a.shape) for a in (matrix, opposite))
        both.data /= (next(ones) + next(ones)).data
    return both


def as_csr(matrix: Any) -> Csr:
    """Returns a matrix of scipy as ours, with float32 weights."""
    matrix.sort_indices()
    matrix.data = matrix.data.astype(np.float32, copy=False)  # `astype` of the matrix copies its indices
    return csr_of_scipy(matrix)


def edge_faults(
    edges: NumpyArray, weights: NumpyArray | None, n_nodes: int, rules: EdgeRules, naming: Naming
) -> list[str]:
    """Returns every kind of fault of edges, int64 [m, 2], under the rules, each with the first edge at fault."""
    faults, rows, cols = [], edges[:, 0], edges[:, 1]

    def joined(at: int) -> str:
        return f"{naming.edge(at)} ({naming.node(int(rows[at]))}, {naming.node(int(cols[at]))})"

    wrong = np.zeros(len(edges), dtype=bool) if weights is None else _wrong(weights)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        assert weights is not None
        faults.append(
            f"edge weights must be finite and positive in float32, got {weights[at]:g} at {joined(at)}"
            f"{_such(wrong)}: remove the edge or fix its weight"
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


NOT_YET = 0.01  # of the scored nodes, below which those without an edge so far go without a word


def edge_notes(
    edges: NumpyArray,
    asked: EdgeRules,
    taken: EdgeRules,
    n_nodes: int,
    n_entries: int,
    types: NumpyArray | None = None,
    *,
    directed: bool = False,
) -> list[str]:
    """Returns what was done to edges that nobody asked for, a sentence each.

    `asked` are the rules that were given, `taken` those that were followed, and `n_entries` the edges of the adjacency
    that was made. `types`, str [m], or None: an edge may be there once in each type. `directed`: directions are kept.
    """
    notes, loops = [], edges[:, 0] == edges[:, 1]
    if asked.self_loops is None and loops.any():
        notes.append(f"left out, edges of a node to itself: {int(loops.sum()):,} (--self-loops keep keeps them)")
    others = edges[~loops] if loops.any() else edges
    key = keys_of(others[:, 0], others[:, 1], n_nodes)
    n_all, n_different = len(key), 0
    if types is not None:
        kinds = np.unique(types, return_inverse=True)[1][~loops]
        n_different = len(np.unique(kinds * n_nodes**2 + key))
    key.sort()
    listed = len(key) - int((key[1:] == key[:-1]).sum())
    if asked.duplicates is None and (more := n_all - (listed if types is None else n_different)):
        how = "their weights were added (--duplicates drop takes the first)"
        if taken.duplicates == "drop":
            how = "each edge counts once (--duplicates sum makes its number the weight)"
        notes.append(f"repetitions among them: {more:,}, {how}")
    # With every opposite direction, which the adjacency has, there are as many more as stand in one direction.
    kept = len(np.unique(edges[loops, 0])) if taken.self_loops == "keep" else 0
    if asked.symmetrize is None and (alone := n_entries - kept - listed):
        also = "directions are used too" if directed else "--directed also uses their directions"
        if types is not None:
            also = "directions of each type are used too"
        notes.append(f"listed in one direction only: {alone:,} of {listed:,}, each joins its nodes both ways ({also})")
    return notes


def first_edge_times(times: NumpyArray, ends: NumpyArray, n_nodes: int) -> Tensor | None:
    """Returns when each node had its first edge, float64 [n]: that of the oldest edge for a node without one.

    A last edge would tell classes apart that end: fraud that was found has no later ones.

    Args:
        times: of the edges, float64 [m].
        ends: nodes, integer [m, 2].
        n_nodes: n.

    Returns:
        The times; None where all are the same or none is known.
    """
    first = np.full(n_nodes, np.inf)
    for end in ends.T:
        np.fmin.at(first, end, times)
    known = np.isfinite(first)
    if not known.any() or np.ptp(first[known]) == 0:
        return None
    return torch.from_numpy(np.where(known, first, first[known].min()))


def future_nodes_note(later: NumpyArray, scored: NumpyArray | None, n_nodes: int, as_of: str) -> list[str]:
    """Returns a sentence on scored nodes whose every edge is left out for its time, or none."""
    m, n = (len(later), n_nodes) if scored is None else (int(scored[later].sum()), int(scored.sum()))
    if m < NOT_YET * n or not m:
        return []
    return [
        f"{m:,} of {n:,} target nodes have edges only after {as_of}, so they are scored without edges and counted. If "
        "they did not exist yet, leave their rows out of the node table"
    ]
