"""What is known about each published data set: its statistics, where its files are and how to read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from calirare.datasets.embedded import RARE_DIGIT
from calirare.datasets.raw import (
    MENDED,
    MUSAE_FILES,
    PAGE_TYPES,
    planetoid_files,
    read_musae,
    read_pickled_npz,
    read_planetoid,
)
from calirare.graph import Graph, Normalisation


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
    """

    n_nodes: int
    n_edges: int
    n_features: int
    class_sizes: tuple[int, ...]
    class_names: tuple[str, ...]
    minority: int
    normalisation: Normalisation
    public: bool = False
    layouts: tuple[Layout, ...] = field(default=())
    by_hand: str = ""

    @property
    def minority_share(self) -> float:
        """Share of the rare class among all nodes, as published (CiteSeer: 15 nodes have no label)."""
        return self.class_sizes[self.minority] / self.n_nodes

    @property
    def minority_name(self) -> str:
        """Name of the rare class, its number where no names are published."""
        return self.class_names[self.minority] if self.class_names else str(self.minority)


def _npz(path: Path) -> Graph:
    """Returns the graph of an archive, its edges mended as those of raw files."""
    return Graph.read(path, **MENDED)[0]


def _planetoid(folder: str) -> tuple[Layout, ...]:
    """Returns where a Planetoid graph is looked for."""
    prefix = folder.lower()

    def read(first: Path) -> Graph:
        return read_planetoid(first.parent, prefix)

    raw = (f"{base}{folder}/raw" for base in ("planetoid/", ""))
    layouts = (Layout(tuple(f"{place}/{name}" for name in planetoid_files(prefix)), read) for place in raw)
    return (Layout((f"{prefix}.npz",), _npz), *layouts)


CATALOGUE: dict[str, Entry] = {
    "digits": Entry(
        1797,
        24678,
        64,
        (178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
        tuple(str(digit) for digit in range(10)),
        RARE_DIGIT,
        "none",
        by_hand="embedded, nothing to get",
    ),
    "cora": Entry(
        2708,
        10556,
        1433,
        (351, 217, 418, 818, 426, 298, 180),
        (
            "Theory",
            "Reinforcement_Learning",
            "Genetic_Algorithms",
            "Neural_Networks",
            "Probabilistic_Methods",
            "Case_Based",
            "Rule_Learning",
        ),
        0,
        "row",
        public=True,
        layouts=_planetoid("Cora"),
        by_hand="put cora.npz, or Planetoid's raw files as planetoid/Cora/raw/ind.cora.*, in a data folder",
    ),
    "citeseer": Entry(
        3327,
        9104,
        3703,
        (249, 590, 668, 701, 596, 508),
        ("AI", "ML", "IR", "DB", "Agents", "HCI"),
        5,
        "row",
        public=True,
        layouts=_planetoid("CiteSeer"),
        by_hand=(
            "put citeseer.npz, or Planetoid's raw files as planetoid/CiteSeer/raw/ind.citeseer.*, in a data folder"
        ),
    ),
    "pubmed": Entry(
        19717,
        88648,
        500,
        (4103, 7739, 7875),
        (),
        0,
        "row",
        public=True,
        layouts=_planetoid("PubMed"),
        by_hand="put all eight of Planetoid's raw files as planetoid/PubMed/raw/ind.pubmed.* in a data folder",
    ),
    "dblp": Entry(
        17716,
        105734,
        1639,
        (7920, 5645, 1982, 2169),
        (),
        2,
        "row",
        layouts=(
            Layout(("dblp.npz",), _npz),
            Layout(("citationfull/dblp/raw/dblp.npz",), _npz),
            Layout(("dblp/raw/dblp.npz",), _npz),
            Layout(("graphdata/dblp.npz",), read_pickled_npz),
        ),
        by_hand="put dblp.npz, or CitationFull's raw file as citationfull/dblp/raw/dblp.npz, in a data folder",
    ),
    "facebook": Entry(
        22470,
        341646,
        128,
        (6495, 3327, 5768, 6880),
        PAGE_TYPES,
        1,
        "none",
        layouts=(Layout(("facebook.npz",), _npz), Layout(("facebook/raw/facebook.npz",), _npz)),
        by_hand=(
            "put facebook.npz, or FacebookPagePage's raw file as facebook/raw/facebook.npz, in a data folder "
            "(no download is known; facebook_bag is the same graph)"
        ),
    ),
    "facebook_bag": Entry(
        22470,
        341646,
        4714,
        (6495, 3327, 5768, 6880),
        PAGE_TYPES,
        1,
        "row",
        layouts=(
            Layout(("facebook_bag.npz",), _npz),
            Layout(tuple(f"facebook/raw-musae/{name}" for name in MUSAE_FILES), lambda first: read_musae(first.parent)),
        ),
        by_hand=(
            "put facebook_bag.npz, or MUSAE's facebook_edges.csv, facebook.json and facebook_target.csv in "
            "facebook/raw-musae/, in a data folder"
        ),
    ),
}
