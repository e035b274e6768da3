"""One result per data set, regime, split and method: measured, appended to a file of lines, read back."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import record
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

from detection import ours, peers
from detection.columns import Tables
from detection.sets import truth
from detection.tasks import Draw

TRUTH = "simulated truth"  # the probabilities from which a simulated graph's labels were drawn
MEASURES = ("auprc", "auroc", "brier", "nll")
METHODS = (*ours.RECIPES, *peers.PEERS, *(name + peers.CALIBRATED for name in peers.PEERS), TRUTH)


@dataclass(frozen=True)
class Place:
    """Where a result belongs."""

    set: str
    regime: str
    split: int
    method: str

    @property
    def file(self) -> str:
        """Name of the file of lines: our own recipes change more often than their peers."""
        return "detection_ours" if self.method in ours.RECIPES else "detection_peers"


def path_of(name: str) -> Path:
    return record.RESULTS / f"{name}.jsonl"


def read() -> Iterator[dict[str, Any]]:
    """Yields every result there is; of two for one place the later one counts."""
    for name in ("detection_ours", "detection_peers"):
        if path_of(name).exists():
            for line in path_of(name).read_text(encoding="utf-8").splitlines():
                yield json.loads(line)


def done() -> set[Place]:
    return {Place(*(row[key] for key in ("set", "regime", "split", "method"))) for row in read()}


def append(place: Place, result: dict[str, Any], name: str | None = None) -> None:
    """Adds a line to a file of lines, by default to the one of the place."""
    path = path_of(name or place.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(place) | result) + "\n")


def measure(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """Returns measures of P(rare) on test nodes; NLL with scikit-learn's own clipping of 0 and 1."""
    return {
        "auprc": float(average_precision_score(y, p)),
        "auroc": float(roc_auc_score(y, p)),
        "brier": float(brier_score_loss(y, p)),
        "nll": float(log_loss(y, p, labels=[0, 1])),
        "mean_p": float(p.mean()),
    }


def run(place: Place, tables: Tables, draw: Draw) -> tuple[dict[str, Any], np.ndarray]:
    """Returns the result of one method on one split, and its P(rare) of the test nodes."""
    begin, cost = time.process_time(), 0.0
    if place.method in ours.RECIPES:
        p = ours.score(place.method, draw)
    elif place.method == TRUTH:
        known = truth(tables.task)
        assert known is not None
        p = known.numpy()[draw.test]
    else:
        table = peers.PEERS[place.method.removesuffix(peers.CALIBRATED)].table
        tables.get(table)
        begin, cost = time.process_time(), tables.cost(table)
        p = peers.score(place.method, tables, draw)
    seconds = time.process_time() - begin + cost
    y = tables.task.y[draw.test]
    labelled = draw.y[draw.labelled]
    facts = {
        "seed": draw.seed,
        "labels": len(labelled),
        "rare_labels": int((labelled == 1).sum()),
        "test": len(y),
        "prevalence": float((y == 1).mean()),
    }
    rounded = {name: float(f"{value:.6g}") for name, value in measure(y, p).items()}
    return facts | rounded | {"cpu_s": round(seconds, 3), "commit": commit()}, p


@functools.cache
def commit() -> str:
    """Returns the commit the run began with."""
    return record.environment()["commit"]
