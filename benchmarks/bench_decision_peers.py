"""What a threshold costs that came from P(rare), beside thresholds by other hands from the same labels.

    python benchmarks/bench_decision_peers.py [--runs 50] [--rare 10,20,50,200]

The runs are those of bench_probability.py (50/25/25, 5 % rare), with seeds of their own. Peers are fitted on logit and
class of the same labels: scikit-learn's TunedThresholdClassifierCV looks for the cheapest threshold of a logistic
regression by cross-validation, empulse's CSThresholdClassifier calibrates one and CSLogitClassifier learns the cost.
"oracle" alerts by the true P(rare). Per cell: cost among the scored nodes, mean over runs, over that of the oracle, and
in how many runs no peer's was lower than ours. Writes results/decision_peers.json; without empulse its rows are left
out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
import record
from bench_probability import Problem, ours, problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV

FIRST_SEED = 40_000
MISSES = (5.0, 30.0)  # what a missed rare node costs; a false alarm costs 1
Alerts = Callable[[Problem, float], np.ndarray]  # which of the scored nodes are alerts


def cost_of(y: np.ndarray, alert: np.ndarray, miss: float) -> float:
    return float((alert > y).sum() + miss * (alert < y).sum())


def by_p(run: Problem, miss: float) -> np.ndarray:
    return ours(run).transform(run.scored) >= 1 / (1 + miss)


def by_truth(run: Problem, miss: float) -> np.ndarray:
    return run.network.posterior(run.scored, run.prevalence) >= 1 / (1 + miss)


def tuned(run: Problem, miss: float) -> np.ndarray:
    scorer = make_scorer(lambda y, alert: -cost_of(y, alert, miss))
    chosen = TunedThresholdClassifierCV(LogisticRegression(), scoring=scorer, cv=min(5, int(run.y.sum())))
    return chosen.fit(run.z[:, None], run.y).predict(run.scored[:, None])


def ways() -> dict[str, Alerts]:
    """Returns every way to choose alerts, ours and the oracle first."""
    out: dict[str, Alerts] = {"prior-platt": by_p, "oracle": by_truth, "TunedThresholdClassifierCV": tuned}
    try:
        from empulse.models import CSLogitClassifier, CSThresholdClassifier
    except ImportError:
        return out

    def threshold(run: Problem, miss: float) -> np.ndarray:
        fitted = CSThresholdClassifier(LogisticRegression(), fn_cost=miss, fp_cost=1.0)
        return fitted.fit(run.z[:, None], run.y).predict(run.scored[:, None])

    def learnt(run: Problem, miss: float) -> np.ndarray:
        fitted = CSLogitClassifier(fn_cost=miss, fp_cost=1.0).fit(run.z[:, None], run.y)
        return fitted.predict_proba(run.scored[:, None])[:, 1] >= 0.5  # the costs are in what it learnt

    return out | {"empulse CSThreshold": threshold, "empulse CSLogit": learnt}


def cell(rare: int, miss: float, runs: int) -> dict[str, object]:
    """Returns the mean cost of every way over the oracle's, and how often none was below ours."""
    costs: dict[str, list[float]] = {name: [] for name in ways()}
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        run = problem("50/25/25", 0.05, rare, seed)
        if run.y.sum() < 5:  # cross-validation in five parts needs one each
            continue
        for name, alerts in ways().items():
            costs[name].append(cost_of(run.rare_scored, alerts(run, miss), miss))
    table = np.array(list(costs.values()))
    peers = np.delete(table, 1, 0)
    return {
        "runs": table.shape[1],
        "over_oracle": dict(zip(costs, (table.mean(1) / table[1].mean()).tolist(), strict=True)),
        "ours_lowest": float((peers[0] <= peers.min(0)).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rare", default="10,20,50,200")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    cells = {}
    for rare in map(int, options.rare.split(",")):
        for miss in MISSES:
            cells[f"rare {rare}, miss {miss:g}"] = found = cell(rare, miss, options.runs)
            print(rare, miss, found, flush=True)
    record.write("decision_peers", {"cells": cells})


if __name__ == "__main__":
    main()
