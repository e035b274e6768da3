"""Graphs in folders of `.npy` files, which can be memory-mapped: for graphs that an `.npz` archive is too large for.

| file | meaning |
| --- | --- |
| `graph.json` | `format`, and optional `name`, `class_names`, `minority`, `split_name`, `feature_normalisation`, |
| | `feature_names`, `self_loops` ("keep": the edges hold self loops on purpose) |
| `indptr.npy` int64, `indices.npy` int32 | CSR of the adjacency, both directions of each edge, columns ascending |
| `weights.npy` | optional float32 [nnz], > 0; without it every weight is 1 |
| `x.npy` | float32 [n, d], or `x_indptr.npy`, `x_indices.npy`, `x_data.npy` with `n_features` in `graph.json` |
| `y.npy` | optional int64 [n], the classes before merging, -1 for unknown |
| `train_idx.npy`, `val_idx.npy`, `test_idx.npy` | optional integers, a split |
| `posterior.npy`, `node_names.npy` | optional |
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.mapped import map_array
from calirare.datasets.archive import integers
from calirare.datasets.npz import keeping_stored_loops
from calirare.graph.edges import Array, EdgeRules, build_adjacency
from calirare.graph.graph import Graph
from calirare.graph.splits import PARTS, Split
from calirare.graph.validation import as_posterior, has_self_loop, located
from calirare_ext import Csr

FACTS, FORMAT = "graph.json", "calirare graph 1"
CHUNK = 1 << 24  # indices checked together


def load_folder(path: str | Path, rules: EdgeRules | None = None) -> tuple[Graph, int | None]:
    """Returns the graph in a folder, memory-mapped, with its classes as stored, and the rare class stored in it.

    Indices are checked always; symmetry, self loops and finiteness only where the folder was not written by
    `write_folder`, which writes checked graphs alone.

    Args:
        path: the folder.
        rules: what to do with repeated edges, self loops and missing opposite directions; None refuses them. Edges
            that a rule changes are read into memory.

    Returns:
        The graph, and the rare class or None.

    Raises:
        InputError: a file is missing or damaged, or the graph cannot be used.
    """
    path = Path(path)
    facts = _facts(path)
    checked = facts.get("checked") is True
    rules = keeping_stored_loops(rules or EdgeRules(), facts.get("self_loops"), path)
    adjacency = _with_rules(_matrix(path, "", facts), rules, path, checked=checked)
    n = adjacency.n_rows
    if (path / "x.npy").exists():
        x: Tensor | Csr = _vector(path, "x", torch.float32, 2)
    else:
        x = _matrix(path, "x_", facts)
    y = _vector(path, "y", torch.int64) if (path / "y.npy").exists() else None
    if x.shape[0] != n or (y is not None and y.numel() != n):
        raise InputError(f"{path}: x and y must have one row per node, {n}, got {x.shape[0]}: write the folder again")
    posterior = None
    if (path / "posterior.npy").exists():
        posterior = as_posterior(map_array(path / "posterior.npy"), str(path))
    names = map_array(path / "node_names.npy") if (path / "node_names.npy").exists() else None
    graph = Graph(
        adjacency,
        x,
        y,
        split=_split(path, facts),
        class_names=_names(facts, "class_names", path),
        name=str(facts.get("name", path.name)),
        feature_normalisation=facts.get("feature_normalisation", "none"),
        posterior=posterior,
        node_names=names,
        feature_names=_names(facts, "feature_names", path),
        where=str(path),
        trusted=checked,
    )
    stored = facts.get("minority")
    if stored is not None and not (type(stored) is int and 0 <= stored < max(graph.n_classes, 1)):
        raise InputError(f"{path}: minority must be one class from 0 to {graph.n_classes - 1}, got {stored!r}")
    return graph, stored


def write_folder(graph: Graph, path: str | Path, *, have: tuple[str, ...] = ()) -> None:
    """Writes a graph as a folder that `load_folder` maps; a rare-class task keeps its classes before merging.

    Args:
        graph: the graph.
        path: the folder; it must not be there, unless `have` names files that are there already.
        have: names of arrays that stand in the folder already, such as "x".

    Raises:
        InputError: the folder is there or cannot be written.
    """
    path = Path(path)
    if path.exists() and not have:
        raise InputError(f"{path}: exists already: choose another folder or remove it")
    facts: dict[str, Any] = {"format": FORMAT, "name": graph.name, "checked": True}
    facts["feature_normalisation"] = graph.feature_normalisation
    arrays = _arrays(graph, facts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path if have else Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        try:
            for name, array in arrays.items():
                if name not in have:
                    np.save(target / f"{name}.npy", array, allow_pickle=False)
            # Last, so that a folder that has it is complete.
            (target / FACTS).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            if target != path:
                target.chmod(0o755)
                os.replace(target, path)
        finally:
            if target != path:
                shutil.rmtree(target, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written ({error.strerror}): make room or choose another"
        ) from error


def _arrays(graph: Graph, facts: dict[str, Any]) -> dict[str, Array]:
    """Returns the arrays to write; says in `facts` what is no array."""
    a, x = graph.adjacency.to("cpu"), graph.x.to("cpu")
    arrays: dict[str, Array] = {"indptr": a.indptr.numpy(), "indices": a.indices.numpy()}
    if bool((a.values != 1).any()):
        arrays["weights"] = a.values.numpy()
    if has_self_loop(a):
        facts["self_loops"] = "keep"
    if graph.feature_names:
        facts["feature_names"] = list(graph.feature_names)
    if isinstance(x, Csr):
        arrays |= {"x_indptr": x.indptr.numpy(), "x_indices": x.indices.numpy(), "x_data": x.values.numpy()}
        facts["n_features"] = x.n_cols
    else:
        arrays["x"] = x.numpy()
    merged = graph.original_y is not None
    y, names = (graph.original_y, graph.original_class_names) if merged else (graph.y, graph.class_names)
    if y is not None:
        arrays["y"] = y.cpu().numpy()
        facts["class_names"] = list(names)
    if graph.minority is not None:
        facts["minority"] = graph.minority
    if graph.split is not None:
        arrays |= {f"{part}_idx": getattr(graph.split, part).cpu().numpy() for part in PARTS}
        facts["split_name"] = graph.split.name
    if graph.posterior is not None:
        arrays["posterior"] = graph.posterior.cpu().numpy()
    if graph.node_names is not None:
        arrays["node_names"] = np.asarray(graph.node_names, dtype=str)
    return arrays


def _facts(path: Path) -> dict[str, Any]:
    """Returns what `graph.json` says."""
    try:
        facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: {FACTS} is missing, so this is not a graph's folder; `calirare.datasets.folder.write_folder` "
            "writes one"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: {FACTS} is not JSON ({error}): write the folder again") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{path}: {FACTS} must have format {FORMAT!r}: write the folder again")
    return facts


def _names(facts: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """Returns the names of the classes or features that `graph.json` gives, none where it gives none."""
    names = facts.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f'{path}: {key} in {FACTS} must be a list of names such as ["rest", "fraud"], got {json.dumps(names)}: '
            "mend it or leave it out"
        )
    return tuple(names)


def _split(path: Path, facts: dict[str, Any]) -> Split | None:
    """Returns the stored split, if there is one."""
    files = {part: path / f"{part}_idx.npy" for part in PARTS}
    missing = [file.name for file in files.values() if not file.exists()]
    if len(missing) == len(PARTS):
        return None
    if missing:
        raise InputError(
            f"{path}: a split must be {', '.join(file.name for file in files.values())}, but {', '.join(missing)} is "
            "missing: add it (a part may hold no node), or remove the others for a random split"
        )
    parts = [torch.from_numpy(integers(map_array(file), file.stem, path)) for file in files.values()]
    with located(str(path)):
        return Split(parts[0], parts[1], parts[2], str(facts.get("split_name", "public")))


def _with_rules(adjacency: Csr, rules: EdgeRules, path: Path, *, checked: bool) -> Csr:
    """Returns the adjacency under the rules: as it is, mapped, where they change nothing, else made anew in memory."""
    changed = rules.symmetrize or rules.duplicates != "error"
    if rules.self_loops == "drop" or (rules.self_loops == "error" and not checked):
        changed = changed or has_self_loop(adjacency)  # made anew it has none, or is refused
    if not changed:
        return adjacency
    edges = torch.stack([adjacency.rows(), adjacency.indices.long()], 1).numpy()
    return build_adjacency(edges, adjacency.values.numpy(), adjacency.n_rows, rules, str(path))


def _vector(path: Path, name: str, dtype: torch.dtype, n_dims: int = 1) -> Tensor:
    """Returns an array of the folder with the dtype and dimensions it must have."""
    array = map_array(path / f"{name}.npy")
    wanted = str(dtype).removeprefix("torch.")
    if array.dtype.name != wanted or array.ndim != n_dims or not array.flags.c_contiguous:
        raise InputError(
            f"{path}: {name} must be {wanted} with {n_dims} dimension{'s' * (n_dims > 1)} in C order, got "
            f"{array.dtype} of shape {array.shape}: write it again"
        )
    return torch.from_numpy(array)


def _matrix(path: Path, prefix: str, facts: dict[str, Any]) -> Csr:
    """Returns the adjacency (no prefix) or the sparse features (prefix "x_"), indices checked."""
    indptr = _vector(path, f"{prefix}indptr", torch.int64)
    indices = _vector(path, f"{prefix}indices", torch.int32)
    n = indptr.numel() - 1
    n_cols = facts.get("n_features", 0) if prefix else n
    if type(n_cols) is not int or n_cols < 0:
        raise InputError(f"{path}: n_features in {FACTS} must be the number of features, got {n_cols!r}: mend it")
    rises = indptr.numel() > 0 and int(indptr[0]) == 0 and int(indptr[-1]) == indices.numel()
    if not rises or bool((indptr[1:] < indptr[:-1]).any()):
        raise InputError(
            f"{path}: {prefix}indptr must rise from 0 to the number of entries, {indices.numel()}: write it again"
        )
    for start in range(0, indices.numel(), CHUNK):
        part = indices[start : start + CHUNK]
        if int(part.min()) < 0 or int(part.max()) >= n_cols:
            raise InputError(f"{path}: {prefix}indices must be from 0 to {n_cols - 1}: write the folder again")
    file = "x_data" if prefix else "weights"
    if (path / f"{file}.npy").exists() or prefix:
        values = _vector(path, file, torch.float32)
    else:
        values = torch.ones(indices.numel())
    if values.numel() != indices.numel():
        raise InputError(f"{path}: {file} must have one number per index, {indices.numel()}, got {values.numel()}")
    return Csr(indptr, indices, values, n_cols)
