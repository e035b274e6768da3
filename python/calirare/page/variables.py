"""What nodes may be sliced by: their place in the graph, and every column of the node table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.explain import day_in_words
from calirare.graph import Graph, default_names
from calirare_ext import Csr

N_BINS = 4  # of equal numbers of nodes
MOST_CATEGORIES = 6  # of others there is one slice together
MOST_COLUMNS = 40
FAR = 3  # steps to the nearest training label from which on nothing reaches a detector of two hops
LARGE, HUGE = 1e4, 1e15  # numbers from and up to which all digits before the point are told
NO_VALUE = "(missing)"


@dataclass(frozen=True, eq=False)
class Variable:
    """One way to divide the nodes.

    Attributes:
        name: what the nodes are divided by.
        group: the part each node is in, int64 [n], -1 for none.
        names: of the parts.
    """

    name: str
    group: NumpyArray
    names: tuple[str, ...]


def variables_of(graph: Graph, p_rare: NumpyArray | None) -> list[Variable]:
    """Returns the variables of a graph with a split.

    Args:
        graph: with its raw features.
        p_rare: P(rare) of every node, float [n]; NaN of those that are not scored; None: not divided by it.
    """
    degree = np.diff(graph.adjacency.indptr.cpu().numpy())
    found = [_binned("number of neighbours", degree.astype(np.float64)), *_by_place(graph, p_rare)]
    found = found if graph.n_edges else []
    for relation in graph.relations[:MOST_CATEGORIES]:
        out, into = (np.diff(matrix.indptr.cpu().numpy()) for matrix in (relation.out, relation.into))
        have = (out + into > 0).astype(np.int64)
        found.append(Variable(f"edges of type {relation.name}", have, ("none", "one or more")))
    if isinstance(graph.x, Csr):
        return found
    x = graph.x.cpu().numpy()
    gaps = np.isnan(x).sum(1)
    if gaps.any():
        found.append(Variable("missing values", (gaps > 0).astype(np.int64), ("none", "one or more")))
    return found + [_of_column(graph, i, x[:, i]) for i in range(min(graph.n_features, MOST_COLUMNS))]


def _by_place(graph: Graph, p_rare: NumpyArray | None) -> list[Variable]:
    """Returns how far the nearest label is, and what the neighbours are taken for."""
    adjacency, split = graph.adjacency.to("cpu"), graph.split
    assert split is not None
    steps = Variable("steps to the nearest training label", *_steps(adjacency, split.train.cpu().numpy()))
    if p_rare is None:
        return [steps]
    missing = "(none is scored)" if np.isnan(p_rare).any() else "(no neighbour)"
    return [steps, _binned("mean P(rare) of its neighbours", _mean_of_neighbours(adjacency, p_rare), missing=missing)]


def _mean_of_neighbours(adjacency: Csr, p: NumpyArray) -> NumpyArray:
    """Returns the mean of a number over each node's neighbours, NaN without any; NaN of theirs does not count."""
    others, n = adjacency.indices.numpy(), adjacency.n_rows
    told = np.asarray(p, dtype=np.float64)[others]
    here = ~np.isnan(told) & (adjacency.rows().numpy() != others)
    rows = adjacency.rows().numpy()[here]
    counts, sums = np.bincount(rows, minlength=n), np.bincount(rows, told[here], n)
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def _steps(adjacency: Csr, train: NumpyArray) -> tuple[NumpyArray, tuple[str, ...]]:
    """Returns how many edges away the nearest training label is, by slices, and their names."""
    n = adjacency.n_rows
    rows, cols = adjacency.rows().numpy(), adjacency.indices.numpy()
    reached = np.zeros(n, dtype=bool)
    reached[train] = True
    steps, front = np.where(reached, 0, FAR), reached
    for step in range(1, FAR):
        near = np.zeros(n, dtype=bool)
        near[rows[front[cols]]] = True
        steps[near & (steps == FAR)] = step
        front = front | near
    return steps, (*(str(step) for step in range(FAR)), f"{FAR} or more, or none")


def _of_column(graph: Graph, i: int, values: NumpyArray) -> Variable:
    """Returns the slices of a column of the node table."""
    name = (graph.feature_names or default_names(graph.n_features))[i]
    column = graph.columns[i] if graph.columns else None
    if column is not None and column.kind == "categorical":
        return _by_category(name, values, column.categories)
    if column is not None and column.kind == "date":
        return _binned(name, values, as_text=day_in_words)
    return _binned(name, values)


def _number(value: float) -> str:
    return f"{value:,.0f}" if LARGE <= abs(value) < HUGE else f"{value:.4g}"


def _binned(name: str, values: NumpyArray, *, as_text: Any = _number, missing: str = NO_VALUE) -> Variable:
    """Returns slices of about equal numbers of nodes; a value that many nodes share has one for itself."""
    here = ~np.isnan(values)
    different = np.unique(values[here])
    group = np.full(len(values), -1, dtype=np.int64)
    if len(different) <= N_BINS:
        group[here] = np.searchsorted(different, values[here])
        names = [as_text(value) for value in different]
    else:
        edges = np.unique(np.quantile(values[here], np.linspace(0, 1, N_BINS + 1)[1:-1], method="higher"))
        group[here] = np.searchsorted(edges, values[here], side="right")
        lows = [different[0], *edges]
        names = [f"{as_text(low)} to under {as_text(high)}" for low, high in zip(lows, edges, strict=False)]
        names.append(f"{as_text(edges[-1])} and more")
    if not here.all():
        group[~here] = len(names)
        names.append(missing)
    return Variable(name, group, tuple(names))


def _by_category(name: str, codes: NumpyArray, categories: tuple[str, ...]) -> Variable:
    """Returns a slice of each of the largest categories, and one of the others."""
    here = ~np.isnan(codes)
    numbers = codes[here].astype(np.int64)
    sizes = np.bincount(numbers, minlength=len(categories))
    largest = np.argsort(-sizes, kind="stable")[: MOST_CATEGORIES if len(categories) > MOST_CATEGORIES + 1 else None]
    place = np.full(len(categories), len(largest), dtype=np.int64)
    place[largest] = np.arange(len(largest))
    group = np.full(len(codes), len(largest) + 1, dtype=np.int64)
    group[here] = place[numbers]
    names = (*(categories[i] for i in largest), "others", NO_VALUE)
    return Variable(name, group, names)
