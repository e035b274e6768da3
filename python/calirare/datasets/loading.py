"""The one function that loads any data set."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from calirare._util.amounts import quoted
from calirare._util.errors import InputError
from calirare.datasets.by_name import NO_CATALOGUE, is_named, published_sets
from calirare.datasets.embedded import digits
from calirare.datasets.label_table import with_label_table
from calirare.graph import EdgeRules, Graph, Normalisation, Split, TableOptions, check_trainable, known_rare
from calirare.graph.labelled import check_labelled
from calirare.graph.spelling import words_of
from calirare.graph.splits import FEWEST_TESTED, LABEL_RATE, TEST_SHARE
from calirare.graph.tables import TABLE_SUFFIXES, is_table, no_label_column, unnamed_table

Task = Literal["rare", "classes"]
TASKS: tuple[Task, ...] = ("rare", "classes")


RARE_DIGIT = 8
EDGE_OPTIONS = tuple(each.name for each in dataclasses.fields(EdgeRules))
TABLE_OPTIONS = ("nodes", *(each.name for each in dataclasses.fields(TableOptions)))


def load_dataset(
    name: str | Path,
    root: str | Path | None = None,
    *,
    rare_class: int | str | None = None,
    task: Task = "rare",
    positive_only: bool = False,
    labels_file: str | Path | None = None,
    label_rate: int | None = None,
    split: str | None = None,
    scale: Normalisation | Literal["stored"] | None = None,
    seed: int = 0,
    download: bool = False,
    **options: Any,
) -> Graph:
    """Returns a data set as a rare-class task, or with all its classes, with a split, ready for training.

    Args:
        name: "digits"; with calirare-lab also "cora", "citeseer", "pubmed", "dblp", "facebook" or "facebook_bag"; or
            the path of an `.npz` file or of a folder (`calirare.graph.folder`); or an edge table: the path of a CSV or
            Parquet file or of a folder of Parquet files, or a DuckDB table, FILE.duckdb::TABLE.
        root: the folder to search for a named data set; None for CALIRARE_DATA in the environment and the user's cache.
        rare_class: number or name of the rare class; None for the paper's, the one stored in the file, or class 1 where
            the labels are 0 and 1.
        task: "rare": classes are merged into the rare one and the rest; "classes": they stay as they are.
        positive_only: labels of only the rare class are known, see `calirare.graph.known_rare`.
        labels_file: table of labels, which replace those of the data, see `with_label_table`.
        label_rate: training nodes per class before merging, of a random split (None: 20); the public split of a
            published data set is enlarged to it with random nodes.
        split: "public" for the stored split, "random" for so many nodes per class (`Split.random`), "share" for three
            quarters of every class (`Split.share`), "all" for every label, "time" for the newest
            (`Split.by_time`); None for "public" where there is one, else
            for "random" of a data set by name and where a label rate is given. Of the user's own graph None stands for
            "time" where nodes have a time, else for "share", or for "all" where fewer than `FEWEST_TESTED` nodes of the
            rare class would test.
        scale: how the features are mapped before they are used: "auto", "rank", "standardize", "row", "tfidf", "svd" or
            "none", see `calirare.features.FeatureMap`; None or "stored" for what the data set wants or the file says.
        seed: of the random split or of the nodes added to the public one.
        download: fetch a data set that is not there, into `root` or the user's cache.
        **options: of edge tables `nodes` (path), `label`, `weight` (columns) and those of
            `calirare.graph.options.TableOptions`; of all of the user's own graphs `symmetrize`, `duplicates` and
            `self_loops`, see `calirare.graph.EdgeRules`; `progress` is called during a download with the bytes so far
            and in all.

    Raises:
        InputError: the data set is unknown or not there, damaged, or not fit for training.

    Example:
        >>> load_dataset("digits")
        Graph('digits': 1,797 nodes, 24,678 directed edges, 64 features, 2 classes, '8' is rare with 9.68 %, split \
random(label_rate=20, seed=0) 200/500/1000)
    """
    unknown = words_of(options.get("unknown", ()))
    if labels_file is not None and not is_table(name):  # the values of that table alone
        options.pop("unknown", None)
    graph, stored = read_graph(name, root, download=download, **options)
    if labels_file is not None:
        graph, stored = with_label_table(graph, labels_file, unknown), None
    if graph.y is None and is_table(name):
        raise InputError(no_label_column(f"graph {graph.name!r}", graph.feature_names))
    for what, value, words in (
        ("task", task, TASKS),
        ("split", split, (None, "public", "random", "share", "all", "time")),
        ("scale", scale, (None, "stored", *get_args(Normalisation))),
    ):
        if value not in words:
            known = ", ".join(filter(None, words))
            raise InputError(f"load_dataset: {what} must be one of {known}, got {value!r}")
    if task == "classes" and rare_class is not None:
        raise InputError(f"load_dataset: rare_class must be left out with task 'classes', got {rare_class!r}")
    published = is_named(name)
    one_class = positive_only and (graph.y is None or torch.unique(graph.y[graph.y >= 0]).numel() < 2)
    if not one_class and (task == "rare" or positive_only):
        graph = graph.rare(_choose_minority(graph, rare_class, stored))
    held_out = published or split in ("random", "share", "all") or label_rate is not None
    if not positive_only or (held_out and not one_class):
        graph = _choose_split(graph, split, label_rate, seed, published=published)
    if positive_only:
        graph = known_rare(graph, rare_class if one_class else None)
    else:
        check_trainable(graph)
    if scale is not None and scale != "stored":
        graph = dataclasses.replace(graph, feature_normalisation=scale, trusted=True)
    return graph


def read_graph(
    name: str | Path, root: str | Path | None = None, *, download: bool = False, **options: Any
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
    if is_named(name):
        _refuse(options, TABLE_OPTIONS, f"the data set {name}", "edge tables")
        _refuse(options, EDGE_OPTIONS, f"the data set {name}", "the user's own graphs")
        if name == "digits":
            return digits(), RARE_DIGIT
        found: tuple[Graph, int] = published_sets().read(str(name), root, fetch=download, progress=progress)
        return found
    loaded = _from_path(name, options)
    ignored = [word for word, given in (("root", root is not None), ("download", download)) if given]
    if ignored:
        raise InputError(
            f"load_dataset: {', '.join(ignored)} must be left out for a path, it is for data sets by name, got "
            f"{str(name)!r}"
        )
    return loaded


def _from_path(name: str | Path, options: dict[str, Any]) -> tuple[Graph, int | None]:
    """Returns the graph of a file or folder of the user's and the rare class stored in it."""
    path = Path(name)
    if is_table(name):
        return Graph.from_edges(name, options.pop("nodes", None), options.pop("label", None), **options), None
    rules = {name: options[name] for name in EDGE_OPTIONS if name in options}
    if path.is_dir() or path.suffix.lower() == ".npz":
        _refuse(options, TABLE_OPTIONS, "a graph's folder" if path.is_dir() else "an .npz file", "edge tables")
        return Graph.read(path, **rules)
    tables = unnamed_table(path)
    if tables:
        raise InputError(f"{path}: {tables}")
    catalogue = published_sets()
    names = "digits" if catalogue is None else f"one of {', '.join(catalogue.CATALOGUE)}"
    more = f" ({NO_CATALOGUE})" if catalogue is None and path.name == str(name) else ""
    raise InputError(
        f"load_dataset: name must be {names}, a folder, or a path that ends in .npz or {', '.join(TABLE_SUFFIXES)}, "
        f"got {str(path)!r}{more}"
    )


def _refuse(options: dict[str, Any], names: tuple[str, ...], kind: str, meant_for: str) -> None:
    """Checks that options which mean nothing to a kind of data set have their defaults."""
    given = [name for name in names if options.get(name) not in (None, False, "error", ()) and name != "need_label"]
    if given:
        raise InputError(f"load_dataset: {', '.join(given)} must be left out for {kind}, it is for {meant_for}")


def with_task(
    graph: Graph,
    task: Task = "rare",
    seed: int = 0,
    minority: int | str | None = None,
    split: str | None = None,
    label_rate: int | None = None,
) -> Graph:
    """Returns a graph as it is trained on: what `load_dataset` would choose, where nobody has.

    Of two classes in the order of their names, as those of a table, the smaller one is rare, where that is not the
    second already; in another order ("rest", "fraud") class 1 is, as `Graph` has it. A graph without a split gets one
    by the rules of `load_dataset`. What was chosen is a note of the graph.

    Args:
        graph: any; without labels it stays as it is.
        task: "rare" or "classes".
        seed: of the split.
        minority: the rare class, also where the classes were merged for another; None: that one, else chosen.
        split: how a graph without a split gets one, see `load_dataset`; None: as the labels suggest.
        label_rate: training nodes per class of a random split.

    Raises:
        InputError: there is no such class, or a split cannot be drawn.
    """
    said, y = list[str](), graph.y
    if y is None:
        return graph
    merged = task == "classes" or graph.original_y is not None
    if minority is not None:
        wanted = graph.rare(minority)
        graph = graph if merged and wanted.minority == graph.minority else wanted
    elif not merged and graph.n_classes == 2 and not _second_is_rare(graph.class_names):
        first, second = (int((y == k).sum()) for k in (0, 1))
        graph = graph.rare(graph.class_names[0]) if 0 < first < second else graph
        smaller = ", the smaller one" if first != second else ""
        said.append(f"{graph.class_names[1]!r} is taken for the rare class{smaller}: graph.rare(NAME) says so")
    elif not merged and graph.n_classes > 2:
        said.append(
            f"P(rare) is that of class 1 of {graph.n_classes}, {graph.class_names[1]!r}: graph.rare(NAME) takes "
            "another, task='classes' all of them"
        )
        graph = graph.rare(1)
    if graph.split is None:
        untimed = split is None and graph.time is None
        if untimed and label_rate is None and task == "rare" and _few_would_test(graph):
            split = "all"
        graph = _choose_split(graph, split, label_rate, seed, published=False)
        assert graph.split is not None
        sizes = (part.numel() for part in (graph.split.train, graph.split.val, graph.split.test))
        train, val, test = (f"{size:,}" for size in sizes)
        said.append(f"the graph has no split: {train} labels train, {val} validate, {test} test (graph.with_split)")
    return dataclasses.replace(graph, notes=(*graph.notes, *said), trusted=True) if said else graph


def _second_is_rare(names: tuple[str, ...]) -> bool:
    """Returns whether class 1 of two is rare whatever its size: of 0 and 1, or of names in an order of their own."""
    return names == ("0", "1") or (len(names) == 2 and names[0] > names[1])


def _choose_minority(graph: Graph, minority: int | str | None, stored: int | None) -> int | str:
    """Returns the rare class: the one wanted, the stored one, class 1 if its name says so, or the smaller of two."""
    if minority is not None:
        return minority
    if stored is not None:
        return graph.class_names[stored] if stored < graph.n_classes else stored
    if graph.y is None or graph.class_names == ("0", "1"):
        return 1
    check_labelled(graph)
    sizes = [int((graph.y == k).sum()) for k in range(graph.n_classes)]
    if _second_is_rare(graph.class_names):
        return graph.class_names[1]
    if len(sizes) == 2 and sizes[0] != sizes[1]:
        return graph.class_names[sizes.index(min(sizes))]
    if len(sizes) == 1:  # which `rare` refuses
        return graph.class_names[0]
    shown = ", ".join(
        f"{quoted(name)} ({size} nodes)" for name, size in zip(graph.class_names[:20], sizes, strict=False)
    )
    raise InputError(
        f"graph {graph.name!r}: the rare class must be named, the classes are {shown}: pass rare_class=CLASS (command "
        "line: --rare-class CLASS)"
    )


def _few_would_test(graph: Graph) -> bool:
    """Returns whether a quarter of the labels of class 1 are too few to test on."""
    return graph.y is not None and TEST_SHARE * int((graph.y == 1).sum()) < FEWEST_TESTED


def _choose_split(graph: Graph, split: str | None, label_rate: int | None, seed: int, *, published: bool) -> Graph:
    """Returns a graph with its stored split, enlarged to the label rate, or with one that is drawn."""
    check_labelled(graph)
    merged = graph.original_y is not None
    original, names = (graph.original_y, graph.original_class_names) if merged else (graph.y, graph.class_names)
    assert original is not None
    if split == "public" and graph.split is None:
        raise InputError(
            f"load_dataset: {graph.name} has no public split: take split='random' (command line: --split random)"
        )
    if split == "time" or (split is None and graph.split is None and label_rate is None and graph.time is not None):
        if graph.time is None:
            raise InputError(
                f"load_dataset: split='time' needs a time of each node, graph {graph.name!r} has none: name the "
                "column of the node table (command line: --time COLUMN), or set Graph.time"
            )
        return graph.with_split(Split.by_time(cast(Tensor, graph.y), graph.time))
    if split in ("share", "all") or (split is None and graph.split is None and label_rate is None and not published):
        if label_rate is not None:
            raise InputError("load_dataset: label_rate is for split='random' (command line: --split random)")
        every = split == "all" or (split is None and merged and _few_would_test(graph))
        return graph.with_split(Split.share(original, seed, test_share=0.0 if every else TEST_SHARE))
    if split == "random" or graph.split is None:
        rate = LABEL_RATE if label_rate is None else label_rate
        return graph.with_split(Split.random(original, rate, seed=seed, class_names=names))
    if label_rate is None:
        return graph
    if not published:
        raise InputError(
            f"load_dataset: label_rate is of a random split, and graph {graph.name!r} has one of its own: take "
            "split='random' (command line: --split random)"
        )
    larger: Split = published_sets().raise_label_rate(graph.split, original, label_rate, seed, class_names=names)
    return graph.with_split(larger)
