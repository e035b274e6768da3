"""The labelled nodes a map was fitted with, found again in other graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features.raw_table import Stored
from calirare.graph import Graph, fingerprint, same_but_labels

BLOCK = 1 << 18  # names that are hashed together


@dataclass(frozen=True, eq=False)
class LabelledNodes(Stored):
    """Labelled nodes of a map's own graph.

    A node is known by its name, whatever else is in a graph and in which order. Nodes without names are known by their
    numbers, and only in a graph that is the map's own in edges and features.

    Attributes:
        nodes: their numbers in the map's own graph, int64 [m].
        keys: hashes of their names, uint64 as int64 [m]; empty where nodes have no names.
        graph: checksum of the map's own graph, empty where nodes have names.
    """

    nodes: NumpyArray
    keys: NumpyArray
    graph: str

    @classmethod
    def of(cls, graph: Graph, nodes: NumpyArray) -> Self:
        """Returns what is kept of labelled nodes, int64 [m], of a graph."""
        if graph.node_names is None:
            return cls(nodes, np.zeros(0, dtype=np.int64), fingerprint(graph))
        return cls(nodes, hashed_names(graph.node_names[nodes]), "")

    def places_in(self, graph: Graph) -> NumpyArray | None:
        """Returns of each node of a graph its place among the labelled ones, int64 [n], -1 for none; None: no node."""
        if len(self.keys) and graph.node_names is not None:
            return places_by_name(self.keys, graph.node_names)
        if not self.graph or not same_but_labels(graph, self.graph):
            return None
        places = np.full(graph.n_nodes, -1, dtype=np.int64)
        places[self.nodes] = np.arange(len(self.nodes))
        return places


def hashed_names(names: NumpyArray) -> NumpyArray:
    """Returns 64 bits of each name, the same on every machine."""
    from pandas.util import hash_array

    out = np.empty(len(names), dtype=np.int64)
    for first in range(0, len(names), BLOCK):
        part = np.char.encode(names[first : first + BLOCK], "utf-8", "surrogatepass").astype(object)
        out[first : first + BLOCK] = hash_array(part, categorize=False).view(np.int64)
    return out


def places_by_name(keys: NumpyArray, names: NumpyArray) -> NumpyArray:
    """Returns the place of each name among those with some hashes (int64 [m]), int64 [n], -1 for none."""
    if not len(keys):
        return np.full(len(names), -1, dtype=np.int64)
    order, given = np.argsort(keys), hashed_names(names)
    at = order[np.minimum(np.searchsorted(keys, given, sorter=order), len(order) - 1)]
    return np.where(keys[at] == given, at, -1)
