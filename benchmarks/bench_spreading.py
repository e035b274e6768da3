"""What the labels nearby add to the average of detectors: each run's own average with and without them.

    python benchmarks/bench_spreading.py [--sets cora ..] [--splits 3]
    python benchmarks/bench_spreading.py --page    # the table of docs/research/detectors.md, nothing is run

On sets of the detection benchmark as they are, and with the number of neighbours as the only feature; splits that fixed
no rule of label spreading (that was split 0). AUPRC and NLL of P(rare) on the nodes without a label, both averages
through the same map for the population.
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import record
import torch
from detection.sets import SETS
from detection.tasks import Draw, draw
from readme_tables import between, load
from sklearn.metrics import average_precision_score, log_loss

import calirare
from calirare.calibration import PriorPlattCalibrator
from calirare.models import mixture_of

NAMES = ("cora", "otc", "sichuan", "amazon", "facebook", "dblp")
FIRST = 1
PAGE = record.ROOT / "docs" / "research" / "detectors.md"
REGIMES = ("scarce", "shot")


def edges_alone(graph: calirare.Graph) -> calirare.Graph:
    """Returns a graph whose only feature is the number of neighbours."""
    degree = graph.adjacency.indptr.diff().float()[:, None]
    how = {"feature_names": ("neighbours",), "columns": (), "feature_normalisation": "none", "trusted": True}
    return dataclasses.replace(graph, x=degree, **how)


def judged(mixture, graph: calirare.Graph, drawn: Draw, y: np.ndarray) -> dict[str, float]:
    """Returns AUPRC and NLL of an average on the nodes that are asked for."""
    mapping = PriorPlattCalibrator(target="population").fit(mixture.own_logits, mixture.targets)
    p = mapping.transform(mixture.logits_of(graph).double())[:, 1].numpy()[drawn.test]
    truth = y[drawn.test]
    return {"auprc": float(average_precision_score(truth, p)), "nll": float(log_loss(truth, p))}


def cell(name: str, regime: str, split: int, *, features: bool) -> dict[str, object]:
    """Returns what one run's average says with and without spreading, and its weight."""
    task = SETS[name]()
    drawn = draw(task, regime, split)
    graph = drawn.seen if features else edges_alone(drawn.seen)
    outcome = calirare.train(graph, seed=drawn.seed)
    mapped = outcome.mapped
    mixture = outcome.fit
    others = {m.name: m.fitted for m in mixture.members if m.name != "spreading"}
    without = mixture_of(others, mixture.sample_weights)
    found = {"set": name, "regime": regime, "split": split, "features": features}
    found |= {"with": judged(mixture, mapped, drawn, task.y), "without": judged(without, mapped, drawn, task.y)}
    found["weight"] = mixture.weight_of("spreading")
    print(found, flush=True)
    return found


def table() -> list[str]:
    """Returns the lines of the page's table, from the committed file."""
    means = load("spreading")["results"]["means"]
    lines = ["| set, labels | features | | | edges alone | | |", "| --- | --- | --- | --- | --- | --- | --- |"]
    lines.append("| | AUPRC | NLL | weight | AUPRC | NLL | weight |")
    for place in dict.fromkeys(key.rpartition(", ")[0] for key in means):
        cells = []
        for kind in ("features", "edges alone"):
            of = means[f"{place}, {kind}"]
            cells += [f"{of['without'][what]:.3f}, {of['with'][what]:.3f}" for what in ("auprc", "nll")]
            cells.append(f"{of['weight']:.2f}")
        lines.append(f"| {place} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(NAMES))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), "spreading", table()), encoding="utf-8")
        return
    torch.manual_seed(0)
    places = [
        (name, regime, split, features)
        for name in options.sets
        for regime in REGIMES
        for split in range(FIRST, FIRST + options.splits)
        for features in (True, False)
    ]
    cells = [cell(name, regime, split, features=features) for name, regime, split, features in places]
    means = {}
    for features in (True, False):
        for regime in REGIMES:
            for name in options.sets:
                of = [c for c in cells if (c["set"], c["regime"], c["features"]) == (name, regime, features)]
                key = f"{name}, {regime}, {'features' if features else 'edges alone'}"
                means[key] = {
                    side: {what: float(np.mean([c[side][what] for c in of])) for what in ("auprc", "nll")}
                    for side in ("without", "with")
                } | {"weight": float(np.mean([c["weight"] for c in of]))}
    print(record.write("spreading", {"means": means, "cells": cells}))


if __name__ == "__main__":
    main()
