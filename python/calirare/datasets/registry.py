"""The data sets by name, and the one function that loads any of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from calirare.datasets.digits import RARE_DIGIT, digits
from calirare.datasets.npz import read_npz
from calirare.datasets.paths import data_roots
from calirare.errors import InputError
from calirare.graph import Graph, check_trainable
from calirare.splits import LABEL_RATE, raise_label_rate, random_split


def load_dataset(
    name: str,
    root: str | Path | None = None,
    *,
    minority: int | str | None = None,
    label_rate: int = LABEL_RATE,
    split: str | None = None,
    seed: int = 0,
) -> Graph:
    """Returns a graph by name or path as a rare-class task with a split."""
    if name == "digits":
        graph = digits().rare(RARE_DIGIT if minority is None else minority)
    elif name.endswith(".npz"):
        graph = read_npz(name, minority)
    else:
        path = data_roots(root)[0] / f"{name}.npz"
        graph = read_npz(path, minority)
    graph = with_chosen_split(graph, split, label_rate, seed)
    check_trainable(graph)
    return graph


def with_chosen_split(graph: Graph, split: str | None, label_rate: int, seed: int) -> Graph:
    """Returns the graph with its public split, enlarged to the label rate, or a random one."""
    original = graph.y if graph.original_y is None else graph.original_y
    names = graph.class_names if graph.original_y is None else graph.original_class_names
    if original is None:
        return graph
    if split is None:
        split = "public" if graph.split is not None else "random"
    if split == "random":
        return graph.with_split(random_split(original, label_rate, seed=seed, class_names=names))
    if split != "public":
        raise InputError(f"load_dataset: split must be public or random, got {split!r}")
    if graph.split is None:
        raise InputError(
            f"load_dataset: {graph.name} has no public split: take split='random' (command line: --split random)"
        )
    if label_rate == LABEL_RATE:
        return graph
    return dataclasses.replace(
        graph, split=raise_label_rate(graph.split, original, label_rate, seed, class_names=names), trusted=True
    )
