"""What a run remembers of its graph: a summary of every column, of the edges, and of its own P(rare)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import brief
from calirare._util.errors import InputError
from calirare.drift.columns import ReferenceCategories, ReferenceNumbers, Summary, centred, weight_of
from calirare.drift.findings import Drift, Finding
from calirare.drift.neighbourhoods import drawn, patches
from calirare.drift.noise import Noise
from calirare.drift.structure import ReferenceEdges, ReferenceScores
from calirare.features import FeatureMap
from calirare.graph import Graph
from calirare_ext import Csr

ReferenceColumn = ReferenceNumbers | ReferenceCategories
# Tests of a column: distance, values never seen, gaps. Of the edges: degrees, isolated nodes, components. Of P(rare):
# its distribution, its mean, its correlation along edges.
OF_COLUMN, OF_EDGES, OF_SCORES = 3, 3, 3
OF_SPARSE = ("number of features", "sum of features", "which features")  # the columns that stand for sparse features
DAYS = " days before the newest day of the run's graph"
BY_CHANCE = 0.02  # weight up to which it may be chance
MOST_CELLS = 1 << 28  # of sparse features that are made dense


@dataclass(frozen=True)
class _Column:
    """A column: its name, the categories it may have (None: numbers), values, its rows' nodes and the numbers' unit."""

    name: str
    categories: int | None
    values: NumpyArray
    nodes: NumpyArray
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Reference:
    """A summary of a run's graph, with which another graph is compared.

    Attributes:
        columns: of every column that the run's features are made of, by name.
        edges: how they are spread.
        scores: P(rare) of nodes outside the training labels; None where there is none.
    """

    columns: dict[str, ReferenceColumn]
    edges: ReferenceEdges
    scores: ReferenceScores | None

    __repr__ = brief

    @classmethod
    def of(cls, graph: Graph, features: FeatureMap, p: Tensor, nodes: Tensor, compared: Tensor | None = None) -> Self:
        """Returns the summary of a graph.

        Args:
            graph: the run's own, as the user has it.
            features: fitted on it.
            p: P(rare) for the population of every node, [n].
            nodes: those outside the training labels, int64 [m].
            compared: whose columns others are compared with, int64; None: all scored nodes.
        """
        patch, at, p_rare = patches(graph.adjacency), nodes.cpu().numpy(), p.cpu().numpy()
        columns: dict[str, ReferenceColumn] = {}
        read, scored = np.empty(0, dtype=np.int64), (np.empty(0), np.empty(0))
        for each in _columns(graph, features, graph.scored_nodes if compared is None else compared):
            own = patch[each.nodes]
            if each.nodes is not read:  # mostly the same for all columns
                read, scored = each.nodes, centred(p_rare[each.nodes])
            column: ReferenceColumn
            if each.categories is None:
                column = ReferenceNumbers.of(each.values, own)
            else:
                column = ReferenceCategories.of(each.values, own, each.categories)
            known = len(at) and each.name not in OF_SPARSE
            weight = weight_of(each.values, scored) if known else 1.0
            columns[each.name] = dataclasses.replace(column, weight=weight)
        scores = ReferenceScores.of(p_rare[at], at, graph.adjacency, patch) if len(at) else None
        return cls(columns, ReferenceEdges.of(graph.adjacency, patch), scores)

    def compare(self, graph: Graph, features: FeatureMap, p: Tensor) -> Drift:
        """Returns how another graph differs from the run's, and what that means for P(rare).

        Args:
            graph: with the run's columns, as the user has it, some nodes at least.
            features: the run's.
            p: P(rare) for the population of every node, [n].

        Raises:
            InputError: columns are missing or hold something else.
        """
        nodes, noise, a = graph.scored_nodes.cpu().numpy(), self._noise, graph.adjacency
        findings = [*self.edges.compare(a, noise)]
        if self.scores is not None:
            findings += self.scores.compare(p.cpu().numpy()[nodes], nodes, a, patches(a), noise)
        return self._drift(graph, features, findings, a.indptr.diff().cpu().numpy(), len(nodes))

    def compare_sample(
        self, nodes: Graph, degrees: NumpyArray, features: FeatureMap, p: NumpyArray, of_how_many: int
    ) -> Drift:
        """Returns the same of random nodes of a graph; components and correlation along edges are not looked at.

        Args:
            nodes: some nodes at least with the run's columns, as the user has them; their edges are not read.
            degrees: their numbers of neighbours, [m].
            features: the run's.
            p: their P(rare) for the population, [m].
            of_how_many: nodes of the whole graph.

        Raises:
            InputError: columns are missing or hold something else.
        """
        findings = [*self.edges.compare_degrees(degrees.astype(np.float64), self._noise)]
        if self.scores is not None:
            findings += self.scores.compare_distribution(p, self._noise)
        return self._drift(nodes, features, findings, degrees, of_how_many, nodes.n_nodes)

    @property
    def _noise(self) -> Noise:
        return Noise(OF_COLUMN * len(self.columns) + OF_EDGES + (OF_SCORES if self.scores is not None else 0))

    def _drift(
        self,
        graph: Graph,
        features: FeatureMap,
        others: list[Finding],
        degrees: NumpyArray,
        n_nodes: int,
        sample: int | None = None,
    ) -> Drift:
        """Returns the findings about columns before the others, of which the first is about degrees."""
        columns: list[Finding] = []
        heaviest = max((column.weight for column in self.columns.values()), default=0.0)
        for each in _columns(self._stored_alike(graph), features, graph.scored_nodes):
            own = self.columns[each.name]
            unit = (each.unit,) if isinstance(own, ReferenceNumbers) else ()
            found = own.compare(each.name, each.values, self._noise, *unit)
            weight = own.weight / heaviest if heaviest > BY_CHANCE else 1.0
            columns += (dataclasses.replace(finding, weight=weight) for finding in found)
        usual = self.edges.usual(degrees) if others[0].current > others[0].critical else None
        return Drift((*columns, *others), n_nodes, len(self.columns), self.scores is not None, sample, usual)

    def _stored_alike(self, graph: Graph) -> Graph:
        """Returns a graph with features that are stored as the run's are, sparse or dense."""
        sparse = tuple(self.columns) == OF_SPARSE
        if sparse == isinstance(graph.x, Csr):
            return graph
        if isinstance(graph.x, Tensor):
            return dataclasses.replace(graph, x=Csr.from_dense(graph.x), columns=(), trusted=True)
        if graph.x.n_rows * graph.x.n_cols > MOST_CELLS:
            raise InputError(
                f"predict: the run's features are dense, the graph's sparse and too many ({graph.x.n_rows:,} times "
                f"{graph.x.n_cols:,}) to be compared with them: score the graph in parts"
            )
        return dataclasses.replace(graph, x=graph.x.to_dense(), trusted=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns everything as tensors by name and as what JSON holds; `from_state` reads it."""
        parts: dict[str, Summary] = {f"column {i}": each for i, each in enumerate(self.columns.values())}
        parts["edges"] = self.edges
        if self.scores is not None:
            parts["scores"] = self.scores
        tensors: dict[str, Tensor] = {}
        facts: dict[str, Any] = {}
        for part, value in parts.items():
            own, facts[part] = value.state()
            tensors |= {f"{part}.{name}": each for name, each in own.items()}
        kinds = ["categories" if isinstance(each, ReferenceCategories) else "numbers" for each in self.columns.values()]
        named = [list(pair) for pair in zip(self.columns, kinds, strict=True)]
        return tensors, {"columns": named, "parts": facts}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns the summary of a `state`.

        Raises:
            LookupError: it is none.
        """
        own: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            part, _, key = name.partition(".")
            own.setdefault(part, {})[key] = tensor

        def read(part: str, kind: Any) -> Any:
            return kind.from_state(own[part], facts["parts"][part])

        kinds = {"categories": ReferenceCategories, "numbers": ReferenceNumbers}
        columns = {name: read(f"column {i}", kinds[kind]) for i, (name, kind) in enumerate(facts["columns"])}
        scores = read("scores", ReferenceScores) if "scores" in facts["parts"] else None
        return cls(cast(dict[str, ReferenceColumn], columns), read("edges", ReferenceEdges), scores)


def _columns(graph: Graph, features: FeatureMap, at: Tensor) -> Iterator[_Column]:
    """Yields the columns of a graph that a map reads, at some nodes, a sample where these are many."""
    nodes, raw = drawn(at.cpu().numpy()), features.raw(graph)
    if isinstance(raw, Csr):
        yield from _sparse(raw, nodes)
        return
    if len(nodes) < graph.n_nodes:
        raw = dataclasses.replace(raw, x=raw.x[torch.from_numpy(nodes).to(raw.x.device)])
    inputs = sorted(features.values_read)
    for some, block in raw.blocks(inputs):
        for j, i in enumerate(inputs[some]):
            column = raw.columns[i]
            known = len(column.categories) if column.kind == "categorical" else None
            yield _Column(column.name, known, block[:, j], nodes, DAYS if column.kind == "date" else "")


def _sparse(x: Csr, nodes: NumpyArray) -> Iterator[_Column]:
    """Yields what sparse features are looked at by: how many a node has, their sum, and which."""
    indptr, values = x.indptr.cpu().numpy(), x.values.cpu().double().numpy()
    many = np.diff(indptr)[nodes]
    rows = np.repeat(np.arange(x.n_rows), np.diff(indptr))
    kept = np.isin(rows, nodes) if len(nodes) < x.n_rows else np.ones(len(rows), dtype=bool)
    number, total, which = OF_SPARSE
    yield _Column(number, None, many.astype(float), nodes)
    yield _Column(total, None, np.bincount(rows, values, x.n_rows)[nodes], nodes)
    yield _Column(which, x.n_cols, x.indices.cpu().numpy()[kept].astype(float), rows[kept])
