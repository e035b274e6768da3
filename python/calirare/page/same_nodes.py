"""Whether answers of an earlier training are about the nodes of another one, and what became of these nodes' labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from calirare._util.amounts import amount
from calirare.run import SavedRun

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


def labels_met(rows: pd.DataFrame, saved: SavedRun) -> str:
    """Returns a note of exported labels whose nodes have another label in a run's data by now; empty: none has.

    Args:
        rows: node and label, names of either as they are in the data.
        saved: the run.

    Raises:
        InputError: the run's predictions are missing or damaged.
    """
    found = _labels_of(saved)
    other = [
        (node, label) for node, label in zip(rows["node"], rows["label"], strict=True) if _other(found, node, label)
    ]
    if not other:
        return ""
    node, label = other[0]
    nodes, first = amount(len(other), "node"), f"first {node!r}: {found[node]!r} in the data, {label!r} answered"
    return (
        f"the run's data have another label of {nodes} than was answered ({first}), and `calirare update` takes the "
        "answer: remove rows whose label of the data is right"
    )


def _labels_of(saved: SavedRun) -> dict[str, str]:
    table, names = saved.to_frame(), saved.scorer.class_names
    if not saved.settings.many:
        table = table[table["y"].isin((0, 1))]
        table = table.assign(y=[names[int(y)] for y in table["y"]])
    known = table[table["y"] != ""]
    return dict(zip(known["node"].astype(str), known["y"], strict=True))


def _other(found: Mapping[str, str], node: str, label: str) -> bool:
    return found.get(node, label) != label


def classes_told(before: Sequence[str], now: Sequence[str]) -> str:
    """Returns how the classes of two runs differ, a clause."""
    return f"the classes {_named(before)}, and the run's are {_named(now)}"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{shown}, .." if len(names) > 4 else shown
