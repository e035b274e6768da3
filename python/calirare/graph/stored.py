"""What our two layouts of a stored graph, `npz` and `folder`, have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray, integers
from calirare._util.errors import InputError
from calirare.graph.arrays import Parts
from calirare.graph.columns import columns_to_text
from calirare.graph.edges import STRICT, EdgeRules
from calirare.graph.relations import relation_arrays
from calirare.graph.splits import PARTS, Split
from calirare.graph.validation import has_self_loop, located
from calirare_ext import Csr

SPLIT_KEYS = tuple(f"{part}_idx" for part in PARTS)


def keeping_stored_loops(rules: EdgeRules, stored: object, path: Path) -> EdgeRules:
    """Returns the rules, with self loops kept where the graph was stored so and the user says nothing of them."""
    if stored not in (None, "keep"):
        raise InputError(f"{path}: self_loops must be 'keep' or left out, got {stored!r}: write it again")
    if stored is None or rules.self_loops not in STRICT:
        return rules
    return dataclasses.replace(rules, self_loops="keep")


def check_indptr(indptr: NumpyArray, n_entries: int, name: str, path: Path) -> None:
    """Checks that the row pointers of a CSR structure rise from 0 to the number of its entries."""
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != n_entries or (indptr[1:] < indptr[:-1]).any():
        ends = f"{indptr[0]} to {indptr[-1]}" if len(indptr) else "nothing"
        raise InputError(
            f"{path}: {name} must rise from 0 to the number of entries, {n_entries}, got {ends}: write it again"
        )


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


def as_posterior(values: NumpyArray, path: Path) -> Tensor:
    """Returns a stored posterior, of any real dtype, as float64, not copied where it is that already."""
    if values.dtype.kind not in "iuf":
        raise InputError(f"{path}: posterior must hold real numbers, got {values.dtype}: write it as float64")
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"{path}: posterior must hold probabilities, from 0 to 1, got others: write it again")
    return torch.from_numpy(values.astype(np.float64, copy=False))


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
    if graph["posterior"] is not None:
        arrays["posterior"] = graph["posterior"].cpu().numpy()
    if graph["node_names"] is not None:
        arrays["node_names"] = np.asarray(graph["node_names"], dtype=str)
    return arrays, facts
