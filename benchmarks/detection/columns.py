"""Tables made of a task's graphs: own columns beside means over neighbours, without any label."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import QuantileTransformer, normalize

from calirare import Graph
from calirare.graph import normalize_features
from calirare_ext import Csr
from detection.tasks import Task

MOST_WORDS = 500  # more sparse columns than this are reduced for tables
N_SVD = 128
HOPS = 2
Pair = tuple[
    np.ndarray, np.ndarray
]  # of the graph that trains and of the one that is scored: one array where they are one


def scipy_of(matrix: Csr) -> sp.csr_array:
    parts = (matrix.values.numpy(), matrix.indices.numpy(), matrix.indptr.numpy())
    return sp.csr_array(parts, shape=matrix.shape)


def mean_of_neighbours(graph: Graph, weighted: bool = True) -> sp.csr_array:
    """Returns the adjacency with rows that sum to 1, or to 0 without neighbours."""
    a = scipy_of(graph.adjacency).astype(np.float64)
    if not weighted:
        a.data[:] = 1
    total = a.sum(1)
    return sp.diags_array(np.divide(1, total, out=np.zeros_like(total), where=total > 0)) @ a


def means(graph: Graph, x: np.ndarray, weighted: bool = True) -> list[np.ndarray]:
    """Returns x, M x and M^2 x."""
    m, hops = mean_of_neighbours(graph, weighted), [x.astype(np.float64)]
    for _ in range(HOPS):
        hops.append(m @ hops[-1])
    return hops


@dataclass
class Tables:
    """What peers read of a task; each table is made once, and the CPU seconds that took are kept."""

    task: Task
    seconds: dict[str, float] = field(default_factory=dict)
    made: dict[str, Pair] = field(default_factory=dict)

    def get(self, name: str) -> Pair:
        if name not in self.made:
            begin, before = time.process_time(), sum(self.seconds.values())
            pair = TABLES[name](self)
            self.made[name] = tuple(np.ascontiguousarray(part, dtype=np.float32) for part in pair)
            inner = sum(self.seconds.values()) - before
            self.seconds[name] = time.process_time() - begin - inner
        return self.made[name]

    def cost(self, name: str) -> float:
        """Returns the CPU seconds a table takes with those it is made of."""
        return self.seconds[name] + sum(self.cost(part) for part in MADE_OF.get(name, ()))

    def each(self, make: Callable[[Graph, np.ndarray], np.ndarray], x: Pair) -> Pair:
        first = make(self.task.graph, x[0])
        return first, first if self.task.later is None else make(self.task.later, x[1])


def own(tables: Tables) -> Pair:
    """Returns x; of words what is left of them after a truncated SVD of rows of length 1, where there are many."""
    task = tables.task
    if not isinstance(task.graph.x, Csr):
        return task.graph.x.numpy(), task.scored.x.numpy()  # type: ignore[union-attr]
    x = scipy_of(task.graph.x)
    reduced = (
        TruncatedSVD(N_SVD, random_state=0).fit_transform(normalize(x)) if x.shape[1] > MOST_WORDS else x.toarray()
    )
    return reduced, reduced


def hops(tables: Tables) -> Pair:
    """Returns [x, M x, M^2 x, log(1 + degree)]."""

    def make(graph: Graph, x: np.ndarray) -> np.ndarray:
        degree = np.diff(graph.adjacency.indptr.numpy())
        return np.column_stack([*means(graph, x), np.log1p(degree)])

    return tables.each(make, tables.get("own"))


def gadbench(tables: Tables) -> Pair:
    """Returns [x, M x, M^2 x] of unweighted edges: what GADBench's parameter-free GIN layers concatenate."""
    return tables.each(lambda graph, x: np.column_stack(means(graph, x, weighted=False)), tables.get("own"))


def normal(pair: Pair) -> Pair:
    """Returns each column's normal scores by its rank among the nodes of the graph that trains."""
    ranks = QuantileTransformer(
        n_quantiles=min(1000, len(pair[0])), output_distribution="normal", subsample=None, random_state=0
    )
    first = ranks.fit_transform(pair[0])
    return first, first if pair[1] is pair[0] else ranks.transform(pair[1])


def words(tables: Tables) -> Pair:
    """Returns dense features as normal scores, words divided by their sum in each row."""
    task = tables.task
    if not isinstance(task.graph.x, Csr):
        return normal(tables.get("own"))
    x = normalize_features(task.graph, "row").x
    assert isinstance(x, Csr)
    dense = scipy_of(x).toarray()
    return dense, dense


TABLES: dict[str, Callable[[Tables], Pair]] = {
    "own": own,
    "hops": hops,
    "ranked hops": lambda tables: normal(tables.get("hops")),
    "gadbench": gadbench,
    "network": words,
    "graphspot": lambda tables: tables.get("own"),
}
MADE_OF = {
    "hops": ("own",),
    "ranked hops": ("hops",),
    "gadbench": ("own",),
    "graphspot": ("own",),
}
