"""How long the working queue takes: reasons, the report and an update, on transactions, cards and merchants.

    python benchmarks/bench_queue.py [--transactions 44000]    # writes results/queue.json

A graph of 44,000 transactions, 3,000 cards and 1,000 merchants with 88,000 edges; a few merchants are hubs. Half of the
transactions are labelled, 2 % of them fraud. The command line trains a run, scores a later table of as many with a
budget of 100 alerts, explains two nodes and 100 alerts, makes the report and updates the run with 200 new labels.
Seconds are CPU seconds of the whole process, start-up included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import record


def write(folder: Path, n: int, seed: int, labelled: float) -> pd.DataFrame:
    """Writes nodes.csv and edges.csv; returns the labels of all transactions."""
    rng = np.random.default_rng(seed)
    cards, merchants = max(n // 15, 10), max(n // 44, 10)
    card = rng.integers(0, cards, n)
    merchant = np.minimum((rng.pareto(0.9, n) * 3).astype(int), merchants - 1)
    stolen, bad = rng.random(cards) < 0.02, rng.random(merchants) < 0.03
    amount = rng.lognormal(3, 1, n)
    logit = -5.3 + 3.5 * stolen[card] + 1.5 * bad[merchant] + 0.5 * np.log(amount / 20)
    fraud = rng.random(n) < 1 / (1 + np.exp(-logit))
    columns = {"amount": amount, "hour": rng.integers(0, 24, n).astype(float)}
    columns |= {f"f{k}": rng.normal(size=n) + 0.2 * fraud for k in range(6)}
    names = [f"t{i}" for i in range(n)]
    nodes = pd.DataFrame({"id": names} | columns)
    words = np.where(fraud, "fraud", "ok").astype(object)
    known = rng.random(n) < labelled
    nodes["label"] = np.where(known, words, None)
    nodes["scored"] = 1
    others = [f"c{i}" for i in range(cards)] + [f"m{i}" for i in range(merchants)]
    nodes = pd.concat([nodes, pd.DataFrame({"id": others, "scored": 0})], ignore_index=True)
    nodes.to_csv(folder / "nodes.csv", index=False)
    ends = [pd.DataFrame({"source": names, "target": [f"c{i}" for i in card]}),
            pd.DataFrame({"source": names, "target": [f"m{i}" for i in merchant]})]  # fmt: skip
    pd.concat(ends).to_csv(folder / "edges.csv", index=False)
    return pd.DataFrame({"node": names, "label": words})[~known]


def seconds(*arguments: str) -> float:
    """Runs a command; returns its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "calirare", *arguments], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):  # 3: drift
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{arguments[0]:10s} {took:7.1f} s  {' '.join(arguments[1:])[:90]}", flush=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=44_000)
    n = parser.parse_args().transactions
    found = dict[str, float]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, seed in (("past", 0), ("november", 1)):
            (folder / part).mkdir()
            hidden = write(folder / part, n, seed, 0.5 if part == "past" else 0.0)
            if part == "past":
                hidden.sample(200, random_state=0).to_csv(folder / "answers.csv", index=False)
        run, scores = f"{name}/run", f"{name}/scores"
        tables = [f"--dataset={name}/past/edges.csv", f"--nodes={name}/past/nodes.csv"]
        found["train"] = seconds("train", *tables, "--rare-class=fraud", "--target-nodes=scored=1", f"--out={run}")
        new = [f"--graph={name}/november/edges.csv", f"--nodes={name}/november/nodes.csv"]
        found["predict"] = seconds("predict", run, *new, "--budget=100", f"--out={scores}")
        found["explain_two"] = seconds("explain", scores, "--node", "t5", "t17")
        found["explain_100"] = seconds("explain", scores, "--top=100", f"--out={name}/reasons.json")
        found["report"] = seconds("report", run)
        found["report_of_scores"] = seconds("report", scores)
        found["update"] = seconds("update", run, f"--labels={name}/answers.csv", f"--out={name}/updated")
    found["update_over_train"] = found["update"] / found["train"]
    record.write("queue", {"transactions": n} | found)


if __name__ == "__main__":
    main()
