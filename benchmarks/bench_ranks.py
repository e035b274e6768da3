"""What several processes send and gain, measured with 1, 2 and 4, modelled to 64; graphs with and without locality.

    python benchmarks/bench_ranks.py [--nodes 4000000] [--folder ..]
    python benchmarks/bench_ranks.py --page        # the table of docs/scaling.md from ranks.json, nothing is run

The random graph and the run are those of bench_score.py; the ring has its features and as many edges: every node is
tied to those 1, 37, .., 6 * 37 places away, so that parts touch at their ends alone. Every process has one thread.
Seconds are of the whole command, imports included; those of the processor are the most that one process took.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import record
from bench_score import HIDDEN, NARROW, graph_folder, halo_of, trained

PAGE = record.ROOT / "docs" / "scaling.md"
BEGIN, END = "<!-- ranks:begin -->", "<!-- ranks:end -->"
SIZES, MODELLED = (1, 2, 4), (1, 2, 4, 8, 16, 32, 64)
OFFSETS = (1, *(37 * i for i in range(1, 7)))
LARGE = 111_000_000  # nodes of the larger graph that is modelled
NETWORK = 1.25e9  # bytes per second that the model gives each process: 10 Gbit
BYTES = 4 * (HIDDEN + 2)  # that travel for a node of a halo: both layers


def ring_folder(folder: Path, random: Path, n: int) -> Path:
    """Returns a graph with the features of another one whose nodes are tied to near ones."""
    path = folder / f"ring{n}"
    if path.exists():
        return path
    path.mkdir()
    for file in random.iterdir():
        if file.name not in ("indptr.npy", "indices.npy"):
            os.link(file, path / file.name)
    steps = np.array([*OFFSETS, *(-step for step in OFFSETS)])
    np.save(path / "indptr.npy", np.arange(n + 1, dtype=np.int64) * len(steps))
    out = np.lib.format.open_memmap(path / "indices.npy", mode="w+", dtype=np.int32, shape=(n * len(steps),))
    for first in range(0, n, 1 << 18):
        rows = np.arange(first, min(first + (1 << 18), n))
        near = np.sort((rows[:, None] + steps) % n, 1)
        out[first * len(steps) : first * len(steps) + near.size] = near.ravel()
    out.flush()
    return path


def took(folder: Path, run: Path, graph: Path, size: int) -> dict[str, Any]:
    """Returns seconds of so many processes, and the most seconds of a processor that one of them took."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free.getsockname()[1]}
    out = folder / "ranks"
    shutil.rmtree(out, ignore_errors=True)
    how = ["predict", "--run", str(run), "--graph", str(graph), "--scores-only", "--out", str(out / "s.parquet")]
    started, children, spent = time.perf_counter(), [], []
    for rank in range(size):
        env = os.environ | {k: str(v) for k, v in (place | {"RANK": rank, "OMP_NUM_THREADS": 1}).items()}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        children.append(subprocess.Popen([sys.executable, "-m", "calirare", *how], env=env, **quiet))
    for child in children:
        _, code, usage = os.wait4(child.pid, 0)
        child.returncode = code
        if code:
            raise RuntimeError("a process failed")
        spent.append(usage.ru_utime + usage.ru_stime)
    wall = time.perf_counter() - started
    shutil.rmtree(out)
    halo = max(halo_of(graph, rank, size) for rank in range(size))
    return {
        "processes": size,
        "wall_s": wall,
        "processor_s": max(spent),
        "halo_nodes": halo,
        "bytes_sent": BYTES * halo,
    }


def modelled(rows: dict[str, list[dict[str, Any]]], n: int, degree: float, start: float) -> dict[str, Any]:
    """Returns seconds and efficiency of more processes, from the processor's seconds of one and two.

    T(m) = start + work n / m + joined [m > 1] + halo (per_node + BYTES / NETWORK): `work` of one process, `joined` what
    the second one adds on the ring (they meet, and find the halo), `per_node` what a node of the halo costs, from the
    random graph. All but `start` is taken in proportion to n for a larger graph of the same kind. Sending overlaps with
    work; the model does not count on it.
    """
    at = {kind: {row["processes"]: row["processor_s"] for row in some} for kind, some in rows.items()}
    halo_of_two = {row["processes"]: row["halo_nodes"] for row in rows["random"]}[2]
    work = {kind: at[kind][1] - start for kind in rows}
    joined = max(at["ring"][2] - start - work["ring"] / 2, 0.0)
    per_node = max(at["random"][2] - start - work["random"] / 2 - joined, 0.0) / halo_of_two
    out: dict[str, Any] = {"start_s": start, "joined_s": joined, "halo_node_s": per_node, "rows": {}}
    for kind in rows:
        told = out["rows"][kind] = []
        for m in MODELLED:
            near = (n - n / m) * (1 - (1 - 1 / m) ** degree) if kind == "random" else 2.0 * max(OFFSETS) * (m > 1)
            each = work[kind] / m + joined * (m > 1) + near * (per_node + BYTES / NETWORK)
            row = {"processes": m, "halo_nodes": near, "seconds": start + each}
            for name, larger in (("efficiency", 1.0), ("efficiency_large", LARGE / n)):
                row[name] = (start + work[kind] * larger) / (m * (start + each * larger))
            told.append(row)
    return out


def page(found: dict[str, Any]) -> str:
    lines = [
        f"{found['n']:,} nodes, processes of one thread, imports included, on two cores that did other work",
        f"(load before {found['load_before']:.1f}): the model is made of the processor's seconds, not the clock's,",
        f"of one and two processes, and gives each a core and 10 Gbit/s. Last, its efficiency with {LARGE / 1e6:,.0f}",
        "million nodes:",
        "",
        "| graph | processes | s | of the processor | halo, nodes | MB sent | model: halo | s | efficiency | large |",
        "| " + " | ".join(["---"] * 10) + " |",
    ]
    for kind, rows in found["rows"].items():
        at = {row["processes"]: row for row in rows}
        for row in found["model"]["rows"][kind]:
            own = at.get(row["processes"])
            cells = [f"{own['wall_s']:.1f}", f"{own['processor_s']:.1f}", f"{own['halo_nodes']:,}"] if own else [""] * 3
            sent = own["bytes_sent"] if own else BYTES * row["halo_nodes"]
            cells += [f"{sent / 1e6:,.1f}", f"{row['halo_nodes']:,.0f}", f"{row['seconds']:.1f}"]
            cells += [f"{row['efficiency']:.2f}", f"{row['efficiency_large']:.2f}"]
            lines.append(f"| {kind} | {row['processes']} | " + " | ".join(cells) + " |")
    model = found["model"]
    lines += [
        "",
        f"T(m) = {model['start_s']:.1f} s to start + work / m + {model['joined_s']:.1f} s to meet and find the",
        f"halo + halo ({1e6 * model['halo_node_s']:.2f} us + {BYTES} bytes / 1.25 GB/s); for the larger graph all",
        "but the start in proportion. Of a random graph of degree g the halo is (n - n / m) (1 - (1 - 1 / m)^g): it",
        "gains little from more machines than it takes to hold it.",
        "[benchmarks/results/ranks.json](../benchmarks/results/ranks.json): `python benchmarks/bench_ranks.py`.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--prepare", action="store_true", help="simulate the graphs and train, no more")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("score-graphs"))
    options = parser.parse_args()
    if options.page:
        record.put_on_page(PAGE, BEGIN, END, page(json.loads((record.RESULTS / "ranks.json").read_text())["results"]))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    n, run, random = options.nodes, trained(options.folder, NARROW), graph_folder(options.folder, options.nodes, NARROW)
    graphs = {"random": random, "ring": ring_folder(options.folder, random, n)}
    if options.prepare:
        return
    load = os.getloadavg()[0]
    tiny = graph_folder(options.folder, 1000, NARROW)
    start = took(options.folder, run, tiny, 1)["processor_s"]
    rows = {kind: [took(options.folder, run, graph, size) for size in SIZES] for kind, graph in graphs.items()}
    degree = float(np.load(random / "indptr.npy", mmap_mode="r")[-1]) / n
    found = {"n": n, "load_before": load, "degree": degree, "rows": rows, "model": modelled(rows, n, degree, start)}
    record.write("ranks", found)
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, BEGIN, END, page(found))


if __name__ == "__main__":
    main()
