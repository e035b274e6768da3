"""Graphs of several classes of one law, in whatever shares, whose names a careless join would mix up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from unittest import mock

import numpy as np
import scipy.sparse as sp
import torch

import calirare
from calirare.graph import csr_of_scipy

NAMES = ("plain", "plain_there", "=odd", "rare, one")
SHARES = (0.4, 0.3, 0.2, 0.1)
SHIFTED = (0.1, 0.15, 0.25, 0.5)


def blocks(n_nodes: int, shares: tuple[float, ...] = SHARES, seed: int = 0, labelled: int | None = None):
    """A graph without a split; features and neighbours tell the classes roughly; the first `labelled` have labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), n_nodes, p=shares)
    i, j = rng.integers(0, n_nodes, (2, 8 * n_nodes))
    kept = (rng.random(8 * n_nodes) < np.where(y[i] == y[j], 0.6, 0.12)) & (i < j)
    edges = sp.coo_matrix((np.ones(kept.sum(), np.float32), (i[kept], j[kept])), shape=(n_nodes, n_nodes)).tocsr()
    edges.data[:] = 1
    x = rng.standard_normal((n_nodes, 6)) + np.eye(len(shares), 6)[y]
    given = torch.from_numpy(np.where(np.arange(n_nodes) < (n_nodes if labelled is None else labelled), y, -1))
    return calirare.Graph(
        csr_of_scipy((edges + edges.T).astype(np.float32)),
        torch.from_numpy(x.astype(np.float32)),
        given,
        class_names=NAMES[: len(shares)],
        name=f"blocks {seed}",
    )


def file_of(graph: calirare.Graph, folder: Path, name: str, **changes) -> Path:
    """Writes a graph, or one with changes."""
    path = folder / f"{name}.npz"
    dataclasses.replace(graph, **changes).to_npz(path)
    return path


def without_pictures():
    """Meanwhile runs of many classes draw nothing: it saves seconds."""

    def draw(judged: object, folder: Path, *_: object) -> None:
        for name in ("reliability.png", "classes.png"):
            (folder / name).write_bytes(b"")

    return mock.patch("calirare.run.judging.Judged.draw", draw)
