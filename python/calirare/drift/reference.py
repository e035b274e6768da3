"""What a run remembers of its graph: a summary of every column, of the edges, and of its own P(rare)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.arrays import brief
from calirare._util.errors import InputError
from calirare.drift.columns import (
    CurrentCategories,
    CurrentNumbers,
    ReferenceCategories,
    ReferenceNumbers,
    compare_categories,
    compare_numbers,
)
from calirare.drift.findings import Drift, Finding, Part, Verdict
from calirare.drift.neighbourhoods import drawn, patches
from calirare.drift.noise import Noise
from calirare.drift.scores import CurrentScores, ReferenceScores, compare_distribution, compare_scores
from calirare.drift.structure import CurrentEdges, ReferenceEdges, compare_degrees, compare_edges
from calirare.features import FeatureMap
from calirare.graph import Graph
from calirare_ext import Csr

ReferenceColumn = ReferenceNumbers | ReferenceCategories
# Tests of a column: distance, what was never seen, gaps. Of the edges: degrees, isolated nodes, components. Of P(rare):
# its distribution, its mean, likeness along edges.
OF_COLUMN, OF_EDGES, OF_SCORES = 3, 3, 3
OF_SPARSE = ("number of features", "sum of features", "which features")  # what sparse features are looked at by
DAYS = " days before the newest day of the run's graph"
MOST_CELLS = 1 << 28  # of sparse features that are made dense


@dataclass(frozen=True)
class _Column:
    """A column as it is looked at: its name, the categories it may have (None: numbers), values and rows' nodes.

    `unit` is what its numbers count, where the user's are others: of dates the days before the run's newest.
    """

    name: str
    categories: int | None
    values: NumpyArray
    nodes: NumpyArray
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Reference:
    """A summary of a run's graph; another graph is held against it.

    Attributes:
        columns: of every column that the run's map reads, by name.
        edges: how they are spread.
        scores: P(rare) of nodes that did not teach the run; None where there is none.
    """

    columns: dict[str, ReferenceColumn]
    edges: ReferenceEdges
    scores: ReferenceScores | None

    __repr__ = brief

    @classmethod
    def of(cls, graph: Graph, features: FeatureMap, p: Tensor, nodes: Tensor) -> Self:
        """Returns the summary of a graph.

        Args:
            graph: the run's own, as the user has it.
            features: the map fitted on it.
            p: P(rare) for the population of every node, [n].
            nodes: those that did not teach the run, int64 [m].
        """
        patch = patches(graph.adjacency)
        columns: dict[str, ReferenceColumn] = {}
        for each in _columns(graph, features):
            own = patch[each.nodes]
            known = each.categories
            of = (
                ReferenceCategories.of(each.values, own, known)
                if known is not None
                else ReferenceNumbers.of(each.values, own)
            )
            columns[each.name] = of
        own_nodes = nodes.cpu().numpy()
        scores = (
            ReferenceScores.of(p.cpu().numpy()[own_nodes], own_nodes, graph.adjacency, patch) if len(nodes) else None
        )
        return cls(columns, ReferenceEdges.of(graph.adjacency, patch), scores)

    def compare(self, graph: Graph, features: FeatureMap, p: Tensor) -> Drift:
        """Returns how another graph differs from the run's, and what that means for P(rare).

        Args:
            graph: with the run's columns, as the user has it, some nodes at least.
            features: the run's map.
            p: P(rare) for the population of every node, [n].

        Raises:
            InputError: columns are missing or hold something else.
        """
        noise = self._noise
        findings = self._of_columns(graph, features, noise)
        edges = compare_edges(self.edges, graph.adjacency, noise)
        findings += of_edges(edges)
        if self.scores is not None:
            nodes = graph.scored_nodes.cpu().numpy()
            its = p.cpu().numpy()[nodes], nodes
            now = compare_scores(self.scores, *its, graph.adjacency, patches(graph.adjacency), noise)
            findings += of_scores(now)
        told = _neighbours_told(edges)
        n, scored = graph.scored_nodes.numel(), self.scores is not None
        return Drift(tuple(findings), n, len(self.columns), scored, neighbours=told)

    def compare_sample(
        self, nodes: Graph, degrees: NumpyArray, features: FeatureMap, p: NumpyArray, of_how_many: int
    ) -> Drift:
        """Returns the same of random nodes of a graph; components and likeness along edges are not looked at.

        Args:
            nodes: some nodes at least with the run's columns, as the user has them; their edges are not read.
            degrees: their numbers of neighbours, [m].
            features: the run's map.
            p: their P(rare) for the population, [m].
            of_how_many: nodes of the whole graph.

        Raises:
            InputError: columns are missing or hold something else.
        """
        noise = self._noise
        findings = self._of_columns(nodes, features, noise)
        edges = compare_degrees(self.edges, degrees.astype(np.float64), noise)
        findings += of_edges(edges)
        if self.scores is not None:
            findings += of_scores(compare_distribution(self.scores, p, noise))
        told, scored = _neighbours_told(edges), self.scores is not None
        return Drift(tuple(findings), of_how_many, len(self.columns), scored, nodes.n_nodes, told)

    @property
    def _noise(self) -> Noise:
        return Noise(OF_COLUMN * len(self.columns) + OF_EDGES + (OF_SCORES if self.scores is not None else 0))

    def _of_columns(self, graph: Graph, features: FeatureMap, noise: Noise) -> list[Finding]:
        findings: list[Finding] = []
        for each in _columns(self._stored_alike(graph), features):
            then = self.columns[each.name]
            if isinstance(then, ReferenceCategories):
                findings += of_categories(each.name, compare_categories(then, each.values, noise))
            else:
                findings += of_numbers(each.name, compare_numbers(then, each.values, noise), each.unit)
        return findings

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
                f"{graph.x.n_cols:,}) to be held against them: score the graph in parts"
            )
        return dataclasses.replace(graph, x=graph.x.to_dense(), trusted=True)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns everything as tensors by name and as what JSON holds; `from_state` reads it."""
        parts: dict[str, ReferenceColumn | ReferenceEdges | ReferenceScores] = {
            f"column {i}": each for i, each in enumerate(self.columns.values())
        }
        parts["edges"] = self.edges
        if self.scores is not None:
            parts["scores"] = self.scores
        tensors: dict[str, Tensor] = {}
        facts: dict[str, Any] = {}
        for part, value in parts.items():
            arrays, facts[part] = value.state()
            tensors |= {f"{part}.{name}": torch.from_numpy(np.ascontiguousarray(x)) for name, x in arrays.items()}
        kinds = ["categories" if isinstance(each, ReferenceCategories) else "numbers" for each in self.columns.values()]
        named = [list(pair) for pair in zip(self.columns, kinds, strict=True)]
        return tensors, {"columns": named, "parts": facts}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns the summary of a `state`.

        Raises:
            LookupError: it is none.
        """
        arrays: dict[str, dict[str, NumpyArray]] = {}
        for name, tensor in tensors.items():
            part, _, key = name.partition(".")
            arrays.setdefault(part, {})[key] = tensor.numpy()

        def read(part: str, kind: Any) -> Any:
            return kind.from_state(arrays[part], facts["parts"][part])

        kinds = {"categories": ReferenceCategories, "numbers": ReferenceNumbers}
        columns = {name: read(f"column {i}", kinds[kind]) for i, (name, kind) in enumerate(facts["columns"])}
        scores = read("scores", ReferenceScores) if "scores" in facts["parts"] else None
        return cls(cast(dict[str, ReferenceColumn], columns), read("edges", ReferenceEdges), scores)


def _columns(graph: Graph, features: FeatureMap) -> Iterator[_Column]:
    """Yields the columns of a graph that a map reads, at scored nodes, some where there are many."""
    nodes, raw = drawn(graph.scored_nodes.cpu().numpy()), features.raw(graph)
    if isinstance(raw, Csr):
        yield from _sparse(raw, nodes)
        return
    if len(nodes) < graph.n_nodes:
        raw = dataclasses.replace(raw, x=raw.x[torch.from_numpy(nodes).to(raw.x.device)])
    inputs = sorted(features.values_read)
    for at, block in raw.blocks(inputs):
        for j, i in enumerate(inputs[at]):
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


# From which difference on a finding is worth a word, and from which on P(rare) is not to be relied on.
#
# A difference counts where it is beyond chance and large enough to matter. How large is a rule of thumb, the same for
# every graph: P(rare) of a tenth of the nodes may be off where a tenth of a column's numbers have moved.
@dataclass(frozen=True)
class Limits:
    """Differences from which on a finding is "caution", and "do not trust"; below the first it is ok."""

    caution: float
    distrust: float

    def verdict(self, difference: float, by_chance: float) -> Verdict:
        """Returns what a difference means."""
        if not difference > max(by_chance, self.caution):  # NaN is none
            return "ok"
        return "do not trust" if difference > self.distrust else "caution"


DISTANCE = Limits(0.15, 0.3)
NEVER_SEEN = Limits(0.01, 0.1)  # the rare class is itself a percent of the nodes
GAPS = Limits(0.05, 0.3)
EDGES = Limits(0.3, 0.5)  # a longer period or a larger crop has other degrees by itself
ISOLATED = Limits(0.05, 0.5)
APART = Limits(0.1, 0.5)
HUB = Limits(0.3, math.inf)
ALIKE = Limits(0.3, math.inf)
MEAN = Limits(math.log(1.5), math.log(5.0))  # of the ratio


def of_numbers(name: str, now: CurrentNumbers, unit: str = "") -> Iterable[Finding]:
    """Yields the findings of a column of numbers; `unit` is what they count."""
    where = f"{now.low:.4g} to {now.high:.4g} where it was {now.low_then:.4g} to {now.high_then:.4g}{unit}"
    why = f"{_percent(now.beyond)} of the values are outside the run's range, {where}"
    yield _finding("column", name, "beyond the range", now.beyond, 0.0, now.beyond_by_chance, NEVER_SEEN, why)
    yield _distance("column", name, now.distance, now.distance_by_chance, "values")
    yield _gaps(name, now)


def of_categories(name: str, now: CurrentCategories) -> Iterable[Finding]:
    """Yields the findings of a column of categories."""
    why = f"{_percent(now.unseen)} of the values are of categories that the run's graph did not have"
    yield _finding("column", name, "new categories", now.unseen, 0.0, now.unseen_by_chance, NEVER_SEEN, why)
    # Chi-squared says whether the shares differ at all, the distance by how much.
    yield _distance("column", name, now.distance, 0.0 if now.told else 1.0, "categories")
    yield _gaps(name, now)


def of_edges(now: CurrentEdges) -> Iterable[Finding]:
    """Yields the findings of a graph's edges."""
    found, chance = now.degrees.distance, now.degrees.distance_by_chance
    why = f"the distribution is {found:.2f} apart from the run's, on a scale from 0 to 1"
    yield _finding("edges", "number of neighbours", "distance", found, None, chance, EDGES, why)
    for name, share, limits in (
        ("isolated nodes", now.isolated, ISOLATED),
        ("nodes apart from the main part", now.apart, APART),
    ):
        if share is None:
            continue
        why = f"{_percent(share[0])} of the nodes where it was {_percent(share[1])}"
        yield _finding("edges", name, "share", *share, limits, why)
    if now.hub is not None:  # no difference: that of another graph is another node
        here, before = now.hub
        why = (
            f"it is one for {_percent(here)} of the nodes, and one was for {_percent(before)} of the run's: what is "
            "read of neighbours rests on that one node, and where it is another one P(rare) may be off as a whole"
        )
        verdict = HUB.verdict(max(here, before), 0.0)
        said = "" if verdict == "ok" else why
        yield Finding("edges", "node of most neighbours", "share", here, before, 0.0, verdict, said)


def _neighbours_told(now: CurrentEdges) -> tuple[float, float] | None:
    """Returns usual numbers of neighbours, now and then, where they differ by more than chance."""
    return now.usual if now.degrees.distance > now.degrees.distance_by_chance else None


def of_scores(now: CurrentScores) -> Iterable[Finding]:
    """Yields the findings of P(rare)."""
    part: Part = "P(rare)"
    beyond = abs(now.mean - now.mean_then) > now.mean_by_chance
    both = min(now.mean, now.mean_then) > 0
    ratio = abs(math.log(now.mean / now.mean_then)) if both else math.inf if beyond else 0.0
    why = f"{now.mean:.3g} where it was {now.mean_then:.3g}"
    verdict = MEAN.verdict(ratio, 0.0 if beyond else math.inf)
    said = "" if verdict == "ok" else why
    yield Finding(part, "mean P(rare)", "mean", now.mean, now.mean_then, now.mean_by_chance, verdict, said)
    limits = Limits(DISTANCE.distrust, math.inf)  # most of it is among nodes that nobody would look at
    found = now.numbers.distance
    yield _distance(part, "P(rare)", found, now.numbers.distance_by_chance, "probabilities", limits)
    if math.isfinite(now.alike) and math.isfinite(now.alike_then):
        why = f"rank correlation {now.alike:.2f} along edges where it was {now.alike_then:.2f}"
        name = "neighbours' P(rare)"
        yield _finding(part, name, "correlation", now.alike, now.alike_then, now.alike_by_chance, ALIKE, why)


def _distance(part: Part, name: str, found: float, by_chance: float, noun: str, limits: Limits = DISTANCE) -> Finding:
    why = f"{noun} are distributed {found:.2f} apart from the run's, on a scale from 0 to 1"
    return _finding(part, name, "distance", found, None, by_chance, limits, why)


def _gaps(name: str, now: CurrentNumbers | CurrentCategories) -> Finding:
    why = f"{_percent(now.gaps)} of the values are missing where it was {_percent(now.gaps_then)}"
    return _finding("column", name, "gaps", now.gaps, now.gaps_then, now.gaps_by_chance, GAPS, why)


def _finding(
    part: Part, name: str, what: str, now: float, then: float | None, by_chance: float, limits: Limits, why: str
) -> Finding:
    verdict = limits.verdict(abs(now - (then or 0.0)), by_chance)
    return Finding(part, name, what, now, then, by_chance, verdict, "" if verdict == "ok" else why)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.2g} %"
