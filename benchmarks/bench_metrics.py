"""Times the measures of calibration beside torchmetrics, netcal and scikit-learn.

    python benchmarks/bench_metrics.py [--rows 1000000] [--classes 10] [--threads 2] [--repeats 21]

Every answer is checked before it is timed. Rivals take turns with us, repeat by repeat, so that a busy machine slows
all alike. netcal is timed where it is installed (`pip install --no-deps netcal` is enough for its measures); its ACE is
another measure than Nixon's and is left out. Writes benchmarks/results/metrics.json: median, quartiles and fastest of
each, in milliseconds by the clock, and the processor time of all threads.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import record
import torch
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from calirare import metrics

BUDGET_MS = 50.0

Case = tuple[str, Callable[[], float], dict[str, Callable[[], float]]]
# torchmetrics adds up in float32.
TOLERANCE = {"torchmetrics": 1e-5, "netcal": 1e-9, "sklearn": 1e-9}


def optional(name: str):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        return None


def curve_error(y: np.ndarray, p: np.ndarray, n_bins: int) -> float:
    """scikit-learn has the curve only: the bins' sizes are counted beside it, which is not timed against it."""
    frequency, mean = calibration_curve(y, p, n_bins=n_bins)
    counts = np.histogram(p, n_bins, (0, 1))[0]
    return float((counts[counts > 0] / len(p) * np.abs(frequency - mean)).sum())


def cases(n: int, classes: int, seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, classes)) * 2
    p64 = np.exp(z - z.max(1, keepdims=True))
    p64 /= p64.sum(1, keepdims=True)
    y = np.minimum((rng.random(n)[:, None] >= p64.cumsum(1)).sum(1), classes - 1)
    p32 = torch.from_numpy(p64).float()
    t64, ty = torch.from_numpy(p64), torch.from_numpy(y)
    b64, by = p64[:, 0].copy(), (y == 0).astype(np.int64)
    tb, tby = torch.from_numpy(b64), torch.from_numpy(by)
    tm, nc = optional("torchmetrics.functional.classification"), optional("netcal.metrics")

    def rivals(**known: Callable[[], float]) -> dict[str, Callable[[], float]]:
        have = {"torchmetrics": tm is not None, "netcal": nc is not None, "sklearn": True}
        return {name: call for name, call in known.items() if have[name]}

    def multi(x: torch.Tensor, norm: str) -> Callable[[], float]:
        return lambda: float(tm.multiclass_calibration_error(x, ty, num_classes=classes, n_bins=15, norm=norm))

    return [
        ("ece, float32 torch", lambda: float(metrics.ece(ty, p32)), rivals(torchmetrics=multi(p32, "l1"))),
        ("ece, float64 torch", lambda: float(metrics.ece(ty, t64)), rivals(torchmetrics=multi(t64, "l1"))),
        ("ece, float64 numpy", lambda: metrics.ece(y, p64), rivals(netcal=lambda: float(nc.ECE(15).measure(p64, y)))),
        (
            "ece in L_2, float64 torch",
            lambda: float(metrics.ece(ty, t64, norm=2)),
            rivals(torchmetrics=multi(t64, "l2")),
        ),
        ("mce, float64 torch", lambda: float(metrics.mce(ty, t64)), rivals(torchmetrics=multi(t64, "max"))),
        ("mce, float64 numpy", lambda: metrics.mce(y, p64), rivals(netcal=lambda: float(nc.MCE(15).measure(p64, y)))),
        (
            "ece of one class, float64",
            lambda: float(metrics.ece(by, b64)),
            rivals(
                torchmetrics=lambda: float(tm.binary_calibration_error(tb, tby, n_bins=15, norm="l1")),
                netcal=lambda: float(nc.ECE(15).measure(b64, by)),
                sklearn=lambda: curve_error(by, b64, 15),
            ),
        ),
        (
            "classwise_ece, float64 numpy",
            lambda: metrics.classwise_ece(y, p64),
            rivals(sklearn=lambda: float(np.mean([curve_error(y == c, p64[:, c], 15) for c in range(classes)]))),
        ),
        ("nll, float64 numpy", lambda: metrics.nll(y, p64), rivals(sklearn=lambda: sk.log_loss(y, p64))),
        ("brier, float64 numpy", lambda: metrics.brier(y, p64), rivals(sklearn=lambda: sk.brier_score_loss(y, p64))),
        ("macro_ace, float64 numpy", lambda: metrics.macro_ace(y, p64), {}),
    ]


def timed(calls: dict[str, Callable[[], float]], repeats: int) -> dict[str, dict[str, object]]:
    """Milliseconds of each call, by the clock and of all threads' work; the calls take turns."""
    wall: dict[str, list[float]] = {name: [] for name in calls}
    work: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start, start_work = time.perf_counter(), time.process_time()
            call()
            work[name].append(1e3 * (time.process_time() - start_work))
            wall[name].append(1e3 * (time.perf_counter() - start))
    summary = {}
    for name, values in wall.items():
        low, median, high = statistics.quantiles(values, n=4)
        times = {"median": median, "quartiles": [low, high], "fastest": min(values)}
        summary[name] = {**times, "cpu_median": statistics.median(work[name]), "cpu_fastest": min(work[name])}
    return summary


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    for name, ours, others in cases(options.rows, options.classes, seed=0):
        value = ours()
        for other, call in others.items():
            theirs = call()
            if not abs(theirs - value) <= TOLERANCE[other] * max(1.0, abs(value)):
                raise SystemExit(f"{name}: {other} says {theirs:.9g}, we say {value:.9g}: not timed")
        summary = timed({"calirare": ours, **others}, options.repeats)
        rows.append({"case": name, "value": value, "milliseconds": summary})
        texts = [f"{who} {s['median']:.1f} ms (cpu {s['cpu_median']:.1f})" for who, s in summary.items()]
        print(f"{name:40s} " + "  ".join(texts), flush=True)
    slower = [row["case"] for row in rows if not is_fastest(row["milliseconds"])]
    slow_ece = [row["case"] for row in rows if row["case"].startswith("ece") and ours_ms(row) >= BUDGET_MS]
    print(f"slower than a peer: {slower or 'none'}; ece at or above {BUDGET_MS:g} ms: {slow_ece or 'none'}")
    found = {
        "rows": options.rows,
        "classes": options.classes,
        "repeats": options.repeats,
        "peers": {name: version(name) for name in ("torchmetrics", "netcal", "scikit-learn")},
        "ece_budget_ms": BUDGET_MS,
        "slower_than_a_peer": slower,
        "ece_over_budget": slow_ece,
        "cases": rows,
    }
    print(record.write("metrics", found))


def ours_ms(row: dict[str, Any]) -> float:
    return row["milliseconds"]["calirare"]["median"]


def is_fastest(milliseconds: dict[str, dict[str, Any]]) -> bool:
    return milliseconds["calirare"]["median"] <= min(times["median"] for times in milliseconds.values())


if __name__ == "__main__":
    main()
