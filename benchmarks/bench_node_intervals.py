"""Intervals of each node's P(rare), the estimated individual calibration error, and label sets, against the truth.

    python benchmarks/bench_node_intervals.py --part simulated [--runs 48] [--first 1000]
    python benchmarks/bench_node_intervals.py --part sets [--seeds 3]

"simulated": graphs whose P(rare) given all features and edges is known. Log-odds have standard deviation 1, 2, 3 or 5
and follow random directions of the features of a node and its neighbours, linearly or not (`KINDS`). The constants of
`node_probabilities` were chosen on other seeds, mostly of the kinds `CHOSEN_ON`.

"sets": label sets and the interval of the label on the graphs of `detection.sets`, 30 % of the labels known (at most
2,000), judged on all others.

Writes benchmarks/results/node_intervals.json; a part that is not run, and runs of other seeds, stay there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import record
import scipy.sparse as sp
import torch
from detection.sets import SETS
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import spearmanr

import calirare
from calirare import Graph
from calirare.calibration import expected_count, label_sets, node_probabilities
from calirare.datasets import synthetic_rare
from calirare.graph import Split
from calirare_lab.calibrator_interval import probability_interval

N = 8000
COVERAGE = 0.9
KNOWN, MOST_KNOWN = 0.3, 2000
FEW = 1000  # labelled nodes of a graph, up to which it is drawn from five times as often
CHOSEN_ON = ("linear", "two", "product", "threshold", "wave", "own")
Score = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# log-odds before scaling, of two directions' scores a and b of the neighbourhood's mean, one of the node's own
# features, and the second neighbourhood's mean of the first direction
KINDS: dict[str, Score] = {
    "linear": lambda a, b, own, far: a,
    "two": lambda a, b, own, far: a + own,
    "product": lambda a, b, own, far: a * b,
    "threshold": lambda a, b, own, far: np.tanh(4 * (a - 0.5)),
    "wave": lambda a, b, own, far: np.sin(2 * a) + 0.5 * b,
    "own": lambda a, b, own, far: own,
    "far": lambda a, b, own, far: far + 0.5 * own,
    "maximum": lambda a, b, own, far: np.maximum(a, b),
    "corner": lambda a, b, own, far: np.tanh(3 * a) * np.tanh(3 * own),
    "distance": lambda a, b, own, far: -np.abs(a) + 0.5 * own,
}


def standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def simulated(seed: int) -> tuple[Graph, np.ndarray, np.ndarray, dict[str, Any]]:
    """Returns a graph with some labels, P(rare) and the label of every node, and how they were drawn."""
    rng = np.random.default_rng(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    slope, share, d = float(rng.choice([1, 2, 3, 5])), float(rng.choice([0.03, 0.1, 0.3])), int(rng.choice([8, 16, 32]))
    m = int(rng.choice([m for m in (100, 300, 1000, 3000) if m * share >= 8]))
    separation, degree, homophily = (float(rng.choice(each)) for each in ([0, 1, 2], [4, 8, 16], [0.3, 0.8]))
    graph = synthetic_rare(
        N, seed=seed, share=0.1, n_features=d, separation=separation, mean_degree=degree, homophily=homophily
    )
    a = graph.adjacency
    looped = sp.csr_matrix((np.ones(len(a.indices)), a.indices.numpy(), a.indptr.numpy()), (N, N)) + sp.eye(N)
    mean = sp.diags(1 / np.asarray(looped.sum(1))[:, 0]) @ looped
    assert isinstance(graph.x, torch.Tensor)
    x = graph.x.numpy().astype(float)
    first, second, third = np.linalg.qr(rng.standard_normal((d, 3)))[0].T
    near = mean @ x
    scores = (standard(near @ first), standard(near @ second), standard(x @ third), standard(mean @ (near @ first)))
    odds = slope * standard(KINDS[kind](*scores))
    p = expit(odds + brentq(lambda shift: expit(odds + shift).mean() - share, -40, 40))
    y = (rng.random(N) < p).astype(np.int64)
    drawn = {"seed": seed, "kind": kind, "slope": slope, "share": share, "labels": m, "features": d}
    return seen(graph, y, rng.permutation(N)[:m]), p, y, drawn


def seen(graph: Graph, y: np.ndarray, known: np.ndarray) -> Graph:
    """Returns the graph with the labels of some nodes, all of them to train on."""
    labels = np.full(len(y), -1)
    labels[known] = y[known]
    none = torch.empty(0, dtype=torch.int64)
    split = Split(torch.from_numpy(np.sort(known)), none, none, "bench")
    both = torch.from_numpy(labels)
    return dataclasses.replace(graph, y=both, original_y=both, posterior=None, split=split, trusted=True)


def judged(seed: int) -> dict[str, Any]:
    """Returns what one simulated run showed."""
    graph, truth, _, row = simulated(seed)
    started = time.process_time()
    run = calirare.train(graph, seed=0)
    row["train_seconds"] = time.process_time() - started
    started = time.process_time()
    calibrator = run.calibrators["population"]
    logits, folds = run.fit.folded.all_logits_of(run.mapped or run.graph)
    found = node_probabilities(calibrator, logits, folds, row["labels"], COVERAGE)
    row["seconds"] = time.process_time() - started
    p = calibrator.predict_proba(logits.double())[:, 1].numpy()
    low, high = found.low.numpy(), found.high.numpy()
    before = [each.numpy() for each in probability_interval(calibrator, logits.double(), COVERAGE)]
    total = expected_count(calibrator, logits.double(), COVERAGE)
    error = float(np.abs(p - truth).mean())
    return row | {
        "rare_labels": int((graph.y == 1).sum()),
        "coverage": covered(low, truth, high),
        "coverage_of_calibrator": covered(before[0], truth, before[1]),
        "width": float((high - low).mean()),
        "error": error,
        "estimate": found.error,
        "estimate_interval": [found.error_low, found.error_high],
        "close": abs(found.error - error) <= max(0.3 * error, 0.01),
        "mean": float(truth.mean()),
        "predicted_mean": float(p.mean()),
        "mean_interval": [total.low / N, total.high / N],
    }


def covered(low: np.ndarray, truth: np.ndarray, high: np.ndarray) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(key: str) -> float:
        return float(np.mean([row[key] for row in rows]))

    errors, estimates = ([row[key] for row in rows] for key in ("error", "estimate"))
    return {
        "runs": len(rows),
        "coverage": mean("coverage"),
        "coverage_least": min(row["coverage"] for row in rows),
        "coverage_of_calibrator": mean("coverage_of_calibrator"),
        "width": mean("width"),
        "mean_covered": float(np.mean([a <= row["mean"] <= b for row in rows for a, b in [row["mean_interval"]]])),
        "error_close": mean("close"),
        "error_rank_correlation": float(spearmanr(errors, estimates)[0]),
        "error_ratio": float(np.exp(np.mean(np.log(estimates) - np.log(errors)))),
        "error_covered": float(
            np.mean([a <= row["error"] <= b for row in rows for a, b in [row["estimate_interval"]]])
        ),
        "time": float(np.mean([row["seconds"] / row["train_seconds"] for row in rows])),
    }


def simulations(runs: int, first: int) -> dict[str, Any]:
    rows = []
    for seed in range(first, first + runs):
        rows.append(judged(seed))
        print(json.dumps(rows[-1]), flush=True)
    measured = earlier().get("simulated", {}).get("rows", [])
    rows = sorted([row for row in measured if not first <= row["seed"] < first + runs] + rows, key=lambda r: r["seed"])

    def by(key: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
        return {name: summary([r for r in rows if key(r) == name]) for name in dict.fromkeys(map(key, rows))}

    return {
        "all": summary(rows),
        "new_kinds": summary([row for row in rows if row["kind"] not in CHOSEN_ON]),
        "by_kind": by(lambda row: row["kind"]),
        "by_labels": by(lambda row: str(row["labels"])),
        "by_slope": by(lambda row: str(row["slope"])),
        "rows": rows,
    }


def earlier() -> dict[str, Any]:
    """Returns the results in the file."""
    path = record.RESULTS / "node_intervals.json"
    return json.loads(path.read_text())["results"] if path.exists() else {}


def sets(seeds: int) -> dict[str, Any]:
    """Returns the coverage of label sets, and of the interval of the label, of each class of each graph."""
    out = {}
    for name, load in SETS.items():
        task = load()
        y, nodes = task.y, np.flatnonzero(task.y >= 0)
        rows = []
        for seed in range(seeds if len(nodes) > FEW else 5 * seeds):
            known = np.random.default_rng(seed).permutation(nodes)[: min(round(KNOWN * len(nodes)), MOST_KNOWN)]
            run = calirare.train(seen(task.graph, y, known), seed=seed)
            others = np.setdiff1d(nodes, known)
            own, labels = run.jackknife.own_loo_logits, run.fit.targets
            found = label_sets(run.logits, own, labels, COVERAGE).numpy()[others]
            low, high = run.jackknife.lower.numpy()[others], run.jackknife.upper.numpy()[others]
            row = {"seed": seed, "labels": len(known), "rare_labels": int(y[known].sum())}
            for c, label in enumerate(("normal", "rare")):
                mine = y[others] == c
                row[f"{label}_nodes"] = int(mine.sum())
                row[f"{label}_coverage"] = float(found[mine, c].mean())
                row[f"{label}_coverage_of_interval"] = covered(low[mine], y[others][mine], high[mine])
            sizes = found.sum(1)
            row |= {
                "one": float((sizes == 1).mean()),
                "both": float((sizes == 2).mean()),
                "none": float((sizes == 0).mean()),
            }
            rows.append(row)
            print(name, json.dumps(row), flush=True)
        means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0] if key != "seed"}
        out[name] = means | {"runs": rows}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["simulated", "sets"], required=True)
    parser.add_argument("--runs", type=int, default=48)
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    found = simulations(args.runs, args.first) if args.part == "simulated" else sets(args.seeds)
    record.write("node_intervals", earlier() | {args.part: found})


if __name__ == "__main__":
    main()
