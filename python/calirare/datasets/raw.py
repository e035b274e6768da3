"""Raw files of two projects: FaceBook's pages as words (MUSAE), and DBLP in GraphData's pickled archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calirare._util.errors import InputError
from calirare.datasets.pickles import open_pickled_arrays
from calirare.graph.arrays import as_features, as_labels
from calirare.graph.edges import EdgeRules, build_adjacency
from calirare.graph.graph import Graph
from calirare_ext import Csr

MUSAE_FILES = ("facebook_edges.csv", "facebook.json", "facebook_target.csv")
PAGE_TYPES = ("company", "tvshow", "politician", "government")
RULES = EdgeRules(symmetrize=True, duplicates="drop", self_loops="drop")


def read_musae(folder: Path) -> Graph:
    """Returns the FaceBook pages with the words of each page as sparse features of 1.

    Args:
        folder: holds `facebook_edges.csv` (id_1, id_2), `facebook.json` (words by page) and `facebook_target.csv`
            (id, ..., page_type), as in the MUSAE project (Rozemberczki et al., 2021).

    Returns:
        The graph with its four classes; each edge in both directions, self loops dropped.

    Raises:
        InputError: a file is missing or damaged.
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
    adjacency = build_adjacency(edges, None, n, RULES, str(edges_path))
    return Graph(adjacency, x, torch.from_numpy(y), class_names=PAGE_TYPES, name="facebook_bag", where=str(folder))


def read_pickled_npz(path: Path) -> Graph:
    """Returns the graph of a GraphData archive, whose matrices are pickled; every non-zero feature becomes 1.

    Args:
        path: `.npz` with `adj_matrix`, `node_attr` and `node_label`.

    Returns:
        The graph with its classes.

    Raises:
        InputError: the file is missing, damaged, or asks for anything but plain data.
    """
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
    return Graph(
        build_adjacency(edges, None, adjacency.shape[0], RULES, str(path)),
        as_features(x, str(path)),
        as_labels(y, str(path)),
        name=path.stem,
        where=str(path),
    )
