"""Published graphs that no rule of ours has been fixed by. Their files are not among the project's data.

Files as published, all in one folder (`CALIRARE_UNSEEN`, by default the folder `unseen` of the project's data):

- `tolokers.npz`, `minesweeper.npz`, `actor.npz`, `squirrel_filtered.npz`: GitHub project
  yandex-research/heterophilous-graphs, data
- `reddit.pt`: unpacked from reddit.pt.zip of GitHub project pygod-team/data
- `musae_RU_*`, `musae_FR_*` (target.csv, edges.csv, features.json): GitHub project CUAI/Non-Homophily-Large-Scale,
  data/twitch
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

from calirare import Graph
from calirare_lab.published import data_root
from detection.tasks import Task

RULES: dict[str, Any] = {"symmetrize": True, "duplicates": "drop", "self_loops": "drop"}
MOST_DENSE = 100  # columns: more are words


def folder() -> Path:
    return Path(os.environ.get("CALIRARE_UNSEEN") or Path(data_root()) / "unseen")


def task(edges: np.ndarray, x: np.ndarray | sp.csr_array, rare: np.ndarray, name: str) -> Task:
    features = sp.csr_array(x) if x.shape[1] > MOST_DENSE else x
    return Task(Graph.from_edges(edges, features, rare.astype(np.int64), name=name, **RULES))


def heterophilous(file: str, name: str, rare: int) -> Task:
    with np.load(folder() / file) as held:
        x = held["node_features"].astype(np.float32)
        return task(held["edges"], x, held["node_labels"] == rare, name)


def reddit() -> Task:
    """Users of Reddit, of whom 3.3 % were banned."""
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        data = torch.load(folder() / "reddit.pt")
    return task(data.edge_index.T.numpy(), data.x.float().numpy(), data.y.bool().numpy(), "reddit")


def twitch(country: str) -> Task:
    """Streamers of one language; the rare ones are partners of the site."""
    own = {part: folder() / f"musae_{country}_{part}" for part in ("target.csv", "edges.csv", "features.json")}
    target = pd.read_csv(own["target.csv"]).drop_duplicates("new_id").set_index("new_id").sort_index()
    words = json.loads(own["features.json"].read_text(encoding="utf-8"))
    pairs = sorted({(int(node), word) for node, held in words.items() for word in held if int(node) < len(target)})
    rows, columns = np.array(pairs).T
    x = sp.csr_array((np.ones(len(rows), np.float32), (rows, np.unique(columns, return_inverse=True)[1])))
    x.resize(len(target), x.shape[1])
    return task(pd.read_csv(own["edges.csv"]).to_numpy(), x, target.partner.to_numpy(), f"twitch {country}")


SETS: dict[str, tuple[str, Callable[[], Task]]] = {
    "tolokers": ("workers who were banned", partial(heterophilous, "tolokers.npz", "tolokers", 1)),
    "minesweeper": (
        "mines; every second node shows no count",
        partial(heterophilous, "minesweeper.npz", "minesweeper", 1),
    ),
    "reddit": ("users who were banned", reddit),
    "actor": ("class 0 of five, words", partial(heterophilous, "actor.npz", "actor", 0)),
    "squirrel": ("class 4 of five, words", partial(heterophilous, "squirrel_filtered.npz", "squirrel", 4)),
    "twitch RU": ("partners of the site, words", partial(twitch, "RU")),
    "twitch FR": ("partners of the site, words", partial(twitch, "FR")),
}
