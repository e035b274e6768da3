"""Raw files of published graphs: of Planetoid, PyTorch Geometric, MUSAE (FaceBook pages) and GraphData (DBLP)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calirare._util.array_files import NumpyArray, open_arrays, require
from calirare._util.errors import InputError
from calirare.graph import Graph, Split
from calirare.graph.splits import N_VAL
from calirare_ext import Csr
from calirare_lab.published.pickles import open_pickled_arrays, read_pickle

PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
MUSAE_FILES = ("facebook_edges.csv", "facebook.json", "facebook_target.csv")
PAGE_TYPES = ("company", "tvshow", "politician", "government")
# Of raw files, missing opposite edges are added, self loops and repeated edges dropped.
CLEANED: dict[str, Any] = {"symmetrize": True, "duplicates": "drop", "self_loops": "drop"}


def read_planetoid(folder: Path, prefix: str) -> Graph:
    """Returns a graph of Planetoid (Yang et al., 2016) with its classes and public split.

    The folder holds the eight files `ind.<prefix>.*`. The test rows are put in the order of `test.index`; test
    nodes that the files leave out (15 of CiteSeer) get zero features and the label -1. 500 nodes after the training
    nodes validate.
    """
    files = [f"ind.{prefix}.{part}" for part in PLANETOID_PARTS]
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise InputError(f"{prefix}: the file {folder / missing[0]} is missing ({len(missing)} of 8): put it there")
    part = {name: read_pickle(folder / f"ind.{prefix}.{name}") for name in PLANETOID_PARTS if name != "test.index"}
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


def _read_index(path: Path) -> NumpyArray:
    """Returns the test nodes in the order of the test rows."""
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except ValueError as error:
        raise InputError(f"{path}: the file must hold one node number per line ({error}): get it again") from error


def _assemble(part: dict[str, Any], test: NumpyArray, prefix: str, folder: Path) -> Graph:
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
    n_train = len(part["y"])
    if not np.array_equal(part["y"], part["ally"][:n_train]) or (part["x"] != part["allx"][:n_train]).nnz:
        raise InputError(f"{folder}: x and y must be the first rows of allx and ally: get the files again")
    train, val = torch.arange(n_train), torch.arange(n_train, n_train + N_VAL)
    split = Split(train, val, torch.from_numpy(test), "public")
    return Graph.from_edges(edges.astype(np.int64), x, y, name=prefix, where=str(folder), **CLEANED).with_split(split)


def read_musae(folder: Path) -> Graph:
    """Returns the FaceBook pages of MUSAE (Rozemberczki et al., 2021), the words of each page as sparse features of 1.

    The folder holds `facebook_edges.csv`, `facebook.json` (words by page) and `facebook_target.csv`.
    """
    import pandas as pd

    edges_path, words_path, target_path = (folder / name for name in MUSAE_FILES)
    for path in (edges_path, words_path, target_path):
        if not path.is_file():
            raise InputError(f"facebook_bag: the file {path} is missing: put it there")
    try:
        edges = pd.read_csv(edges_path).to_numpy()
        target = pd.read_csv(target_path, usecols=["id", "page_type"]).sort_values("id")
        words = json.loads(words_path.read_text(encoding="utf-8"))
        pages = [np.unique(np.asarray(words[str(node)], dtype=np.int64)) for node in range(len(words))]
        y = np.array([PAGE_TYPES.index(kind) for kind in target["page_type"]])
    except (ValueError, KeyError) as error:
        raise InputError(f"{folder}: the files are damaged ({error}): get them again") from error
    n = len(pages)
    rows = np.repeat(np.arange(n), [len(page) for page in pages])
    cols = np.concatenate(pages)
    x = Csr.from_coo(torch.from_numpy(rows), torch.from_numpy(cols), None, (n, int(cols.max()) + 1))
    return Graph.from_edges(edges, x, y, name="facebook_bag", where=str(folder), **CLEANED)


def read_pickled_npz(path: Path) -> Graph:
    """Returns the graph of a GraphData archive, whose matrices are pickled; every non-zero feature becomes 1."""
    matrices: dict[str, Any] = open_pickled_arrays(path)
    try:
        adjacency, x, y = (matrices[key] for key in ("adj_matrix", "node_attr", "node_label"))
        places = adjacency.tocoo()
        edges = np.stack([places.row, places.col], axis=1)
        x = (x != 0).astype(np.float32)
    except (KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: the file must hold adj_matrix, node_attr and node_label as matrices: get it again"
        ) from error
    return Graph.from_edges(edges, x, y, name=path.stem, where=str(path), **CLEANED)


def read_npz(path: Path) -> Graph:
    """Returns the graph of an `.npz` file, in our layout or a raw one of PyTorch Geometric's.

    These are CitationFull's (`adj_indptr`, ..), of which every non-zero feature becomes 1 as there, and
    FacebookPagePage's (`edges`, `features`, `target`).
    """
    import scipy.sparse as sp

    arrays = open_arrays(path)
    if "adj_indptr" in arrays:
        require(arrays, ("adj_indices", "attr_indptr", "attr_indices", "attr_shape", "labels"), path)
        n = len(arrays["adj_indptr"]) - 1
        try:
            adjacency, words = (
                sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape)
                for indices, indptr, shape in (
                    (arrays["adj_indices"], arrays["adj_indptr"], (n, n)),
                    (arrays["attr_indices"], arrays["attr_indptr"], tuple(arrays["attr_shape"])),
                )
            )
            edges = np.stack(adjacency.tocoo().coords, axis=1)
        except ValueError as error:
            raise InputError(f"{path}: the file is damaged ({error}): get it again") from error
        return Graph.from_edges(edges, words, arrays["labels"], name=path.stem, where=str(path), **CLEANED)
    if "target" in arrays and "edges" in arrays:
        require(arrays, ("features",), path)
        parts = (arrays["edges"], arrays["features"], arrays["target"])
        return Graph.from_edges(*parts, name=path.stem, where=str(path), **CLEANED)
    return Graph.read(path, **CLEANED)[0]
