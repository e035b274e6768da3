"""Labels of the rare class alone: every other label counts as none, and drawn nodes without one stand for the rest."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from calirare._util.amounts import listed
from calirare._util.errors import InputError
from calirare.graph.graph import Graph
from calirare.graph.splits import Split
from calirare.graph.validation import find_class

POSITIVE_ONLY = "positive-only"  # name of the split in which every known rare node trains
REST = "rest"
DRAWN = 4_000  # nodes without a label that a detector is shown as not known to be rare
DRAW = 15  # second number of the seed: another draw than those of splits


def known_rare(graph: Graph, minority: int | str | None = None) -> Graph:
    """Returns the graph in which rare nodes alone have a label, all of them training; test nodes keep theirs.

    Labels of the rest are taken for unknown. Test nodes that a split holds out to be judged by are those of the split;
    without one, or where every test node is rare, there are none.

    Args:
        graph: with labels, of any classes or the rare one alone.
        minority: number or name of the rare class; None: that of the graph, or the only one there is.

    Raises:
        InputError: there is no label of the class, or the rare class must be named.
    """
    if graph.split is not None and graph.split.name == POSITIVE_ONLY:  # it is one already
        return graph
    k = _rare_class(graph, minority)
    original, names = (graph.original_y, graph.original_class_names)
    if original is None:
        original, names = graph.y, graph.class_names
    assert original is not None
    rare, known = original == k, original >= 0
    if not bool(rare.any()):
        raise InputError(f"graph {graph.name!r}: the rare class {names[k]!r} must have nodes, it has none")
    test = original.new_empty(0) if graph.split is None else graph.split.test
    test = test[known[test]]
    if not test.numel() or bool(rare[test].all()):
        test = test[:0]
    y = torch.where(rare, 1, -1)
    y[test] = rare[test].long()
    part = torch.zeros(graph.n_nodes, dtype=torch.bool, device=graph.device)
    part[test] = True
    train = (rare & ~part).nonzero().flatten()
    if graph.split is not None and test.numel():  # rare nodes outside a split that is given stay unknown
        kept = torch.cat([graph.split.train, graph.split.val])
        train = kept[rare[kept]]
        y[rare & ~part] = -1
        y[train] = 1
    if not train.numel():
        raise InputError(
            f"graph {graph.name!r}: no node of the rare class {names[k]!r} is left to train on: label some"
        )
    return dataclasses.replace(
        graph,
        y=y,
        original_y=None,
        class_names=(REST if names[k] != REST else "others", names[k]),
        original_class_names=(),
        minority=None,
        split=Split(train, train[:0], test, POSITIVE_ONLY),
        trusted=True,
    )


def with_drawn_rest(graph: Graph, seed: int, n_drawn: int = DRAWN) -> Graph:
    """Returns the graph that a detector is trained on: known rare nodes, and nodes drawn from all others as class 0.

    What is drawn does not depend on labels: test nodes and rare nodes that nobody knows of are among them.

    Args:
        graph: of `known_rare`.
        seed: of the draw.
        n_drawn: at most so many.

    Raises:
        InputError: every node is a known rare one.
    """
    assert graph.split is not None
    known = graph.split.train.cpu()
    others = torch.zeros(graph.n_nodes, dtype=torch.bool)
    others[graph.scored_nodes.cpu()] = True
    others[known] = False
    places = others.nonzero().flatten().numpy()
    if not len(places):
        raise InputError(f"graph {graph.name!r}: every node is a known rare one, there is none to tell anything about")
    order = np.random.default_rng([seed, DRAW]).permutation(len(places))[:n_drawn]
    drawn = torch.from_numpy(np.sort(places[order]))
    y = torch.full((graph.n_nodes,), -1, dtype=torch.int64)
    y[known], y[drawn] = 1, 0
    nodes = torch.cat([known, drawn])
    split = Split(nodes, nodes[:0], nodes[:0], POSITIVE_ONLY).to(graph.device)
    return dataclasses.replace(graph, y=y.to(graph.device), split=split, trusted=True)


def _rare_class(graph: Graph, minority: int | str | None) -> int:
    """Returns the number of the rare class among those before merging."""
    if graph.y is None or not bool((graph.y >= 0).any()):
        raise InputError(
            f"graph {graph.name!r}: labels positive-only needs nodes known to be rare, but no node has one"
        )
    if minority is None and graph.original_y is not None and graph.minority is not None:
        return graph.minority
    names = graph.class_names if graph.original_y is None else graph.original_class_names
    if minority is not None:
        return find_class(minority, names, graph.name)
    seen = torch.unique(graph.y[graph.y >= 0]).tolist()
    if len(seen) == 1:
        return int(seen[0])
    if len(names) == 2 and graph.class_names in (("0", "1"), ("False", "True")):
        return 1
    shown = listed(names[:20])
    raise InputError(
        f"graph {graph.name!r}: which class is the rare one must be said with labels positive-only, the classes are "
        f"{shown}: pass minority=CLASS (command line: --minority CLASS)"
    )
