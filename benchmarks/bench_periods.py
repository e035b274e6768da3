"""Expected counts of a period that comes after all labels, against what it turned out to hold.

    python benchmarks/bench_periods.py [--runs 5] [--real] [--keep FOLDER]     # writes periods.json

Simulated graphs have eight periods; all nodes of the first seven have labels, the last one is the held-out period, on
which the run decides. `KINDS` are laws of drift: none, a base rate that walks, jumps about, rises or has a step, and
classes that come closer or move. Real ones have times on their edges (Bitcoin OTC: ratings; AMLSim: transfers): labels
until a part of the time, the next nodes held out. Judged: hits, misses and cost in their 90 % intervals, with the
drift of earlier periods and without, of all runs and of those whose verdict lets them print counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import record
import torch
from bench_verdict import D, edges
from scipy.special import expit, logit

import calirare
from calirare.calibration.decisions import Cost, Labelled, decide
from calirare.run.periods import are_later, labels_by_time

PERIODS, OLD, NEW = 8, 300, 800  # nodes of a period, and of the held-out one
KINDS = ("none", "walk", "jumps", "rise", "step", "closer", "columns")
CUTS, NEXT = (0.5, 0.6, 0.7, 0.8), 0.2  # parts of the labelled nodes in order of time, and of those held out


def drawn(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns rate, distance of the classes and place of each period, [PERIODS]."""
    base, steps = logit(float(rng.choice([0.05, 0.1, 0.2]))), np.arange(PERIODS)
    sd = float(rng.choice([0.1, 0.2, 0.4]))
    rates = {
        "walk": sd * rng.standard_normal(PERIODS).cumsum(),
        "jumps": sd * rng.standard_normal(PERIODS),
        "rise": rng.choice([-1, 1]) * sd / 2 * steps,
        "step": np.where(steps >= rng.integers(2, PERIODS), rng.choice([-1, 1]) * 2 * sd, 0.0),
    }
    apart = 2.5 - 0.2 * steps if kind == "closer" else np.full(PERIODS, 2.0)
    moved = 0.15 * steps if kind == "columns" else np.zeros(PERIODS)
    return expit(base + rates.get(kind, np.zeros(PERIODS))), apart, moved


def simulated(kind: str, seed: int) -> tuple[calirare.Graph, np.ndarray]:
    """Returns a graph with the labels of all periods but the last, and every node's class."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    rates, apart, moved = drawn(kind, rng)
    period = np.repeat(np.arange(PERIODS), [OLD] * (PERIODS - 1) + [NEW])
    y = (rng.random(len(period)) < rates[period]).astype(np.int64)
    direction = rng.standard_normal(D)
    direction /= np.linalg.norm(direction)
    x = rng.standard_normal((len(y), D)) + np.outer(apart[period] * (y - 0.5) + moved[period], direction)
    known = np.where(period < PERIODS - 1, y, -1)
    graph = calirare.Graph(
        edges(y, 0.4, rng),
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(known),
        class_names=("normal", "rare"),
        time=torch.from_numpy(period + rng.random(len(y))),
        name=kind,
    )
    return graph, y


def real() -> dict[str, tuple[calirare.Graph, np.ndarray]]:
    """Returns the sets by name, their labels among -1, 0 and 1, and times of their nodes from those of the edges."""
    root = Path(os.environ["CALIRARE_DATA"]) / "fraud"
    ratings = pd.read_csv(root / "otc_ratings.csv.gz", names=["source", "target", "rating", "time"])
    labels = pd.read_csv(root / "otc_labels.csv", names=["node", "label"]).set_index("node").label
    users = pd.DataFrame({"node": np.unique(ratings[["source", "target"]])})
    users["label"] = users.node.map(labels).map({1: "0", -1: "1"})
    otc = calirare.Graph.from_tables(
        ratings, users, "label", time="time", edge_columns=("rating",), directed=True, unweighted=True
    )
    accounts = pd.read_csv(root / "amlsim_accounts.csv.gz")
    accounts["label"] = accounts.isFraud.astype(str).str.lower().isin(["true", "1"]).astype(int).astype(str)
    transfers = pd.read_csv(root / "amlsim_transactions.csv.gz")
    transfers.columns = ["source", "target", "value", "time"]
    aml = calirare.Graph.from_tables(
        transfers,
        accounts[["nodeid", "init_balance", "label"]],
        "label",
        id="nodeid",
        time="time",
        edge_columns=("value",),
        directed=True,
        unweighted=True,
    )
    return {name: (graph, graph.y.numpy()) for name, graph in (("otc", otc), ("amlsim", aml))}


def cut(graph: calirare.Graph, y: np.ndarray, part: float) -> calirare.Graph:
    """Returns the graph with labels of the oldest part, and the next ones alone to decide on."""
    known = np.flatnonzero(y >= 0)
    order = known[np.argsort(graph.time.numpy()[known], kind="stable")]
    first, last = int(part * len(order)), int((part + NEXT) * len(order))
    labels, scored = np.full(len(y), -1), np.zeros(len(y), dtype=bool)
    labels[order[:first]] = y[order[:first]]
    scored[order[:last]] = True
    return dataclasses.replace(graph, y=torch.from_numpy(labels), scored=torch.from_numpy(scored), split=None)


def trained(name: str, graph: calirare.Graph, y: np.ndarray, seed: int) -> dict[str, Any]:
    """Returns what one run knows of its held-out period, and what is true of it."""
    out = calirare.train(graph, seed=seed)
    held = out.graph.unlabelled
    labels = labels_by_time(out.graph, out.fit.nodes, out.jackknife.own_loo_logits, out.logits, out.calibrators)
    return {
        "kind": name,
        "seed": seed,
        "answer": out.verdict.answer,
        "cause": out.verdict.cause,
        "sentence": out.verdict.sentence,
        "printed": out.decision.expected is not None,
        "later": are_later(out.graph, held),
        "calibrator": out.calibrators["population"],
        "logits": out.logits[held].double(),
        "rare": y[held.numpy()] == 1,
        "labels": Labelled(labels.p.numpy(), labels.rare.numpy()),
    }


def judged(run: dict[str, Any]) -> dict[str, Any]:
    """Returns what a run promises, with the drift of its periods and without, and what is true."""
    calibrator, logits, rare = run["calibrator"], run["logits"], run["rare"]
    ways = {"drift": run["labels"] if run["later"] else None, "plain": None}
    found = {way: decide(Cost(), calibrator, logits, earlier=labels) for way, labels in ways.items()}
    p = calibrator.predict_proba(logits)[:, 1].numpy()
    alerts = p >= found["drift"].threshold
    hits, misses = int(rare[alerts].sum()), int(rare[~alerts].sum())
    true = {"hits": hits, "misses": misses, "cost": misses + int(alerts.sum()) - hits}
    row = {key: run[key] for key in ("kind", "seed", "answer", "cause", "sentence", "printed", "later")}
    row |= {"ratio": float(p.sum() / max(rare.sum(), 1)), "true": true}
    for way, decision in found.items():
        ends = {each: getattr(decision, each) for each in true}
        row[way] = {each: [count.expected, count.low, count.high] for each, count in ends.items()}
    return row


def covered(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns which part of the intervals of some runs contain what is true, and their usual width."""
    out: dict[str, Any] = {"runs": len(rows)}
    for way in ("drift", "plain") if rows else ():
        ends = np.array([[row[way][each] for each in row["true"]] for row in rows])
        true = np.array([list(row["true"].values()) for row in rows])
        inside = (ends[..., 1] <= true) & (true <= ends[..., 2])
        width = (ends[..., 2] - ends[..., 1]) / np.maximum(true, 5)
        of_each = dict(zip(rows[0]["true"], inside.mean(0).tolist(), strict=True))
        out[way] = {"all": float(inside.mean())} | of_each | {"width": float(np.median(width))}
    return out


def main() -> None:
    """Runs the kinds in turn, then the real sets, and writes what counts covered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each kind")
    parser.add_argument("--real", action="store_true", help="also the sets of CALIRARE_DATA")
    parser.add_argument("--keep", type=Path, help="folder of trained runs, which are not trained again")
    options = parser.parse_args()
    places = [(kind, seed, None) for seed in range(options.runs) for kind in KINDS]
    sets = real() if options.real else {}
    places += [(name, 0, part) for name in sets for part in CUTS]
    rows = []
    for kind, seed, part in places:
        stored = options.keep and options.keep / f"{kind} {seed if part is None else part}.pickle"
        if stored and stored.exists():
            run = pickle.loads(stored.read_bytes())
        else:
            graph, y = simulated(kind, seed) if part is None else (cut(*sets[kind], part), sets[kind][1])
            run = trained(kind, graph, y, seed)
            if stored:
                stored.write_bytes(pickle.dumps(run))
        rows.append(judged(run) | {"cut": part})
        print(json.dumps(rows[-1]), flush=True)
    printed = [row for row in rows if row["printed"]]
    summary = {"all": covered(rows), "printed": covered(printed)}
    summary |= {kind: covered([row for row in printed if row["kind"] == kind]) for kind in (*KINDS, *sets)}
    print(json.dumps(summary, indent=1))
    record.write("periods", {"summary": summary, "rows": rows})


if __name__ == "__main__":
    main()
