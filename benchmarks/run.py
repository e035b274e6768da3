"""Runs every CPU benchmark with settings that fit into a quarter of an hour, one after the other.

    python benchmarks/run.py [--only propagate training ...]

Each checks its answers before it times them, prints its times beside baselines and floors, and writes JSON to
benchmarks/results/quick; the committed results, at full size, stay as they are. A benchmark that fails or takes more
than its share does not stop the others; the exit status is 1 then. Their own --help says how to run them at full size.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUICK = HERE / "results" / "quick"


@dataclass(frozen=True)
class Step:
    """A script with its quick settings, the seconds it may take, and a package it cannot do without."""

    script: str
    arguments: str
    seconds: int
    needs: str | None = None


STEPS = {
    "propagate": Step("bench_propagate.py", "--quick --repeats 20", 90),
    "kernels": Step("bench_kernels.py", "--device cpu --repeats 5 --most 2000000", 90),
    "training": Step("bench_training.py", "--repeats 1", 120),
    "epoch": Step("bench_epoch.py", "--graphs cora facebook_bag --repeats 3 --epochs 20", 120),
    "jackknife": Step("bench_jackknife.py", "--datasets cora facebook --repeats 5 --slow 1", 180),
    "metrics": Step("bench_metrics.py", "--repeats 5", 90, "torchmetrics"),
    "multi-label": Step("bench_multilabel.py", "speed --repeats 3", 60),
    "scale": Step("bench_scale.py", "--sizes 62500 250000 --folder build/scale-graphs", 120),
    "main job": Step("bench_main_job.py", "--only cost --repeats 3", 90),
}


def run(name: str, step: Step) -> tuple[str, float]:
    """Returns what became of a step and the seconds it took."""
    if step.needs is not None and importlib.util.find_spec(step.needs) is None:
        return f"skipped: {step.needs} is not installed", 0.0
    words = [sys.executable, "-W", "ignore::UserWarning", str(HERE / step.script), *step.arguments.split()]
    print(f"\n== {name}: python benchmarks/{step.script} {step.arguments}", flush=True)
    begin = time.perf_counter()
    try:
        environment = os.environ | {"CALIRARE_BENCH_RESULTS": str(QUICK)}
        status = subprocess.run(words, timeout=step.seconds, cwd=HERE.parent, env=environment).returncode
    except subprocess.TimeoutExpired:
        return f"stopped after {step.seconds} s", time.perf_counter() - begin
    return "done" if status == 0 else f"failed with status {status}", time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS))
    chosen = parser.parse_args().only
    outcomes = {name: run(name, STEPS[name]) for name in chosen}
    print("\n== summary")
    for name, (outcome, seconds) in outcomes.items():
        print(f"{name:<10} {seconds:6.1f} s  {outcome}")
    print(f"{'together':<10} {sum(seconds for _, seconds in outcomes.values()):6.1f} s")
    sys.exit(any(not outcome.startswith(("done", "skipped")) for outcome, _ in outcomes.values()))


if __name__ == "__main__":
    main()
