"""How often labels are taken for chosen ones: of random labels, which is a false alarm, and of chosen ones.

python benchmarks/bench_chosen_labels.py [--repeats 20] writes benchmarks/results/chosen_labels.json. Each repeat draws
a graph of 1,500 nodes, 8 % of them rare, and its labels, of which three quarters train.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest import mock

import numpy as np
import record
import torch

import calirare
from calirare.calibration import Exchangeable
from calirare.calibration import exchangeable as compared
from calirare.datasets import synthetic_rare
from calirare.graph import Graph, Split
from calirare.run import label_checks

HOWS = ("random", "uncertain", "alerts", "enriched")
CASES = (("trees", 300), ("gcn", 200), ("gcn", 400), ("auto", 300))
FIRST_SEED, N = 700, 1500


def places(how: str, graph: Graph, m: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the labelled nodes: `score` is what the detector of before said of a node."""
    assert graph.y is not None
    score, rare = np.asarray(graph.x).sum(1) + rng.normal(0, 0.5, N), graph.y.numpy() == 1
    if how == "random":
        return rng.permutation(N)[:m]
    if how == "uncertain":
        return np.argsort(np.abs(score - np.quantile(score, 0.9)))[:m]
    if how == "alerts":
        return np.union1d(np.argsort(-score)[: m // 3], rng.permutation(N)[: 2 * m // 3])
    weights = np.where(rare, 5.0, 1.0)
    return rng.choice(N, m, replace=False, p=weights / weights.sum())


def alarmed(model: str, m: int, how: str, seed: int) -> bool:
    """Returns whether a run takes its labels for chosen ones."""
    rng, said = np.random.default_rng(seed), list[Exchangeable | None]()
    graph = synthetic_rare(N, seed=seed, share=0.08, n_features=4, separation=1.5)
    assert graph.y is not None
    y = torch.full((N,), -1)
    some = torch.from_numpy(places(how, graph, m, rng))
    y[some] = graph.y[some]

    def kept(*values: Any, **options: Any) -> Exchangeable | None:
        said.append(compared(*values, **options))
        return said[-1]

    with mock.patch.object(label_checks, "exchangeable", kept):
        calirare.train(Graph(graph.adjacency, graph.x, y, split=Split.share(y, seed)), model=model, seed=seed)
    return said[0] is not None and said[0].doubtful


def main() -> None:
    """Measures every case and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats, rows = parser.parse_args().repeats, list[dict[str, Any]]()
    for model, m in CASES:
        for how in HOWS:
            n = repeats if how == "random" else repeats // 4
            n = n // 2 if model == "auto" else n
            found = sum(alarmed(model, m, how, FIRST_SEED + i) for i in range(n))
            rows.append({"model": model, "labels": m, "how": how, "runs": n, "alarms": found})
            print(rows[-1], record.write("chosen_labels", {"first_seed": FIRST_SEED, "rows": rows}), flush=True)


if __name__ == "__main__":
    main()
