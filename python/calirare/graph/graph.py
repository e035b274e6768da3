"""The graph every part of CaliRare works on: adjacency, features, labels and split, validated once when it is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import torch
from torch import Tensor

from calirare._util.amounts import amount, of_two_classes
from calirare._util.array_files import NumpyArray
from calirare._util.device import usable
from calirare._util.errors import InputError, check_one_of
from calirare.graph.columns import Column, check_columns, columns_for, names_of_features, unmapped
from calirare.graph.convert import as_data, parts_of_arrays, parts_of_data
from calirare.graph.folder import read_folder, write_folder
from calirare.graph.hetero import is_hetero, parts_of_hetero
from calirare.graph.npz import read_npz, write_npz
from calirare.graph.options import EdgeRules
from calirare.graph.relations import Relation, check_relations
from calirare.graph.splits import PARTS, Split
from calirare.graph.tables.reading import TableColumns, TableOptions, read_tables
from calirare.graph.tables.sources import TableInMemory
from calirare.graph.validation import (
    check_adjacency,
    check_class_beside_others,
    check_features,
    check_labels,
    check_names,
    check_per_node,
    check_scored,
    check_split,
    check_times,
    find_class,
    name_of_rest,
)
from calirare_ext import Csr

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

Normalisation = Literal["none", "row", "standardize", "rank", "auto", "tfidf", "svd"]


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph with features on its nodes and, mostly, labels and a split.

    Everything is checked once, when the graph is built; what works on a graph trusts it. Changing a tensor of a graph
    in place voids that.

    Attributes:
        adjacency: [n, n], float32 weights > 0, symmetric in structure and weights, no repeated edge; a self loop is
            there only where it was asked for.
        x: features, float32 [n, d], dense or sparse, finite; where `columns` are given NaN stands for a missing value.
        y: labels of the task, int64 [n], 0 to k - 1, -1 for unknown; in a rare-class task 1 is the rare class and 0
            the rest. None where nothing is labelled.
        original_y: labels before the classes were merged into rare class and rest, or None.
        split: which nodes train, validate and test, or None.
        class_names: names of the task's classes, no two alike.
        original_class_names: names of the classes before merging, no two alike.
        minority: the original class that became class 1, or None.
        name: what the graph is called.
        feature_normalisation: how the features want to be mapped before they are used ("none" once they are): a word
            of `calirare.features.FeatureMap`.
        posterior: P(y = 1 | v), float64 [n], where it is known because the graph was simulated; not stored.
        node_names: the user's names of the nodes, str [n], no two alike, or None where nodes are numbers.
        feature_names: the user's names of the features, d of them, no two alike, or none where features are numbers.
        columns: what each raw column of `x` holds, d of them, or none where all are numbers without gaps (NaN).
        scored: which nodes are scored, bool [n]; the others (devices, merchants, accounts at other banks) carry
            edges alone and have no label. None: every node.
        time: when each node came to be, float64 [n], in any unit (dates of tables: days since 2000), NaN where it is
            not known, which no labelled node may be; None: of no node.
        relations: the edges by type and direction, or none where nothing is known of either.
        notes: what was done to tables that nobody asked for, a sentence each; not stored.
        keys: what tables of results say of each node next to its name, n values by column, such as time, parties and
            amount of a transaction; not stored.
        tables: columns of the tables it was read from, none of another kind of data; not stored.
        where: where the graph came from, put in front of a message instead of the name; not stored.
        trusted: leaves out the checks of adjacency and features, for a graph made of a checked one; not stored.

    Raises:
        TypeError: a tensor has a wrong dtype.
        InputError: anything above does not hold.

    Example:
        >>> import torch
        >>> from calirare_ext import Csr
        >>> a = Csr.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), None, (2, 2))
        >>> Graph(a, torch.ones(2, 3), torch.tensor([0, 1]))
        Graph('graph': 2 nodes, 2 directed edges, 3 features, 2 classes ('0' 50.00 %, '1' 50.00 %))
    """

    adjacency: Csr
    x: Tensor | Csr
    y: Tensor | None = None
    original_y: Tensor | None = None
    split: Split | None = None
    class_names: tuple[str, ...] = ()
    original_class_names: tuple[str, ...] = ()
    minority: int | None = None
    name: str = "graph"
    feature_normalisation: Normalisation = "none"
    posterior: Tensor | None = None
    node_names: NumpyArray | None = None
    feature_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    scored: Tensor | None = None
    time: Tensor | None = None
    relations: tuple[Relation, ...] = ()
    notes: tuple[str, ...] = ()
    keys: Mapping[str, Any] | None = None
    tables: TableColumns | None = None
    where: InitVar[str] = ""
    trusted: InitVar[bool] = False

    def __post_init__(self, where: str, trusted: bool) -> None:
        """Checks everything and names the classes that have no name."""
        where = where or f"graph {self.name!r}"
        if not isinstance(self.adjacency, Csr):
            raise TypeError(
                f"{where}: adjacency must be a calirare_ext.Csr, got {type(self.adjacency).__name__}: take "
                "Graph.from_edges(adjacency, features, labels), which reads sparse matrices of SciPy and torch"
            )
        n = self.n_nodes
        if not trusted:
            check_adjacency(self.adjacency, where, self.node_name)
            gaps = check_features(self.x, n, where, self.feature_names, self.node_name)
            columns = columns_for(self.columns, self.feature_names, self.x, gaps)
            object.__setattr__(self, "columns", columns)
            check_columns(self.columns, self.x, where)
            check_relations(self.relations, n, where)
        feature_names = names_of_features(self.columns, self.feature_names, self.n_features, where)
        object.__setattr__(self, "feature_names", feature_names)
        for labels, names in (("y", "class_names"), ("original_y", "original_class_names")):
            y, given = getattr(self, labels), getattr(self, names)
            if y is None:
                continue
            check_names(given, "class names", where)
            check_labels(y, n, len(given), "labels", where)
            if not given:
                object.__setattr__(self, names, tuple(str(k) for k in range(int(y.max()) + 1)))
        if self.split is not None:
            check_split(self.split, self.y, n, where)
        check_scored(self.scored, self.y, n, where, self.node_name)
        check_one_of(where, "feature_normalisation", self.feature_normalisation, get_args(Normalisation))
        for field in ("posterior", "node_names", "time"):
            check_per_node(getattr(self, field), n, field, where)
        check_times(self.time, self.y, where, self.node_name)
        if not trusted:
            check_names(self.feature_names, "feature_names", where)
            check_names(() if self.node_names is None else self.node_names, "node_names", where)

    def __repr__(self) -> str:
        some = "" if self.scored is None else f" ({int(self.scored.sum()):,} scored)"
        parts = [amount(self.n_nodes, "node") + some]
        parts += [amount(self.n_edges, "directed edge"), amount(self.n_features, "feature")]
        parts += [amount(self.n_classes, "class", "classes")] if self.y is not None else []
        if self.minority_share is not None:
            parts[-1] += of_two_classes(self.class_names, self.minority_share, rare=self.original_y is not None)
        if self.split is not None:
            parts.append(f"split {self.split.name} {'/'.join(str(getattr(self.split, p).numel()) for p in PARTS)}")
        return f"Graph({self.name!r}: {', '.join(parts)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Returns the graph itself, as it never changes: scikit-learn copies an estimator's graph for every fit."""
        return self

    @property
    def unit(self) -> str:
        """What a node is: "transaction" where it is a row of a table of transactions, else "node"."""
        return "transaction" if self.keys else "node"

    @property
    def n_nodes(self) -> int:
        """Number of nodes n."""
        return self.adjacency.n_rows

    @property
    def n_edges(self) -> int:
        """Number of directed edges: an edge between two nodes counts twice, a self loop once."""
        return self.adjacency.nnz

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.x.shape[1]

    @property
    def n_classes(self) -> int:
        """Number of classes k of the task, 0 without labels."""
        return len(self.class_names) if self.y is not None else 0

    @property
    def minority_share(self) -> float | None:
        """Share of class 1 among the labelled nodes; None unless there are two classes."""
        if self.y is None or self.n_classes != 2:
            return None
        return int((self.y == 1).sum()) / max(int((self.y >= 0).sum()), 1)

    @property
    def scored_nodes(self) -> Tensor:
        """The scored nodes, int64, ascending."""
        if self.scored is None:
            return torch.arange(self.n_nodes, device=self.device)
        return self.scored.nonzero().flatten()

    @property
    def unlabelled(self) -> Tensor:
        """The scored nodes without a label, int64, ascending."""
        nodes = self.scored_nodes
        return nodes if self.y is None else nodes[self.y[nodes] < 0]

    @property
    def device(self) -> torch.device:
        """Device of every tensor."""
        return self.adjacency.device

    def node_name(self, node: int) -> str:
        """Returns what the user calls a node; its number where nodes have no names."""
        named = self.node_names is not None and node < len(self.node_names)
        return str(self.node_names[node]) if named and self.node_names is not None else str(node)

    def check_mapped(self, who: str) -> None:
        """Checks that the features are finite numbers, which raw columns need not be; `who` asks.

        Raises:
            InputError: columns hold categories or dates, or lack values.
        """
        fault = unmapped(self.columns, self.x, self.node_name) if isinstance(self.x, Tensor) and self.columns else ""
        if fault:
            raise InputError(
                f"{who}: the features of graph {self.name!r} must be finite numbers, but {fault}: map them with "
                "calirare.features.FeatureMap.fit(graph).transform(graph), or encode and fill them in the table"
            )

    def rare(self, minority: int | str) -> Self:
        """Returns the graph with its classes merged: 1 for the rare class, 0 for the rest, -1 stays unknown.

        Args:
            minority: number or name of the rare class among the classes before merging.

        Raises:
            InputError: there are no labels, no such class, or no node inside or outside of it.
        """
        original = self.y if self.original_y is None else self.original_y
        names = self.class_names if self.original_y is None else self.original_class_names
        if original is None or not names:
            raise InputError(f"graph {self.name!r}: a rare class needs labels, but there are none")
        k = find_class(minority, names, self.name)
        check_class_beside_others(original, k, names, self.name)
        y = torch.where(original < 0, original, (original == k).long())
        posterior = self.posterior
        if posterior is not None and k != (1 if self.minority is None else self.minority):
            posterior = 1 - posterior if len(names) == 2 else None  # of one of several classes it is not known
        if self.original_y is not None and k == self.minority and self.y is not None:
            y = self.y  # which may know more: that a node is of the rest, but not of which class
        return dataclasses.replace(
            self,
            y=y,
            original_y=original,
            class_names=(name_of_rest(names, k), names[k]),
            original_class_names=names,
            minority=k,
            posterior=posterior,
            trusted=True,
        )

    def with_split(self, split: Split | None) -> Self:
        """Returns the graph with another split."""
        return dataclasses.replace(self, split=split, trusted=True)

    def to(self, device: torch.device | str) -> Self:
        """Returns the graph with its tensors on `device`; a GPU that cannot be used is an InputError."""
        device = usable(device)
        moved: dict[str, Any] = {
            name: None if (value := getattr(self, name)) is None else value.to(device)
            for name in ("adjacency", "x", "y", "original_y", "split", "posterior", "scored", "time")
        }
        moved["relations"] = tuple(relation.to(device) for relation in self.relations)
        return dataclasses.replace(self, **moved, trusted=True)

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        features: Any,
        labels: Any = None,
        *,
        weight: Any = None,
        name: str | None = None,
        where: str = "",
        **options: Any,
    ) -> Graph:
        """Returns the graph of an edge list, from arrays or from files.

        Args:
            edges: integer [m, 2], one directed edge per row; or a table in files (see `calirare.graph.tables`); or an
                adjacency [n, n] as a sparse matrix of SciPy or torch or a `SparseTensor` of torch_sparse, whose values
                are the weights where `weight` gives none.
            features: real [n, d], dense or sparse (`Csr`, scipy), or the path of a CSV or Parquet file. None: of files
                the one next to the edges whose name has "nodes" in place of "edges"; of arrays none, and as with
                d = 0 the number of neighbours is the feature.
            labels: integer [n] with -1 for unknown, names of classes [n], or the name of a column of the feature file.
            weight: real [m], > 0, or the name of a column of the edge file; None for ones.
            name: what the graph is called; None for the name of the file.
            where: put in front of a message instead of the name.
            **options: `symmetrize`, `duplicates` and `self_loops`, see `calirare.graph.EdgeRules`; of files also `id`,
                `source_column`, `one_hot`, `impute` and more, see `calirare.graph.options.TableOptions`.

        Raises:
            InputError: anything does not fit.
        """
        rules, of_files = EdgeRules.split(options)
        if isinstance(edges, (str, Path, TableInMemory)):
            parts = read_tables(edges, features, rules, TableOptions(labels, weight, **of_files))
            return cls(**parts | ({} if name is None else {"name": name}))
        name = name or "graph"
        where = where or f"graph {name!r}"
        if of_files:
            raise InputError(f"{where}: {', '.join(of_files)} must be left out for arrays, they are for tables")
        parts = parts_of_arrays(edges, features, labels, weight=weight, rules=rules, where=where)
        return cls(**parts, name=name, where=where)

    @classmethod
    def from_tables(cls, edges: Any, nodes: Any, labels: str | None = None, **options: Any) -> Graph:
        """Returns the graph of two tables in memory, by the rules for files; see `TableInMemory.of`, `from_edges`."""
        tables = TableInMemory.of("edges", edges), TableInMemory.of("nodes", nodes)
        return cls.from_edges(*tables, labels, **options)

    @classmethod
    def read(cls, path: str | Path, **edge_options: Any) -> tuple[Graph, int | None]:
        """Returns the graph in an `.npz` file or a folder with its classes as stored.

        Args:
            path: the file, see `calirare.graph.npz`, or the folder, see `calirare.graph.folder`.
            **edge_options: `symmetrize`, `duplicates` and `self_loops`, see `calirare.graph.EdgeRules`.

        Returns:
            The graph, and the number of the rare class stored with it or None.

        Raises:
            InputError: the file or the graph in it cannot be used.
        """
        path = Path(path)
        parts, minority = (read_folder if path.is_dir() else read_npz)(path, EdgeRules(**edge_options))
        return cls(**parts), minority

    def to_npz(self, path: str | Path) -> None:
        """Writes the graph to an `.npz` file that `read` reads; see `calirare.graph.npz.write_npz`."""
        write_npz(vars(self), Path(path))

    def to_folder(self, path: str | Path) -> None:
        """Writes the graph as a folder that `read` and `load_dataset` map; see `calirare.graph.folder.write_folder`."""
        write_folder(vars(self), Path(path))

    @classmethod
    def from_data(cls, data: Data | HeteroData, *, name: str = "data", **options: Any) -> Graph:
        """Returns the graph of a PyTorch Geometric `Data` or `HeteroData`; see `parts_of_data`, `parts_of_hetero`."""
        return cls(**(parts_of_hetero if is_hetero(data) else parts_of_data)(data, name=name, **options))

    def to_data(self) -> Data:
        """Returns a PyTorch Geometric `Data`: `edge_index`, dense `x`, `edge_weight` but 1, `y`, `original_y`, masks.

        Raises:
            InputError: columns of `x` are not mapped to numbers yet.
        """
        self.check_mapped("to_data")
        return as_data(vars(self))
