"""A graph in a folder, of which blocks of rows are read one after the other: it need not fit into memory.

A folder may hold a part of a graph, the rows [first, first + r) of n: its `indptr` begins at 0, its `indices` are nodes
of the whole graph, and `graph.json` says `"part": [first, n]`. `content` there tells parts of one graph from those of
another, and `checksums` are looked at while a part is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import ArrayFile, NumpyArray, SummedFile
from calirare._util.errors import InputError
from calirare._util.store import key_of
from calirare.graph.columns import Column, columns_of_text
from calirare.graph.folder import ARRAYS, FACTS, checksums_of, facts_of, names_of, new_folder
from calirare.graph.graph import Graph
from calirare.graph.npz import as_scored
from calirare.graph.packed import SCALES, check_scales, unpacked
from calirare_ext import Csr

BLOCK = 1 << 20  # rows of an array that are copied together
SOME = 64  # rows of an array that tell one graph from another
DENSE = ("float32", "float16", "int8")  # types that dense features may be stored in


@dataclass(frozen=True, eq=False)
class GraphOnDisk:
    """A graph in the format of `calirare.graph.folder`, read by blocks of rows.

    Types and lengths are checked when it is opened, indices when they are read. That every edge stands there in both
    directions is taken as it is.

    Attributes:
        path: the folder.
        facts: what `graph.json` says.
        files: its arrays, by name.
        columns: names and kinds of the features, or none.
        rows: which rows of the files are meant; nodes are counted from the first of them.
    """

    path: Path
    facts: dict[str, Any]
    files: dict[str, ArrayFile]
    columns: tuple[Column, ...]
    rows: tuple[int, int]

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Returns the graph in a folder.

        Raises:
            InputError: a file is missing or damaged, or of another type.
        """
        path = Path(path)
        facts = facts_of(path)
        files = {file.stem: ArrayFile.open(file) for file in sorted(path.glob("*.npy"))}
        sums = facts.get("checksums") if "part" in facts else None
        if isinstance(sums, dict):  # of a whole graph they tell whether it was checked: it may have been changed since
            files |= {name: SummedFile.of(files[name], crc) for name, crc in sums.items() if name in files}
        sparse = "x" not in files
        x = {"x_indptr": ("int64",), "x_indices": ("int32",), "x_data": ("float32",)} if sparse else {"x": DENSE}
        for name, types in ({"indptr": ("int64",), "indices": ("int32",)} | x).items():
            if name not in files:
                raise InputError(f"{path}: {name}.npy is missing: the folder is incomplete, write it again")
            _check_kind(files[name], types, 2 if name == "x" else 1)
        columns = columns_of_text(facts.get("columns", "[]"), str(path))
        self = cls(path, facts, files, columns, (0, files["indptr"].shape[0] - 1))
        self._check_lengths()
        if not sparse:
            _ = self._scales
        return self

    def part(self, number: int, of: int) -> Self:
        """Returns a part of the nodes, contiguous: the same graph with fewer rows."""
        first, last = self.rows
        ends = [first + (last - first) * i // of for i in (number, number + 1)]
        return replace(self, rows=(ends[0], ends[1]))

    def write(self, path: str | Path) -> None:
        """Writes the rows that are meant as a folder of their own, a block at a time.

        Raises:
            InputError: the folder is there or cannot be written.
        """
        facts = {k: v for k, v in self.facts.items() if k not in ("checksums", "split_name")}
        facts |= {"part": [self.first, self.n_total], "self_loops": "keep" if self.loops else "drop"}
        facts |= {"whole": self.whole, "content": self.content}
        with new_folder(Path(path), facts) as folder:
            for name in ARRAYS:
                if name in self.files and name in SCALES:
                    np.save(folder / f"{name}.npy", self.files[name].rows(0, self.files[name].shape[0]))
                elif name in self.files:
                    self._write(name, folder / f"{name}.npy")
            facts["checksums"] = checksums_of(folder)

    def _write(self, name: str, path: Path) -> None:
        """Writes the rows of an array that are meant, indptr from 0 on."""
        file, (first, last) = self.files[name], self.rows
        own = {"indices": "indptr", "weights": "indptr", "x_indices": "x_indptr", "x_data": "x_indptr"}.get(name)
        if own is not None:
            first, last = (int(self.files[own].rows(row, row + 1)[0]) for row in (first, last))
        ends = name.endswith("indptr")
        begin = int(file.rows(first, first + 1)[0]) if ends else 0
        out = np.lib.format.open_memmap(path, mode="w+", dtype=file.dtype, shape=(last - first + ends, *file.shape[1:]))
        for at in range(first, last + ends, BLOCK):
            part = file.rows(at, min(at + BLOCK, last + ends))
            out[at - first : at - first + len(part)] = part - begin if ends else part
        out.flush()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.facts.get("name", self.path.name))

    @property
    def n_nodes(self) -> int:
        """The number of rows that are meant."""
        return self.rows[1] - self.rows[0]

    @property
    def scored(self) -> Tensor | None:
        """Which of them P(rare) is told of, bool; None: all."""
        stored = self.files["scored"].rows(*self.rows) if "scored" in self.files else None
        return as_scored(stored, self.path)

    @property
    def whole(self) -> str:
        """A checksum of what is known of the whole graph's files; of a part of those that it was cut from."""
        if "whole" in self.facts:
            return str(self.facts["whole"])
        files = self.files.values()
        told = tuple((file.path.name, file.shape, str(file.dtype), file.path.stat().st_mtime_ns) for file in files)
        return key_of(told, str(sorted(self.facts.items())))

    @property
    def content(self) -> str:
        """A checksum of what the whole graph holds: copies of it have the same, and so have parts cut from them.

        It is made of what is known of the files and of some rows of each.
        """
        for key in ("content", "whole"):  # the second of parts that an earlier release has cut
            if key in self.facts:
                return str(self.facts[key])
        files = [(name, self.files[name]) for name in ARRAYS if name in self.files]
        some = tuple((name, file.shape, str(file.dtype), _some(file).tobytes()) for name, file in files)
        return key_of(some, str(sorted(self.facts.items())))

    @property
    def first(self) -> int:
        """The number that the first of them has in the whole graph."""
        return self.rows[0] + (self.facts["part"][0] if "part" in self.facts else 0)

    @property
    def n_total(self) -> int:
        """Number of nodes of the whole graph, which edges lead to."""
        return int(self.facts["part"][1]) if "part" in self.facts else self.files["indptr"].shape[0] - 1

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
        if "part" in self.facts:
            return self.facts.get("self_loops") != "drop"
        return self.facts.get("self_loops") == "keep" or not self.facts.get("checksums")

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, or none."""
        return names_of(self.facts, "feature_names", self.path)

    def edges(self, first: int, last: int) -> Csr:
        """Returns the rows [first, last) of the adjacency, [last - first, n_total], in memory.

        Raises:
            InputError: an index is out of range.
        """
        return self._rows("", first, last, self.n_total)

    def degrees(self, first: int, last: int) -> Tensor:
        """Returns the numbers of neighbours of the nodes [first, last), int64."""
        start = self.rows[0]
        return torch.from_numpy(self.files["indptr"].rows(start + first, start + last + 1)).diff()

    def degrees_at(self, nodes: NumpyArray) -> NumpyArray:
        """Returns the numbers of neighbours of some nodes (int64 [r], ascending), int64."""
        file, nodes = self.files["indptr"], nodes + self.rows[0]
        return file.rows_at(nodes + 1) - file.rows_at(nodes)

    def features(self, first: int, last: int) -> Graph:
        """Returns the nodes [first, last) with their features as they are stored, and without an edge.

        They have their names where columns are of categories, which may count by the labels of named nodes.
        """
        named = self.named and any(column.kind == "categorical" for column in self.columns)
        return self._alone(self._features(first, last), self.node_names(first, last) if named else None)

    def features_at(self, nodes: NumpyArray) -> Graph:
        """Returns some nodes (int64 [r], ascending) with their features, and without an edge."""
        if "x" in self.files:
            return self._alone(self._unpacked(self.files["x"].rows_at(nodes + self.rows[0])))
        parts = [self._rows("x_", int(node), int(node) + 1, self.n_features) for node in nodes]
        ends = torch.tensor([0, *(part.nnz for part in parts)]).cumsum(0)
        indices, values = (torch.cat([getattr(part, name) for part in parts]) for name in ("indices", "values"))
        return self._alone(Csr(ends, indices, values, self.n_features))

    @property
    def named(self) -> bool:
        """Whether nodes have names."""
        return "node_names" in self.files

    def node_names(self, first: int, last: int) -> NumpyArray:
        """Returns the names of the nodes [first, last), or their numbers in the whole graph."""
        if not self.named:
            return np.arange(self.first + first, self.first + last)
        return self.files["node_names"].rows(self.rows[0] + first, self.rows[0] + last)

    def _features(self, first: int, last: int) -> Tensor | Csr:
        if "x" not in self.files:
            return self._rows("x_", first, last, self.n_features)
        return self._unpacked(self.files["x"].rows(self.rows[0] + first, self.rows[0] + last))

    def _unpacked(self, rows: NumpyArray) -> Tensor:
        if rows.dtype == np.float16:
            return torch.from_numpy(rows).float()  # ten times as fast as numpy
        return torch.from_numpy(unpacked(rows, *self._scales))

    @cached_property
    def _scales(self) -> tuple[NumpyArray | None, NumpyArray | None]:
        if self.files["x"].dtype != np.int8:
            return None, None
        for name in SCALES:
            if name not in self.files:
                raise InputError(f"{self.path}: {name}.npy is missing beside features in int8: write the folder again")
        scale, shift = (self.files[name].rows(0, self.files[name].shape[0]) for name in SCALES)
        check_scales(scale, shift, self.n_features, str(self.path))
        return scale, shift

    def _alone(self, x: Tensor | Csr, names: NumpyArray | None = None) -> Graph:
        n = x.shape[0]
        no_edge = Csr(torch.zeros(n + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), n)
        normalisation = self.facts.get("feature_normalisation", "none")
        return Graph(
            no_edge,
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
        start = self.rows[0]
        indptr = torch.from_numpy(self.files[f"{prefix}indptr"].rows(start + first, start + last + 1))
        begin, end = int(indptr[0]), int(indptr[-1])
        if not 0 <= begin <= end <= self.files[f"{prefix}indices"].shape[0]:
            raise InputError(f"{self.path}: {prefix}indptr must rise from 0 to the number of indices: write it again")
        values = "x_data" if prefix else "weights"
        if values in self.files:
            numbers = torch.from_numpy(self.files[values].rows(begin, end))
        else:
            numbers = torch.ones(end - begin)
        indices = torch.from_numpy(self.files[f"{prefix}indices"].rows(begin, end))
        try:
            return Csr(indptr - begin, indices, numbers, n_cols)
        except ValueError as error:
            raise InputError(f"{self.path}: {prefix}indices cannot be used ({error}): write it again") from error

    def _check_lengths(self) -> None:
        part = self.facts.get("part", [0, self.n_nodes])
        whole = isinstance(part, list) and len(part) == 2 and all(type(i) is int for i in part)
        if not whole or not 0 <= part[0] <= part[0] + self.n_nodes <= part[1]:
            raise InputError(
                f"{self.path}: part in {FACTS} must be the first node and how many there are in all, got {part}"
            )
        for name in ("x", "x_indptr", "node_names", "scored"):
            if name in self.files and self.files[name].shape[0] != self.n_nodes + (name == "x_indptr"):
                raise InputError(f"{self.path}: {name} must have one row per node, {self.n_nodes}: write it again")
        for name, of in (("weights", "indices"), ("x_data", "x_indices")):
            if name in self.files:
                _check_kind(self.files[name], ("float32",), 1)
                if self.files[name].shape != self.files[of].shape:
                    raise InputError(f"{self.path}: {name} must have one number per entry of {of}: write it again")


def _some(file: ArrayFile) -> NumpyArray:
    """Returns some rows of an array, from its first to its last."""
    return file.rows_at(np.linspace(0, file.shape[0] - 1, min(SOME, file.shape[0])).astype(np.int64))


def _check_kind(file: ArrayFile, types: tuple[str, ...], n_dims: int) -> None:
    if file.dtype.name not in types or len(file.shape) != n_dims:
        raise InputError(
            f"{file.path}: must be {' or '.join(types)} with {n_dims} dimension{'s' * (n_dims > 1)}, got {file.dtype} "
            f"of shape {file.shape}: write it again"
        )
