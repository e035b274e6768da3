"""Whether the verdict of a run is right: runs constructed so that the right answer is known.

    python benchmarks/bench_verdict.py [--runs 200] [--seed 0] [--only base-rate]    # writes verdict.json

Every run draws a graph of 6,000 nodes with a time, an everyday fault or none, and labels. `calirare.train` sees the
labels of some nodes; the others show what is true: predicted over observed rate where the run was made for.

- well: labels drawn at random, a part of them tests. well-untested: the same, and every label trains.
- noise: edges at random, features that help: calibrated is right.
- chance: neither features nor edges tell classes apart: no better than random is right.
- base-rate: the rate of the class grows or falls along the time; scores: what tells the classes apart fades; columns:
  all features move. Labels are the past, the test nodes the future: not calibrated, by time, is right.
- enriched: the labels that train have four times the rate of the class, the test nodes are drawn at random.
- rule: labels are the nodes a rule picked, none tests: labels that are no random sample.
- leak: a column is filled in for labelled nodes of the class only.

An answer is right where it is the scenario's; where the fault turned out too small to matter (the true ratio lies in
.8 to 1.25), and in runs without a fault, the answer of the true ratio is right. "Not known" is wrong where a fault is
large, also where too few test nodes are rare to show it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import record
import scipy.sparse as sp
import torch

import calirare
from calirare.graph import csr_of_scipy

N, LABELS, TESTED, D, DEGREE = 6_000, 1_500, 1_500, 8, 8
SMALL = (0.8, 1.25)  # a true ratio between these is no fault
READABLE = (0.67, 1.5)  # where "calibrated" may be said
KNOWN_TWICE = 0.9


@dataclass
class World:
    """A population of nodes, of which some have labels.

    Attributes:
        when: time of each node, in [0, 1].
        rate: of the class at a time.
        apart: distance of the classes' means at a time.
        moved: of all features at a time.
        homophily: probability that an edge leads to a node of the same class.
        ordered: whether labels are those of the past and tests later.
        right: the answer, and the cause, that the fault asks for.
    """

    rate: Callable[[np.ndarray], np.ndarray]
    apart: Callable[[np.ndarray], np.ndarray] = lambda t: np.full_like(t, 2.0)
    moved: Callable[[np.ndarray], np.ndarray] = np.zeros_like
    homophily: float = 0.5
    ordered: bool = False
    tested: bool = True
    enriched: float = 1.0
    picked: bool = False
    leak: bool = False
    right: tuple[str, str | None] = ("calibrated", None)
    extra: dict[str, Any] = field(default_factory=dict)


def world(kind: str, rng: np.random.Generator) -> World:
    """Returns the world of a scenario."""
    base = float(rng.choice([0.05, 0.1, 0.2]))

    def level(t: np.ndarray) -> np.ndarray:
        return np.full_like(t, base)

    time_ = ("not calibrated", "time")
    if kind == "base-rate":
        factor = float(rng.choice([0.3, 3.0]))
        return World(lambda t: base * np.where(t > 0.7, factor, 1.0), ordered=True, right=time_)
    if kind == "scores":
        return World(level, apart=lambda t: np.where(t > 0.7, 0.6, 2.5), ordered=True, right=time_)
    if kind == "columns":
        return World(level, moved=lambda t: np.where(t > 0.7, 1.5, 0.0), ordered=True, right=time_)
    if kind == "enriched":
        return World(level, enriched=4.0, right=("not calibrated", "labels"))
    if kind == "rule":
        return World(level, picked=True, tested=False, right=("not known", "labels"))
    if kind == "leak":
        return World(level, leak=True, tested=bool(rng.integers(2)), right=("leak", "leakage"))
    if kind == "noise":
        return World(level, homophily=0.0, apart=lambda t: np.full_like(t, 2.5))
    if kind == "chance":
        return World(level, apart=np.zeros_like, homophily=0.0, right=("no better than random", "model"))
    return World(level, tested=kind == "well")


KINDS = ("well", "well-untested", "noise", "chance", "base-rate", "scores", "columns", "enriched", "rule", "leak")


def edges(y: np.ndarray, homophily: float, rng: np.random.Generator) -> Any:
    """Returns the adjacency: of each edge one end is uniform, the other of the same class with a probability."""
    u = rng.integers(len(y), size=len(y) * DEGREE // 2)
    v = rng.integers(len(y), size=len(u))
    same = rng.random(len(u)) < homophily
    for c in (0, 1):
        members, at = np.flatnonzero(y == c), same & (y[u] == c)
        v[at] = members[rng.integers(len(members), size=int(at.sum()))]
    kept = u != v
    half = sp.coo_matrix((np.ones(int(kept.sum()), np.float32), (u[kept], v[kept])), shape=(len(y), len(y))).tocsr()
    a = ((half + half.T) > 0).astype(np.float32).tocsr()
    a.sort_indices()
    return csr_of_scipy(a)


def run(kind: str, seed: int) -> dict[str, Any]:
    """Returns what one run answered, and what is true."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    of = world(kind, rng)
    t = rng.random(N)
    y = (rng.random(N) < of.rate(t)).astype(np.int64)
    direction = rng.standard_normal(D)
    direction /= np.linalg.norm(direction)
    x = rng.standard_normal((N, D)) + np.outer(of.apart(t) * (y - 0.5) + of.moved(t), direction)
    order = np.argsort(t) if of.ordered else rng.permutation(N)
    early = order[t[order] <= 0.7] if of.ordered else order
    if of.enriched > 1:
        weight = np.where(y == 1, of.enriched, 1.0)
        labelled = rng.choice(N, LABELS, replace=False, p=weight / weight.sum())
    elif of.picked:
        labelled = np.argsort(-(x @ direction + rng.standard_normal(N)))[:LABELS]
    else:
        labelled = rng.permutation(early)[:LABELS]
    left = np.setdiff1d(np.arange(N), labelled)
    late = left[t[left] > 0.7] if of.ordered else left
    late = rng.permutation(late)
    test, hidden = (late[: len(late) // 2], late[len(late) // 2 :]) if of.tested else (late[:0], late)
    if of.leak:
        filled = np.zeros(N)
        filled[labelled] = y[labelled] * (rng.random(len(labelled)) < KNOWN_TWICE)
        x = np.c_[x, filled]
    known = np.full(N, -1)
    known[labelled], known[test] = y[labelled], y[test]
    ends = np.empty(0, dtype=np.int64)
    train, val = labelled, ends
    if of.ordered:  # the newest labels calibrate
        by_time = labelled[np.argsort(t[labelled])]
        train, val = by_time[: len(by_time) * 4 // 5], by_time[len(by_time) * 4 // 5 :]
    split = calirare.Split(*(torch.from_numpy(np.sort(part)) for part in (train, val, test)), name=kind)
    labels = torch.from_numpy(known)
    graph = calirare.Graph(
        edges(y, of.homophily, rng),
        torch.from_numpy(x.astype(np.float32)),
        labels,
        split=split,
        class_names=("normal", "rare"),
        minority=1,
        original_y=labels,
        original_class_names=("normal", "rare"),
        time=torch.from_numpy(t) if of.ordered else None,
        name=kind,
    )
    started = time.process_time()
    out = calirare.train(graph, seed=seed)
    verdict, p = out.verdict, out.probabilities("population")[:, 1].numpy()[hidden]
    ratio = float(p.sum() / max(y[hidden].sum(), 1))
    answer, cause = of.right
    small = SMALL[0] <= ratio <= SMALL[1]
    if answer == "calibrated":
        right = {"calibrated"} if small else {"not calibrated"}
    elif answer == "leak":
        right = {"not known", "not calibrated", "no better than random"}
    else:
        right = {answer}
        if small and answer == "not calibrated":
            right = {"calibrated", "not calibrated", "not known"}
    found = {
        "kind": kind,
        "seed": seed,
        "answer": verdict.answer,
        "cause": verdict.cause,
        "sentence": verdict.sentence,
        "ratio": ratio,
        "right": verdict.answer in right,
        "right_cause": cause is None or verdict.answer == "calibrated" or verdict.cause == cause,
        "seconds": time.process_time() - started,
    }
    tested = None if verdict.evidence is None else verdict.evidence.ratio
    return found | {"shown": tested}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the proportions that the bars are about."""

    def part(rows: list[dict[str, Any]], key: str) -> float | None:
        return float(np.mean([row[key] for row in rows])) if rows else None

    by_kind = {kind: [row for row in runs if row["kind"] == kind] for kind in KINDS}
    said = [row for row in runs if row["answer"] == "calibrated"]
    well = [row for row in runs if row["kind"] in ("well", "well-untested", "noise")]
    return {
        "runs": len(runs),
        "right": part(runs, "right"),
        "right_cause": part(runs, "right_cause"),
        "right_by_kind": {kind: part(rows, "right") for kind, rows in by_kind.items()},
        "not_known_by_kind": {
            kind: float(np.mean([row["answer"] == "not known" for row in rows])) if rows else None
            for kind, rows in by_kind.items()
        },
        "cause_by_kind": {kind: part(rows, "right_cause") for kind, rows in by_kind.items()},
        "calibrated": len(said),
        "calibrated_readable": float(np.mean([READABLE[0] <= r["ratio"] <= READABLE[1] for r in said]))
        if said
        else None,
        "false_alarms": float(np.mean([r["answer"] != "calibrated" for r in well])) if well else None,
    }


def main() -> None:
    """Runs the scenarios in turn and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    kinds = (options.only,) if options.only else KINDS
    runs = []
    for number in range(options.runs):
        runs.append(run(kinds[number % len(kinds)], options.seed + number // len(kinds)))
        row = runs[-1]
        print(
            f"{row['kind']:<14}{row['seconds']:5.1f} s  true {row['ratio']:.2f}  {row['right']!s:<6}{row['sentence']}",
            flush=True,
        )
    found = summary(runs)
    print(found)
    if not options.only:
        record.write("verdict", {"summary": found, "runs": runs})


if __name__ == "__main__":
    main()
