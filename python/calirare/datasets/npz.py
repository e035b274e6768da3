"""Graphs in `.npz` archives: our own layout and the two that PyTorch Geometric's raw files have.

Our layout (every array plain, nothing pickled):

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
| `posterior` | optional float [n], P(y = 1) of simulated nodes |
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from calirare._util.errors import InputError
from calirare.datasets.archive import integers, open_arrays, require
from calirare.graph.arrays import as_features, as_labels
from calirare.graph.edges import Array, EdgeOptions, EdgeRules, build_adjacency
from calirare.graph.graph import Graph
from calirare.graph.splits import PARTS, Split
from calirare.graph.validation import as_posterior, has_self_loop, located
from calirare_ext import Csr

SPLIT_KEYS = ("train_idx", "val_idx", "test_idx")


def read_npz(path: str | Path, minority: int | str | None = None, **edge_options: Unpack[EdgeOptions]) -> Graph:
    """Returns the graph of an `.npz` file, as a rare-class task where a rare class is known.

    The rare class is `minority`, else the one stored in the file; labels that are 0 and 1 alone are a rare-class task
    with class 1 as the rare one. Otherwise the graph keeps its classes.

    Args:
        path: the file, in one of the layouts above or in the raw layout of PyTorch Geometric's CitationFull
            (`adj_indptr`, ...) or FacebookPagePage (`edges`, `features`, `target`).
        minority: number or name of the rare class.
        **edge_options: `symmetrize`, `duplicates` and `self_loops`, see `calirare.graph.edges.EdgeRules`.

    Returns:
        The graph.

    Raises:
        InputError: the file or the graph in it cannot be used.
    """
    path = Path(path)
    graph, stored = load_npz(path, EdgeRules(**edge_options))
    if minority is None and graph.y is not None:
        if stored is not None:
            minority = graph.class_names[stored]
        elif graph.class_names == ("0", "1"):
            minority = 1
    if minority is None:
        return graph
    with located(str(path)):
        return graph.rare(minority)


def load_npz(path: Path, rules: EdgeRules) -> tuple[Graph, int | None]:
    """Returns the graph of an `.npz` file with its classes as stored, and the number of the rare class stored in it.

    Args:
        path: the file, see `read_npz`.
        rules: what to do with repeated edges, self loops and missing opposite directions.

    Returns:
        The graph, and the rare class or None.

    Raises:
        InputError: the file or the graph in it cannot be used.
    """
    arrays = open_arrays(path)
    if "adj_indptr" in arrays:
        graph = _citation_full(arrays, rules, path)
    elif "target" in arrays and "edges" in arrays:
        graph = _page_page(arrays, rules, path)
    else:
        graph = _own_layout(arrays, rules, path)
    if "minority" not in arrays:
        return graph, None
    stored = arrays["minority"]
    if stored.size != 1 or stored.dtype.kind not in "iu" or not 0 <= int(stored.item()) < max(graph.n_classes, 1):
        raise InputError(
            f"{path}: minority must be one class from 0 to {graph.n_classes - 1}, got {stored.tolist()}: write it again"
        )
    return graph, int(stored.item())


def _own_layout(arrays: dict[str, Array], rules: EdgeRules, path: Path) -> Graph:
    """Returns the graph of our own layout, classes as stored."""
    if "known_rows" in arrays and "x" not in arrays:
        raise InputError(
            f"{path}: the file is incomplete, it has the features of {len(arrays['known_rows'])} of "
            f"{len(arrays['indptr']) - 1} nodes only: put ind.pubmed.allx at planetoid/PubMed/raw/ind.pubmed.allx and "
            "load the data set 'pubmed'"
        )
    require(arrays, ("indptr", "indices"), path)
    edges = _edges_of_csr(arrays["indptr"], arrays["indices"], path)
    x = _features(arrays, "x", path)
    rules = keeping_stored_loops(rules, _word(arrays, "self_loops", path), path)
    adjacency = build_adjacency(edges, arrays.get("weights"), len(arrays["indptr"]) - 1, rules, str(path))
    scaling: Any = _word(arrays, "feature_normalisation", path) or "none"  # `Graph` refuses another word
    return Graph(
        adjacency,
        x,
        _labels(arrays, path),
        split=_split(arrays, path),
        class_names=_names(arrays, "class_names", path),
        name=path.stem,
        feature_normalisation=scaling,
        posterior=as_posterior(arrays["posterior"], str(path)) if "posterior" in arrays else None,
        node_names=arrays.get("node_names"),
        feature_names=_names(arrays, "feature_names", path),
        where=str(path),
    )


def keeping_stored_loops(rules: EdgeRules, stored: object, path: Path) -> EdgeRules:
    """Returns the rules, with self loops kept where the graph was stored so and the user says nothing of them.

    Args:
        rules: what the user wants.
        stored: the word `self_loops` stored with the graph, or None.
        path: for the message.

    Returns:
        The rules.

    Raises:
        InputError: the stored word is another than "keep".
    """
    if stored not in (None, "keep"):
        raise InputError(f"{path}: self_loops must be 'keep' or left out, got {stored!r}: write it again")
    if stored is None or rules.self_loops != "error":
        return rules
    return dataclasses.replace(rules, self_loops="keep")


def _word(arrays: dict[str, Array], key: str, path: Path) -> str | None:
    """Returns the one word stored under a key, if it is there."""
    if key not in arrays:
        return None
    if arrays[key].size != 1:
        raise InputError(f"{path}: {key} must be one word, got an array of shape {arrays[key].shape}: write it again")
    return str(arrays[key].item())


def _labels(arrays: dict[str, Array], path: Path) -> torch.Tensor | None:
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


def _names(arrays: dict[str, Array], key: str, path: Path) -> tuple[str, ...]:
    """Returns the stored names of the classes or features, none where there are none."""
    names = arrays.get(key, np.empty(0, dtype=str))
    if names.ndim != 1:
        raise InputError(f"{path}: {key} must be a vector of names, got shape {names.shape}: write it again")
    return tuple(str(name) for name in names)


def _split(arrays: dict[str, Array], path: Path) -> Split | None:
    """Returns the stored split, if there is one."""
    if not any(key in arrays for key in SPLIT_KEYS):
        return None
    require(arrays, SPLIT_KEYS, path)
    parts = [torch.from_numpy(integers(arrays[key], key, path)) for key in SPLIT_KEYS]
    with located(str(path)):
        return Split(parts[0], parts[1], parts[2], _word(arrays, "split_name", path) or "public")


def _edges_of_csr(indptr: Array, indices: Array, path: Path, name: str = "indptr") -> Array:
    """Returns the edges [m, 2] of a CSR structure."""
    indptr, indices = integers(indptr, name, path), integers(indices, name.replace("indptr", "indices"), path)
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        ends = f"{indptr[0]} to {indptr[-1]}" if len(indptr) else "nothing"
        raise InputError(
            f"{path}: {name} must rise from 0 to the number of entries, {len(indices)}, got {ends}: write it again"
        )
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.stack([rows, indices], axis=1)


def _features(arrays: dict[str, Array], prefix: str, path: Path) -> torch.Tensor | Csr:
    """Returns the dense features `prefix`, or the sparse ones `prefix_indptr`, `prefix_indices` and so on."""
    if prefix in arrays:
        return as_features(arrays[prefix], str(path))
    keys = tuple(f"{prefix}_{part}" for part in ("indptr", "indices", "data", "shape"))
    require(arrays, keys, path)
    places = _edges_of_csr(arrays[keys[0]], arrays[keys[1]], path, keys[0])
    shape = integers(arrays[keys[3]], keys[3], path)
    if len(shape) != 2 or shape[0] != len(arrays[keys[0]]) - 1:
        raise InputError(f"{path}: {keys[3]} must be the rows and columns of the features, got {shape.tolist()}")
    n, d = (int(size) for size in shape)
    values = as_features(arrays[keys[2]], str(path))
    assert isinstance(values, torch.Tensor)
    with located(str(path)):
        try:
            rows, cols = (torch.from_numpy(np.ascontiguousarray(places[:, i])) for i in (0, 1))
            return Csr.from_coo(rows, cols, values, (n, d))
        except ValueError as error:
            raise InputError(f"features do not fit together ({error})") from error


def _citation_full(arrays: dict[str, Array], rules: EdgeRules, path: Path) -> Graph:
    """Returns the graph of PyTorch Geometric's CitationFull file; every non-zero feature becomes 1, as there."""
    require(arrays, ("adj_indptr", "adj_indices", "labels"), path)
    edges = _edges_of_csr(arrays["adj_indptr"], arrays["adj_indices"], path, "adj_indptr")
    x = _features(arrays, "attr", path)
    assert isinstance(x, Csr)
    x = Csr(x.indptr, x.indices, torch.ones_like(x.values), x.n_cols)
    adjacency = build_adjacency(edges, None, len(arrays["adj_indptr"]) - 1, rules, str(path))
    return Graph(adjacency, x, as_labels(arrays["labels"], str(path)), name=path.stem, where=str(path))


def _page_page(arrays: dict[str, Array], rules: EdgeRules, path: Path) -> Graph:
    """Returns the graph of PyTorch Geometric's FacebookPagePage file."""
    require(arrays, ("edges", "features", "target"), path)
    x = as_features(arrays["features"], str(path))
    adjacency = build_adjacency(arrays["edges"], None, x.shape[0], rules, str(path))
    return Graph(adjacency, x, as_labels(arrays["target"], str(path)), name=path.stem, where=str(path))


def write_npz(graph: Graph, path: str | Path) -> None:
    """Writes a graph in our own layout; a rare-class task keeps its classes before merging and the rare class.

    The file appears under its name only when it is complete.

    Args:
        graph: the graph.
        path: the file; an existing one is replaced.

    Raises:
        InputError: the file cannot be written.
    """
    path = Path(path)
    a, x = graph.adjacency.to("cpu"), graph.x
    arrays: dict[str, Array] = {"indptr": a.indptr.numpy(), "indices": a.indices.numpy()}
    if bool((a.values != 1).any()):
        arrays["weights"] = a.values.numpy()
    if has_self_loop(a):
        arrays["self_loops"] = np.asarray("keep")
    if graph.feature_normalisation != "none":
        arrays["feature_normalisation"] = np.asarray(graph.feature_normalisation)
    if isinstance(x, Csr):
        x = x.to("cpu")
        arrays |= {"x_indptr": x.indptr.numpy(), "x_indices": x.indices.numpy(), "x_data": x.values.numpy()}
        arrays["x_shape"] = np.asarray(x.shape, dtype=np.int64)
    else:
        arrays["x"] = x.cpu().numpy()
    y, names = (
        (graph.y, graph.class_names) if graph.original_y is None else (graph.original_y, graph.original_class_names)
    )
    if y is not None:
        arrays |= {"y": y.cpu().numpy(), "class_names": np.asarray(names)}
    if graph.minority is not None:
        arrays["minority"] = np.asarray(graph.minority, dtype=np.int64)
    if graph.split is not None:
        arrays |= {f"{part}_idx": getattr(graph.split, part).cpu().numpy() for part in PARTS}
        arrays["split_name"] = np.asarray(graph.split.name)
    if graph.posterior is not None:
        arrays["posterior"] = graph.posterior.cpu().numpy()
    if graph.feature_names:
        arrays["feature_names"] = np.asarray(graph.feature_names)
    if graph.node_names is not None:
        arrays["node_names"] = np.asarray(graph.node_names, dtype=str)
    _save(arrays, path)


def _save(arrays: dict[str, Array], path: Path) -> None:
    """Writes an archive that appears under its name only when it is complete."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.part"
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be written ({error.strerror}): make room or choose another folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # where it could not be written for the same reason
            temporary.unlink(missing_ok=True)
