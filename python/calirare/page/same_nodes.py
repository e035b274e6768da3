"""Whether answers of an earlier training are about the nodes of another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

EMPTY = "00000000"  # the checksum of no edges
COUNTING = 10  # whole numbers below so many times the number of nodes are names that another graph may have by chance


def same_edges(before: str, now: str) -> bool:
    """Returns whether two graphs' `fingerprint` tell of the same edges; without edges also of the same features."""
    old, new = before.split("-"), now.split("-")  # of edges indptr, indices and values, then features
    return old[:2] == new[:2] and (old[1:2] != [EMPTY] or old[3:4] == new[3:4])


def other_nodes(before: str, now: str, answered: Collection[str], names: pd.Series) -> str:
    """Returns why nodes that were answered are not those of a run trained since, a clause; empty: they are.

    A name is the same node, whatever its label, features and edges are now. A number that merely counts, as nodes
    without names have it, is the same node where the edges are the same ones.

    Args:
        before: checksum of the graph that the answers are about.
        now: checksum of the run's graph.
        answered: names of the nodes with an answer.
        names: of the run's nodes, as `predictions.csv` has them.
    """
    counted = names.dtype.kind in "iu" and len(names) > 0 and names.max() < COUNTING * len(names)
    if counted and not same_edges(before, now):
        return "its edges are not the run's, so that a node's number may be another node's"
    gone = set(answered) - set(names.astype(str))
    if 2 * len(gone) > len(answered):
        return f"{len(gone):,} of its {len(set(answered)):,} nodes are not the run's"
    return ""


def classes_told(before: Sequence[str], now: Sequence[str]) -> str:
    """Returns how the classes of two runs differ, a clause."""
    return f"the classes {_named(before)}, and the run's are {_named(now)}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{shown}, .." if len(names) > 4 else shown
