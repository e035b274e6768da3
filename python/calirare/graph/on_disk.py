"""A graph in a folder, of which blocks of rows are read one after the other: it need not fit into memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import ArrayFile, NumpyArray
from calirare._util.errors import InputError
from calirare.graph.columns import Column, columns_of_text
from calirare.graph.folder import array_files, facts_of, stored_matrix
from calirare.graph.graph import Graph
from calirare.graph.npz import as_scored, names_of
from calirare_ext import Csr


@dataclass(frozen=True, eq=False)
class GraphOnDisk:
    """A graph in the format of `calirare.graph.folder`, read by blocks of rows.

    Types and lengths are checked when it is opened, indices when they are read. That every edge stands there in both
    directions is taken as it is.

    Attributes:
        path: the folder.
        facts: what `graph.json` holds.
        files: its arrays, by name.
        columns: names and kinds of the features, or none.
    """

    path: Path
    facts: dict[str, Any]
    files: dict[str, ArrayFile]
    columns: tuple[Column, ...]

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Returns the graph in a folder.

        Raises:
            InputError: a file is missing or damaged, or of another type.
        """
        path = Path(path)
        facts = facts_of(path)
        files = array_files(path)
        return cls(path, facts, files, columns_of_text(facts.get("columns", "[]"), str(path)))

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.facts.get("name", self.path.name))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.files["indptr"].shape[0] - 1

    @property
    def scored(self) -> Tensor | None:
        """Which of them are scored, bool; None: all."""
        stored = self.files["scored"].rows(0, self.n_nodes) if "scored" in self.files else None
        return as_scored(stored, self.path)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.files["x"].shape[1] if "x" in self.files else int(self.facts.get("n_features", 0))

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return "weights" in self.files

    @property
    def loops(self) -> bool:
        """Whether edges may hold self loops: such as are kept on purpose, or of a folder that was not checked."""
        return self.facts.get("self_loops") == "keep" or not self.facts.get("checksums")

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, or none."""
        return names_of(self.facts, "feature_names", self.path)

    def edges(self, first: int, last: int) -> Csr:
        """Returns the rows [first, last) of the adjacency, [last - first, n], in memory.

        Raises:
            InputError: an index is out of range.
        """
        return self._rows("", first, last, self.n_nodes)

    def degrees(self, first: int, last: int) -> Tensor:
        """Returns the numbers of neighbours of the nodes [first, last), int64."""
        return torch.from_numpy(self.files["indptr"].rows(first, last + 1)).diff()

    def degrees_at(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the numbers of neighbours of some nodes (int64 [r], ascending), int64."""
        file = self.files["indptr"]
        return file.rows_at(nodes + 1) - file.rows_at(nodes)

    def features(self, first: int, last: int) -> Graph:
        """Returns the nodes [first, last) with their features as they are stored, and without an edge.

        They have their names where columns are of categories, which may count by the labels of named nodes.
        """
        named = self.named and any(column.kind == "categorical" for column in self.columns)
        sparse = "x" not in self.files
        x = (
            self._rows("x_", first, last, self.n_features)
            if sparse
            else self._single(self.files["x"].rows(first, last))
        )
        return self._alone(x, self.node_names(first, last) if named else None)

    def features_at(self, nodes: NumpyArray) -> Graph:
        """Returns some nodes (int64 [r], ascending) with their features, and without an edge."""
        if "x" in self.files:
            return self._alone(self._single(self.files["x"].rows_at(nodes)))
        parts = [self._rows("x_", int(node), int(node) + 1, self.n_features) for node in nodes]
        ends = torch.tensor([0, *(part.nnz for part in parts)]).cumsum(0)
        indices, values = (torch.cat([getattr(part, name) for part in parts]) for name in ("indices", "values"))
        return self._alone(Csr(ends, indices, values, self.n_features))

    @property
    def named(self) -> bool:
        """Whether nodes have names."""
        return "node_names" in self.files

    def node_names(self, first: int, last: int) -> NumpyArray:
        """Returns the names of the nodes [first, last), or their numbers."""
        return self.files["node_names"].rows(first, last) if self.named else np.arange(first, last)

    def _single(self, rows: NumpyArray) -> Tensor:
        return torch.from_numpy(rows).float()  # for float16 ten times as fast as numpy

    def _alone(self, x: Tensor | Csr, names: NumpyArray | None = None) -> Graph:
        normalisation = self.facts.get("feature_normalisation", "none")
        return Graph(
            Csr.zeros(x.shape[0]),
            x,
            feature_names=self.feature_names,
            columns=self.columns,
            feature_normalisation=normalisation,
            name=self.name,
            node_names=names,
            trusted=True,
        )

    def _rows(self, prefix: str, first: int, last: int, n_cols: int) -> Csr:
        """Returns rows of the adjacency (no prefix) or of sparse features."""
        indptr = self.files[f"{prefix}indptr"].rows(first, last + 1)
        begin, end = int(indptr[0]), int(indptr[-1])
        if not 0 <= begin <= end <= self.files[f"{prefix}indices"].shape[0]:
            raise InputError(f"{self.path}: {prefix}indptr must rise from 0 to the number of indices: write it again")
        part = {f"{prefix}indptr": indptr - begin}
        for name in (f"{prefix}indices", "x_data" if prefix else "weights"):
            if name in self.files:
                part[name] = self.files[name].rows(begin, end)
        return stored_matrix(part, prefix, n_cols, self.path)
