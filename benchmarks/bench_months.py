"""How right P(rare) is of months that a run has not seen: as many rare nodes as expected, intervals, log loss.

    python benchmarks/bench_months.py [--runs 6] [--months 4]
    python benchmarks/bench_months.py --page     # the table of docs/research/probability.md, nothing is run

Months are drawn from one law each: "alike" are those of `drifting_graphs.py`; in "rings" half as many edges again lead
from rare nodes to rare nodes, so that labels nearby tell much in the run's own month, and nothing in another one, whose
nodes it does not know. Every detector is trained on a month with 400 (alike) or about 1,600 (rings) labels drawn at
random and scores others, without a prevalence. "auto, without its map" is the average as it was at first, when the
detectors other than label spreading spoke for unknown nodes as they are. Writes results/months.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
from typing import Any

import drifting_graphs
import numpy as np
import record
import torch

import calirare
from calirare.graph import Graph
from calirare.models import Mixture
from calirare.run import Scorer

PAGE = record.ROOT / "docs" / "research" / "probability.md"
BEGIN, END = "<!-- months:begin -->", "<!-- months:end -->"
DETECTORS, AS_IT_WAS = ("auto", "hops", "gcn", "trees"), "auto, without its map"
N_NODES, SHARE, LABELLED = 4000, 0.04, 0.4


def alike(seed: int, labels: bool) -> tuple[Graph, np.ndarray]:
    """A month of accounts, with what is true of them."""
    drawn = drifting_graphs.month(seed, 4000)
    return named(drawn.graph(400 if labels else 0), seed), drawn.y


def rings(seed: int, labels: bool) -> tuple[Graph, np.ndarray]:
    """A month in which rare nodes deal with each other."""
    draw = np.random.default_rng(seed)
    y = (draw.random(N_NODES) < SHARE).astype(np.int64)
    rare = np.flatnonzero(y)
    x = np.stack([draw.gamma(4 - 1.5 * y, 200), draw.normal(0.8 * y)], 1).astype(np.float32)
    ends = [np.r_[draw.integers(0, N_NODES, 2 * N_NODES), draw.choice(rare, 2 * len(rare))] for _ in range(2)]
    known = np.where(draw.random(N_NODES) < LABELLED, y, -1) if labels else None
    rules: dict[str, Any] = {"symmetrize": True, "duplicates": "drop", "self_loops": "drop"}
    graph = Graph.from_edges(np.stack(ends, 1), x, known, **rules)
    return named(graph.rare(1) if labels else graph, seed), y


def named(graph: Graph, seed: int) -> Graph:
    """The graph with names that no other month has."""
    return dataclasses.replace(graph, node_names=np.array([f"{seed}-{i}" for i in range(graph.n_nodes)]))


LAWS = {"alike": alike, "rings": rings}


def judged(scorer: Scorer, graph: Graph, y: np.ndarray) -> dict[str, float]:
    """Returns what a run expects of a month, and what is true."""
    said = scorer.score(graph, say=lambda note: None)
    assert said.expected is not None
    assert said.table is not None
    p = said.table["p_rare"].to_numpy(dtype=np.float64).clip(1e-12, 1 - 1e-12)
    held = said.expected.low <= y.sum() <= said.expected.high
    loss = -float(np.where(y == 1, np.log(p), np.log1p(-p)).mean())
    return {"expected": said.expected.expected, "rare": int(y.sum()), "held": bool(held), "nll": loss}


def measured(law: str, detector: str, runs: int, months: int) -> dict[str, list[dict[str, float]]]:
    """Returns each month's judgement of each run; of `auto` without its map too."""
    found: dict[str, list[dict[str, float]]] = {detector: []}
    for run in range(runs):
        graph, _ = LAWS[law](1000 * run, True)
        scorer = Scorer.of(calirare.train(graph, model=detector))
        scorers = {detector: scorer}
        if isinstance(scorer.fit, Mixture):
            scorers[AS_IT_WAS] = dataclasses.replace(scorer, fit=dataclasses.replace(scorer.fit, rest=None))
        for each in range(1, months + 1):
            other, y = LAWS[law](1000 * run + each, False)
            for name, one in scorers.items():
                found.setdefault(name, []).append({"run": run} | judged(one, other, y))
    return found


def summed(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Returns the numbers of a law and detector."""
    logs = [math.log(row["expected"] / row["rare"]) for row in rows]
    return {
        "months": len(rows),
        "times": math.exp(statistics.mean(logs)),
        "off": math.exp(statistics.mean(map(abs, logs))),
        "held": sum(row["held"] for row in rows) / len(rows),
        "nll": statistics.mean(row["nll"] for row in rows),
    }


def table(results: dict[str, Any]) -> str:
    """Returns the page's table."""
    lines = ["| law | detector | months | expected / rare | off by | 90 % intervals hold | log loss |"]
    lines.append("| --- " * 7 + "|")
    for law, each in results.items():
        for name, found in each.items():
            held, off = f"{found['held']:.0%}", f"{found['off']:.2f}"
            cells = [
                law,
                f"`{name}`" if name in DETECTORS else name,
                str(found["months"]),
                f"{found['times']:.2f}",
                off,
            ]
            lines.append("| " + " | ".join([*cells, held, f"{found['nll']:.4f}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--months", type=int, default=4)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        results: dict[str, Any] = {law: {} for law in LAWS}
        for law in LAWS:
            for detector in DETECTORS:
                for name, rows in measured(law, detector, options.runs, options.months).items():
                    results[law][name] = summed(rows) | {"rows": rows}
                    print(law, name, {k: round(v, 4) for k, v in summed(rows).items()}, flush=True)
        record.write("months", results)
    results = json.loads((record.RESULTS / "months.json").read_text(encoding="utf-8"))["results"]
    record.put_on_page(PAGE, BEGIN, END, table(results))


if __name__ == "__main__":
    main()
