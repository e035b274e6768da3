"""Speed of the multi-label estimator, the simulation study and the experiments behind docs/research/multilabel.md.

    python benchmarks/bench_multilabel.py speed                   # results/multilabel_speed.json
    python benchmarks/bench_multilabel.py study [--jobs 2]        # results/multilabel_simulation.json and .png
    python benchmarks/bench_multilabel.py experiments [--jobs 2]  # results/multilabel_experiments.json and .png

Study and experiments keep a file per cell in a working folder (--cells) and go on where they were stopped.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import record

BAR_S = 3.0  # for a million rows of 20 labels on two cores


def speed(repeats: int, threads: int) -> None:
    """The estimator on a million rows, checked against the literal double sum on a few rows first."""
    import torch

    torch.set_num_threads(threads)
    literal = check_against_literal_sum()
    rows = []
    sizes = ((10_000, "float64"), (100_000, "float64"), (1_000_000, "float64"), (1_000_000, "float32"))
    for n, dtype in sizes:
        # Each in a process of its own, whose highest memory use is then this case's.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            rows.append(pool.submit(time_estimator, n, 20, dtype, repeats, threads).result())
        print(rows[-1], flush=True)
    found = {
        "repeats": repeats,
        "bar_s": BAR_S,
        "literal_double_sum": literal,
        "estimator": rows,
        "meets_bar": all(row["median_s"] <= BAR_S for row in rows),
    }
    print(record.write("multilabel_speed", found))


def check_against_literal_sum() -> dict[str, float]:
    import torch

    from calirare_lab.multilabel.reference import literal_error
    from calirare_multilabel import CopulaOptions, canonical_calibration_error
    from calirare_multilabel.families import fit_gaussian
    from calirare_multilabel.margins import pseudo_observations

    random = np.random.default_rng(0)
    small = random.random((30, 4))
    hot = random.random((30, 4)) < small
    how: dict[str, Any] = {"shrinkage": 0.0, "label_model": "density"}  # the document's
    fit = fit_gaussian(
        torch.special.ndtri(pseudo_observations(torch.from_numpy(small))[0]), torch.from_numpy(hot), **how
    )
    thetas = []
    for j in range(4):
        theta = np.eye(5)
        theta[1:, 1:] = fit.dependence.correlation
        theta[0, 1:] = theta[1:, 0] = fit.label_correlation[:, j]
        thetas.append(theta)
    start = time.perf_counter()
    literal = literal_error(small, hot.astype(int), thetas, 1)
    seconds = time.perf_counter() - start
    ours = canonical_calibration_error(hot, small, options=CopulaOptions(**how)).value
    if not abs(literal - ours) <= 1e-10:
        raise SystemExit(f"the literal double sum is {literal:.17g}, we say {ours:.17g}: not timed")
    return {"n": 30, "K": 4, "seconds": seconds, "difference": abs(literal - ours)}


def time_estimator(n: int, k: int, dtype: str, repeats: int, threads: int) -> dict[str, Any]:
    import torch

    from calirare_multilabel import canonical_calibration_error

    torch.set_num_threads(threads)
    random = np.random.default_rng(0)
    f = random.random((n, k), dtype=np.dtype(dtype).type)
    y = random.random((n, k), dtype=np.float32) < f
    canonical_calibration_error(y[:1000], f[:1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times, cpu = [], time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        canonical_calibration_error(y, f)
        times.append(time.perf_counter() - start)
    return {
        "n": n,
        "K": k,
        "dtype": dtype,
        "median_s": statistics.median(times),
        "min_s": min(times),
        "max_s": max(times),
        "cpu_s": (time.process_time() - cpu) / repeats,
        "extra_peak_bytes_per_entry": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (n * k),
    }


def study(cells: Path, jobs: int, repeats: int) -> None:
    from calirare_lab.multilabel.plots import draw_study
    from calirare_lab.multilabel.simulate import worlds
    from calirare_lab.multilabel.study import SIZES, Cell, verdicts

    keys = [(world.name, n) for n in SIZES for world in worlds()]
    with ProcessPoolExecutor(jobs) as pool:
        work = {pool.submit(study_cell, cells, name, n, repeats): (name, n) for name, n in keys}
        for done in as_completed(work):
            print(*work[done], f"{done.result():.0f} s", flush=True)
    found = [cell for name, n in keys for cell in json.loads((cells / f"{name}_{n}.json").read_text())]
    values = {
        "repeats": repeats,
        "seed": 0,
        "worlds": {world.name: world.description for world in worlds()},
        "cells": found,
        "verdicts": verdicts([Cell(**cell) for cell in found]),
    }
    print(record.write("multilabel_simulation", values))
    print(draw_study(values, record.RESULTS / "multilabel_simulation.png"))


def study_cell(cells: Path, name: str, n: int, repeats: int) -> float:
    import torch

    from calirare._util.store import write_json
    from calirare_lab.multilabel.simulate import worlds
    from calirare_lab.multilabel.study import run_cell

    torch.set_num_threads(1)
    path, start = cells / f"{name}_{n}.json", time.perf_counter()
    if not path.is_file():
        world = next(world for world in worlds() if world.name == name)
        write_json(path, [asdict(cell) for cell in run_cell(world, n, repeats=repeats)])
    return time.perf_counter() - start


def experiments(cells: Path, jobs: int, root: str | None) -> None:
    from calirare_lab.multilabel.experiments import run_experiments, summarise
    from calirare_lab.multilabel.plots import draw_experiments

    def tell(line: str) -> None:
        print(line, flush=True)

    found = run_experiments(cells, root=root, jobs=jobs, progress=tell)
    summary = summarise(found)
    print(record.write("multilabel_experiments", {"summary": summary, "cells": found}))
    print(draw_experiments(summary, record.RESULTS / "multilabel_experiments.png"))
    for name, part in summary["sets"].items():
        print(f"{name}: beta {part['beta']:g}, per seed {part['betas_per_seed']}")
        for method, table in part["methods"].items():
            against = part["against_bce"].get(method)
            note = "" if against is None else f"Hamming x{against['hamming_ratio']:.4f}, passes {against['passes']}"
            print("  ", method, {key: round(value[0], 4) for key, value in table.items()}, note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=("speed", "study", "experiments"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=None, help="20 timed runs, or 200 samples per size")
    parser.add_argument("--threads", type=int, default=2, help="of the estimator, where its speed is measured")
    parser.add_argument("--cells", type=Path, default=None)
    parser.add_argument("--root", default=None, help="folder with multilabel/<set>.npz")
    options = parser.parse_args()
    cells = options.cells or Path("runs") / f"multilabel_{options.case}"
    if options.case == "speed":
        speed(options.repeats or 20, options.threads)
    elif options.case == "study":
        study(cells, options.jobs, options.repeats or 200)
    else:
        experiments(cells, options.jobs, options.root)


if __name__ == "__main__":
    main()
