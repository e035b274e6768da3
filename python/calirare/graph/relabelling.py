"""A graph with some labels put in the place of its own: new ones, others, and none."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.graph.graph import Graph
from calirare.graph.splits import PARTS, Split

NO_PART = -1


def relabelled(graph: Graph, nodes: Tensor, labels: Tensor, parts: Tensor) -> Graph:
    """Returns a graph where some nodes have these labels and stand in these parts of the split.

    Args:
        graph: of a rare class and the rest, with a split.
        nodes: distinct, int64 [b].
        labels: 1 rare, 0 rest, -1 none, int64 [b].
        parts: number in `PARTS`; `NO_PART` for the part that the node has, where it had none and gets a label the
            training part, int64 [b]. A node without a label is in no part but that of test nodes, where it was there.

    Raises:
        InputError: there are not two classes, or no labels or split.
    """
    if graph.y is None or graph.split is None or graph.n_classes != 2:
        raise InputError(f"graph {graph.name!r}: to be labelled anew it must have two classes, labels and a split")
    device = graph.device
    nodes, labels, parts = nodes.to(device), labels.to(device), parts.to(device)
    y, part = graph.y.clone(), torch.full((graph.n_nodes,), NO_PART, dtype=torch.int64, device=device)
    for number, name in enumerate(PARTS):
        part[getattr(graph.split, name)] = number
    y[nodes] = labels
    had = part[nodes]
    part[nodes] = torch.where(parts != NO_PART, parts, torch.where((had == NO_PART) & (labels >= 0), 0, had))
    unknown = nodes[(labels < 0) & (part[nodes] != PARTS.index("test"))]
    part[unknown] = NO_PART
    train, val, test = ((part == number).nonzero().flatten() for number in range(len(PARTS)))
    split = Split(train, val, test, graph.split.name)
    return dataclasses.replace(graph, y=y, original_y=_original(graph, nodes, labels), split=split, trusted=True)


def _original(graph: Graph, nodes: Tensor, labels: Tensor) -> Tensor | None:
    """Returns the labels before merging; of a rest of several classes it is not known which one a new label means."""
    if graph.original_y is None or graph.minority is None:
        return graph.original_y
    others = [k for k in range(len(graph.original_class_names)) if k != graph.minority]
    rest = others[0] if len(others) == 1 else -1
    original, same = graph.original_y.clone(), graph.y is not None and (graph.y[nodes] == labels)
    named = torch.where(labels == 1, graph.minority, torch.where(labels == 0, rest, -1))
    original[nodes] = torch.where(torch.as_tensor(same, device=labels.device), original[nodes], named)
    return original
