"""Cora, CiteSeer and PubMed from Planetoid's raw files (Yang et al., 2016), through a restricted unpickler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from calirare._util.errors import InputError
from calirare.datasets.pickles import read_pickle
from calirare.graph.arrays import as_features
from calirare.graph.edges import Array, EdgeRules, build_adjacency
from calirare.graph.graph import Graph
from calirare.graph.splits import N_VAL, Split

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def raw_files(prefix: str) -> tuple[str, ...]:
    """Returns the names of the eight files of a Planetoid graph, for example of prefix "cora"."""
    return tuple(f"ind.{prefix}.{part}" for part in PARTS)


def read_planetoid(folder: Path, prefix: str) -> Graph:
    """Returns a Planetoid graph with its classes and public split.

    The test rows are put in the order of `test.index`. Test nodes that the files leave out (15 of CiteSeer) get zero
    features and the label -1. Missing opposite edges are added, repeated edges and self loops dropped.

    Args:
        folder: holds the eight files `ind.<prefix>.*`.
        prefix: "cora", "citeseer" or "pubmed".

    Returns:
        The graph; 500 nodes after the training nodes validate.

    Raises:
        InputError: a file is missing, damaged or does not fit the others.
    """
    missing = [name for name in raw_files(prefix) if not (folder / name).is_file()]
    if missing:
        raise InputError(f"{prefix}: the file {folder / missing[0]} is missing ({len(missing)} of 8): put it there")
    part = {name: read_pickle(folder / f"ind.{prefix}.{name}") for name in PARTS if name != "test.index"}
    test = _read_index(folder / f"ind.{prefix}.test.index")
    _check_kinds(part, folder, prefix)
    try:
        return _assemble(part, test, prefix, folder)
    except InputError:
        raise
    # The parts are whatever the files hold, and any mismatch among them shows as one of these.
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder}: the files of {prefix} do not fit together ({error}): get them again") from error


def _check_kinds(part: dict[str, Any], folder: Path, prefix: str) -> None:
    """Checks that each file holds a matrix, a table of labels, or lists of neighbours, as its name says."""
    import scipy.sparse as sp

    for name, thing in part.items():
        if name == "graph":
            wanted, fits = "lists of neighbours", isinstance(thing, dict)
        elif name.endswith("x"):
            wanted, fits = "a sparse matrix", sp.issparse(thing)
        else:
            wanted, fits = "a table of whole numbers", isinstance(thing, np.ndarray) and thing.ndim == 2
            fits = fits and thing.dtype.kind in "iu"
        if not fits:
            path = folder / f"ind.{prefix}.{name}"
            raise InputError(f"{path}: the file must hold {wanted}, got {type(thing).__name__}: get it again")


def _read_index(path: Path) -> Array:
    """Returns the test nodes in the order of the test rows."""
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except ValueError as error:
        raise InputError(f"{path}: the file must hold one node number per line ({error}): get it again") from error


def _assemble(part: dict[str, Any], test: Array, prefix: str, folder: Path) -> Graph:
    """Returns the graph made of the files' contents."""
    import scipy.sparse as sp

    n_known = part["allx"].shape[0]
    n = int(test.max()) + 1
    if part["tx"].shape[0] != len(test) or len(part["ty"]) != len(test) or test.min() < n_known:
        raise InputError(f"{folder}: tx, ty and test.index must list the same nodes after allx: get the files again")
    # Row i of tx belongs to node test[i]; nodes no row belongs to keep zeros.
    place = sp.csr_matrix(
        (np.ones(len(test), np.float32), (test - n_known, np.arange(len(test)))), (n - n_known, len(test))
    )
    x = sp.vstack([part["allx"], place @ part["tx"]]).tocsr()
    one_hot = np.zeros((n, part["ally"].shape[1]), dtype=np.int64)
    one_hot[:n_known] = part["ally"]
    one_hot[test] = part["ty"]
    y = np.where(one_hot.any(1), one_hot.argmax(1), -1)
    lists = part["graph"]
    sources = np.repeat(list(lists), [len(ends) for ends in lists.values()])
    edges = np.stack([sources, np.concatenate(list(lists.values()))], axis=1)
    rules = EdgeRules(symmetrize=True, duplicates="drop", self_loops="drop")
    adjacency = build_adjacency(edges.astype(np.int64), None, n, rules, str(folder))
    n_train = len(part["y"])
    if not np.array_equal(part["y"], part["ally"][:n_train]) or (part["x"] != part["allx"][:n_train]).nnz:
        raise InputError(f"{folder}: x and y must be the first rows of allx and ally: get the files again")
    train, val = torch.arange(n_train), torch.arange(n_train, n_train + N_VAL)
    split = Split(train, val, torch.from_numpy(test), "public")
    return Graph(
        adjacency, as_features(x, str(folder)), torch.from_numpy(y), split=split, name=prefix, where=str(folder)
    )
