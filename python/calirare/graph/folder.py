"""Graphs in folders of `.npy` files, which can be memory-mapped: for graphs that an `.npz` archive is too large for.

The arrays are those of `calirare.graph.npz`, a file each, of just these types: `indptr` and `x_indptr` int64,
`indices` (ascending in each row) and `x_indices` int32, `x`, `x_data` and `weights` float32, `y` int64; `x` may be
float16 as well, which takes half of the disk and is read into memory as float32. `graph.json` holds `format` and,
optionally, `name`, `class_names`, `minority`, `split_name`, `feature_normalisation`, `feature_names`, `columns` and
`relations` (see there), `self_loops`, with sparse features `n_features`, and `checksums`, the CRC-32 of each array's
file.

Features in fewer bytes are float16, or int8 with a scale and a shift per column: an int8 q stands for scale q + shift,
-128 for a missing value. Columns run evenly from their least to their greatest number, so that a number is off by up to
1/508 of that range: fine for ranks and shares, coarse for columns with a long tail, whose logarithms are better packed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray, file_checksum, map_array
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare.graph.arrays import Parts
from calirare.graph.columns import columns_of_text
from calirare.graph.edges import STRICT, build_adjacency
from calirare.graph.npz import (
    SPLIT_KEYS,
    arrays_of,
    as_posterior,
    as_scored,
    check_indptr,
    keeping_stored_loops,
    stored_minority,
    stored_split,
)
from calirare.graph.options import EdgeRules
from calirare.graph.relations import stored_relations
from calirare.graph.validation import has_self_loop
from calirare_ext import Csr

Packing = Literal["float32", "float16", "int8"]


MISSING, TOP = -128, 127


SCALES = ("x_scale", "x_shift")  # files beside x.npy, float32 [d], of int8 alone


def packed(x: NumpyArray, packing: Packing, where: str) -> dict[str, NumpyArray]:
    """Returns dense features, float32 [n, d], as the arrays that are stored, by name.

    Raises:
        InputError: the packing is unknown, or a number is too large for float16.
    """
    if packing not in get_args(Packing):
        raise InputError(f"{where}: features can be stored as {', '.join(get_args(Packing))}, got {packing!r}")
    if packing == "float32":
        return {"x": x}
    if packing == "float16":
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        wrong = np.isinf(half) & np.isfinite(x)
        if wrong.any():
            raise InputError(
                f"{where}: column {int(wrong.any(0).argmax())} has numbers beyond 65,504, which float16 does not hold: "
                "scale it, or store float32"
            )
        return {"x": half}
    known = np.isfinite(x)
    low, high = (np.where(known, x, end).astype(np.float64) for end in (np.inf, -np.inf))
    low, high = low.min(0, initial=np.inf), high.max(0, initial=-np.inf)
    low, high = np.where(low > high, 0.0, low), np.where(low > high, 0.0, high)  # of a column without a number
    shift, scale = (low + high) / 2, np.where(high > low, (high - low) / (2 * TOP), 1.0)
    q = np.where(known, np.rint((np.where(known, x, 0.0) - shift) / scale), MISSING).astype(np.int8)
    return {"x": q, "x_scale": scale.astype(np.float32), "x_shift": shift.astype(np.float32)}


def unpacked(x: NumpyArray, scale: NumpyArray | None, shift: NumpyArray | None) -> NumpyArray:
    """Returns stored rows as float32 [r, d]; the array itself where it is that already."""
    if x.dtype != np.int8:
        return x.astype(np.float32, copy=False)
    assert scale is not None
    assert shift is not None
    out = x.astype(np.float32)
    out *= scale
    out += shift
    out[x == MISSING] = np.nan
    return out


def check_scales(scale: NumpyArray, shift: NumpyArray, d: int, where: str) -> None:
    """Checks what stands beside features in int8.

    Raises:
        InputError: there is not one finite number per column.
    """
    for name, each in (("x_scale", scale), ("x_shift", shift)):
        if each.dtype != np.float32 or each.shape != (d,) or not np.isfinite(each).all():
            raise InputError(
                f"{where}: {name}.npy must hold a finite float32 per feature, {d}, beside features in int8, got "
                f"{each.dtype} of shape {each.shape}: write the folder again"
            )


FACTS, FORMAT = "graph.json", "calirare graph 1"


ARRAYS = ("indptr", "indices", "weights", "x", "x_indptr", "x_indices", "x_data", *SCALES, "node_names", "scored")


CHUNK = 1 << 24  # indices checked together


def read_folder(path: Path, rules: EdgeRules) -> tuple[Parts, int | None]:
    """Returns the parts of the graph in a folder, memory-mapped, classes as stored, and the rare class stored in it.

    Indices and their order are checked always; symmetry, weights, self loops and finiteness where the arrays are not
    those that `write_folder` wrote, which writes checked graphs alone: their checksums tell.

    Args:
        path: the folder.
        rules: what to do with repeated edges, self loops and missing opposite directions. Edges that a rule changes
            are read into memory.

    Raises:
        InputError: a file is missing or damaged, or the graph cannot be used.
    """
    facts = facts_of(path)
    checked = _as_written(facts, path)
    rules = keeping_stored_loops(rules, facts.get("self_loops"), path)
    adjacency = _with_rules(_matrix(path, "", facts), rules, path, checked=checked)
    n = adjacency.n_rows
    x = _dense_features(path) if (path / "x.npy").exists() else _matrix(path, "x_", facts)
    y = _vector(path, "y", torch.int64) if (path / "y.npy").exists() else None
    if x.shape[0] != n or (y is not None and y.numel() != n):
        raise InputError(f"{path}: x and y must have one row per node, {n}, got {x.shape[0]}: write the folder again")
    optional = ("posterior", "scored", "node_names", *SPLIT_KEYS)
    arrays = {name: map_array(path / f"{name}.npy") for name in optional if (path / f"{name}.npy").exists()}
    relations = names_of(facts, "relations", path)
    files = [f"relation{i}_{part}" for i in range(len(relations)) for part in ("indptr", "indices", "values")]
    mapped = {name: map_array(path / f"{name}.npy") for name in files}
    parts: Parts = {
        "adjacency": adjacency,
        "x": x,
        "y": y,
        "split": stored_split(arrays, facts.get("split_name"), path, ".npy"),
        "class_names": names_of(facts, "class_names", path),
        "name": str(facts.get("name", path.name)),
        "feature_normalisation": facts.get("feature_normalisation", "none"),
        "posterior": as_posterior(arrays["posterior"], path) if "posterior" in arrays else None,
        "scored": as_scored(arrays.get("scored"), path),
        "node_names": arrays.get("node_names"),
        "feature_names": names_of(facts, "feature_names", path),
        "relations": stored_relations(mapped, relations, n, str(path)),
        "columns": columns_of_text(facts.get("columns", "[]"), str(path)),
        "where": str(path),
        "trusted": checked,
    }
    return parts, stored_minority(facts.get("minority"), parts, path)


def write_folder(graph: Parts, path: Path, packing: Packing = "float32") -> None:
    """Writes a graph, given by its attributes, as a folder that `read_folder` maps.

    Args:
        graph: the attributes; a rare-class task keeps its classes before merging and the rare class.
        path: the folder; it must not be there.
        packing: how dense features are stored, see `calirare.graph.folder`.

    Raises:
        InputError: the folder is there or cannot be written.
    """
    arrays, facts = arrays_of(graph)
    facts["name"] = graph["name"]
    with new_folder(path, facts) as partial:
        if "x" in arrays:
            arrays |= packed(arrays["x"], packing, str(path))
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", array, allow_pickle=False)
        facts["checksums"] = checksums_of(partial)


@contextmanager
def new_folder(path: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """Yields a folder to write a graph's arrays into, which is at `path` once the block ends, and gone if it fails.

    Args:
        path: the folder; it must not be there.
        facts: what `graph.json` will say beside the format, as it stands at the end of the block; `checksums` is
            written by those alone whose arrays fulfil every check.

    Yields:
        The folder under its passing name, on the same disk.

    Raises:
        InputError: the folder is there or cannot be written.
    """
    if path.exists():
        raise InputError(f"{path}: exists already: choose another folder or remove it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        try:
            yield partial
            text = json.dumps(facts | {"format": FORMAT}, indent=2, sort_keys=True)
            (partial / FACTS).write_text(text + "\n", encoding="utf-8")
            partial.chmod(0o755)
            os.replace(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{path}: the folder cannot be written ({error.strerror}): make room or choose another"
        ) from error


def facts_of(path: Path) -> dict[str, Any]:
    """Returns what `graph.json` says.

    Raises:
        InputError: it is missing or damaged, or an array that it lists is missing, but for labels and a split.
    """
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
    """Returns whether every array of a folder is the one `write_folder` wrote; what is not said is not believed."""
    said = facts.get("checksums")
    if not isinstance(said, dict) or not said:
        return False
    try:
        return checksums_of(path) == said
    except OSError as error:
        raise InputError(f"{path}: an array cannot be read ({error.strerror}): write the folder again") from error


def names_of(facts: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    """Returns the names of the classes or features that `graph.json` gives, none where it gives none."""
    names = facts.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f'{path}: {key} in {FACTS} must be a list of names such as ["rest", "fraud"], got {json.dumps(names)}: '
            "mend it or leave it out"
        )
    return tuple(names)


def _with_rules(adjacency: Csr, rules: EdgeRules, path: Path, *, checked: bool) -> Csr:
    """Returns the adjacency under the rules: as it is, mapped, where they change nothing, else made anew in memory."""
    changed = rules.symmetrize or rules.duplicates not in STRICT
    if rules.self_loops == "drop" or (rules.self_loops in STRICT and not checked):
        changed = changed or has_self_loop(adjacency)  # made anew it has none, or is refused
    if not changed:
        return adjacency
    edges = torch.stack([adjacency.rows(), adjacency.indices.long()], 1).numpy()
    return build_adjacency(edges, adjacency.values.numpy(), adjacency.n_rows, rules, str(path))


def _vector(path: Path, name: str, dtype: torch.dtype, n_dims: int = 1) -> Tensor:
    """Returns an array of the folder with the dtype and dimensions it must have."""
    array = map_array(path / f"{name}.npy")
    wanted = str(dtype).removeprefix("torch.")
    fits = array.dtype.name == wanted and array.dtype.isnative
    if not fits or array.ndim != n_dims or not array.flags.c_contiguous:
        raise InputError(
            f"{path}: {name} must be {wanted} with {n_dims} dimension{'s' * (n_dims > 1)} in C order, got "
            f"{array.dtype} of shape {array.shape}: write it again"
        )
    return torch.from_numpy(array)


def _dense_features(path: Path) -> Tensor:
    """Returns the features, float32: mapped where they are stored so, else read into memory."""
    stored = map_array(path / "x.npy")
    kind = {"float16": torch.float16, "int8": torch.int8}.get(stored.dtype.name, torch.float32)
    x = _vector(path, "x", kind, 2)
    if kind == torch.float32:
        return x
    scales = [map_array(path / f"{name}.npy") if kind == torch.int8 else None for name in SCALES]
    if scales[0] is not None and scales[1] is not None:
        check_scales(scales[0], scales[1], x.shape[1], str(path))
    return torch.from_numpy(unpacked(x.numpy(), *scales))


def _matrix(path: Path, prefix: str, facts: dict[str, Any]) -> Csr:
    """Returns the adjacency (no prefix) or the sparse features (prefix "x_"), indices checked."""
    indptr = _vector(path, f"{prefix}indptr", torch.int64)
    indices = _vector(path, f"{prefix}indices", torch.int32)
    n = indptr.numel() - 1
    n_cols = facts.get("n_features", 0) if prefix else n
    if type(n_cols) is not int or n_cols < 0:
        raise InputError(f"{path}: n_features in {FACTS} must be the number of features, got {n_cols!r}: mend it")
    check_indptr(indptr.numpy(), indices.numel(), f"{prefix}indptr", path)
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
    matrix = Csr(indptr, indices, values, n_cols)
    row = matrix.disordered_row()
    if row is not None:
        raise InputError(f"{path}: {prefix}indices must ascend in each row, those of row {row} do not: sort them")
    return matrix
