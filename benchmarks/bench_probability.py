"""Population probabilities of a rare class from few labels, on simulated logits with a known posterior.

    python benchmarks/bench_probability.py [--runs 10] [--setups per-class,...]   # natural set-ups, beside its peers
    python benchmarks/bench_probability.py --widths                               # how wide the map's priors shall be
    python benchmarks/bench_probability.py --decide [--rare 10,20,50,200]         # what a decision costs, and promised

No network is trained: logits come from `simulated_logits.Network`, whose slope, shift and shape differ from run to run,
so every number is judged against the truth and no test node chooses anything. The `--widths` run and the first one use
different seeds. Writes benchmarks/results/probability.json or decisions.json, beside cells that an earlier run of as
many runs has measured, or probability_widths.json.

Per cell (set-up, prevalence, expected rare labels): share of runs whose mean P over the prevalence of the scored nodes
lies in the 95 % interval of a binomial count of the labels, a tenth wider (prevalence given: in [.9, 1.1]); share
with an ECE (15 bins of equal numbers) of at most 1.5 times that of the truth + .005; expected log loss under the true
posterior and root mean squared error to it, of each map; share of runs whose 90 % interval of the number holds. "form
known" is told everything of the network but how common the class is. Of decisions: share of runs whose 90 % intervals
of hits, misses and cost hold, by maps of both forms ("one slope" is wrong for two of the three kinds of networks), with
the likeliest map and residual in the middle, or P(rare).
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
import record
import torch
from peer_maps import BINS, DRAWS, PREVALENCES, RARE, SETUPS, TINY, binned_error, columns, mapped
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import binom
from simulated_logits import Network

from calirare.calibration import (
    FORM_SD,
    SINGLE_SLOPE,
    SINGLE_SLOPE_SD,
    PriorPlattCalibrator,
    expected_count,
    representative_labels,
    with_prevalence,
)
from calirare.calibration.decisions import Budget, Cost, Precision, Rule, decide

SCORED, JUDGED = 50_000, 3000
WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)
ONE: dict[str, float | None] = {"form_sd": None, "slope": SINGLE_SLOPE, "slope_sd": SINGLE_SLOPE_SD}
FORMS: dict[str, dict[str, float | None]] = {"two slopes": {}, "one slope": ONE}
MIDDLE = ", P in the middle"  # of the intervals, as if no label had spoken against the form
FIRST_SEED = 30_000  # of decisions: no rule was chosen by these


@dataclass(frozen=True, eq=False)
class Problem:
    """Labels of one run, and the nodes to score: z and labels of the calibration labels [m], z of the scored nodes."""

    network: Network
    prevalence: float
    z: np.ndarray
    y: np.ndarray
    in_train: np.ndarray
    scored: np.ndarray
    rare_scored: np.ndarray
    given: float | None = None


def problem(setup: str, prevalence: float, rare: int, seed: int, farthest: float = 3.5) -> Problem:
    """Returns a run in which `rare` rare labels are expected among those drawn at random; see `Network.drawn`."""
    rng = np.random.default_rng([seed, SETUPS.index(setup), rare, int(1000 * prevalence)])
    network = Network.drawn(rng, prevalence, farthest)
    share = min(5 * prevalence, 0.6) if setup == "enriched" else prevalence
    y = rng.random(round(rare / share)) < share
    part = {"50/25/25": 2 / 3, "40/20/40": 2 / 3, "all-train": 1.0, "enriched": 2 / 3, "per-class": 0.0}[setup]
    in_train = rng.random(len(y)) < part
    if setup == "per-class":
        y = np.concatenate([np.repeat([False, True], 20), y])
        in_train = np.arange(len(y)) < 40
    scored = rng.permutation(SCORED) < round(SCORED * prevalence)
    given = prevalence if setup == "enriched" else None
    z, of_scored = network.logits(y, rng), network.logits(scored, rng)
    return Problem(network, prevalence, z, y.astype(np.int64), in_train, of_scored, scored, given)


def ours(run: Problem, **widths: float | None) -> PriorPlattCalibrator:
    """Returns the fitted map, its bias from the prevalence where that is given."""
    shares = [1 / (1 + np.exp(run.network.trained)), 1 / (1 + np.exp(-run.network.trained))]
    y = torch.from_numpy(run.y)
    used, sampling = representative_labels(y, torch.from_numpy(run.in_train), 2)
    fitted = PriorPlattCalibrator(trained_shares=shares, **({"form_sd": FORM_SD} | widths))
    fitted.fit(columns(run.z)[used], y[used], sampling=sampling)
    return fitted if run.given is None else with_prevalence(fitted, columns(run.scored), run.given)


def analytic(run: Problem) -> np.ndarray:
    """Returns P with slope 1 and the bias of class weights and label shares, nothing fitted."""
    seen = run.y if len(set(run.in_train)) == 1 or run.in_train[:40].sum() != 40 else run.y[~run.in_train]
    odds = np.log((seen.sum() + 0.5) / (len(seen) - seen.sum() + 0.5)) if run.given is None else logit(run.given)
    return expit(run.scored - run.network.trained + odds)


def form_known(run: Problem, chosen: np.ndarray) -> np.ndarray:
    """Returns the true P but for the prevalence, which the chosen labels tell (Jeffreys): what no map can surpass."""
    if run.given is not None:
        return run.network.posterior(run.scored, run.given)
    odds = [logit(run.network.posterior(z, run.prevalence).clip(TINY, 1 - TINY)) for z in (run.z[chosen], run.scored)]
    more, start = run.y[chosen].sum() + 0.5, logit(run.prevalence)
    shift = brentq(lambda by: more - expit(odds[0] + by).sum() - expit(start + by), -20, 20)
    return expit(odds[1] + shift)


def maps(run: Problem, fitted: PriorPlattCalibrator) -> dict[str, np.ndarray]:
    """Returns P(rare) of the scored nodes by each map; peers take the labels that represent the population."""
    out = {"prior-platt": fitted.transform(run.scored), "analytic": analytic(run)}
    chosen = ~run.in_train if run.in_train[:40].sum() == 40 and run.y[:40].sum() == 20 else np.ones(len(run.y), bool)
    out["form known"] = form_known(run, chosen)
    for name, p in mapped(run.z[chosen], run.y[chosen], run.scored).items():
        if run.given is not None:  # every peer gets the textbook prior shift
            share = run.y.mean().clip(1e-3, 1 - 1e-3)
            p = expit(logit(p.clip(TINY, 1 - TINY)) + logit(run.given) - logit(share))
        out[name] = np.clip(p, 0, 1)
    return out


def expected_log_loss(truth: np.ndarray, p: np.ndarray) -> float:
    inside = p.clip(TINY, 1 - TINY)
    return float(-(truth * np.log(inside) + (1 - truth) * np.log1p(-inside)).mean())


def judged(run: Problem, p: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Returns mean P over the truth, expected log loss, error to the truth, ECE and its floor."""
    truth = run.network.posterior(run.scored, run.prevalence)
    few = p[:JUDGED]
    floor = binned_error(few, (rng.random((DRAWS, JUDGED)) < few).astype(float), BINS).mean()
    return {
        "factor": float(p.mean() / run.rare_scored.mean()),
        "log_loss": expected_log_loss(truth, p),
        "rmse": float(np.sqrt(((p - truth) ** 2).mean())),
        "ece": float(binned_error(few, run.rare_scored[:JUDGED].astype(float), BINS)),
        "floor": float(floor),
    }


def bar(setup: str, prevalence: float, rare: int) -> tuple[float, float]:
    if setup == "enriched":
        return 0.9, 1.1
    n = round(rare / prevalence)
    low, high = binom.ppf([0.025, 0.975], n, prevalence) / (n * prevalence)
    return low / 1.1, high * 1.1


def cell(setup: str, prevalence: float, rare: int, runs: int) -> dict[str, object]:
    """Returns what one cell measured."""
    measured: dict[str, list[dict[str, float]]] = {}
    holds = []
    for seed in range(runs):
        run, rng = problem(setup, prevalence, rare, seed), np.random.default_rng(seed)
        fitted = ours(run)
        for name, p in maps(run, fitted).items():
            measured.setdefault(name, []).append(judged(run, p, rng))
        count = expected_count(fitted, columns(run.scored), 0.9)
        holds.append(count.low <= run.rare_scored.sum() <= count.high)
    low, high = bar(setup, prevalence, rare)
    table = {name: {key: np.array([row[key] for row in rows]) for key in rows[0]} for name, rows in measured.items()}
    return {
        "bar": [low, high],
        "factor_inside": {
            name: float(((low <= t["factor"]) & (t["factor"] <= high)).mean()) for name, t in table.items()
        },
        "ece_inside": {name: float((t["ece"] <= 1.5 * t["floor"] + 0.005).mean()) for name, t in table.items()},
        "factor": {name: float(np.exp(np.log(t["factor"].clip(1e-6)).mean())) for name, t in table.items()},
        "log_loss": {name: float(t["log_loss"].mean()) for name, t in table.items()},
        "rmse": {name: float(t["rmse"].mean()) for name, t in table.items()},
        "interval_holds": float(np.mean(holds)),
    }


def widths(runs: int) -> dict[str, object]:
    """Returns for each pair of widths the mean log loss over that of the truth, on fixed slopes and shifts.

    Slopes 1/3 to 3 and shifts -1 to 1, each as often: a stress for the priors, which are right for none of them.
    """
    cells = list(itertools.product((1 / 3, 0.6, 1.0, 1.7, 3.0), (-1.0, 0.0, 1.0), (5, 20, 80)))
    excess = np.zeros((len(WIDTHS), len(WIDTHS), len(cells)))
    for number, (slope, shift, rare) in enumerate(cells):
        for seed in range(runs):
            rng = np.random.default_rng([10_000 + seed, number])
            prevalence = (0.03, 0.2)[seed % 2]
            network = Network("normal", float(rng.uniform(1.2, 3.5)), slope, shift, 0.0)
            y = rng.random(round(rare / prevalence)) < prevalence
            scored = rng.random(5000) < prevalence
            z, of_scored = network.logits(y, rng), network.logits(scored, rng)
            drawn = (np.zeros(len(y), bool), of_scored, scored)
            run = Problem(network, prevalence, z, y.astype(np.int64), *drawn)
            truth = network.posterior(of_scored, prevalence)
            least = expected_log_loss(truth, truth)
            for i, j in itertools.product(range(len(WIDTHS)), repeat=2):
                p = ours(run, slope_sd=WIDTHS[i], ratio_sd=WIDTHS[j]).transform(of_scored)
                excess[i, j, number] += (expected_log_loss(truth, p) / least - 1) / runs
    by = lambda values: {str(rare): excess[..., [c[2] == rare for c in cells]].mean(-1).tolist() for rare in values}  # noqa: E731
    return {"widths": list(WIDTHS), "rows": "slope_sd", "columns": "ratio_sd", "excess_by_rare": by((5, 20, 80))} | {
        "excess": excess.mean(-1).tolist(),
        "worst": excess.max(-1).tolist(),
    }


def cheapest(p: np.ndarray, y: np.ndarray, miss: float) -> float:
    """Returns the threshold of least cost on labels: what scikit-learn's TunedThresholdClassifierCV looks for."""
    order = np.argsort(-p, kind="stable")
    costs = np.concatenate([[0], (1 - y[order]).cumsum()]) + miss * (y.sum() - np.concatenate([[0], y[order].cumsum()]))
    place = int(costs.argmin())
    return 2.0 if place == 0 else float(p[order][place - 1])


def cost_of(threshold: float, p: np.ndarray, y: np.ndarray, miss: float) -> float:
    return float(miss * y[p < threshold].sum() + (1 - y[p >= threshold]).sum())


def decisions(numbers: list[int], runs: int) -> dict[str, object]:
    """Returns realised cost over that of the best threshold, and how often what was promised happened."""
    rules = {f"cost {miss:g}": Cost(miss=miss, alarm=1.0) for miss in (5.0, 30.0)}
    rules |= {"precision 0.6": Precision(at_least=0.6), "budget 1000": Budget(alerts=1000)}
    return {f"rare {rare}": _decided(rare, rules, runs) for rare in numbers}


def _decided(rare: int, rules: Mapping[str, Rule], runs: int) -> dict[str, object]:
    inside: dict[str, dict[str, dict[str, float]]] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        run = problem("50/25/25", 0.05, rare, seed)
        y = run.rare_scored.astype(int)
        for kind, fitted in _fitted(run).items():
            p = fitted.transform(run.scored)
            for name, rule in rules.items():
                found, (miss, alarm) = decide(rule, fitted, columns(run.scored), coverage=0.9), rule.costs()
                hits, misses = (int(y[part].sum()) for part in (p >= found.threshold, p < found.threshold))
                true = {"hits": hits, "misses": misses, "cost": miss * misses + alarm * (found.alerts - hits)}
                for what, value in true.items():
                    counted, table = getattr(found, what), inside.setdefault(f"{what} inside", {}).setdefault(kind, {})
                    table[name] = table.get(name, 0) + (counted.low <= value <= counted.high) / runs
                if kind == next(iter(FORMS)) and isinstance(rule, Cost):
                    best = cost_of(cheapest(p, y, miss), p, y, miss)
                    tuned = cheapest(fitted.transform(run.z), run.y, miss)
                    for way, t in (("P", found.threshold), ("tuned on labels", tuned), ("balanced world", p.mean())):
                        ratios.setdefault(name, {}).setdefault(way, []).append(cost_of(t, p, y, miss) / best)
    means = {name: {way: float(np.mean(values)) for way, values in ways.items()} for name, ways in ratios.items()}
    return {"cost_over_best": means} | inside


def _fitted(run: Problem) -> dict[str, PriorPlattCalibrator]:
    """Returns maps of both forms, and each with P(rare) in the middle of its intervals."""
    out = {kind: ours(run, **widths) for kind, widths in FORMS.items()}
    for kind in FORMS:
        out[kind + MIDDLE] = copy(out[kind])
        out[kind + MIDDLE].move_ = None
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--setups", default=",".join(SETUPS))
    parser.add_argument("--widths", action="store_true")
    parser.add_argument("--decide", action="store_true")
    parser.add_argument("--rare", default="10,20,50,200", help="of --decide: how many rare labels to expect")
    options = parser.parse_args()
    if options.widths:
        record.write("probability_widths", widths(options.runs))
        return
    if options.decide:
        numbers = [int(word) for word in options.rare.split(",")]
        merged("decisions", options.runs, decisions(numbers, options.runs))
        return
    cells = {}
    for setup, prevalence, rare in itertools.product(options.setups.split(","), PREVALENCES, RARE):
        cells[f"{setup}, {prevalence:g}, {rare}"] = found = cell(setup, prevalence, rare, options.runs)
        print(f"{setup}, {prevalence:g}, {rare}:", found["factor_inside"], flush=True)
    merged("probability", options.runs, cells)


def merged(name: str, runs: int, cells: Mapping[str, object]) -> None:
    """Writes cells beside those that an earlier run of as many runs has measured."""
    path = record.RESULTS / f"{name}.json"
    before = json.loads(path.read_text())["results"] if path.exists() else {}
    kept = before["cells"] if before.get("runs") == runs and "cells" in before else {}
    record.write(name, {"runs": runs, "cells": kept | dict(cells)})


if __name__ == "__main__":
    main()
