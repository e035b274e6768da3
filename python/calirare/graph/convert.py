"""Graphs of arrays and of PyTorch Geometric as the parts of ours; the library is imported when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray, integers
from calirare._util.errors import InputError
from calirare.graph.arrays import Parts, as_array, as_coo, as_features, as_labels, as_time, as_vector
from calirare.graph.columns import with_neighbours
from calirare.graph.edges import build_adjacency, first_edge_times
from calirare.graph.options import EdgeRules
from calirare.graph.splits import PARTS, Split
from calirare.graph.tables.files import Table
from calirare.graph.tables.labels import labels_of
from calirare.graph.validation import located
from calirare_ext import Csr

if TYPE_CHECKING:
    from torch_geometric.data import Data


TIMES = ("time", "node_time")  # of the nodes of a `Data`
UNREAD = ("edge_type", "node_type")  # of a `Data`, though they matter


def parts_of_arrays(
    edges: Any, features: Any, labels: Any = None, *, weight: Any, rules: EdgeRules, where: str
) -> Parts:
    """Returns the parts of the graph of arrays; see `Graph.from_edges`."""
    if features is None and labels is None:
        raise InputError(f"{where}: nothing says how many nodes there are: give features or labels, -1 where unknown")
    x = torch.empty(len(labels), 0) if features is None else feature_rows(features, where)
    weights = None if weight is None else as_array(weight, "edge weights", where)
    if _is_adjacency(edges):
        edges, stored = edges_of_adjacency(edges, (x.shape[0], x.shape[0]), where)
        weights = stored if weights is None else weights
    adjacency = build_adjacency(as_array(edges, "edges", where), weights, x.shape[0], rules, where)
    names = tuple(getattr(features, "columns", ()))  # of a frame of pandas or polars
    named = names if all(isinstance(name, str) for name in names) else ()
    parts: Parts = {"adjacency": adjacency, "x": x, "feature_names": named, **parts_of_labels(labels, where)}
    return parts if x.shape[1] else with_neighbours(parts)


def feature_rows(x: Any, where: str, what: str = "features") -> Tensor | Csr:
    """Returns features of any kind as a table with a row per node; a message calls them `what`."""
    out = as_features(x, where)
    if len(out.shape) != 2:
        raise InputError(
            f"{where}: {what} must be a table with a row per node, got shape {tuple(out.shape)}: x[:, None] makes "
            "one column of one number per node"
        )
    if isinstance(out, Csr):
        return out
    # Memory that the owner of what was given may write to later is copied.
    same = out.data_ptr() == x.data_ptr() if isinstance(x, Tensor) else np.may_share_memory(out.numpy(), np.asarray(x))
    return out.clone() if same else out


def parts_of_labels(labels: Any, where: str) -> Parts:
    """Returns labels of any kind, or None, as `y`; where they are names of classes also these, as of a table."""
    if labels is None or isinstance(labels, Tensor):
        return {"y": None if labels is None else as_labels(labels, where).clone()}
    # In an array of text, as numpy makes one of a list, NaN would be the name "nan".
    array = np.array(labels, dtype=object) if isinstance(labels, list | tuple) else as_array(labels, "labels", where)
    if array.dtype.kind != "U" and not (array.dtype == object and any(isinstance(each, str) for each in array.flat)):
        return {"y": as_labels(labels, where).clone()}
    import pandas as pd

    array = as_vector(array)
    if array.ndim != 1:
        raise InputError(f"{where}: labels must be one name per node, got shape {array.shape}: keep one of the columns")
    table = Table(pd.DataFrame({"labels": array}, dtype=object), where)
    read = labels_of(table, "labels")
    table.check()
    return {"y": read.y, "class_names": read.names, "notes": read.notes()}


def parts_of_data(data: Data, *, name: str = "data", **edge_options: Any) -> Parts:
    """Returns the parts of the graph of a PyTorch Geometric `Data`.

    Args:
        data: with `x` (dense or sparse; without it the number of neighbours is the feature) and `edge_index` [2, m], or
            `adj_t` (torch sparse, or `SparseTensor` of torch_sparse) in its place; optionally `edge_weight` or a
            one-column `edge_attr`, `y` (numbers or names of classes), and `train_mask`, `val_mask`, `test_mask`, or
            numbers of nodes as `train_idx`, `val_idx`, `test_idx`, and `time` (or `node_time`) of each node, else
            `edge_time` of each edge: a node's is then that of its first. Each may be a tensor, an array or a list; the
            graph copies features and labels.
        name: what the graph is called.
        **edge_options: `symmetrize`, `duplicates` and `self_loops`, see `calirare.graph.EdgeRules`.

    Raises:
        InputError: a part is missing or does not fit.
    """
    where = f"graph {name!r}"
    x = getattr(data, "x", None)
    features = torch.empty(_n_nodes(data, where), 0) if x is None else feature_rows(x, where)
    n, said = features.shape[0], data.to_dict().get("num_nodes") if hasattr(data, "to_dict") else None
    if x is not None and said is not None and int(said) != n:
        raise InputError(f"{where}: data.num_nodes must be the number of rows of x, {n}, got {int(said)}: leave it out")
    left_out: list[str] = []
    edges, weights = edges_of_store(data, (n, n), where, left_out)
    parts = parts_of_arrays(
        edges, features, getattr(data, "y", None), weight=weights, rules=EdgeRules(**edge_options), where=where
    )
    notes = [*parts.get("notes", ()), *left_out]
    if hasattr(data, "src") and hasattr(data, "msg"):
        notes.append("a TemporalData has no labels; its times t and messages msg are left out")
    if left := [each for each in UNREAD if getattr(data, each, None) is not None]:
        notes.append(f"attributes not read: {', '.join(left)} (use a HeteroData or an edge table for types)")
    times = [each for name in TIMES if (each := getattr(data, name, None)) is not None and len(each) == n]
    parts["time"], of_edges = as_time(times[0], where) if times else None, getattr(data, "edge_time", None)
    if not times and of_edges is not None and len(of_edges) == len(edges):
        parts["time"] = first_edge_times(as_time(of_edges, where).numpy(), edges, n)
        notes.append("a node's time is that of its first edge, by edge_time")
    return parts | {
        "x": parts["x"].to("cpu"),
        "split": split_of_masks(data, n, where),
        "name": name,
        "notes": tuple(notes),
    }


def _n_nodes(data: Data, where: str) -> int:
    """Returns the number of nodes of a `Data` without features: that of its labels, else `num_nodes`."""
    y = getattr(data, "y", None)
    n = len(y) if y is not None else getattr(data, "num_nodes", None)
    if n is None:
        raise InputError(f"{where}: nothing says how many nodes there are: set data.x, data.y or data.num_nodes")
    return int(n)


def split_of_masks(data: Any, n_nodes: int, where: str) -> Split | None:
    """Returns the split that `train_mask`, `val_mask` and `test_mask` of a `Data` make; None without any.

    Without masks the numbers of nodes are taken that `train_idx`, `val_idx` and `test_idx` hold.
    """
    masks, numbers = ([getattr(data, f"{part}_{kind}", None) for part in PARTS] for kind in ("mask", "idx"))
    with located(where):
        if any(mask is not None for mask in masks):
            train, val, test = (np.zeros(n_nodes, dtype=bool) if mask is None else mask for mask in masks)
            return Split.from_masks(train, val, test, "public", n_nodes=n_nodes).to("cpu")
    if all(each is None for each in numbers):
        return None
    nodes = [np.zeros(0, np.int64) if each is None else as_array(each, "nodes", where) for each in numbers]
    parts = [
        torch.from_numpy(integers(each, f"data.{part}_idx", where)) for part, each in zip(PARTS, nodes, strict=True)
    ]
    with located(where):
        return Split(parts[0], parts[1], parts[2], "public")


def edges_of_store(
    store: Any, shape: tuple[int, int], where: str, notes: list[str], of: str = ""
) -> tuple[NumpyArray, NumpyArray | None]:
    """Returns the edges [m, 2] of a `Data`, or of one type of edges of a `HeteroData`, and their weights.

    Args:
        store: with `edge_index` or `adj_t`.
        shape: of `adj_t`: targets by sources.
        where: put in front of a message.
        notes: takes a note on attributes that are no weights.
        of: the type of edges, as a message ends with it.
    """
    index, adj_t = getattr(store, "edge_index", None), getattr(store, "adj_t", None)
    if adj_t is None and index is not None and _is_adjacency(index):
        index, adj_t = None, index  # PyG's layers take a transposed adjacency in the place of edge_index
    if index is None and adj_t is None:
        raise InputError(f"{where}: data must have edge_index or adj_t{of}, but both are missing")
    if index is None:
        # adj_t holds the transposed adjacency: its rows are the targets.
        edges, weights = edges_of_adjacency(adj_t, shape, f"{where}{of and f', adj_t{of}'}")
        return edges[:, ::-1], weights
    index = as_array(index, f"edge_index{of}", where)
    if index.ndim != 2 or index.shape[0] != 2:
        raise InputError(f"{where}: edge_index{of} must have shape [2, m], got {index.shape}")
    weight, what = getattr(store, "edge_weight", None), "edge_weight"
    if weight is None:
        weight, what = getattr(store, "edge_attr", None), "edge_attr"
    if weight is None:
        return index.T, None
    weight = as_vector(as_array(weight, f"{what}{of}", where))
    if weight.ndim > 1 and what == "edge_attr":
        notes.append(
            f"edge_attr{of} is left out, an edge has one weight and no {weight.shape[1]} columns: put it in edge_weight"
        )
        return index.T, None
    if weight.shape != index.shape[1:]:
        raise InputError(
            f"{where}: {what}{of} must be one weight per edge, {index.shape[1]}, got shape {weight.shape}: keep one "
            "column"
        )
    return index.T, weight


def _is_adjacency(edges: Any) -> bool:
    """Returns whether edges come as a matrix: a sparse tensor of torch, `SparseTensor` of torch_sparse, or SciPy's."""
    return (
        edges.layout != torch.strided if isinstance(edges, Tensor) else hasattr(edges, "coo") or hasattr(edges, "tocoo")
    )


def edges_of_adjacency(adjacency: Any, wanted: tuple[int, int], where: str) -> tuple[NumpyArray, NumpyArray | None]:
    """Returns the edges [m, 2], from row to column, of a matrix that `_is_adjacency` knows, and their weights.

    An entry stored twice is an edge listed twice; weights are None where the matrix holds no values.
    """
    if isinstance(adjacency, Tensor):
        entries = as_coo(adjacency, "adjacency", where)
        (row, column), value, shape = entries._indices(), entries._values(), tuple(entries.shape)
    elif hasattr(adjacency, "tocoo"):
        entries, shape = adjacency.tocoo(), tuple(adjacency.shape)
        row, column, value = torch.from_numpy(entries.row), torch.from_numpy(entries.col), entries.data
    else:
        row, column, value = adjacency.coo()
        shape = tuple(adjacency.sparse_sizes())
    if shape != wanted:
        nodes = f"{wanted[0]} nodes (rows of the features)" if wanted[0] == wanted[1] else f"nodes of shape {wanted}"
        raise InputError(f"{where}: adjacency must have one row and one column per node, got shape {shape} for {nodes}")
    edges = torch.stack([row, column], 1).cpu().numpy()
    return edges, None if value is None else as_array(value, "edge weights", where)


def as_data(graph: Parts) -> Data:
    """Returns a graph, given by its attributes, as a PyTorch Geometric `Data`; see `Graph.to_data`."""
    from torch_geometric.data import Data

    a, x = graph["adjacency"], graph["x"]
    data = Data(x=x.to_dense() if isinstance(x, Csr) else x, edge_index=torch.stack([a.rows(), a.indices.long()]))
    if bool((a.values != 1).any()):
        data.edge_weight = a.values
    for labels in ("y", "original_y"):
        if graph[labels] is not None:
            data[labels] = graph[labels]
    if graph["split"] is not None:
        data.train_mask, data.val_mask, data.test_mask = graph["split"].masks(a.n_rows)
    return data
