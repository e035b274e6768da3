"""The main job as a user runs it: quality over seeds, whole-process wall time and peak memory.

    python benchmarks/bench_main_job.py [--datasets cora citeseer ...] [--seeds 5]

Every run is a fresh `calirare train` process. Quality comes from its metrics.json; nothing is chosen on test nodes.
Writes benchmarks/results/main_job.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import record

MEASURES = (
    "recall",
    "precision",
    "macro_f1",
    "ace_minority",
    "ace_minority_noise_floor",
    "macro_ace",
    "macro_ace_noise_floor",
    "ece",
    "ece_noise_floor",
    "nll",
    "brier",
)


def command(dataset: str, seed: int, *more: str) -> list[str]:
    paper = ("--preset", "paper", "--method", "jackknife")
    return ["calirare", "train", "--dataset", dataset, "--seed", str(seed), *paper, *more]


def run(words: list[str], folder: Path) -> tuple[dict[str, Any], float, float]:
    """Returns metrics.json, wall seconds and peak resident MB of one process."""
    out = folder / "run"
    started = time.perf_counter()
    arguments = [sys.executable, "-m", "calirare", *words[1:], "--out", str(out), "--overwrite"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, error = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {error.decode()}")
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    metrics = json.loads((out / "metrics.json").read_text())
    metrics["review"] = errors_found(pd.read_csv(out / "predictions.csv"))
    metrics["stages"] = [line[12:] for line in (out / "log.txt").read_text().splitlines() if line.endswith(" s")]
    return metrics, seconds, peak


def errors_found(table: pd.DataFrame) -> dict[str, float]:
    """Returns which share of the wrong predictions is among a tenth of the test nodes, by what that tenth is chosen."""
    test = table[table["split"] == "test"]
    wrong = test["prediction"] != test["y"]
    orders = {
        "uncertainty": test["p_correct"],  # as review.csv
        "confidence": test["confidence"],
        "raw confidence": np.maximum(test["p_raw"], 1 - test["p_raw"]),
        "ICE": -test["ice_raw"],
        "interval's width": test["lower"] - test["upper"],
    }
    first = {name: values.sort_values(kind="stable").index[: len(test) // 10] for name, values in orders.items()}
    return {name: float(wrong[rows].sum() / max(wrong.sum(), 1)) for name, rows in first.items()}


def mean_and_std(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}


def quality(dataset: str, seeds: int, folder: Path) -> dict[str, Any]:
    runs = [run(command(dataset, seed), folder)[0] for seed in range(seeds)]
    sides = runs[0]["report"]
    out: dict[str, Any] = {
        "command": " ".join(command(dataset, 0)) + f"   (seeds 0 to {seeds - 1})",
        "split": runs[0]["graph"]["split"],
        "epochs": [r["epochs"] for r in runs],
        "verdicts": [r["agreement"]["verdict"] for r in runs],
        "damping": [r["leave_one_out"]["damping"] for r in runs],
        "eice": {side: mean_and_std([r["eice"][side] for r in runs]) for side in ("raw", "balanced", "population")},
        "interval_coverage": {
            part: mean_and_std([r["interval_coverage"][part] for r in runs]) for part in ("all", "rare", "rest")
        },
    }
    out["review"] = {by: mean_and_std([r["review"][by] for r in runs]) for by in runs[0]["review"]}
    for side in sides:
        out[side] = {name: mean_and_std([r["report"][side][name] for r in runs]) for name in MEASURES}
    return out


def cost(dataset: str, repeats: int, folder: Path) -> dict[str, Any]:
    words = command(dataset, 0, "--epochs", "200")
    runs = [run(words, folder) for _ in range(repeats)]
    return {
        "command": " ".join(words),
        "wall_s": {"median": statistics.median(r[1] for r in runs), "all": [r[1] for r in runs]},
        "peak_mb": max(r[2] for r in runs),
        "stages_of_last": runs[-1][0]["stages"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "dblp", "facebook", "digits"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("quality", "cost"), help="measure one part and keep the other as it is")
    options = parser.parse_args()
    before = record.RESULTS / "main_job.json"
    results: dict[str, Any] = {"quality": {}, "cost": {}}
    if options.only and before.exists():
        results = json.loads(before.read_text())["results"]
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "quality":
            results["cost"]["cora"] = cost("cora", options.repeats, Path(folder))
            print("cora", results["cost"]["cora"]["wall_s"], f"{results['cost']['cora']['peak_mb']:.0f} MB")
        for dataset in options.datasets if options.only != "cost" else ():
            results["quality"][dataset] = found = quality(dataset, options.seeds, Path(folder))
            shown = {name: round(found["balanced"][name]["mean"], 3) for name in MEASURES}
            print(dataset, shown, found["verdicts"], found["epochs"])
    print(record.write("main_job", results))


if __name__ == "__main__":
    main()
