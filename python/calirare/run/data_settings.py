"""The settings of the data: which graph is trained on, how it is read, and tables of other labels."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import class_words
from calirare._util.errors import InputError
from calirare._util.text_tables import INERT
from calirare.datasets import TABLE_OPTIONS, Task, is_named, load_dataset
from calirare.explain import nodes_named
from calirare.features import How as Scale
from calirare.features import Impute
from calirare.graph import PARTS, Graph, Split, check_trainable, find_name, names_in_words
from calirare.graph.labelled import NO_PART, relabelled
from calirare.graph.spelling import as_option, words_of
from calirare.graph.tables import absolute_source, as_names, is_table, lost_digits, read_table
from calirare.graph.tables.files import times_of
from calirare.run.schema import check_words
from calirare.transactions import KnownAt, Transactions

# Settings of transactions only, and those that these share with other tables.
OF_TRANSACTIONS = (
    "entities",
    "amount",
    "known_at",
    "batch",
    "label_delay",
    "windows",
    "categories",
    "shared",
    "test_from",
)
ALSO_THEIRS = ("time", "label", "id", "rare_class", "unknown", "drop_columns")
# Which are no keywords of `load_dataset`.
OWN = ("dataset", "root", "relabel", "transactions", *OF_TRANSACTIONS)
TEST_SHARE = 0.2  # of the transactions with a label, the newest


@dataclass(frozen=True)
class Data:
    """Which graph is trained on, as `calirare.load_dataset` takes it.

    Attributes:
        transactions: table with one transaction per row, each of which is scored: CSV, Parquet, DuckDB table.
        dataset: name (see `calirare datasets`), .npz file, folder, or edge table (CSV, Parquet); none: digits on the
            command line, in Python the graph that is given.
        root: folder to look for named data sets in; none: `CALIRARE_DATA` and the user's cache.
        task: "rare" (one class against all others) or "classes" (every class of its own).
        positive_only: nodes known to be rare are the only labels. All others may be either, and labels of other classes
            count as unknown.
        rare_class: name or number of the rare class.
        label_rate: training labels per class; none: 20 in a random split, a stored one stays as it is.
        split: "public", "random" (`label_rate` labels per class), "share" (three quarters of the labels train, the
            others test), "all" (every label trains) or "time" (the oldest labels train, newer ones calibrate, the
            newest test); none: public if the file has one, else random for a named data set; for your own graph time
            if nodes have a time, else share, or all if fewer than ten rare nodes would test.
        nodes: node table that belongs to an edge table.
        label: column of the labels in the node table, or of the transactions; none: found by name.
        labels_file: table of labels with columns node (or id) and label. Its labels replace those of the data.
        weight: column of the weights in the edge table; none: a column called weight, if there is one.
        unweighted: edges have no weights: a column of the edge table called weight is not read.
        id: column of the names in the node table that the edge table refers to; none: node or id, else the
            one whose names the edges have.
        source_column: column of the edge table where an edge starts; none: source, src, from or u.
        target_column: column of the edge table where an edge ends; none: target, dst, to or v.
        relation: column of the edge table with the types of the edges, each a relation of its own.
        directed: also use the directions of the edges, in addition to the undirected graph.
        time: column of the edge table (when an edge came to be; a node is as old as its first edge), the node table
            (when a node did) or the transactions, numbers or dates; labels are then split by time.
        entities: columns of the parties of transactions, such as card,merchant; none: found by name and repetition.
        amount: column of the amounts of transactions; none: found by name. The word none: there are no amounts.
        known_at: "batch": a transaction is scored at the end of its batch and sees all rows up to there, or
            "transaction": at its time, and it sees strictly earlier rows.
        batch: length of a batch of transactions, such as 1d, or a number in units of numeric times; none: by the span.
        label_delay: how long after a transaction its label is known, such as 7d or a number; none: one batch.
        windows: lengths of time that columns of transactions look back, such as 1d,7d,30d; none: by the span.
        categories: columns of text with many values, whose past is followed as that of parties; none: those with more
            than 20. The word none: there are none.
        shared: two parties that name the same accounts, such as sender,receiver; none: found. The word none: no two do.
        test_from: transactions from this time on test, a date or a number; none: the last 20 %.
        as_of: edges after this time are left out; a date without a time means the end of that day.
        edge_columns: columns of the edge table, numbers or times, that become features of the nodes: of a number mean,
            sum, min and max over the edges of a node, of a time its first and last in days before the newest edge.
        relabel: table (CSV) of labels in the place of the data's own, with columns node, label (unknown: none) and
            split; as `calirare update` writes one.
        one_hot: columns of the node table that hold names of categories, though they look like numbers.
        drop_columns: columns of the node table that are not read, such as what is known only after the case.
        unknown: values of labels that mean no label, in addition to an empty cell and -1, such as unknown or 2.
        impute: what a missing number becomes: "median", "zero", or "error", which refuses it; a column that marks
            the missing cells is added.
        scale: of the features: "auto" (each column by what it holds), "rank" (to a normal distribution), "standardize",
            "row" (sums to 1), "tfidf", "svd", "none" or "stored" (as the graph says).
        duplicates: repeated edges: "error", "drop" or "sum"; none: of tables drop, of those with weights sum, else
            error.
        self_loops: self loops: "error", "drop" or "keep"; none: of tables drop, else error.
        unknown_ends: nodes of the edges that the node table does not have: "error", "drop", which leaves their edges
            out, or "add", which joins them as nodes without features that are not scored; none: error, but add where
            all ends of one column are so (devices, cards, merchants).
        target_nodes: only score nodes with this value of a column of the node table, such as kind=account; other nodes
            (devices, cards) are kept for their edges but are neither scored nor trained on; none: every node with a
            row.
        symmetrize: add the missing direction of every edge, as is done with tables in any case.
        download: fetch a named data set that is not there.
    """

    transactions: str | None = None
    dataset: str | None = None
    root: str | None = None
    task: Task = "rare"
    positive_only: bool = False
    rare_class: int | str | None = None
    label_rate: int | None = None
    split: str | None = None
    nodes: str | None = None
    label: str | None = None
    labels_file: str | None = None
    weight: str | None = None
    unweighted: bool = False
    id: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    relation: str | None = None
    directed: bool = False
    time: str | None = None
    entities: tuple[str, ...] = ()
    amount: str | None = None
    known_at: KnownAt = "batch"
    batch: str | None = None
    label_delay: str | None = None
    windows: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    test_from: str | None = None
    as_of: str | None = None
    edge_columns: tuple[str, ...] = ()
    relabel: str | None = None
    one_hot: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    impute: Impute = "median"
    scale: Scale = "auto"
    duplicates: str | None = None
    self_loops: str | None = None
    unknown_ends: str | None = None
    target_nodes: str | None = None
    symmetrize: bool = False
    download: bool = False

    def __post_init__(self) -> None:
        """Checks the task and the labels.

        Raises:
            InputError: one is unknown, or the task has no rare class and one is named.
        """
        object.__setattr__(self, "unknown", words_of(self.unknown))
        check_words(self)
        if self.task == "classes" and self.positive_only:
            raise InputError(
                "setting positive_only needs a rare class, and task classes has none: leave out one of them"
            )
        if self.task == "classes" and self.rare_class is not None:
            raise InputError(f"setting rare_class must be left out with task classes, got {self.rare_class!r}")
        self._check_transactions()

    def _check_transactions(self) -> None:
        """Checks that settings of transactions and of other data are not mixed."""
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        if self.transactions is None:
            return
        others = [name for name in given if name in ("dataset", *TABLE_OPTIONS) and name not in ALSO_THEIRS]
        others += [name for name in given if name in ("task", "positive_only", "label_rate", "labels_file")]
        others += ["split"] if self.split not in (None, "time") else []
        others = [name for name in others if name not in ("one_hot", "impute")]
        if others:
            raise InputError(
                f"setting {others[0]} must be left out with transactions, got {getattr(self, others[0])!r}: their "
                "split is by time (test_from), and each row is a node"
            )

    @property
    def source(self) -> str | None:
        """Where the data are: the table of transactions, else the data set; None: they are given in Python."""
        return self.dataset if self.transactions is None else self.transactions

    def options(self) -> dict[str, Any]:
        """Returns the settings that were given, without the data set and the root, as keywords."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in OWN}
        if self.dataset is None or not is_table(self.dataset):
            del values["one_hot"], values["impute"]  # which are for the features then, however they were stored
            if self.labels_file is None and self.relabel is not None:  # the values of that table alone
                del values["unknown"]
        return {
            name: value for name, value in values.items() if value is not None and value is not False and value != ()
        }

    def columns(self) -> dict[str, Any]:
        """Returns how tables are read, as keywords, without paths and times, which another month has of its own."""
        names = {f.name for f in dataclasses.fields(self)} & set(TABLE_OPTIONS) - {"nodes", "time", "as_of"}
        return {name: value for name in sorted(names) if (value := getattr(self, name)) not in (None, (), False)}

    def absolute(self) -> Self:
        """Returns the same with absolute paths: what they name does not hang on the working folder."""
        return dataclasses.replace(
            self,
            transactions=_absolute(self.transactions),
            dataset=self.dataset if is_named(self.dataset) else _absolute(self.dataset),
            root=_absolute(self.root),
            nodes=_absolute(self.nodes),
            labels_file=_absolute(self.labels_file),
            relabel=_absolute(self.relabel),
        )

    def moved(self, dataset: str, nodes: str | None) -> Self:
        """Returns the same of a data set that lies elsewhere now, without how a table is read where it is none now."""
        if self.transactions is not None:
            return dataclasses.replace(self, transactions=dataset)
        if is_table(dataset):
            return dataclasses.replace(self, dataset=dataset, nodes=nodes)
        fields: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(self) if f.name in TABLE_OPTIONS}
        return dataclasses.replace(self, dataset=dataset, **fields)

    def load(self, seed: int, kinds: Mapping[str, str] | None = None) -> Graph:
        """Returns the graph; see `load_dataset`. Without a data set an InputError.

        Args:
            seed: of the split.
            kinds: what a run knows the columns of a table to hold; None: there is no run yet.
        """
        if self.transactions is not None:
            return self.read_transactions()[0]
        if self.dataset is None:
            raise InputError("setting dataset must name the data to load, got none")
        options = self.options() | ({"kinds": kinds} if kinds and is_table(self.dataset) else {})
        return self.relabelled(load_dataset(self.dataset, self.root, seed=seed, **options))

    @property
    def unit(self) -> str:
        """What is scored: "transaction", or "node"."""
        return "transaction" if self.entities else "node"

    def transactions_of(self, source: Any, history: Any = None) -> Transactions:
        """Returns how a table of transactions is read with these settings.

        Args:
            source: as `calirare.Transactions` takes it.
            history: earlier transactions, likewise.
        """
        names = (*OF_TRANSACTIONS[:-1], *ALSO_THEIRS)
        return Transactions(source, history=history, **{name: getattr(self, name) for name in names})

    def read_transactions(self, table: Transactions | None = None) -> tuple[Graph, Self]:
        """Returns the graph of the transactions, split by time, and the settings with what was left open.

        Args:
            table: instead of the one that the settings name.
        """
        given = self.transactions_of(self.transactions) if table is None else table
        graph, found = given.read()
        assert graph.y is not None
        assert graph.time is not None
        start = None if self.test_from is None else time_of(self.test_from)
        split = Split.by_time(graph.y, graph.time, test_share=TEST_SHARE, test_from=start)
        graph = graph.rare(graph.class_names[1]).with_split(split)
        check_trainable(graph)
        path = str(given.source) if isinstance(given.source, str | Path) else None
        settings = dataclasses.replace(self, transactions=path, **found.chosen())
        return self.relabelled(graph), settings

    def relabelled(self, graph: Graph) -> Graph:
        """Returns a graph with the labels of the table in the place of its own; without a table as it is."""
        return graph if self.relabel is None else Labels.read(self.relabel, graph, self.unknown).of(graph)


def time_of(text: str) -> float:
    """Returns a number, or a date as days since the start of the year 2000."""
    found = float(times_of(pd.Series([text]))[0])
    if not math.isfinite(found):
        raise InputError(f"setting test_from must be a number or a date such as 2026-01-31, got {text!r}")
    return found


def _absolute(path: str | None) -> str | None:
    return None if path is None else absolute_source(path)


COLUMNS = ("node", "label", "split")
NODE, LABEL = ("node", "id"), ("label", "y", "class")
NO_LABEL = "unknown"  # unless a class is called so
UNKNOWN = ("", NO_LABEL, "-1")
SHOWN = 3


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of some nodes of a graph, in the place of those that it has.

    Attributes:
        nodes: distinct, int64 [b].
        y: 1 rare, 0 rest, or where no class is rare its number; -1 unknown, int64 [b].
        parts: number in `PARTS`, or `NO_PART` where it follows from the label, int64 [b].
        absent: values that were named as no label and that no row has.
    """

    nodes: Tensor
    y: Tensor
    parts: Tensor
    absent: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: str | Path, graph: Graph, unknown: Sequence[str] = (), data: Data | None = None) -> Self:
        """Reads a table with a column `node` (or id), `label` (or y, class) and, where wanted, `split`.

        Args:
            path: CSV, TSV or Parquet; of several such columns `label` counts. Labels are names of classes, before or
                after they were merged, 1 or 0 for the rare class and the rest, and -1, nothing or, unless a class of
                the task is called so, unknown where there is none; parts are train, val, test or nothing.
            graph: whose nodes they are.
            unknown: further labels that stand for none.
            data: whose names of both columns are known too.

        Raises:
            InputError: the file cannot be read, or a node, label or part is unknown or there twice.
        """
        table, own = read_rows(Path(path)), ("", "") if data is None else (data.id or "", data.label or "")
        columns = zip((NODE, LABEL), own, strict=True)
        node, label = (_column(table, (*names, name.lower()), Path(path)) for names, name in columns)
        parts = cells_of(table["split"]) if "split" in table else [""] * len(table)
        nodes = _nodes(table[node], graph, Path(path))
        y, absent = _classes(cells_of(table[label]), graph, Path(path), unknown)
        return cls(
            nodes,
            torch.tensor(y, dtype=torch.int64),
            torch.tensor(_parts(parts, Path(path)), dtype=torch.int64),
            absent,
        )

    @classmethod
    def forgotten(cls, path: str | Path, graph: Graph) -> Self:
        """Reads a table of nodes (column `node` or id) whose labels are to be forgotten.

        Raises:
            InputError: the file cannot be read, or a node is unknown, there twice or without a label.
        """
        table = read_rows(Path(path))
        nodes = _nodes(table[_column(table, NODE, Path(path))], graph, Path(path))
        assert graph.y is not None
        never = [graph.node_name(node) for node in nodes[graph.y.cpu()[nodes] < 0].tolist()]
        if never:
            raise InputError(
                f"{path}: only labels can be forgotten, but {names_in_words(never, SHOWN)} has none: remove the row"
            )
        return cls(nodes, torch.full_like(nodes, -1), torch.full_like(nodes, NO_PART))

    def of(self, graph: Graph) -> Graph:
        """Returns the graph with these labels."""
        return relabelled(graph, self.nodes, self.y, self.parts)

    def over(self, earlier: Labels) -> Labels:
        """Returns these and, of other nodes, those of an earlier table."""
        kept = ~torch.isin(earlier.nodes, self.nodes)
        pairs = ((earlier.nodes, self.nodes), (earlier.y, self.y), (earlier.parts, self.parts))
        nodes, y, parts = (torch.cat([old[kept], new]) for old, new in pairs)
        return Labels(nodes, y, parts)

    def to_frame(self, graph: Graph) -> pd.DataFrame:
        """Returns the table that `read` reads."""
        names = [*graph.class_names, "" if NO_LABEL in graph.class_names else NO_LABEL]
        return pd.DataFrame(
            {
                "node": [graph.node_name(node) for node in self.nodes.tolist()],
                "label": [names[label] for label in self.y.tolist()],
                "split": ["" if part == NO_PART else PARTS[part] for part in self.parts.tolist()],
            }
        )


def read_rows(path: Path) -> pd.DataFrame:
    """Returns a table about nodes as text, or as Parquet has it.

    Raises:
        InputError: it cannot be read, or is empty.
    """
    table: pd.DataFrame = read_table(path).cells
    if table.empty:
        raise InputError(f"{path}: there must be a row for each node, got none")
    return table


def cells_of(column: Any) -> list[str]:
    """Returns the cells of a column as words, empty where there is none."""
    return list(column.astype(object).where(column.notna(), "").astype(str).str.strip())


def _column(table: pd.DataFrame, names: tuple[str, ...], path: Path) -> str:
    found = [name for name in table.columns if str(name).strip().lower() in names]
    first = [name for name in found if str(name).strip().lower() == names[0]]  # beside what a queue says of itself
    found = first or found
    if len(found) != 1:
        there = names_in_words([str(name) for name in table.columns], 10)
        called = " or ".join(filter(None, dict.fromkeys(names)))
        raise InputError(f"{path}: one column must be called {called}, got {there}")
    return str(found[0])


def _nodes(column: Any, graph: Graph, path: Path) -> Tensor:
    """Returns the nodes; what stands in front of a formula in tables that we wrote is taken off."""
    lost = lost_digits(column, path)
    if lost:
        raise InputError(lost[0])
    names = cells_of(as_names(column))
    if graph.node_names is not None:
        known = set(map(str, graph.node_names))
        names = [name if name in known else re.sub(INERT, r"\1", name) for name in names]
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: every node must stand in one row, got {name!r} twice: remove one of them")
        seen.add(name)
    return nodes_named(graph, names, str(path)).cpu()


def _classes(words: list[str], graph: Graph, path: Path, unknown: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """Returns labels as classes of the graph, -1 for none, and the values of `unknown` that no label is."""
    numbers = {"0": 0, "1": 1, "rest": 0} if graph.n_classes == 2 else {}
    known = numbers | {name: int(k == graph.minority) for k, name in enumerate(graph.original_class_names)}
    named_so = {name: k for k, name in enumerate(graph.class_names) if name == NO_LABEL}  # a class of the data's own
    known |= {name: k for k, name in enumerate(graph.class_names)} | dict.fromkeys(UNKNOWN, -1) | named_so
    known |= dict.fromkeys(unknown, -1)
    also = {class_words(name): k for k, name in enumerate(graph.class_names)}  # as pages call them
    also |= {"no": 0, "yes": 1} if graph.class_names[1:] == ("1",) else {}  # as a table of which 0 and 1 were made may
    known |= {word: k for word, k in also.items() if find_name(word, list(known)) is None}
    names = list(known)
    place_of = {word: find_name(word, names) for word in dict.fromkeys(words)}
    wrong = next((row for row, word in enumerate(words) if place_of[word] is None), None)
    if wrong is not None:
        classes = names_in_words(list(dict.fromkeys((*graph.class_names, *graph.original_class_names))), 10)
        none = "nothing" if named_so else NO_LABEL
        raise InputError(
            f"{path}: a label must be one of {classes} or {none}, got {words[wrong]!r} in row {wrong + 1}: "
            f"write its class. {as_option([words[wrong]])} makes it no label, also where it means a class"
        )
    values, met = list(known.values()), set(place_of.values())
    return [values[place_of[word] or 0] for word in words], tuple(v for v in unknown if names.index(v) not in met)


def _parts(words: list[str], path: Path) -> list[int]:
    wrong = next((row for row, word in enumerate(words) if word not in ("", *PARTS)), None)
    if wrong is not None:
        raise InputError(f"{path}: split must be train, val, test or nothing, got {words[wrong]!r} in row {wrong + 1}")
    return [PARTS.index(word) if word else NO_PART for word in words]
