"""The graphs, one loader each. Every one needs the files of the project's data folder but the simulated two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from calirare import Graph, load_dataset
from calirare.datasets import synthetic_rare
from calirare.graph import Normalisation
from calirare_lab.published import data_root
from detection.amlsim import amlsim
from detection.tasks import Task


def folder() -> Path:
    return Path(data_root())


def npz(file: str, name: str, minority: int, normalisation: Normalisation = "none") -> Task:
    graph = renamed(Graph.read(folder() / file)[0].rare(minority), name)
    return Task(dataclasses.replace(graph, feature_normalisation=normalisation, trusted=True))


def named(name: str) -> Task:
    """Returns a data set of the library, scaled as its catalogue says; its split is not used."""
    return Task(renamed(load_dataset(name, folder(), split="random"), name))


def renamed(graph: Graph, name: str) -> Graph:
    return dataclasses.replace(graph, name=name, split=None, trusted=True)


def otc() -> Task:
    """Bitcoin OTC: edges are the ratings above zero, weighted; what was rated, also below zero, are columns.

    The 316 labelled users are drawn and scored, the other 5,565 are in the graph. All ratings are there from the start,
    as in the published task: it is not one of foresight.
    """
    ratings = pd.read_csv(folder() / "fraud/otc_ratings.csv.gz", names=["source", "target", "rating", "time"])
    labels = pd.read_csv(folder() / "fraud/otc_labels.csv", names=["user", "label"])
    users = pd.Index(sorted({*ratings.source, *ratings.target, *labels.user}))
    x = pd.concat([rating_columns(ratings, side, users) for side in ("source", "target")], axis=1)
    good = ratings[ratings.rating > 0]
    edges = np.stack([users.get_indexer(good.source), users.get_indexer(good.target)], axis=1)
    y = np.full(len(users), -1)
    y[users.get_indexer(labels.user)] = (labels.label == -1).to_numpy()
    rules = {"symmetrize": True, "duplicates": "sum", "self_loops": "drop"}
    graph = Graph.from_edges(edges, x.to_numpy(), y, weight=good.rating.to_numpy(float), name="otc", **rules)
    return Task(graph)


def rating_columns(ratings: pd.DataFrame, side: str, users: pd.Index) -> pd.DataFrame:
    """Returns what a user's given ("source") or received ("target") ratings look like, 0 without any."""
    groups = ratings.assign(below=ratings.rating < 0).groupby(side)
    columns = {
        "count": groups.size(),
        "mean": groups.rating.mean(),
        "least": groups.rating.min(),
        "most": groups.rating.max(),
        "spread": groups.rating.std(ddof=0),
        "below": groups.below.mean(),
        "days": (groups.time.max() - groups.time.min()) / 86400,
    }
    return pd.DataFrame({f"{side} {name}": column for name, column in columns.items()}).reindex(users).fillna(0.0)


def simulated(name: str, seed: int, **model: object) -> Task:
    return Task(renamed(synthetic_rare(6000, seed=seed, n_features=32, **model), name))  # type: ignore[arg-type]


SETS: dict[str, Callable[[], Task]] = {
    "sichuan": partial(npz, "fraud/sichuan.npz", "sichuan", 1),
    "amazon": partial(npz, "fraud/amazon_upu.npz", "amazon", 1),
    "amlsim": lambda: amlsim(folder()),
    "otc": otc,
    "facebook": partial(named, "facebook"),
    "dblp": partial(named, "dblp"),
    "cora": partial(named, "cora"),
    "computers": partial(npz, "amazon_computers.npz", "computers", 9, "row"),
    # labels follow the mean of a direction over a node and its neighbours: own columns tell little
    "simulated, graph": partial(simulated, "simulated, graph", 1, labels="posterior", separation=0.0, mean_degree=16.0),
    # edges are drawn whatever the classes are
    "simulated, noise": partial(simulated, "simulated, noise", 2, labels="block", separation=2.5, homophily=0.0),
}


def truth(task: Task) -> torch.Tensor | None:
    """Returns P(rare) of each node where a simulation knows it."""
    return task.graph.posterior
