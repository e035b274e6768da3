"""How our default was chosen: training, number of networks, target and bias, on validation nodes alone.

Networks train on train + val. The map is fitted on leave-one-out logits of four fifths of the validation nodes and
judged on the leave-one-out logits of the last fifth. No test node is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator, Target, target_weights
from calirare.crossfit import fold_of
from calirare.metrics import class_ace, ece, macro_ace, macro_f1, nll, recall
from calirare.paper.context import Context
from calirare.paper.protocol import Place
from calirare.paper.render import Table, write_tables
from calirare.training import TrainingSettings

TRAININGS = {
    "lr .01, 200 epochs": TrainingSettings(),
    "lr .01, 800 epochs": TrainingSettings(epochs=800),
    "lr .03, 200 epochs": TrainingSettings(learning_rate=0.03),
    "lr .03, 400 epochs": TrainingSettings(learning_rate=0.03, epochs=400),
}
NETWORKS = (1, 3)
BALANCES = (0.0, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
MAPS: dict[str, tuple[bool, Target] | None] = {
    "none": None,
    "temperature, population": (False, 0.0),
    "temperature, balanced": (False, 1.0),
    **{f"Platt, t = {t}": (True, t) for t in BALANCES},
}
N_FOLDS = 5
COLUMNS = ("recall", "macro_f1", "ace_minority", "macro_ace", "ece", "nll", "balanced_nll")


def search(wanted: list[Place], out: Path, progress: Callable[[int, int, str], None]) -> list[Path]:
    """Runs the search and writes the table of means over the places.

    Args:
        wanted: where to search.
        out: folder; finished places are kept in out/cells/search.
        progress: called with places done and in all.

    Returns:
        The files.
    """
    found = []
    for done, place in enumerate(wanted):
        progress(done, len(wanted), f"{place.dataset}, label rate {place.label_rate}")
        path = out / "cells" / "search" / f"{place.dataset}_{place.label_rate}_{place.seed}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(search_place(Context(place))) + "\n", encoding="utf-8")
        found.append(json.loads(path.read_text(encoding="utf-8")))
    data = {key: np.mean([result[key] for result in found], 0).tolist() for key in found[0]}
    rows = [[*key.split(" | "), *[f"{value:.4f}" for value in values]] for key, values in data.items()]
    title = f"Search on validation nodes, means over {len(wanted)} places"
    table = Table(title, ["training", "networks", "map", *COLUMNS], rows, [], data)
    return write_tables([table], out, "search")


def search_place(context: Context) -> dict[str, list[float]]:
    """Returns the measures of every combination at one place, in the order of `COLUMNS`."""
    y = context.y[context.split.val]
    out = {}
    for name, training in TRAININGS.items():
        logits = [_validation_logits(context, training, network) for network in range(max(NETWORKS))]
        for n, (title, how) in product(NETWORKS, MAPS.items()):
            z = torch.stack(logits[:n]).mean(0)
            out[f"{name} | {n} | {title}"] = _measures(_held_out(z, y, how), y)
    return out


def _validation_logits(context: Context, training: TrainingSettings, network: int) -> Tensor:
    """Returns leave-one-out logits of the validation nodes, at the damping that agrees with cross-validation."""
    damping = context.agreement(context.settings(training)).damping
    run = replace(training, seed=context.settings(training, network).seed)
    return context.leave_one_out(run, damping)[context.val_rows]


def _held_out(z: Tensor, y: Tensor, how: tuple[bool, Target] | None) -> Tensor:
    if how is None:
        return torch.softmax(z, 1)
    with_bias, target = how
    fold = fold_of(y, N_FOLDS, 0)
    out = torch.empty_like(z)
    for k in range(N_FOLDS):
        kept = fold != k
        out[~kept] = AffineCalibrator(with_bias=with_bias, target=target).fit(z[kept], y[kept]).transform(z[~kept])
    return out


def _measures(p: Tensor, y: Tensor) -> list[float]:
    predicted = p.argmax(1).numpy()
    losses = -torch.log(p[torch.arange(len(y)), y].clamp(min=1e-12))
    return [
        float(recall(y.numpy(), predicted, 1)),
        float(macro_f1(y.numpy(), predicted)),
        *[float(value) for value in (class_ace(p, y, 1), macro_ace(p, y), ece(p, y), nll(p, y))],
        float((target_weights(y, 2, "balanced") * losses).mean()),
    ]
