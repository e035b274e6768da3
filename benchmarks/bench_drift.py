"""How often the drift report raises a false alarm, and what it sees of what may go wrong, on simulated months.

`python benchmarks/bench_drift.py` trains each detector on a few months (`drifting_graphs.py`), holds further months of
the same law against each, then months in which something went wrong, and writes results/drift.json.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import record
import torch
from drifting_graphs import DRIFTS, Month, month, tripled

import calirare
from calirare.drift import Drift
from calirare.run import Scorer

DETECTORS = ("trees", "hops", "gcn")
LABELS = 400
SIZES = (300, 1500, 4000)  # nodes of further months of the same law; those of a run have 1,500


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4, help="months trained on, per detector")
    parser.add_argument("--graphs", type=int, default=25, help="further months of the same law, per run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    each = {name: of_detector(name, options.runs, options.graphs) for name in DETECTORS}
    graphs = sum(told["same_law"]["graphs"] for told in each.values())
    alarms = sum(told["same_law"]["alarms"] for told in each.values())
    results = {
        "same_law": {"graphs": graphs, "alarms": alarms, "rate_below": rate_below(alarms, graphs)},
        "detectors": each,
    }
    print(results["same_law"])
    print(record.write("drift", results))


def of_detector(model: str, runs: int, graphs: int) -> dict[str, Any]:
    """Returns alarms on months of the same law, verdicts on those that are not, and two sentences."""
    alarms, found = 0, {name: {"seen": 0, "do not trust": 0} for name in [*DRIFTS, "three times the fraud"]}
    effects: dict[str, list[float]] = {}
    example = {}
    for run in range(runs):
        outcome = calirare.train(month(1000 * run).graph(LABELS), model=model)
        compare = comparing(outcome)
        for name, column in outcome.reference.columns.items():
            effects.setdefault(name, []).append(round(column.effect, 2))
        for k in range(graphs):
            drift, _ = compare(month(1000 * run + 1 + k, SIZES[k % len(SIZES)]))
            alarms += drift.verdict != "ok"
        later = month(1000 * run + 500)
        for name, (change, where) in DRIFTS.items():
            changed = change(later)
            drift, mean = compare(changed)
            seen = any(finding.name in where for finding in drift.found)
            found[name]["seen"] += seen
            found[name]["do not trust"] += seen and drift.verdict == "do not trust"
            if name == "next month's times" and run == 0:
                example = {"mean_p": mean, "share": float(changed.y.mean()), "sentence": drift.sentence}
        drift, _ = compare(tripled(1000 * run + 500))
        found["three times the fraud"]["seen"] += any(finding.name == "mean P(rare)" for finding in drift.found)
        found["three times the fraud"]["do not trust"] += drift.verdict == "do not trust"
    total = runs * graphs
    print(model, alarms, "of", total, found)
    return {
        "same_law": {"graphs": total, "alarms": alarms, "rate_below": rate_below(alarms, total)},
        "runs": runs,
        "drifts": found,
        "next_months_times": example,
        "design_effects": effects,
    }


def comparing(outcome: calirare.Outcome) -> Callable[[Month], tuple[Drift, float]]:
    """Returns what holds a month against a run's: its drift, and mean P(rare)."""
    scorer = Scorer.of(outcome)

    def compare(later: Month) -> tuple[Drift, float]:
        graph = later.graph()
        p = scorer.probabilities(scorer.prepared(graph)).rare
        return scorer.reference.compare(graph, scorer.features, p), float(p.mean())

    return compare


def rate_below(events: int, trials: int) -> float:
    """Returns the upper end of the 95 % interval of a rate (Clopper and Pearson, one-sided)."""
    from scipy.stats import beta

    return 1.0 if events == trials else math.ceil(1e4 * beta.ppf(0.95, events + 1, trials - events)) / 1e4


if __name__ == "__main__":
    main()
