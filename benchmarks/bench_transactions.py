"""Fraud in tables of transactions: CaliRare next to LightGBM on the same raw tables, split by time 60/20/20.

    python benchmarks/bench_transactions.py [--sets "otc ratings" "rings, 1"] [--methods calirare] [--again]
    python benchmarks/bench_transactions.py --summary     # transactions.json of the lines there are, nothing is run
    python benchmarks/bench_transactions.py --columns 1000000 --train 80000     # processor time and memory only

Peers are LightGBM on the raw columns and on about 60 hand-written window aggregates, as they are known when each
transaction is made or at the end of its batch; tuned on the first two parts, never on the last. Each result is a line
of results/transactions.jsonl, made in a process of its own, and an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import record
from sklearn.metrics import average_precision_score, log_loss
from transacting import ours, peers
from transacting.sets import SETS, Table, law_of

BUDGET = 200
TRAIN = ("train", "--label-delay", "3d", "--known-at", "transaction", "--transactions")
SCORED = 200  # times that one transaction is scored
LINES = record.RESULTS / "transactions.jsonl"
TRUTH = "simulated truth"
METHODS = (*ours.OURS, *peers.PEERS, TRUTH)
MEASURES = ("auprc", "precision_200", "log_loss", "mean_p_over_observed", "cpu_s", "peak_mb")


def measure(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """Returns the measures of P(fraud) of test transactions."""
    first = np.argsort(-p, kind="stable")[:BUDGET]
    return {
        "auprc": float(average_precision_score(y, p)),
        "precision_200": float(y[first].mean()),
        "log_loss": float(log_loss(y, p.clip(1e-12, 1 - 1e-12), labels=[0, 1])),
        "mean_p_over_observed": float(p.mean() / y.mean()),
    }


def scored(table: Table, method: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Returns P(fraud) of the test part by a method, and what else it says."""
    if method == TRUTH:
        assert table.posterior is not None
        return table.posterior[table.ends[1] :], {}
    if method in ours.OURS:
        return ours.scores(table, method.removeprefix("calirare, "))
    columns, calibration = peers.PEERS[method]
    return peers.scores(table, peers.COLUMNS[columns](table), calibration), {}


def run(place: tuple[str, str, str]) -> dict[str, Any]:
    """Returns the result of a method on a set, in a process of its own."""
    name, method, root = place
    table = SETS[name](Path(root))
    begin = time.process_time()
    p, more = scored(table, method)
    seconds = time.process_time() - begin
    y = table.frame["label"].to_numpy()[table.ends[1] :]
    facts = {"set": name, "method": method, "rows": len(table.frame), "test": len(y), "fraud": int(y.sum())}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = measure(y, p) | {"cpu_s": seconds, "peak_mb": peak}
    commit = record.environment()["commit"]
    return facts | {key: float(f"{value:.5g}") for key, value in found.items()} | more | {"commit": commit}


def lines() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the results there are by set and method; of two the later one."""
    text = LINES.read_text(encoding="utf-8").splitlines() if LINES.exists() else []
    return {(row["set"], row["method"]): row for row in map(json.loads, text)}


def mean_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the mean of each measure."""
    return {each: float(f"{np.mean([row[each] for row in rows]):.5g}") for each in MEASURES}


def summary(rows: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    """Returns every result, means over the tables of each law, and over sets; of tables with every method."""
    methods = [method for method in METHODS if method != TRUTH]
    complete = [name for name in SETS if all((name, method) in rows for method in methods)]
    laws = dict.fromkeys(map(law_of, complete))
    by_set = {
        law: {
            method: mean_of([rows[name, method] for name in complete if law_of(name) == law])
            for method in (*methods, *([TRUTH] if (f"{law}, 1", TRUTH) in rows else []))
        }
        for law in laws
    }
    means = {method: mean_of([by_set[law][method] for law in laws]) for method in (methods if laws else ())}
    results = [rows[key] for key in sorted(rows) if key[0] in SETS]
    return {"sets": by_set, "means": means, "results": results}


def in_process(job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Returns what a function does in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(job, arguments)


def simulated(n: int, path: str) -> None:
    """Writes n simulated transactions as Parquet."""
    from calirare.datasets import synthetic_transactions

    synthetic_transactions(n, 1, "stolen cards")[0].to_parquet(path, index=False)


def timed(job: Callable[[], Any]) -> float:
    """Returns processor seconds of a call."""
    begin = time.process_time()
    job()
    return time.process_time() - begin


def cost(n: int, path: str, trained: bool) -> dict[str, float]:
    """Returns the seconds and memory that columns of n transactions take, or a whole training by the command.

    Of a training also the processor time of scoring one transaction after it (`calirare.Scorer`).
    """
    import calirare
    from calirare.__main__ import main as command

    begin, started = time.process_time(), time.perf_counter()
    if trained:
        out = str(Path(path).with_name("run"))
        with contextlib.suppress(SystemExit), mock.patch("sys.argv", ["calirare", *TRAIN, path, "--out", out]):
            command()
        seconds, waited = time.process_time() - begin, time.perf_counter() - started
        scorer = calirare.Scorer(calirare.load(out))
        row = pd.read_parquet(path).iloc[-1].to_dict()
        times = [timed(lambda: scorer.score(row)) for _ in range(SCORED)]
        more = {"score_ms": round(1000 * float(np.median(times)), 1)}
    else:
        graph = calirare.Transactions(path, label_delay="3d", windows=("1d", "7d", "30d")).graph()
        assert graph.n_nodes == n
        seconds, waited, more = time.process_time() - begin, time.perf_counter() - started, {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": n, "cpu_s": round(seconds, 1), "seconds": round(waited, 1), "peak_mb": round(peak)} | more


def costs(n_columns: int, n_trained: int) -> None:
    """Writes what columns and a training cost; threads that wait sleep, as those of the command do."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    found = {}
    for name, n in (("columns", n_columns), ("train", n_trained)):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/payments.parquet"
            in_process(simulated, (n, path))
            found[name] = in_process(cost, (n, path, name == "train"))
        print(name, found[name], flush=True)
    print(record.write("transaction_costs", found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=[""], help="beginnings of names of methods")
    parser.add_argument("--again", action="store_true", help="measure again what is there")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--data", type=Path, default=None, help="folder of the published tables; else CALIRARE_DATA")
    parser.add_argument("--columns", type=int, default=0, help="transactions whose columns are timed")
    parser.add_argument("--train", type=int, default=80_000, help="with --columns: transactions of a timed training")
    chosen = parser.parse_args()
    if chosen.columns:
        costs(chosen.columns, chosen.train)
        return
    root, there = chosen.data or data_folder(), lines()
    wanted = [method for method in METHODS if method.startswith(tuple(chosen.methods))]
    for name in chosen.sets if not chosen.summary else ():
        for method in wanted:
            known = (name, method) in there and not chosen.again
            if known or (method == TRUTH and name in ("otc ratings", "amlsim")):
                continue
            row = in_process(run, ((name, method, str(root)),))
            LINES.parent.mkdir(parents=True, exist_ok=True)
            with LINES.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            values = "  ".join(f"{measure} {row[measure]:.4g}" for measure in MEASURES)
            print(f"{name:<22} {method:<48} {values}", flush=True)
    print(record.write("transactions", summary(lines())))


def data_folder() -> Path:
    """Returns the folder of the published tables."""
    from calirare_lab.published import data_root

    return data_root()


if __name__ == "__main__":
    main()
