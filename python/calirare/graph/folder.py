"""Graphs in folders of `.npy` files, which can be memory-mapped: for graphs that an `.npz` archive is too large for.

The arrays are those of `calirare.graph.npz`, a file each, of just these types: `indptr` and `x_indptr` int64,
`indices` (ascending in each row) and `x_indices` int32, `x`, `x_data` and `weights` float32, `y` int64; `x` may be
float16 as well, which takes half of the disk and is read into memory as float32. `graph.json` holds `format` and,
optionally, `name`, `class_names`, `minority`, `split_name`, `feature_normalisation`, `feature_names`, `columns` and
`relations` (see there), `self_loops`, with sparse features `n_features`, and `checksums`, the CRC-32 of each array's
file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import ArrayFile, NumpyArray, file_checksum, map_array
from calirare._util.errors import InputError
from calirare._util.file_locks import part_folder
from calirare._util.files import parse_json, read_text
from calirare.graph.arrays import Parts
from calirare.graph.edges import STRICT, build_adjacency
from calirare.graph.npz import arrays_of, keeping_stored_loops, stored_minority, stored_parts
from calirare.graph.options import EdgeRules
from calirare.graph.validation import has_self_loop
from calirare_ext import Csr

OF_NODES = ("node_names", "scored", "time")
FACTS, FORMAT = "graph.json", "calirare graph 1"
ARRAYS = ("indptr", "indices", "weights", "x", "x_indptr", "x_indices", "x_data", *OF_NODES)
DENSE = ("float32", "float16")  # types that dense features may be stored in


def array_files(path: Path) -> dict[str, ArrayFile]:
    """Returns the arrays of a folder by name; an InputError where a file is missing, damaged or does not fit."""
    files = {file.stem: ArrayFile.open(file) for file in sorted(path.glob("*.npy"))}
    kinds: dict[str, tuple[str, ...]] = {"indptr": ("int64",), "indices": ("int32",)}
    if "x" in files:
        kinds["x"] = DENSE
    else:
        kinds |= {"x_indptr": ("int64",), "x_indices": ("int32",), "x_data": ("float32",)}
    for name in kinds:
        if name not in files:
            raise InputError(f"{path}: {name}.npy is missing: the folder is incomplete, write it again")
    kinds |= {"weights": ("float32",)} if "weights" in files else {}
    for name, types in kinds.items():
        file, n_dims = files[name], 2 if name == "x" else 1
        if file.dtype.name not in types or len(file.shape) != n_dims:
            raise InputError(
                f"{path}: {name} must be {' or '.join(types)} with {n_dims} dimension{'s' * (n_dims > 1)}, got "
                f"{file.dtype} of shape {file.shape}: write it again"
            )
    n = files["indptr"].shape[0] - 1
    entries = {"weights": "indices", "x_data": "x_indices"}
    lengths = {"x": n, "x_indptr": n + 1} | dict.fromkeys(OF_NODES, n)
    lengths |= {name: files[of].shape[0] for name, of in entries.items() if name in files}
    for name in lengths.keys() & files.keys():
        if files[name].shape[:1] != (lengths[name],):
            what = f"number per entry of {entries[name]}" if name in entries else "row per node"
            got = f"{lengths[name]}, got shape {files[name].shape}"
            raise InputError(f"{path}: {name} must have one {what}, {got}: write it again")
    return files


def read_folder(path: Path, rules: EdgeRules) -> tuple[Parts, int | None]:
    """Returns the parts of the graph in a folder, memory-mapped, classes as stored, and the rare class stored in it.

    Indices and their order are checked always; symmetry, weights, self loops and finiteness where the arrays are not
    those that `write_folder` wrote, which writes checked graphs only: their checksums show it.

    Args:
        path: the folder.
        rules: what to do with repeated edges, self loops and missing opposite directions. Edges that a rule changes
            are read into memory.

    Raises:
        InputError: a file is missing or damaged, or the graph cannot be used.
    """
    facts = facts_of(path)
    files = array_files(path)
    checked = _as_written(facts, path)
    arrays = {name: map_array(file.path) for name, file in files.items()}
    rules = keeping_stored_loops(rules, facts.get("self_loops"), path)
    n = len(arrays["indptr"]) - 1
    adjacency = _with_rules(_matrix(arrays, "", n, path), rules, path, checked=checked)
    if "x" in arrays:
        x: Tensor | Csr = torch.from_numpy(arrays["x"].astype(np.float32, copy=False))
    else:
        n_features = facts.get("n_features", 0)
        if type(n_features) is not int or n_features < 0:
            raise InputError(
                f"{path}: n_features in {FACTS} must be the number of features, got {n_features!r}: correct it"
            )
        x = _matrix(arrays, "x_", n_features, path)
    parts = stored_parts(arrays, {"name": path.name} | facts, adjacency, x, path)
    return parts | {"trusted": checked}, stored_minority(facts.get("minority"), parts, path)


def write_folder(graph: Parts, path: Path) -> None:
    """Writes a graph, given by its attributes, as a folder that `read_folder` maps.

    Args:
        graph: the attributes; a rare-class task keeps its classes before merging and the rare class.
        path: the folder; it must not be there.

    Raises:
        InputError: the folder is there or cannot be written.
    """
    arrays, facts = arrays_of(graph)
    facts["name"] = graph["name"]
    with new_folder(path, facts) as partial:
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", array, allow_pickle=False)
        facts["checksums"] = checksums_of(partial)


@contextmanager
def new_folder(path: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """Yields a folder for a graph's arrays, which is at `path` with `facts` once the block ends, and gone if it fails.

    `facts` are read at the end of the block; only who has checked every array may put `checksums` there.
    """
    if path.exists():
        raise InputError(f"{path}: exists already: choose another folder or remove it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part_folder(path.parent, path.name) as partial:
            yield partial
            text = json.dumps(facts | {"format": FORMAT}, indent=2, sort_keys=True)
            (partial / FACTS).write_text(text + "\n", encoding="utf-8")
            partial.chmod(0o755)
            os.replace(partial, path)
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written ({error.strerror}): make room or choose another"
        ) from error


def facts_of(path: Path) -> dict[str, Any]:
    """Returns what `graph.json` holds; an InputError where it or an array that it lists is missing or damaged."""
    try:
        facts = parse_json(read_text(path / FACTS))
    except OSError as error:
        raise InputError(
            f"{path}: {FACTS} is missing, so this is not a graph's folder; `Graph.to_folder` writes one"
        ) from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {FACTS} is not JSON ({error}): write the folder again") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(f"{path}: {FACTS} must have format {FORMAT!r}: write the folder again")
    sums = facts.get("checksums")
    listed = sums if isinstance(sums, dict) else {}
    for name in ARRAYS:
        if name in listed and not (path / f"{name}.npy").exists():
            raise InputError(
                f"{path}: {name}.npy is missing, which {FACTS} lists: the folder is incomplete, write it again"
            )
    return facts


def checksums_of(folder: Path) -> dict[str, int]:
    """Returns the CRC-32 of each array's file in a folder, by its name."""
    return {file.stem: file_checksum(file) for file in sorted(folder.glob("*.npy"))}


def _as_written(facts: dict[str, Any], path: Path) -> bool:
    """Returns whether every array of a folder is the one `write_folder` wrote; without checksums it is not."""
    said = facts.get("checksums")
    if not isinstance(said, dict) or not said:
        return False
    try:
        return checksums_of(path) == said
    except OSError as error:
        raise InputError(f"{path}: an array cannot be read ({error.strerror}): write the folder again") from error


def _with_rules(adjacency: Csr, rules: EdgeRules, path: Path, *, checked: bool) -> Csr:
    """Returns the adjacency under the rules: mapped as it is where they change nothing, else built in memory."""
    changed = rules.symmetrize or rules.duplicates not in STRICT
    if rules.self_loops == "drop" or (rules.self_loops in STRICT and not checked):
        changed = changed or has_self_loop(adjacency)  # built again it has none, or is refused
    if not changed:
        return adjacency
    edges = torch.stack([adjacency.rows(), adjacency.indices.long()], 1).numpy()
    return build_adjacency(edges, adjacency.values.numpy(), adjacency.n_rows, rules, str(path))


def stored_matrix(arrays: Mapping[str, NumpyArray], prefix: str, n_cols: int, path: Path) -> Csr:
    """Returns the adjacency (no prefix) or the sparse features (prefix "x_")."""
    indptr, indices = (torch.from_numpy(arrays[f"{prefix}{name}"]) for name in ("indptr", "indices"))
    values = arrays.get("x_data" if prefix else "weights")
    try:
        return Csr(indptr, indices, torch.ones(len(indices)) if values is None else torch.from_numpy(values), n_cols)
    except ValueError as error:
        raise InputError(f"{path}: {prefix}indices cannot be used ({error}): write the folder again") from error


def _matrix(arrays: Mapping[str, NumpyArray], prefix: str, n_cols: int, path: Path) -> Csr:
    """Returns a stored matrix whose indices are checked to ascend."""
    matrix = stored_matrix(arrays, prefix, n_cols, path)
    row = matrix.disordered_row()
    if row is not None:
        raise InputError(f"{path}: {prefix}indices must ascend in each row, those of row {row} do not: sort them")
    return matrix
