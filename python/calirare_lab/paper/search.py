"""How our default was chosen: training, number of networks, logits, target and sharpness, on validation nodes alone.

A third of the validation nodes is held out in turn: networks train on train + the other two thirds, the map is fitted
on these, and the held-out third is judged as test nodes are in the tables. No test node is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score, recall_score
from torch import Tensor

from calirare.calibration import target_weights
from calirare.graph import Graph
from calirare.metrics import class_ace, ece, macro_ace, nll
from calirare.models import fold_of
from calirare_lab.paper.cells import read_cell, write_cell
from calirare_lab.paper.choosing import WEIGHT_DECAYS
from calirare_lab.paper.context import Context
from calirare_lab.paper.ours import TRAINING, Recipe, calibrated, networks
from calirare_lab.paper.protocol import Place
from calirare_lab.paper.render import Table, write_tables

CHOSEN = "weight decay and hops by leave-one-out"
TRAININGS = {
    **{
        f"weight decay {decay:g}": Recipe(dataclasses.replace(TRAINING, weight_decay=decay), (), ())
        for decay in WEIGHT_DECAYS[:3]
    },
    "weight decay by leave-one-out": Recipe(TRAINING, hops=()),
    CHOSEN: Recipe(TRAINING),
}
NETWORKS = (1, 3)
SOURCES = ("jackknife", "cross-fit")
BALANCES = (0.8, 0.85, 0.9, 1.0)
N_FOLDS = 3
COLUMNS = ("recall", "macro_f1", "ace_minority", "macro_ace", "ece", "nll", "balanced_nll")
ALLOWED_F1_LOSS = 0.01  # against the same network without a map


def recipes() -> dict[str, Recipe | None]:
    """Returns every candidate by its title; None: the network without a map, one per training and number.

    Cross-fitting costs five trainings per network: it is tried with one, trained as leave-one-out would have it.
    """
    found: dict[str, Recipe | None] = {}
    for (name, base), n in product(TRAININGS.items(), NETWORKS):
        found[f"{name} | {n} | none"] = None
        for source, t, sharpen in product(SOURCES, BALANCES, (False, True)):
            if source == "cross-fit" and (name, n) != (CHOSEN, 1):
                continue
            title = f"{source}, t = {t}" + ", sharpened" * sharpen
            recipe = dataclasses.replace(base, n_networks=n, target=t, source=source, sharpen=sharpen)
            found[f"{name} | {n} | {title}"] = recipe
    return found


def search(wanted: list[Place], out: Path, progress: Callable[[int, int, str], None]) -> list[Path]:
    """Runs the search and writes the table of means over the places, and the candidate that the rule chooses.

    Args:
        wanted: where to search.
        out: folder; finished places are kept in out/cells/search.
        progress: called with places done and in all.

    Returns:
        The files.
    """
    found = []
    for done, place in enumerate(wanted):
        progress(done, len(wanted), f"{place.dataset}, label rate {place.label_rate}, seed {place.seed}")
        path = out / "cells" / "search" / f"{place.dataset}_{place.label_rate}_{place.seed}.json"
        if not path.is_file():
            write_cell(path, search_place(place))
        found.append(read_cell(path, recipes()))
    data = {key: np.mean([result[key] for result in found], 0).tolist() for key in found[0]}
    rows = [[*key.split(" | "), *[f"{value:.4f}" for value in values]] for key, values in data.items()]
    title = f"Search on held-out validation nodes, means over {len(wanted)} places"
    best = {source: chosen(data, source) for source in SOURCES}
    told = {source: "none, all lose too much" if name is None else name for source, name in best.items()}
    notes = [f"Chosen with {source} logits: {name.replace(' | ', ', ')}." for source, name in told.items()]
    table = Table(title, ["training", "networks", "map", *COLUMNS], rows, notes, {"means": data, "chosen": best})
    return write_tables([table], out, "search")


def chosen(data: dict[str, list[float]], source: str) -> str | None:
    """Returns the candidate of the best networks with the lowest Macro-ACE that keeps macro-F1 and recall.

    Networks first, by the loss that is proper for the target (`best_networks`): Macro-ACE is as noisy as its floor is
    high, and the least of many is the luckiest. Macro-ACE chooses between the maps on them.

    Args:
        data: means of `COLUMNS` by title.
        source: where the logits come from.

    Returns:
        The title; None where no candidate is allowed.
    """
    f1, rare, error = (COLUMNS.index(name) for name in ("macro_f1", "recall", "macro_ace"))
    best = best_networks(data, source)
    bare, allowed = data[f"{best} | none"], []
    for title, values in data.items():
        if not title.startswith(f"{best} | {source}"):
            continue
        if values[f1] >= bare[f1] - ALLOWED_F1_LOSS and values[rare] >= bare[rare]:
            allowed.append(title)
    return min(allowed, key=lambda title: data[title][error], default=None)


def best_networks(data: dict[str, list[float]], source: str) -> str:
    """Returns "training | number" of the networks with the lowest balanced NLL of the fully balanced Platt map."""
    loss, how = COLUMNS.index("balanced_nll"), f" | {source}, t = 1.0"
    best = min((title for title in data if title.endswith(how)), key=lambda title: data[title][loss])
    return best.removesuffix(how)


def search_place(place: Place, graph: Graph | None = None) -> dict[str, list[float]]:
    """Returns the measures of every candidate at one place, in the order of `COLUMNS`."""
    graph = place.load() if graph is None else graph
    assert graph.split is not None
    assert graph.y is not None
    validation = graph.split.val
    labels = graph.y[validation]
    fold = fold_of(labels, N_FOLDS, place.seed)
    candidates = recipes()
    held_out = {title: torch.zeros(len(labels), graph.n_classes, dtype=torch.float64) for title in candidates}
    for k in range(N_FOLDS):
        split = dataclasses.replace(graph.split, val=validation[fold != k], test=validation[fold == k])
        context = Context(place, dataclasses.replace(graph, split=split))
        for title, recipe in candidates.items():
            training, n, _ = title.split(" | ")
            found = _bare(context, training, int(n)) if recipe is None else calibrated(context, recipe)[0]
            held_out[title][fold == k] = found
    return {title: _measures(p, labels) for title, p in held_out.items()}


def _bare(context: Context, training: str, n_networks: int) -> Tensor:
    runs = networks(context, dataclasses.replace(TRAININGS[training], n_networks=n_networks))
    logits = torch.stack([context.logits("both", run, context.split.test).double() for run in runs])
    return torch.softmax(logits.mean(0), 1)


def _measures(p: Tensor, y: Tensor) -> list[float]:
    predicted = p.argmax(1).numpy()
    losses = -torch.log(p[torch.arange(len(y)), y].clamp(min=1e-12))
    return [
        float(recall_score(y, predicted)),
        float(f1_score(y, predicted, average="macro")),
        *[float(value) for value in (class_ace(y, p, 1), macro_ace(y, p), ece(y, p), nll(y, p))],
        float((target_weights(y, 2, "balanced") * losses).mean()),
    ]
