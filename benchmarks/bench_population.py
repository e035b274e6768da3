"""P(rare) of whole trainings, on graphs, beside other maps of the same detector's logits.

    python benchmarks/bench_population.py [--detectors hops,trees,gcn,auto] [--runs 40] [--seed 0]
    python benchmarks/bench_population.py --summary     # writes population.json of all runs there are

Each run draws a graph (simulated ones with 1 to 30 % rare nodes, or real ones as they are), a natural set-up, how many
rare labels to expect, and labels; `calirare.train` sees these alone. Judged on every other labelled node of the graph:

- mean P(rare) over the share observed, against the 95 % interval of a binomial count of the calibration labels, a tenth
  wider (with the prevalence given: .9 to 1.1, and by the binomial count of the judged nodes wider still);
- ECE (15 bins of equal numbers) against 1.5 times that of labels drawn from P(rare) itself, + .005;
- log loss of P(rare), and of peers' maps fitted on the same left-out logits of the same labels;
- the same of |mean P - share| alone, below which no ECE can be, whatever the form of the map (`ece_at_best`);
- the verdict on P(rare), and hits, misses and costs of the default decision inside of their 90 % intervals.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import record
import torch
from detection.sets import SETS
from detection.tasks import Task, hidden
from peer_maps import BINS, DRAWS, PREVALENCES, RARE, SETUPS, TINY, binned_error, mapped
from scipy.special import expit, logit
from scipy.stats import binom
from sklearn.metrics import log_loss

import calirare
from calirare.calibration import (
    FORM_SD,
    SINGLE_SLOPE,
    SINGLE_SLOPE_SD,
    PriorPlattCalibrator,
    effective_shares,
    representative_labels,
    with_prevalence,
)
from calirare.datasets import synthetic_rare
from calirare.models import FoldFitted

REAL = ("sichuan", "amazon", "facebook", "dblp", "cora", "computers")
KINDS: dict[str, dict[str, Any]] = {
    "graph": {"labels": "posterior", "separation": 0.0, "mean_degree": 16.0},
    "block": {"labels": "block", "separation": 2.0, "homophily": 0.6},
    "noise": {"labels": "block", "separation": 2.5, "homophily": 0.0},
}
N_NODES, N_SHOT, MOST = 12_000, 20, 0.5
FILE = "population"
OURS = ("ours", "one slope", "two slopes")  # the run's own map; that and the other form fitted here


@cache
def task(name: str) -> Task:
    """Returns a real graph, or a simulated one by its name: kind, prevalence, seed."""
    if name in SETS:
        return SETS[name]()
    kind, share, seed = name.split()
    model = KINDS[kind] | {"share": float(share), "n_features": 16}
    return Task(dataclasses.replace(synthetic_rare(N_NODES, seed=int(seed), **model), name=name, trusted=True))


def places(runs: int, seed: int) -> Iterator[tuple[str, str, int, int]]:
    """Yields set, set-up, expected rare labels and seed of each run; two of three are simulated."""
    rng = np.random.default_rng(seed)
    for number in range(runs):
        kind = list(KINDS)[rng.integers(len(KINDS))]
        name = f"{kind} {PREVALENCES[rng.integers(4)]} {rng.integers(1000)}" if number % 3 else str(rng.choice(REAL))
        yield name, SETUPS[rng.integers(5)], RARE[rng.integers(5)], int(rng.integers(2**31))


def drawn(of: Task, setup: str, rare: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Returns training and validation nodes, and the prevalence where it is told."""
    y = of.y
    known = rng.permutation(np.flatnonzero(y >= 0))
    share = float((y[known] == 1).mean())
    if setup == "per-class":
        train = np.concatenate([known[y[known] == k][:N_SHOT] for k in (0, 1)])
        left = rng.permutation(known[~np.isin(known, train)])  # the first rare ones are gone
        return train, left[: min(round(rare / share), round(MOST * len(left)))], None
    if setup == "enriched":
        rich = min(5 * share, 0.6)
        most = round(MOST * (y[known] == 1).sum())
        n_rare = min(rare, most)
        counts = (round(n_rare / rich * (1 - rich)), n_rare)
        nodes = rng.permutation(np.concatenate([known[y[known] == k][: counts[k]] for k in (0, 1)]))
        cut = round(2 / 3 * len(nodes))
        return nodes[:cut], nodes[cut:], share
    nodes = known[: min(round(rare / share), round(MOST * len(known)))]
    cut = {"50/25/25": 2 / 3, "40/20/40": 2 / 3, "all-train": 1.0}[setup]
    if setup == "40/20/40":  # by class
        parts = [nodes[y[nodes] == k] for k in (0, 1)]
        ends = [round(cut * len(part)) for part in parts]
        return (
            np.concatenate([part[:end] for part, end in zip(parts, ends, strict=True)]),
            np.concatenate([part[end:] for part, end in zip(parts, ends, strict=True)]),
            None,
        )
    return nodes[: round(cut * len(nodes))], nodes[round(cut * len(nodes)) :], None


def bounds(labels: int, share: float, judged: int, given: float | None) -> tuple[float, float]:
    """Returns between which factors mean P over the share of the judged nodes is right."""
    if given is not None:
        low, high = binom.ppf([0.025, 0.975], judged, share) / (judged * share)
        return 0.9 * min(low, 1), 1.1 * max(high, 1)
    low, high = binom.ppf([0.025, 0.975], labels, share) / (labels * share)
    return low / 1.1, high * 1.1


def loss(y: np.ndarray, p: np.ndarray) -> float:
    return float(log_loss(y, p.clip(TINY, 1 - TINY), labels=[0, 1]))


def run(name: str, setup: str, rare: int, seed: int, detector: str) -> dict[str, Any] | None:
    """Returns what one training measured; None where the labels drawn do not have both classes in training."""
    of, rng = task(name), np.random.default_rng([seed, zlib.crc32(name.encode())])
    train, val, given = drawn(of, setup, rare, rng)
    y = of.y
    if len(set(y[train].tolist())) < 2 or (y[train] == 1).sum() < 2:
        return None
    graph = hidden(of.graph, np.sort(train), np.sort(val), f"{setup}(seed={seed})")
    out = calirare.train(graph, seed=seed, model=detector, prevalence=given)
    judged = np.setdiff1d(np.flatnonzero(y >= 0), np.concatenate([train, val]))
    truth, p = y[judged], out.probabilities("population")[:, 1].double().numpy()[judged]
    share = float(truth.mean())
    low, high = bounds(len(val) if setup == "per-class" else len(train) + len(val), share, len(judged), given)
    floor = binned_error(p, (rng.random((DRAWS, len(p))) < p).astype(float), BINS).mean()
    decided, alerts = out.decision, p >= out.decision.threshold
    hits = int(truth[alerts].sum())
    facts = {
        "labels": len(train) + len(val),
        "rare_labels": int(y[train].sum() + y[val].sum()),
        "share": share,
        "factor": float(p.mean() / share),
        "bounds": [float(low), float(high)],
        "ece": float(binned_error(p, truth.astype(float), BINS)),
        "floor": float(floor),
        "verdict": out.verdict.answer,
        "log_loss": {"ours": loss(truth, p)} | of_maps(out, judged, given, truth),
        "hits": hits,
    }
    expected = decided.expected
    if expected is not None and decided.nodes == len(judged):  # else some of the nodes decided on have no known label
        facts["hits_expected"] = [float(expected.hits.low), float(expected.hits.high)]
    return facts


def of_maps(out: calirare.Outcome, judged: np.ndarray, given: float | None, truth: np.ndarray) -> dict[str, float]:
    """Returns the log loss of our map in both forms, and of each peer's on the labels that represent the population."""
    split, y = out.graph.split, out.graph.y
    assert split is not None
    assert y is not None
    own = out.held_out if out.agreement and out.agreement.verdict == "do not trust" else out.jackknife.own_loo_logits
    assert own is not None
    own = own.double()
    nodes = torch.cat([split.train, split.val])
    labels = y[nodes]
    in_train = torch.arange(len(nodes)) < split.train.numel()
    used, sampling = representative_labels(labels, in_train, 2)
    at = used.clone()
    at[used] = sampling.representative
    chosen = at if bool(at.any()) else used
    shares = effective_shares(out.fit.targets, out.fit.sample_weights, 2)
    single = {} if isinstance(out.fit, FoldFitted) else {"slope": SINGLE_SLOPE, "slope_sd": SINGLE_SLOPE_SD}
    found = {}
    for name, form_sd in (("one slope", None), ("two slopes", FORM_SD)):
        fitted = PriorPlattCalibrator(trained_shares=shares, form_sd=form_sd, **single)
        fitted.fit(own[used], labels[used], sampling=sampling)
        every = out.logits.double()
        if given is not None:
            fitted = with_prevalence(fitted, every, given)
        found[name] = loss(truth, fitted.transform(every)[judged, 1].numpy())
    z_own = (own[:, 1] - own[:, 0]).numpy()[chosen.numpy()]
    y_own = labels[chosen].numpy()
    z = (out.logits[:, 1] - out.logits[:, 0]).double().numpy()[judged]
    for name, p in mapped(z_own, y_own, z).items():
        if given is not None:
            told = y_own.mean().clip(1e-3, 1 - 1e-3)
            p = expit(logit(p.clip(TINY, 1 - TINY)) + logit(given) - logit(told))
        found[name] = loss(truth, np.clip(p, 0, 1))
    return found


def rows() -> list[dict[str, Any]]:
    path = record.RESULTS / f"{FILE}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(detectors: list[str], runs: int, seed: int) -> None:
    keys = ("set", "setup", "rare", "seed", "detector")
    done = {tuple(row[key] for key in keys) for row in rows()}
    commit = record.environment()["commit"]
    path = record.RESULTS / f"{FILE}.jsonl"
    for place in places(runs, seed):
        for detector in detectors:
            if (*place, detector) in done:
                continue
            found = run(*place, detector)
            line = dict(zip(keys, (*place, detector), strict=True)) | {"commit": commit} | (found or {"skipped": True})
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if found:
                print(*place[:3], detector, f"factor {found['factor']:.2f} of {found['bounds']}", flush=True)


def summary() -> dict[str, Any]:
    """Returns shares of runs inside their bars, by detector and by number of rare labels."""
    table = [row for row in rows() if "skipped" not in row]
    groups = {"all": table}
    for key in ("detector", "setup", "rare"):
        for value in sorted({row[key] for row in table}, key=str):
            groups[f"{key} {value}"] = [row for row in table if row[key] == value]
    for kind, real in (("real", True), ("simulated", False)):
        groups[kind] = [row for row in table if (row["set"] in REAL) == real]
    return {name: shares(found) for name, found in groups.items() if found}


def shares(table: list[dict[str, Any]]) -> dict[str, Any]:
    losses = {name: np.array([row["log_loss"][name] for row in table]) for name in table[0]["log_loss"]}
    best = np.min([losses[name] for name in losses if name not in OURS], 0)
    trusted = [row["factor"] for row in table if row["verdict"] in ("trust", "calibrated")]
    promised = [row for row in table if "hits_expected" in row]
    return {
        "runs": len(table),
        "factor_inside": np.mean([r["bounds"][0] <= r["factor"] <= r["bounds"][1] for r in table]),
        "ece_inside": np.mean([r["ece"] <= 1.5 * r["floor"] + 0.005 for r in table]),
        "ece_at_best": np.mean([abs(r["factor"] - 1) * r["share"] <= 1.5 * r["floor"] + 0.005 for r in table]),
        "trusted": len(trusted),
        "trusted_inside": np.mean([2 / 3 <= f <= 1.5 for f in trusted]) if trusted else None,
        "log_loss": {name: float(values.mean()) for name, values in losses.items()},
        "within_2_percent_of_best_peer": float((losses["ours"] <= 1.02 * best).mean()),
        "hits_inside": np.mean([r["hits_expected"][0] <= r["hits"] <= r["hits_expected"][1] for r in promised])
        if promised
        else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detectors", default="hops,trees,gcn")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.summary:
        record.write(FILE, summary())
        return
    measure(options.detectors.split(","), options.runs, options.seed)


if __name__ == "__main__":
    main()
