"""What labelled nodes must satisfy before training, labels that replace others, and labels of only the rare class."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import listed
from calirare._util.errors import InputError
from calirare.graph.arrays import dtype_of
from calirare.graph.graph import Graph
from calirare.graph.splits import PARTS, Split
from calirare.graph.validation import find_class, one_class

FEW = 16  # numbers up to the highest node for each of some nodes, from which these are sorted and not counted


def check_graph(where: str, graph: object) -> None:
    """Checks that a graph is one of ours; else a TypeError."""
    if not isinstance(graph, Graph):
        got = type(graph).__name__
        raise TypeError(f"{where}: graph must be a calirare.Graph, got {got}: take Graph.from_data, from_tables, ...")


def check_nodes(where: str, nodes: Any, n_nodes: int, name: str = "nodes") -> None:
    """Checks that `nodes` are distinct numbers of nodes of a graph, int64 [m]; `name` is that of the argument.

    Raises:
        TypeError: it is no int64 tensor.
        ValueError: it is not one-dimensional, or a node is out of range or given twice.
    """
    if not isinstance(nodes, Tensor):
        raise TypeError(f"{where}: {name} must be an int64 tensor, got {type(nodes).__name__}: take torch.as_tensor")
    if nodes.dtype == torch.bool:
        raise TypeError(f"{where}: {name} must be node numbers, got a mask: take mask.nonzero().flatten()")
    if nodes.dtype != torch.int64:
        raise TypeError(f"{where}: {name} must be int64, got {dtype_of(nodes)}")
    if nodes.dim() != 1:
        raise ValueError(f"{where}: {name} must have shape [any], got {list(nodes.shape)}")
    if nodes.numel() == 0:
        return
    low, high = int(nodes.min()), int(nodes.max())
    if low < 0 or high >= n_nodes:
        raise ValueError(f"{where}: {name} must be in [0, {n_nodes}), got {low} to {high}")
    few = nodes.numel() * FEW < high
    if torch.unique(nodes).numel() < nodes.numel() if few else int(torch.bincount(nodes).max()) > 1:
        raise ValueError(f"{where}: {name} must be distinct, got {nodes.numel()} numbers with repetitions")


def check_training_labels(where: str, m: int, targets: Tensor, sample_weights: Tensor, weight_decay: float) -> None:
    """Checks classes int64 [m] and weights [m] of m labelled nodes, all finite and >= 0, and the penalty."""
    if m == 0:
        raise ValueError(f"{where}: there must be at least one labelled node, got none")
    for name, values in (("targets", targets), ("sample_weights", sample_weights)):
        if not isinstance(values, Tensor):
            raise TypeError(f"{where}: {name} must be a tensor, got {type(values).__name__}: give one number per node")
        if name == "targets" and values.dtype != torch.int64:
            raise TypeError(f"{where}: targets must be int64, got {dtype_of(values)}")
        if values.shape != (m,):
            raise ValueError(f"{where}: {name} must have shape [{m}], one per labelled node, got {list(values.shape)}")
        if not bool((values >= 0).all()) or not bool(torch.isfinite(values).all()):
            at = int((~((values >= 0) & torch.isfinite(values))).nonzero()[0])
            raise ValueError(f"{where}: {name} must be finite and >= 0, got {values[at].item()} at place {at}")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        raise ValueError(f"{where}: weight_decay must be finite and >= 0, got {weight_decay}")


def check_labelled(graph: Graph) -> None:
    """Checks that some node has a label; else an InputError."""
    if graph.y is None or not bool((graph.y >= 0).any()):
        raise InputError(f"graph {graph.name!r}: training needs labels, but no node has one")


def check_trainable(graph: Graph) -> None:
    """Checks that there is a split and labels of two classes, each with a training node; else an InputError."""
    where = f"graph {graph.name!r}"
    check_labelled(graph)
    assert graph.y is not None
    labelled = torch.bincount(graph.y[graph.y >= 0], minlength=graph.n_classes)
    if int((labelled > 0).sum()) < 2:
        raise InputError(one_class(graph.name, graph.class_names[int(labelled.argmax())]))
    if graph.split is None:
        labels = "y" if graph.original_y is None else "original_y"
        raise InputError(
            f"{where}: training needs a split, but the graph has none: draw one with "
            f"graph.with_split(calirare.Split.share(graph.{labels}))"
        )
    train = graph.y[graph.split.train]
    if train.numel() < 2:
        raise InputError(f"{where}: training needs at least two labelled nodes, got {train.numel()}: label more nodes")
    counts = torch.bincount(train, minlength=graph.n_classes)
    if bool((counts == 0).any()):
        k = int((counts == 0).nonzero()[-1])
        kind = "rare class" if graph.n_classes == 2 and k == 1 else "class"
        none = f"{where}: every class must have a training node, but the {kind} {graph.class_names[k]!r} has none"
        if not int(labelled[k]):
            raise InputError(
                f"{none}, nor any other labelled node: number the classes from 0 without gaps, or say which one is "
                "rare: graph.rare(NAME) (command line: --rare-class)"
            )
        raise InputError(f"{none} among the {train.numel()}: put a labelled node of it there")


def nodes_not_to_review(graph: Graph) -> Tensor | None:
    """Returns the nodes that a human need not look at, int64, or None: those with a label, and those not scored.

    Where every node has a label (a benchmark), those that trained or calibrated count as labelled.
    """
    known = None if graph.split is None else torch.cat([graph.split.train, graph.split.val])
    if graph.y is not None and graph.unlabelled.numel():
        known = (graph.y >= 0).nonzero().flatten()
    if graph.scored is None:
        return known
    beside = (~graph.scored).nonzero().flatten()
    return beside if known is None else torch.cat([known, beside])


NO_PART = -1


def relabelled(graph: Graph, nodes: Tensor, labels: Tensor, parts: Tensor) -> Graph:
    """Returns a graph where some nodes have these labels and stand in these parts of the split.

    Args:
        graph: with labels and a split.
        nodes: distinct, int64 [b].
        labels: 1 rare, 0 rest, or where no class is rare its number; -1 none, int64 [b].
        parts: number in `PARTS`; `NO_PART` for the part that the node has, where it had none and gets a label the
            training part, int64 [b]. A node without a label is in no part.

    Raises:
        InputError: there are no labels or there is no split.
    """
    if graph.y is None or graph.split is None:
        raise InputError(f"graph {graph.name!r}: to be relabelled it must have labels and a split")
    device = graph.device
    nodes, labels, parts = nodes.to(device), labels.to(device), parts.to(device)
    y, part = graph.y.clone(), torch.full((graph.n_nodes,), NO_PART, dtype=torch.int64, device=device)
    for number, name in enumerate(PARTS):
        part[getattr(graph.split, name)] = number
    y[nodes] = labels
    had = part[nodes]
    part[nodes] = torch.where(parts != NO_PART, parts, torch.where((had == NO_PART) & (labels >= 0), 0, had))
    part[nodes[labels < 0]] = NO_PART
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


POSITIVE_ONLY = "positive-only"  # name of the split in which every known rare node trains
REST = "rest"
DRAWN = 4_000  # nodes without a label that a detector is shown as not known to be rare
DRAW = 15  # second number of the seed: another draw than those of splits


def known_rare(graph: Graph, minority: int | str | None = None) -> Graph:
    """Returns the graph in which only rare nodes have a label, all of them training; test nodes keep theirs.

    Labels of the rest are taken for unknown. Test nodes that a split holds out to be judged by are those of the split;
    without one, or where every test node is rare, there are none.

    Args:
        graph: with labels, of any classes or only the rare one.
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
    train = rare.nonzero().flatten()
    if graph.split is not None and test.numel():  # rare nodes outside a split that is given stay unknown
        kept = torch.cat([graph.split.train, graph.split.val])
        train = kept[rare[kept]]
    y = torch.full_like(original, -1)
    y[train], y[test] = 1, rare[test].long()
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


def with_sampled_negatives(graph: Graph, seed: int, n_drawn: int = DRAWN) -> Graph:
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
        raise InputError(
            f"graph {graph.name!r}: every node is labelled rare. Positive-only training needs unlabelled nodes."
        )
    order = np.random.default_rng([seed, DRAW]).permutation(len(places))[:n_drawn]
    drawn = torch.from_numpy(np.sort(places[order]))
    y = torch.full((graph.n_nodes,), -1, dtype=torch.int64)
    y[known], y[drawn] = 1, 0
    nodes = torch.cat([known, drawn])
    split = Split(nodes, nodes[:0], nodes[:0], POSITIVE_ONLY).to(graph.device)
    return dataclasses.replace(graph, y=y.to(graph.device), split=split, trusted=True)


def _rare_class(graph: Graph, minority: int | str | None) -> int:
    """Returns the number of the rare class among those before merging."""
    check_labelled(graph)
    assert graph.y is not None
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
        f"graph {graph.name!r}: positive-only labels need the name of the rare class. The classes are "
        f"{shown}: pass rare_class=CLASS (command line: --rare-class CLASS)"
    )
