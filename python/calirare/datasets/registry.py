"""The one function that loads any data set, and the table of those known by name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, get_args

from calirare._util.errors import InputError
from calirare.datasets.catalogue import CATALOGUE, Entry, Layout
from calirare.datasets.digits import digits
from calirare.datasets.download import Progress, download
from calirare.datasets.folder import load_folder
from calirare.datasets.npz import load_npz
from calirare.datasets.paths import ENVIRONMENT, data_roots, download_root
from calirare.datasets.sources import SOURCES
from calirare.datasets.tables import TABLE_SUFFIXES, read_tables
from calirare.graph.edges import EdgeOptions, EdgeRules
from calirare.graph.graph import Graph, Normalisation, check_trainable
from calirare.graph.splits import LABEL_RATE, raise_label_rate, random_split


class LoadOptions(EdgeOptions, total=False):
    """Further keywords of `load_dataset`.

    `features` (path), `label` and `weight` (names of columns) belong to edge tables, see `calirare.datasets.tables`;
    `symmetrize`, `duplicates` and `self_loops` to all of the user's own graphs, see `calirare.graph.edges.EdgeRules`.
    `progress` is called during a download with the bytes so far and in all.
    """

    features: str | Path
    label: str
    weight: str
    progress: Progress


TABLE_OPTIONS = ("features", "label", "weight")
EDGE_OPTIONS = ("symmetrize", "duplicates", "self_loops")


def load_dataset(
    name: str | Path,
    root: str | Path | None = None,
    *,
    minority: int | str | None = None,
    label_rate: int | None = None,
    split: str | None = None,
    scale: Normalisation | None = None,
    seed: int = 0,
    download: bool = False,
    **options: Unpack[LoadOptions],
) -> Graph:
    """Returns a data set as a rare-class task with a split, ready for training.

    Args:
        name: "digits", "cora", "citeseer", "pubmed", "dblp", "facebook" or "facebook_bag"; or the path of an `.npz`
            file or of a folder (`calirare.datasets.folder`); or the path of an edge table (CSV or Parquet).
        root: the folder to search for a named data set; None for those of `calirare.datasets.paths.data_roots`.
        minority: number or name of the rare class; None for the paper's, the one stored in the file, or class 1 where
            the labels are 0 and 1.
        label_rate: training nodes per class before merging. A stored split is enlarged to it with random nodes; None
            leaves that as it is, and stands for 20 in a random one.
        split: "public" for the stored split, "random", or None for "public" where there is one.
        scale: how the features are scaled before they are used: "standardize", "row" or "none", see
            `calirare.graph.features.normalize_features`; None for what the data set wants or the file says.
        seed: of the random split or of the nodes added to the public one.
        download: fetch a data set that is not there, into `root` or the user's cache.
        **options: see `LoadOptions`.

    Returns:
        The graph.

    Raises:
        InputError: the data set is unknown or not there, damaged, or not fit for training.

    Example:
        >>> load_dataset("digits")
        Graph('digits': 1,797 nodes, 24,678 directed edges, 64 features, 2 classes, '8' is rare with 9.68 %, split \
random(label_rate=20, seed=0) 200/500/1000)
    """
    graph, stored = read_graph(name, root, download=download, **options)
    graph = graph.rare(_choose_minority(graph, minority, stored))
    graph = choose_split(graph, split, label_rate, seed)
    check_trainable(graph)
    if scale is not None:
        if scale not in get_args(Normalisation):
            raise InputError(f"load_dataset: scale must be standardize, row or none, got {scale!r}")
        graph = dataclasses.replace(graph, feature_normalisation=scale, trusted=True)
    return graph


def read_graph(
    name: str | Path, root: str | Path | None = None, *, download: bool = False, **options: Unpack[LoadOptions]
) -> tuple[Graph, int | None]:
    """Returns a data set with its classes before merging, and the number of the rare class stored with it, or None.

    Args:
        name: see `load_dataset`, and so for all others.
        root: for a named data set only.
        download: for a named data set only.
        **options: for the user's own graphs.

    Raises:
        InputError: the data set is unknown, not there or damaged, or an option does not belong to its kind.
    """
    progress = options.pop("progress", None)
    if options.get("scale") is not None:
        raise InputError(
            "read_graph: scale must be left out, it is for a graph to train on, and a trained network scales others as "
            "its own: pass it to load_dataset (command line: calirare train --scale)"
        )
    if str(name) in CATALOGUE:
        entry = CATALOGUE[str(name)]
        _refuse(options, TABLE_OPTIONS, f"the data set {name}", "edge tables")
        _refuse(options, EDGE_OPTIONS, f"the data set {name}", "the user's own graphs")
        return _named(str(name), entry, root, download, progress), entry.minority
    loaded = _from_path(Path(name), options)
    ignored = [word for word, given in (("root", root is not None), ("download", download)) if given]
    if ignored:
        raise InputError(
            f"load_dataset: {', '.join(ignored)} must be left out for a path, it is for data sets by name, got "
            f"{str(name)!r}"
        )
    return loaded


def _from_path(path: Path, options: LoadOptions) -> tuple[Graph, int | None]:
    """Returns the graph of a file or folder of the user's and the rare class stored in it."""
    if path.is_dir():
        _refuse(options, TABLE_OPTIONS, "a graph's folder", "edge tables")
        return load_folder(path, _rules(options))
    if path.suffix.lower() == ".npz":
        _refuse(options, TABLE_OPTIONS, "an .npz file", "edge tables")
        return load_npz(path, _rules(options))
    if path.name.lower().endswith(TABLE_SUFFIXES):
        nodes, label, weight = options.get("features"), options.get("label"), options.get("weight")
        return read_tables(path, nodes, _rules(options), label=label, weight=weight), None
    known = ", ".join(CATALOGUE)
    raise InputError(
        f"load_dataset: name must be one of {known}, a folder, or a path that ends in .npz or "
        f"{', '.join(TABLE_SUFFIXES)}, got {str(path)!r}"
    )


def _rules(options: LoadOptions) -> EdgeRules:
    """Returns the edge rules among the options."""
    return EdgeRules(
        options.get("symmetrize", False), options.get("duplicates", "error"), options.get("self_loops", "error")
    )


def _refuse(options: LoadOptions, names: tuple[str, ...], kind: str, meant_for: str) -> None:
    """Checks that options which mean nothing to a kind of data set have their defaults."""
    given = [name for name in names if options.get(name) not in (None, False, "error")]
    if given:
        raise InputError(f"load_dataset: {', '.join(given)} must be left out for {kind}, it is for {meant_for}")


def _choose_minority(graph: Graph, minority: int | str | None, stored: int | None) -> int | str:
    """Returns the rare class: the one wanted, the stored one, or 1 of 0 and 1."""
    if minority is not None:
        return minority
    if stored is not None:
        return graph.class_names[stored] if stored < graph.n_classes else stored
    if graph.class_names == ("0", "1") or graph.y is None:
        return 1
    if graph.unlabelled.numel() == graph.n_nodes:
        raise InputError(f"graph {graph.name!r}: training needs labels, but no node has one")
    sizes = [int((graph.y == k).sum()) for k in range(graph.n_classes)]
    shown = ", ".join(f"{name} ({size} nodes)" for name, size in zip(graph.class_names[:20], sizes, strict=False))
    raise InputError(
        f"graph {graph.name!r}: the rare class must be named, the classes are {shown}: pass minority=CLASS (command "
        "line: --minority CLASS)"
    )


def choose_split(graph: Graph, split: str | None, label_rate: int | None, seed: int) -> Graph:
    """Returns the graph with its stored split, enlarged to the label rate, or with a random one.

    Args:
        graph: the graph, with labels.
        split: "public", "random" or None; see `load_dataset`.
        label_rate: training nodes per class before merging, or None; see `load_dataset`.
        seed: of the random draws.

    Returns:
        The graph.

    Raises:
        InputError: `split` is unknown or not there, or a class is too small.
    """
    merged = graph.original_y is not None
    original, names = (graph.original_y, graph.original_class_names) if merged else (graph.y, graph.class_names)
    if original is None:
        raise InputError(f"graph {graph.name!r}: a split needs labels, but no node has one")
    if split not in (None, "public", "random"):
        raise InputError(f"load_dataset: split must be public or random, got {split!r}")
    if split == "public" and graph.split is None:
        raise InputError(
            f"load_dataset: {graph.name} has no public split: take split='random' (command line: --split random)"
        )
    rate = LABEL_RATE if label_rate is None else label_rate
    if split == "random" or graph.split is None:
        return graph.with_split(random_split(original, rate, seed=seed, class_names=names))
    if label_rate is None:
        return graph
    return graph.with_split(raise_label_rate(graph.split, original, label_rate, seed, class_names=names))


def _named(name: str, entry: Entry, root: str | Path | None, fetch: bool, progress: Progress | None) -> Graph:
    """Returns a data set of the catalogue with the classes before merging."""
    if name == "digits":
        return digits()
    found = find(entry, data_roots(root))
    if found is None and fetch:
        found = _download(name, entry, root, progress)
    if found is None:
        raise InputError(_not_found(name, entry, root))
    layout, folder = found
    graph = layout.read(folder / layout.files[0])
    return dataclasses.replace(
        graph,
        name=name,
        class_names=entry.class_names or graph.class_names,
        feature_normalisation=entry.normalisation,
        trusted=True,
    )


def find(entry: Entry, roots: tuple[Path, ...]) -> tuple[Layout, Path] | None:
    """Returns the first layout of a data set that is complete in one of the folders, and that folder."""
    for folder in roots:
        for layout in entry.layouts:
            if all((folder / file).is_file() for file in layout.files):
                return layout, folder
    return None


def _download(
    name: str, entry: Entry, root: str | Path | None, progress: Progress | None
) -> tuple[Layout, Path] | None:
    """Downloads the files of a data set and returns where they are."""
    if name not in SOURCES:
        raise InputError(f"{name}: no download is known; searched {_shown(root)}: {entry.by_hand}")
    folder = download_root(root)
    for remote in SOURCES[name]:
        download(remote, folder, progress)
    return find(entry, (folder,))


def _not_found(name: str, entry: Entry, root: str | Path | None) -> str:
    """Returns what a user needs to know about a data set that is not there."""
    fetch = (
        f", or pass download=True (command line: calirare train --dataset {name} --download)" if name in SOURCES else ""
    )
    for folder in data_roots(root):
        for layout in entry.layouts:
            missing = [file for file in layout.files if not (folder / file).is_file()]
            if 0 < len(missing) < len(layout.files):
                return (
                    f"{name}: the data set in {folder} is incomplete, {', '.join(missing)} is missing: put the file at "
                    f"{folder / missing[0]}{fetch}"
                )
    return (
        f"{name}: the data set was not found in {_shown(root)}: {entry.by_hand}, set {ENVIRONMENT} to its folder{fetch}"
    )


def _shown(root: str | Path | None) -> str:
    """Returns the searched folders as a message names them."""
    return ", ".join(str(folder) for folder in data_roots(root))


@dataclass(frozen=True)
class DatasetRow:
    """One line of `calirare datasets`.

    Attributes:
        name: the name `load_dataset` takes.
        n_nodes: nodes.
        n_edges: directed edges.
        n_features: features.
        minority: name of the rare class.
        minority_share: its share of all nodes.
        split: "public" or "random", the default.
        looked_for: every path that is looked for; empty for an embedded data set.
        found: the file or the first of the files found, or None.
        how: how to get it where it is not found.
    """

    name: str
    n_nodes: int
    n_edges: int
    n_features: int
    minority: str
    minority_share: float
    split: str
    looked_for: tuple[Path, ...]
    found: Path | None
    how: str

    @property
    def available(self) -> bool:
        """Whether it can be loaded at once."""
        return self.found is not None or not self.looked_for


def dataset_table(root: str | Path | None = None) -> tuple[DatasetRow, ...]:
    """Returns one row per known data set.

    Args:
        root: the folder to search; None for those of `calirare.datasets.paths.data_roots`.

    Returns:
        The rows, the embedded data set first.
    """
    rows = []
    for name, entry in CATALOGUE.items():
        roots = data_roots(root)
        place = find(entry, roots)
        rows.append(
            DatasetRow(
                name,
                entry.n_nodes,
                entry.n_edges,
                entry.n_features,
                entry.class_names[entry.minority] if entry.class_names else str(entry.minority),
                entry.minority_share,
                "public" if entry.public else "random",
                tuple(folder / layout.files[0] for folder in roots for layout in entry.layouts),
                None if place is None else place[1] / place[0].files[0],
                f"pass download=True (command line: calirare train --dataset {name} --download), or {entry.by_hand}"
                if name in SOURCES
                else entry.by_hand,
            )
        )
    return tuple(rows)
