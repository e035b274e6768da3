"""What was done to edges of tables that nobody asked for."""

from __future__ import annotations

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.graph.edges import EdgeRules, keys_of, unite_duplicates

NOT_YET = 0.01  # of the scored nodes, below which those without an edge so far go without a word


def mended(
    edges: NumpyArray,
    weights: NumpyArray | None,
    asked: EdgeRules,
    taken: EdgeRules,
    n_nodes: int,
    n_entries: int,
    types: NumpyArray | None = None,
    *,
    directed: bool = False,
) -> list[str]:
    """Returns what was done to edges that nobody asked for, a sentence each.

    Args:
        edges: int32 or int64 [m, 2], each end in [0, n_nodes).
        weights: [m], or None.
        asked: the rules that were given.
        taken: the rules that were followed.
        n_nodes: number of nodes n.
        n_entries: edges of the adjacency that was made, both directions.
        types: names of the edges' types, str [m], or None: an edge may be there once in each type.
        directed: whether directions are kept.
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
    # With every opposite direction, which the adjacency has, there are as many more as stand alone.
    kept = len(np.unique(edges[loops, 0])) if taken.self_loops == "keep" else 0
    if asked.symmetrize is None and (alone := n_entries - kept - listed):
        also = "who points at whom is read too" if directed else "--directed tells directions apart too"
        if types is not None:
            also = "of each type also who points at whom is read"
        notes.append(f"listed in one direction only: {alone:,} of {listed:,}, each joins its nodes both ways ({also})")
    if weights is not None and types is None and asked.symmetrize is None:
        notes += _of_two_weights(edges, weights, n_nodes, taken)
    return notes


def not_yet(later: NumpyArray, scored: NumpyArray | None, n_nodes: int, as_of: str) -> list[str]:
    """Returns what to know of nodes whose every edge is left out for its time, a sentence or none.

    Args:
        later: these nodes, int64 [m].
        scored: which nodes are, bool [n]; None: all.
        n_nodes: number of nodes n.
        as_of: the last time that counts, in words.
    """
    m, n = (len(later), n_nodes) if scored is None else (int(scored[later].sum()), int(scored.sum()))
    if m < NOT_YET * n or not m:
        return []
    return [
        f"{m:,} of {n:,} scored nodes have edges after {as_of} alone: they are scored as nodes without edges, and "
        "count among those to expect: if they were not there yet, leave their rows out of the node table"
    ]


def _of_two_weights(edges: NumpyArray, weights: NumpyArray, n_nodes: int, taken: EdgeRules) -> list[str]:
    """Returns what became of edges whose directions have different weights, a sentence or none."""
    united = unite_duplicates(keys_of(edges[:, 0], edges[:, 1], n_nodes), weights, taken)
    key, weight = united if united is not None else (np.zeros(0, dtype=np.int64), None)
    if weight is None:
        return []
    rows, cols = np.divmod(key, n_nodes)
    back = keys_of(cols, rows, n_nodes)
    place = np.minimum(np.searchsorted(key, back), len(key) - 1)
    differ = int(((key[place] == back) & (weight[place] != weight) & (rows < cols)).sum())
    said = f"listed in both directions with different weights: {differ:,}, each pair of nodes has the mean of the two"
    return [said] if differ else []
