"""A graph with the nodes and edges of another one: of both months, say."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph.arrays import csr_of_scipy, scipy_of_csr
from calirare.graph.columns import Column
from calirare.graph.edges import as_csr
from calirare.graph.graph import Graph
from calirare.graph.relations import Relation
from calirare_ext import Csr


def joined(graph: Graph, other: Graph) -> Graph:
    """Returns a graph with the nodes of another that it does not have behind its own, without labels, and its edges.

    Nodes of one name are one node, with the columns that they have in `graph`; an edge of both keeps its weight there.

    Args:
        graph: whose labels, split and columns stay.
        other: a graph with these columns, by their names; others are left out.

    Raises:
        InputError: nodes have no names, features are sparse, or new nodes lack a column or the time.
    """
    where = f"graphs {graph.name!r} and {other.name!r}"
    if graph.node_names is None or other.node_names is None:
        raise InputError(f"{where}: nodes must have names to be joined: read tables with a column of names (--id)")
    known = {str(name): i for i, name in enumerate(graph.node_names)}
    at = np.array([known.get(str(name), -1) for name in other.node_names], dtype=np.int64)
    fresh = np.flatnonzero(at < 0)
    at[fresh] = graph.n_nodes + np.arange(fresh.size)
    new, n = torch.from_numpy(fresh), graph.n_nodes + fresh.size
    columns, rows = _columns_of(graph, other, new, where)
    relations = {relation.name: relation for relation in other.relations}
    time = None
    if graph.time is not None:
        if other.time is None:
            raise InputError(f"{where}: new nodes must have times as the others have: name their column (--time)")
        time = torch.cat([graph.time, other.time[new]])
    scored = [torch.isin(torch.arange(each.n_nodes), each.scored_nodes) for each in (graph, other)]
    y, original = (
        None if each is None else torch.cat([each, each.new_full((fresh.size,), -1)])
        for each in (graph.y, graph.original_y)
    )
    assert isinstance(graph.x, Tensor)
    return dataclasses.replace(
        graph,
        adjacency=_edges(graph.adjacency, other.adjacency, at, n),
        x=torch.cat([graph.x, rows]),
        y=y,
        original_y=original,
        posterior=None,
        node_names=np.concatenate([np.asarray(graph.node_names), np.asarray(other.node_names)[fresh]]),
        columns=columns,
        scored=torch.cat([scored[0], scored[1][new]]),
        time=time,
        relations=tuple(_relation(each, relations.get(each.name), at, n) for each in graph.relations),
    )


def _edges(own: Csr, more: Csr | None, at: NumpyArray, n: int) -> Csr:
    """Returns the edges of both, those of the second between nodes `at`, [n, n]."""
    import scipy.sparse as sp

    a = scipy_of_csr(own).copy()
    a.resize((n, n))
    if more is None:
        return csr_of_scipy(a)
    b = scipy_of_csr(more).tocoo()
    b = sp.csr_array((b.data, (at[b.row], at[b.col])), shape=(n, n))
    b = b - b.multiply(a != 0)
    b.eliminate_zeros()
    return as_csr((sp.csr_array(a) + b).tocsr())


def _relation(own: Relation, more: Relation | None, at: NumpyArray, n: int) -> Relation:
    out, into = (None, None) if more is None else (more.out, more.into)
    return Relation(own.name, _edges(own.out, out, at, n), _edges(own.into, into, at, n))


def _columns_of(graph: Graph, other: Graph, new: Tensor, where: str) -> tuple[tuple[Column, ...], Tensor]:
    """Returns the columns of the graph, with categories that only new nodes have too, and the rows of these."""
    if not isinstance(graph.x, Tensor) or not isinstance(other.x, Tensor):
        raise InputError(f"{where}: features must be dense to be joined: put the new nodes into the files of the run")
    places = {name: i for i, name in enumerate(other.feature_names)}
    missing = [name for name in graph.feature_names if name not in places]
    if missing or not graph.feature_names:
        raise InputError(f"{where}: both must have the same named columns, the second lacks {missing[:3]}: add them")
    rows, columns = other.x[new][:, [places[name] for name in graph.feature_names]].clone(), list(graph.columns)
    for i, column in enumerate(graph.columns):
        names = other.columns[places[column.name]].categories if other.columns else ()
        if not column.categories or names == column.categories:
            continue
        every = tuple(dict.fromkeys((*column.categories, *names)))
        number = torch.tensor([float(every.index(name)) for name in names])
        there = rows[:, i].isfinite()
        rows[there, i] = number[rows[there, i].long()]
        columns[i] = dataclasses.replace(column, categories=every)
    return tuple(columns), rows
