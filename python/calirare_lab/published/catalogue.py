"""What is known about each published data set: its statistics, where its files are looked for and how to read them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calirare._util.errors import InputError
from calirare.datasets import digits
from calirare.graph import Graph, Normalisation
from calirare_lab.published.download import Progress, RemoteFile, download
from calirare_lab.published.raw import read_musae, read_npz, read_pickled_npz, read_planetoid
from calirare_multilabel.data import ENVIRONMENT, cache_folder, data_roots, existing_folder

READERS: dict[str, Callable[[Path], Graph]] = {
    "npz": read_npz,
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

DOWNLOAD = "add --download (download=True)"


def find(entry: Entry, roots: tuple[Path, ...]) -> tuple[Layout, Path] | None:
    """Returns the first layout of a data set that is complete in one of the folders, and that folder."""
    for folder in roots:
        for layout in entry.layouts:
            if all((folder / file).is_file() for file in layout.files):
                return layout, folder
    return None


def locate(
    name: str, root: str | Path | None, *, fetch: bool = False, progress: Progress | None = None
) -> tuple[Layout, Path]:
    """Returns the layout of a named data set that is there, or downloaded by `fetch`, and the folder it is in."""
    entry = CATALOGUE[name]
    found = find(entry, data_roots(root))
    if found is None and fetch:
        if not entry.sources:
            raise InputError(f"{name}: no download is known; searched {_shown(root)}: {entry.by_hand}")
        folder = cache_folder() if root is None else existing_folder(root, "root")
        for remote in entry.sources:
            download(remote, folder, progress)
        found = find(entry, (folder,))
    if found is None:
        raise InputError(_not_found(name, entry, root))
    return found


def _not_found(name: str, entry: Entry, root: str | Path | None) -> str:
    """Returns what a user needs to know about a data set that is not there."""
    fetched = f", or {DOWNLOAD}" if entry.sources else ""
    for folder in data_roots(root):
        for layout in entry.layouts:
            missing = [file for file in layout.files if not (folder / file).is_file()]
            if 0 < len(missing) < len(layout.files):
                lacks = f"{missing[0]} and {len(missing) - 1} more" if len(missing) > 1 else missing[0]
                return f"{name}: the data set is incomplete: put {lacks} into {folder}{fetched}"
    return f"{name} was not found in {_shown(root)}: {entry.by_hand}, set {ENVIRONMENT} to yours{fetched}"


def _shown(root: str | Path | None) -> str:
    """Returns the searched folders as a message names them."""
    return ", ".join(str(folder) for folder in data_roots(root))


@dataclass(frozen=True)
class DatasetRow:
    """One line of `calirare datasets`.

    Attributes:
        name: the name `load_dataset` takes.
        entry: what is known of it.
        looked_for: every path that is looked for; empty for an embedded data set.
        found: the file or the first of the files found, or None.
    """

    name: str
    entry: Entry
    looked_for: tuple[Path, ...]
    found: Path | None

    @property
    def how(self) -> str:
        """How to get it where it is not found."""
        by_hand = self.entry.by_hand
        return f"{DOWNLOAD}, or {by_hand}" if self.entry.sources else by_hand

    @property
    def available(self) -> bool:
        """Whether it can be loaded at once."""
        return self.found is not None or not self.looked_for


def dataset_table(root: str | Path | None = None) -> tuple[DatasetRow, ...]:
    """Returns one row per known data set, the embedded one first; `root` as in `data_roots`."""
    roots, rows = data_roots(root), []
    for name, entry in CATALOGUE.items():
        place = find(entry, roots)
        looked_for = tuple(folder / layout.files[0] for folder in roots for layout in entry.layouts)
        rows.append(DatasetRow(name, entry, looked_for, None if place is None else place[1] / place[0].files[0]))
    return tuple(rows)


def read(
    name: str, root: str | Path | None = None, *, fetch: bool = False, progress: Progress | None = None
) -> tuple[Graph, int]:
    """Returns a data set with the classes before merging, and the number of its rare class.

    Args:
        name: of the catalogue.
        root: as in `data_roots`.
        fetch: download a data set that is not there.
        progress: called during a download with the bytes so far and in all.

    Raises:
        InputError: the data set is not there or damaged.
    """
    entry = CATALOGUE[name]
    if name == "digits":
        return digits(), entry.minority
    layout, folder = locate(name, root, fetch=fetch, progress=progress)
    graph = layout.read(folder / layout.files[0])
    names = entry.class_names or graph.class_names
    scaling = entry.normalisation
    graph = dataclasses.replace(graph, name=name, class_names=names, feature_normalisation=scaling, trusted=True)
    return graph, entry.minority
