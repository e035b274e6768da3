"""Columns a tabular model reads of a node: its own features, its neighbours' means over several hops, its degree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calirare.features import FeatureMap
from calirare.graph import Graph, normalize_features
from calirare.training import State, prefixed, unprefixed
from calirare_ext import Csr, propagate, row_sums

DIRECTIONS = 128  # width from which sparse words are reduced to as many singular directions


@dataclass(frozen=True, eq=False)
class HopColumns:
    """[x, M x, .., M^K x, log(1 + degree)] with M = D^-1 A the mean of the neighbours, each column scaled.

    A node's own features stay apart from its neighbours', so that a model may weigh them where neighbours are unlike
    (SIGN, Frasca et al. 2020; XGBGraph of GADBench, Tang et al. 2023). Of a graph with typed or directed relations each
    adds the means over the neighbours that a node's edges lead to and come from, and their numbers. Sparse features are
    reduced to their leading singular directions first. Scaling is fitted on one graph and applied to any.

    Attributes:
        hops: K >= 0; 0 are the features alone.
        own: map of the features before they are propagated, or None where they are read as they are.
        scaled: map of all columns.
    """

    hops: int
    own: FeatureMap | None
    scaled: FeatureMap

    @classmethod
    def fit(cls, graph: Graph, hops: int = 2, seed: int = 0) -> Self:
        """Returns the columns with maps fitted on all nodes of a graph; no label is read.

        Args:
            graph: the graph.
            hops: K.
            seed: of the maps.

        Raises:
            InputError: the features cannot be mapped.
        """
        ready = normalize_features(graph)
        own = None
        if isinstance(ready.x, Csr) and ready.n_features > DIRECTIONS:
            own = FeatureMap.fit(ready, "svd", seed=seed)
        raw = _raw(ready if own is None else own.transform(ready), hops)
        return cls(hops, own, FeatureMap.fit(raw, "auto", seed=seed))

    def of(self, graph: Graph) -> Graph:
        """Returns a graph with the columns as its features, float32 [n, d]; made once as long as the graph lives."""
        kept = _KEPT.setdefault(graph, WeakKeyDictionary())
        if self not in kept:
            ready = normalize_features(graph)
            kept[self] = self.scaled.transform(
                _raw(ready if self.own is None else self.own.transform(ready), self.hops)
            )
        return kept[self]

    def state(self) -> State:
        """Returns what `from_state` makes it of again."""
        parts = {"scaled": self.scaled} | ({} if self.own is None else {"own": self.own})
        states = {name: part.state() for name, part in parts.items()}
        tensors = {key: value for name, (own, _) in states.items() for key, value in prefixed(name, own).items()}
        return tensors, {"hops": self.hops, "maps": {name: facts for name, (_, facts) in states.items()}}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` told.

        Raises:
            LookupError: something is missing.
        """
        maps = {n: FeatureMap.from_state(unprefixed(n, tensors), f) for n, f in facts["maps"].items()}
        return cls(int(facts["hops"]), maps.get("own"), maps["scaled"])


_KEPT: WeakKeyDictionary[Graph, WeakKeyDictionary[HopColumns, Graph]] = WeakKeyDictionary()


def _raw(graph: Graph, hops: int) -> Graph:
    """Returns the graph with the columns before they are scaled; of relations one hop each way."""
    x = graph.x.to_dense() if isinstance(graph.x, Csr) else graph.x
    features = graph.feature_names or tuple(f"feature {i}" for i in range(graph.n_features))
    blocks, names = [x], list(features)

    def add(block: Tensor, whose: str) -> None:
        blocks.append(block)
        names.extend(f"{whose} {name}" for name in features)

    def add_degree(matrix: Csr, name: str) -> None:
        degree = (matrix.indptr[1:] - matrix.indptr[:-1]).to(x)
        blocks.append(torch.log1p(degree)[:, None])
        names.append(name)

    if hops:
        mean = _mean_of_neighbours(graph.adjacency)
        for hop in range(1, hops + 1):
            add(propagate(mean, blocks[-1]), "neighbours'" if hop == 1 else f"{hop} hops'")
        add_degree(graph.adjacency, "log degree")
        for relation in graph.relations:
            for way, matrix in (("to", relation.out), ("from", relation.into)):
                add(propagate(_mean_of_neighbours(matrix), x), f"{relation.name} {way}")
                add_degree(matrix, f"log degree, {relation.name} {way}")
    return dataclasses.replace(
        graph,
        x=torch.cat(blocks, 1),
        feature_names=tuple(names),
        feature_normalisation="none",
        relations=(),
        trusted=True,
    )


def _mean_of_neighbours(adjacency: Csr) -> Csr:
    """Returns D^-1 A, whose rows sum to 1, or to 0 where a node has no neighbour."""
    total = row_sums(adjacency)
    values = adjacency.values / total[adjacency.rows()]
    return Csr(adjacency.indptr, adjacency.indices, values.to(adjacency.values.dtype), adjacency.n_cols)
