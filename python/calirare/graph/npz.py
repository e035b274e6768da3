"""Graphs in `.npz` archives, every array plain, nothing pickled.

| key | meaning |
| --- | --- |
| `indptr`, `indices` | integer CSR of the adjacency, both directions of each edge |
| `weights` | optional float [nnz], > 0; without it every weight is 1 |
| `x` | float [n, d] dense features, or instead `x_indptr`, `x_indices`, `x_data`, `x_shape`: the features in CSR |
| `y` | optional integer [n], the classes before merging, -1 for unknown |
| `minority` | optional, the class that is the rare one |
| `unlabelled_idx` | optional, nodes whose `y` stands for nothing |
| `train_idx`, `val_idx`, `test_idx` | optional, a split; `split_name` says how it was made |
| `feature_normalisation` | optional, "row" or "standardize": how the features want to be scaled before use |
| `self_loops` | optional, "keep": the edges hold self loops on purpose |
| `class_names`, `node_names`, `feature_names` | optional strings; no two classes are called alike |
| `columns` | optional, JSON: name, kind and categories of each column of `x`, where NaN stands for a missing value |
| `relations` | optional strings; the edges of the i-th leave in `relation<i>_indptr`, `_indices` (int32), `_values` |
| `scored` | optional bool [n], the nodes that are scored |
| `time` | optional float64 [n], when each node came to be |
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray, integers, open_arrays, require
from calirare._util.errors import InputError, cut
from calirare._util.file_locks import part_file
from calirare.graph.arrays import Parts, as_features, as_labels, as_time
from calirare.graph.columns import columns_of_text, columns_to_text
from calirare.graph.edges import STRICT, build_adjacency
from calirare.graph.options import EdgeRules
from calirare.graph.relations import relation_arrays, stored_relations
from calirare.graph.splits import PARTS, Split
from calirare.graph.validation import has_self_loop, located
from calirare_ext import Csr


def read_npz(path: Path, rules: EdgeRules) -> tuple[Parts, int | None]:
    """Returns the parts of the graph in an `.npz` file, classes as stored, and the number of the rare class stored.

    Args:
        path: the file.
        rules: what to do with repeated edges, self loops and missing opposite directions.

    Raises:
        InputError: the file or the graph in it cannot be used.
    """
    arrays = open_arrays(path)
    parts = _read(arrays, rules, path)
    stored = arrays.get("minority", np.array(None))
    return parts, stored_minority(stored.item() if stored.size == 1 else stored.tolist(), parts, path)


def _read(arrays: dict[str, NumpyArray], rules: EdgeRules, path: Path) -> Parts:
    """Returns the parts of a stored graph."""
    require(arrays, ("indptr", "indices"), path)
    edges = _edges_of_csr(arrays["indptr"], arrays["indices"], path)
    x = _features(arrays, "x", path)
    facts = {key: arrays[key].tolist() for key in STORED_FACTS if key in arrays}
    facts = {key: list(map(str, each)) if isinstance(each, list) else each for key, each in facts.items()}
    rules = keeping_stored_loops(rules, facts.get("self_loops"), path)
    n = len(arrays["indptr"]) - 1
    adjacency = build_adjacency(edges, arrays.get("weights"), n, rules, str(path))
    return stored_parts(arrays, {"name": path.stem} | facts, adjacency, x, path)


NAMES = ("class_names", "feature_names", "relations")
STORED_FACTS = (*NAMES, "split_name", "self_loops", "feature_normalisation", "columns")


def stored_parts(
    arrays: Mapping[str, NumpyArray], facts: Mapping[str, Any], adjacency: Csr, x: torch.Tensor | Csr, path: Path
) -> Parts:
    """Returns the parts of a graph that `arrays_of` stored as arrays and facts, in a file or a folder."""
    names = {key: names_of(facts, key, path) for key in NAMES}
    relations = stored_relations(arrays, names.pop("relations"), adjacency.n_rows, str(path))
    return {
        "adjacency": adjacency,
        "x": x,
        "y": _labels(arrays, path),
        "split": stored_split(arrays, facts.get("split_name"), path, ".npy" if path.is_dir() else ""),
        "name": str(facts["name"]),
        "feature_normalisation": facts.get("feature_normalisation", "none"),
        "scored": as_scored(arrays.get("scored"), path),
        "time": as_time(arrays["time"], str(path)) if "time" in arrays else None,
        "node_names": arrays.get("node_names"),
        "relations": relations,
        "columns": columns_of_text(facts.get("columns", "[]"), str(path)),
        "where": str(path),
        **names,
    }


def names_of(facts: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """Returns stored names of classes, features or relations, none where there are none."""
    names = facts.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        where, got = f"{key} in graph.json" if path.is_dir() else key, cut(json.dumps(names), 60)
        raise InputError(
            f'{path}: {where} must be a list of names such as ["rest", "fraud"], got {got}: correct it or leave it out'
        )
    return tuple(names)


def _labels(arrays: Mapping[str, NumpyArray], path: Path) -> torch.Tensor | None:
    """Returns the stored labels, -1 where they stand for nothing."""
    if "y" not in arrays:
        return None
    y = as_labels(arrays["y"], str(path)).clone()
    if "unlabelled_idx" in arrays:
        nodes = integers(arrays["unlabelled_idx"], "unlabelled_idx", path)
        if nodes.size and not 0 <= nodes.min() <= nodes.max() < len(y):
            raise InputError(f"{path}: unlabelled_idx must be nodes from 0 to {len(y) - 1}, got {nodes.max()}")
        y[torch.from_numpy(nodes)] = -1
    return y


def _edges_of_csr(indptr: NumpyArray, indices: NumpyArray, path: Path, name: str = "indptr") -> NumpyArray:
    """Returns the edges [m, 2] of a CSR structure."""
    indptr, indices = integers(indptr, name, path), integers(indices, name.replace("indptr", "indices"), path)
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        ends = f"{indptr[0]} to {indptr[-1]}" if len(indptr) else "nothing"
        raise InputError(
            f"{path}: {name} must rise from 0 to the number of entries, {len(indices)}, got {ends}: write it again"
        )
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.stack([rows, indices], axis=1)


def _features(arrays: dict[str, NumpyArray], prefix: str, path: Path) -> torch.Tensor | Csr:
    """Returns the dense features `prefix`, or the sparse ones `prefix_indptr`, `prefix_indices` and so on."""
    if prefix in arrays:
        return as_features(arrays[prefix], str(path))
    keys = tuple(f"{prefix}_{part}" for part in ("indptr", "indices", "data", "shape"))
    require(arrays, keys, path)
    places = _edges_of_csr(arrays[keys[0]], arrays[keys[1]], path, keys[0])
    shape = integers(arrays[keys[3]], keys[3], path)
    if len(shape) != 2 or shape[0] != len(arrays[keys[0]]) - 1:
        raise InputError(f"{path}: {keys[3]} must be the rows and columns of the features, got {shape.tolist()[:5]}")
    n, d = (int(size) for size in shape)
    values = as_features(arrays[keys[2]], str(path))
    assert isinstance(values, torch.Tensor)
    try:
        rows, cols = (torch.from_numpy(np.ascontiguousarray(places[:, i])) for i in (0, 1))
        return Csr.from_coo(rows, cols, values, (n, d))
    except ValueError as error:
        raise InputError(f"{path}: features do not fit together ({error})") from error


def write_npz(graph: Parts, path: Path) -> None:
    """Writes a graph, given by its attributes, as an `.npz` file, which appears only when it is complete.

    Args:
        graph: the attributes; a rare-class task keeps its classes before merging and the rare class.
        path: the file; an existing one is replaced.

    Raises:
        InputError: the file cannot be written.
    """
    arrays, facts = arrays_of(graph)
    if "n_features" in facts:
        facts["x_shape"] = (len(arrays["x_indptr"]) - 1, facts.pop("n_features"))
    arrays |= {name: np.asarray(fact) for name, fact in facts.items()}
    try:
        with part_file(path) as (part, file):
            np.savez_compressed(file, allow_pickle=False, **arrays)
            file.flush()
            part.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be written ({error.strerror}): make room or choose another folder"
        ) from error


SPLIT_KEYS = tuple(f"{part}_idx" for part in PARTS)


def keeping_stored_loops(rules: EdgeRules, stored: object, path: Path) -> EdgeRules:
    """Returns the rules, with self loops kept where the graph was stored so and the user says nothing of them."""
    if stored not in (None, "keep"):
        raise InputError(f"{path}: self_loops must be 'keep' or left out, got {stored!r}: write it again")
    if stored is None or rules.self_loops not in STRICT:
        return rules
    return dataclasses.replace(rules, self_loops="keep")


def stored_minority(stored: object, parts: Parts, path: Path) -> int | None:
    """Returns the number of the stored rare class among the classes of a stored graph, or None."""
    if stored is None:
        return None
    y, names = parts["y"], parts["class_names"]
    n_classes = 0 if y is None or not y.numel() else len(names) or int(y.max()) + 1
    if type(stored) is int and 0 <= stored < max(n_classes, 1):
        return stored
    raise InputError(f"{path}: minority must be one class from 0 to {n_classes - 1}, got {stored!r}: write it again")


def stored_split(arrays: Mapping[str, NumpyArray], name: object, path: Path, suffix: str = "") -> Split | None:
    """Returns the split among stored arrays, if there is one; `suffix` is what a message adds to the arrays' names."""
    missing = [f"{key}{suffix}" for key in SPLIT_KEYS if key not in arrays]
    if len(missing) == len(SPLIT_KEYS):
        return None
    if missing:
        raise InputError(
            f"{path}: a split must be {', '.join(key + suffix for key in SPLIT_KEYS)}, but {', '.join(missing)} is "
            "missing: add it (a part may hold no node), or remove the others for a random split"
        )
    train, val, test = (torch.from_numpy(integers(arrays[key], key, path)) for key in SPLIT_KEYS)
    with located(str(path)):
        return Split(train, val, test, "public" if name is None else str(name))


def as_scored(values: NumpyArray | None, path: Path) -> Tensor | None:
    """Returns which nodes are scored as stored, bool [n], or None where all are."""
    if values is None:
        return None
    if values.dtype.kind != "b":
        raise InputError(f"{path}: scored must hold True or False for each node, got {values.dtype}: write it as bool")
    return torch.from_numpy(np.array(values))


def arrays_of(graph: Parts) -> tuple[dict[str, NumpyArray], dict[str, Any]]:
    """Returns the arrays and the facts (numbers, words, names) to store of a graph's attributes.

    A rare-class task keeps its classes before merging and the number of the rare one.
    """
    a, x = graph["adjacency"].to("cpu"), graph["x"].to("cpu")
    arrays: dict[str, NumpyArray] = {"indptr": a.indptr.numpy(), "indices": a.indices.numpy()}
    facts: dict[str, Any] = {}
    if bool((a.values != 1).any()):
        arrays["weights"] = a.values.numpy()
    if has_self_loop(a):
        facts["self_loops"] = "keep"
    if graph["feature_normalisation"] != "none":
        facts["feature_normalisation"] = graph["feature_normalisation"]
    if isinstance(x, Csr):
        arrays |= {"x_indptr": x.indptr.numpy(), "x_indices": x.indices.numpy(), "x_data": x.values.numpy()}
        facts["n_features"] = x.n_cols
    else:
        arrays["x"] = x.numpy()
    if graph["feature_names"]:
        facts["feature_names"] = list(graph["feature_names"])
    if graph["columns"]:
        facts["columns"] = columns_to_text(graph["columns"])
    before = "" if graph["original_y"] is None else "original_"
    if graph[f"{before}y"] is not None:
        arrays["y"] = graph[f"{before}y"].cpu().numpy()
        facts["class_names"] = list(graph[f"{before}class_names"])
    if graph["minority"] is not None:
        facts["minority"] = graph["minority"]
    if graph["split"] is not None:
        arrays |= {f"{part}_idx": getattr(graph["split"], part).cpu().numpy() for part in PARTS}
        facts["split_name"] = graph["split"].name
    if graph["relations"]:
        arrays |= relation_arrays(graph["relations"])
        facts["relations"] = [relation.name for relation in graph["relations"]]
    if graph["scored"] is not None:
        arrays["scored"] = graph["scored"].cpu().numpy()
    if graph["time"] is not None:
        arrays["time"] = graph["time"].cpu().numpy()
    if graph["node_names"] is not None:
        arrays["node_names"] = np.asarray(graph["node_names"], dtype=str)
    return arrays, facts
