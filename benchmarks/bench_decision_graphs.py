"""How often the hits of a budget lie inside their promised interval on graphs.

    python benchmarks/bench_decision_graphs.py [--draws 1] [--models hops gcn auto] [--sets citeseer ..]

The graphs are the development sets of bench_average.py, on which nothing of the intervals was chosen. In each draw 600
random nodes have a label (a third of the graph at most) and all of them train; nine budgets, from 1 to 30 % of the
others, are held against their classes, with the likeliest map and residual in the middle of the intervals and with
P(rare). The nine of one draw depend on each other. Adds draws to results/decision_graphs.json.
"""

from __future__ import annotations

import argparse
import json
import zlib
from copy import copy
from typing import Any

import numpy as np
import record
from bench_average import SETS
from bench_probability import MIDDLE
from detection.tasks import Task, hidden

import calirare
from calirare.calibration import PriorPlattCalibrator
from calirare.calibration.decisions import Budget, decide
from calirare.run.deciding import counting_coverage

LABELS, MOST = 600, 1 / 3
BUDGETS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)  # of the nodes without a label
MODELS = ("hops", "gcn", "auto")
NAME = "decision_graphs"


def intervals(task: Task, model: str, draw: int) -> dict[str, Any]:
    """Returns true hits of each budget, and the interval and expected number by both middles."""
    seed = zlib.crc32(f"{task.graph.name} {draw}".encode()) % 2**31
    known = np.random.default_rng(seed).permutation(np.flatnonzero(task.y >= 0))
    cut = min(LABELS, round(MOST * len(known)))
    train, others = np.sort(known[:cut]), np.sort(known[cut:])
    out = calirare.train(hidden(task.graph, train, train[:0], f"random(seed={seed})"), seed=seed, model=model)
    fitted, logits = out.calibrators["population"], out.logits[others]
    assert isinstance(fitted, PriorPlattCalibrator)
    middle = copy(fitted)
    middle.move_ = None
    p, y = fitted.predict_proba(logits.double())[:, 1].numpy(), task.y[others]
    found: dict[str, Any] = {"rare_labels": int(task.y[train].sum()), "hits": []}
    for budget in BUDGETS:
        for way, each in (("", fitted), (MIDDLE, middle)):
            told = decide(Budget(alerts=budget), each, logits, coverage=counting_coverage(each))
            found.setdefault(model + way, []).append([told.hits.expected, told.hits.low, told.hits.high])
        found["hits"].append(int(y[p >= told.threshold].sum()))
    return found


def held(rows: dict[str, Any], model: str) -> dict[str, Any]:
    """Returns which share of a model's intervals held, by both middles, their mean width and error."""
    out: dict[str, Any] = {}
    for way in (model, model + MIDDLE):
        some = [row for row in rows.values() if way in row]
        hits = np.array([row["hits"] for row in some])
        expected, low, high = np.moveaxis(np.array([row[way] for row in some]), -1, 0)
        out[way] = {
            "intervals": hits.size,
            "inside": float(((low <= hits) & (hits <= high)).mean()),
            "width": float((high - low).mean()),
            "error": float(np.abs(expected - hits).mean()),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    options = parser.parse_args()
    path = record.RESULTS / f"{NAME}.json"
    rows = json.loads(path.read_text())["results"]["rows"] if path.exists() else {}
    for model in options.models:
        for name in options.sets:
            for draw in range(options.draws):
                key = f"{model}, {name}, {draw}"
                if key not in rows:
                    rows[key] = intervals(SETS[name](), model, draw)
        done = [each for each in MODELS if any(row.get(each) for row in rows.values())]
        summary = {way: found for each in done for way, found in held(rows, each).items()}
        print(summary, flush=True)
        record.write(NAME, {"budgets": BUDGETS, "summary": summary, "rows": rows})


if __name__ == "__main__":
    main()
