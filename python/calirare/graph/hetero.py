"""Graphs with nodes and edges of several types, PyTorch Geometric's `HeteroData`, as one graph of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph.arrays import Parts
from calirare.graph.columns import Column, names_in_words, with_neighbours
from calirare.graph.convert import edges_of_store, feature_rows, parts_of_labels, split_of_masks
from calirare.graph.edges import Naming, edge_notes
from calirare.graph.options import EdgeRules
from calirare.graph.relations import relations_of, typed_adjacency
from calirare_ext import Csr

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

TYPE = "type"  # the feature that says of which type a node is


def is_hetero(data: Any) -> bool:
    """Returns whether this is a `HeteroData`."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


def parts_of_hetero(
    data: HeteroData,
    *,
    name: str = "data",
    scored: str | None = None,
    relations: bool = False,
    **edge_options: Any,
) -> Parts:
    """Returns the parts of the graph of a PyTorch Geometric `HeteroData`.

    Nodes of the scored type come first, in their order, so that they keep their numbers; then those of the other types.
    Features stand side by side, missing where a node is of another type, and a column `type` says of which it is. Edges
    of all types join their nodes both ways, and each pair once, as reverse types repeat them.

    Args:
        data: with `x` of some types (where none has any the number of neighbours is a feature), `edge_index` or `adj_t`
            of every edge type, optionally `edge_weight` or a one-column `edge_attr` (1 where a type has none; of more
            columns a note says that they are left out), and of the scored type optionally `y` and `train_mask`,
            `val_mask`, `test_mask`.
        name: what the graph is called.
        scored: the type of nodes that are scored; None for the only one that has `y`.
        relations: keep the edge types and their directions, see `Graph.relations`.
        **edge_options: `symmetrize`, `duplicates` and `self_loops`, see `calirare.graph.EdgeRules`; what is left out is
            as for tables.

    Raises:
        InputError: a part is missing or does not fit.
    """
    where = f"graph {name!r}"
    scored = _scored_type(data, scored, where)
    types = [scored, *(each for each in data.node_types if each != scored)]
    sizes = [_size(data, each, where) for each in types]
    first = dict(zip(types, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    n, n_scored = sum(sizes), sizes[0]
    x, columns = _features(data, types, sizes, where)
    ends, weights, kinds, notes = _edges(data, first, dict(zip(types, sizes, strict=True)), where)
    asked = EdgeRules(**edge_options)
    rules = asked.for_table(weighted=weights is not None)
    naming = Naming(lambda i: _name(i, first), lambda i: f"edge {i}")
    adjacency = typed_adjacency(ends, weights, kinds if relations else None, n, rules, where, naming)
    both_ways = replace(asked, symmetrize=True)  # which types of edges are: no note is due on it
    done = edge_notes(ends, both_ways, rules, n, adjacency.nnz, kinds if relations else None)
    notes += [f"edges: {note}" for note in done]
    labels = parts_of_labels(getattr(data[scored], "y", None), where)
    known = labels["y"]
    if known is not None and known.shape != (n_scored,):
        raise InputError(f"{where}: y of {scored!r} must have one label per node, got {tuple(known.shape)}")
    parts = {
        "adjacency": adjacency,
        "relations": relations_of(ends, weights, kinds, n, rules) if relations else (),
        "x": x,
        "columns": columns,
        "feature_names": tuple(column.name for column in columns),
        **labels,
        "y": None if known is None else torch.cat([known, torch.full((n - n_scored,), -1)]),
        "split": split_of_masks(data[scored], n_scored, where),
        "scored": torch.arange(n) < n_scored if len(types) > 1 else None,
        "name": name,
        "notes": (*labels.get("notes", ()), *notes),
    }
    return parts if len(columns) > 1 else with_neighbours(parts)


def _scored_type(data: HeteroData, scored: str | None, where: str) -> str:
    labelled = [each for each in data.node_types if getattr(data[each], "y", None) is not None]
    if scored is None and len(labelled) == 1:
        return str(labelled[0])
    if scored is None or scored not in data.node_types:
        got = f"got {scored!r}" if scored is not None else f"{len(labelled)} types have labels"
        raise InputError(
            f"{where}: one type of nodes must be scored, {got}; the types are {names_in_words(data.node_types, 10)}: "
            "say which (scored=TYPE)"
        )
    return scored


def _name(node: int, first: dict[str, int]) -> str:
    """Returns what a message calls a node: its type, and its number among these."""
    kind = [each for each, begin in first.items() if begin <= node][-1]
    return f"{kind} {node - first[kind]}"


def _size(data: HeteroData, kind: str, where: str) -> int:
    size = data[kind].num_nodes
    if size is None:
        raise InputError(f"{where}: nothing says how many nodes of {kind!r} there are: set x or num_nodes of this type")
    return int(size)


def _features(data: HeteroData, types: list[str], sizes: list[int], where: str) -> tuple[Tensor, tuple[Column, ...]]:
    """Returns the features of all types side by side, float32 [n, d], and what they are."""
    blocks, columns = [], [Column(TYPE, "categorical", tuple(types))]
    blocks.append(torch.repeat_interleave(torch.arange(len(types)), torch.tensor(sizes)).float()[:, None])
    for number, kind in enumerate(types):
        given = getattr(data[kind], "x", None)
        if given is None:
            continue
        own = feature_rows(given, f"{where}, type {kind!r}", f"x of {kind!r}")
        own = own.to_dense() if isinstance(own, Csr) else own
        if len(own) != sizes[number]:
            raise InputError(f"{where}: x of {kind!r} must have one row per node, {sizes[number]}, got {len(own)}")
        block = torch.full((sum(sizes), own.shape[1]), torch.nan)
        before = sum(sizes[:number])
        block[before : before + len(own)] = own.cpu()
        blocks.append(block)
        columns += [Column(f"{kind} {i}") for i in range(own.shape[1])]
    return torch.cat(blocks, 1), tuple(columns)


def _edges(
    data: HeteroData, first: dict[str, int], sizes: dict[str, int], where: str
) -> tuple[NumpyArray, NumpyArray | None, NumpyArray, list[str]]:
    """Returns all edges by numbers of nodes in one graph [m, 2], their weights or None, their types [m], and notes."""
    ends, weights, kinds, notes = [], list[NumpyArray | None](), [], list[str]()
    for kind in data.edge_types:
        source, relation, target = kind
        pairs, weight = edges_of_store(data[kind], (sizes[target], sizes[source]), where, notes, f" of {relation!r}")
        pairs = pairs if pairs.size else pairs.astype(np.int64)  # an empty tensor has floats
        for row, end in zip(pairs.T, (source, target), strict=True):
            if row.size and not 0 <= row.min() <= row.max() < sizes[end]:
                raise InputError(
                    f"{where}: edge_index of {relation!r} must be nodes of {end!r}, from 0 to {sizes[end] - 1}, got "
                    f"{row.min()} to {row.max()}"
                )
        ends.append(pairs + np.array([first[source], first[target]]))
        weights.append(weight)
        kinds.append(np.full(len(pairs), " ".join(kind)))
    if len({" ".join(kind) for kind in data.edge_types}) < len(data.edge_types):
        raise InputError(f"{where}: types of edges must differ in their words, but two read alike: rename one")
    if not ends:
        raise InputError(f"{where}: there must be edges of some type, got none")
    filled = [np.ones(len(e)) if w is None else w for e, w in zip(ends, weights, strict=True)]
    given = any(weight is not None for weight in weights)
    return np.concatenate(ends), np.concatenate(filled) if given else None, np.concatenate(kinds), notes
