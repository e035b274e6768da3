"""What is known about each published data set: its statistics, where its files are and how to read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calirare.datasets.download import RemoteFile
from calirare.datasets.raw import CLEANED, read_musae, read_pickled_npz, read_planetoid
from calirare.graph import Graph, Normalisation

READERS: dict[str, Callable[[Path], Graph]] = {
    "npz": lambda path: Graph.read(path, **CLEANED)[0],  # its edges mended as those of raw files
    "pickled npz": read_pickled_npz,
    "planetoid": lambda first: read_planetoid(first.parent, first.name.split(".")[1]),
    "musae": lambda first: read_musae(first.parent),
}


@dataclass(frozen=True)
class Layout:
    """One way in which a data set lies in a folder.

    Attributes:
        files: the files it needs, relative to the folder of data sets.
        read: makes the graph, given the path of the first file.
    """

    files: tuple[str, ...]
    read: Callable[[Path], Graph]


@dataclass(frozen=True)
class Entry:
    """A data set by name.

    Attributes:
        n_nodes: nodes.
        n_edges: directed edges, without self loops.
        n_features: features.
        class_sizes: labelled nodes per class before merging.
        class_names: names of the classes; empty where their meaning is not published with the data.
        minority: the class the paper makes the rare one.
        normalisation: how the features want to be scaled: words by row as in the GCN, signed features not at all.
        public: whether a split is published.
        layouts: where it is looked for, in order.
        by_hand: how to get it where nothing can be downloaded.
        sources: where the files come from, each pinned to a commit and a checksum; none where no download is known.
    """

    n_nodes: int
    n_edges: int
    n_features: int
    class_sizes: tuple[int, ...]
    class_names: tuple[str, ...]
    minority: int
    normalisation: Normalisation
    public: bool
    layouts: tuple[Layout, ...]
    by_hand: str
    sources: tuple[RemoteFile, ...]

    @property
    def minority_share(self) -> float:
        """Proportion of the rare class among all nodes, as published (CiteSeer: 15 nodes have no label)."""
        return self.class_sizes[self.minority] / self.n_nodes

    @property
    def minority_name(self) -> str:
        """Name of the rare class, its number where no names are published."""
        return self.class_names[self.minority] if self.class_names else str(self.minority)


def _entry(facts: dict[str, Any]) -> Entry:
    lists = {name: tuple(facts[name]) for name in ("class_sizes", "class_names")}
    layouts = tuple(Layout(tuple(each["files"]), READERS[each["reader"]]) for each in facts["layouts"])
    sources = tuple(RemoteFile(**each) for each in facts["sources"])
    return Entry(**facts | lists | {"layouts": layouts, "sources": sources})


_FACTS = json.loads(Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8"))
CATALOGUE: dict[str, Entry] = {name: _entry(facts) for name, facts in _FACTS.items()}
