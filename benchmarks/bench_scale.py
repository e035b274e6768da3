"""Time and memory of `calirare train` on simulated graphs from 62,500 to 10 million nodes.

    python benchmarks/bench_scale.py [--sizes 62500 ...] [--profile 1000000] [--folder scale-graphs]
    python benchmarks/bench_scale.py --labels 2500 10000 40000

16 directed edges and 128 features per node, 200 labels, 100 epochs, intervals of every node, predictions written.
--labels: as many labels instead, on 62,500 nodes.
Results are added to benchmarks/results/scale.json, so that sizes may be run one at a time, and their table to
docs/research/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import record
import simulated

from calirare_lab.profile.cost import Sizes, memory_bytes

PAGE = record.ROOT / "docs" / "research" / "scaling.md"
BEGIN, END = "<!-- scale:begin -->", "<!-- scale:end -->"
LABELS, MANY_LABELS_NODES = 200, 62_500
EVERYTHING = "--sizes 62500 125000 250000 500000 1000000 10000000 --profile 1000000 --labels 2500 10000 40000"
STAGE = re.compile(r"^ *[0-9.]+ s  ([a-z]+|everything but imports): ([0-9.]+) s$")


def graph_folder(folder: Path, n: int, labels: int = LABELS) -> tuple[Path, float | None]:
    path = folder / (f"g{n}" if labels == LABELS else f"g{n}_{labels}")
    if path.exists():
        return path, None
    started = time.perf_counter()
    simulated.folder_of(path, n, n_val=labels - 40)  # 20 of each class are training nodes
    return path, time.perf_counter() - started


def run(folder: Path, path: Path, threads: int) -> dict[str, Any]:
    """Runs the command; returns wall time, peak memory, seconds per stage."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    how = ("--preset", "paper", "--epochs", "100", "--device", "cpu")
    arguments = ["train", "--no-report", "--dataset", str(path), *how, "--out", str(out)]
    started, env = time.perf_counter(), os.environ | {"OMP_NUM_THREADS": str(threads)}
    child = subprocess.Popen([sys.executable, "-m", "calirare", *arguments], env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"the command failed with {child.returncode}")
    wall = time.perf_counter() - started
    found = [STAGE.match(line) for line in (out / "log.txt").read_text().splitlines()]
    stages = {match[1]: float(match[2]) for match in found if match}
    files = {file.name: file.stat().st_size for file in out.iterdir() if file.name.startswith("predictions")}
    return stamp() | {
        "threads": threads,
        "wall_s": wall,
        "peak_bytes": usage.ru_maxrss * 1024,
        "stages_s": stages,
        "file_bytes": files,
    }


def stamp() -> dict[str, str]:
    """Returns commit and command: parts of the file are measured in runs of their own."""
    found = record.environment()
    return {name: found[name] for name in ("commit", "command")}


def profile(folder: Path, path: Path) -> dict[str, Any]:
    """Returns what `calirare profile` says of each stage."""
    out = folder / "profile"
    shutil.rmtree(out, ignore_errors=True)
    command = ["profile", "--dataset", str(path), "--epochs", "100", "--device", "cpu", "--out", str(out)]
    subprocess.run([sys.executable, "-m", "calirare", *command], check=True, stdout=subprocess.DEVNULL)
    facts = json.loads((out / "profile.json").read_text())
    return stamp() | {name: facts[name] for name in ("seconds", "threads", "peaks", "sizes", "stages")}


def predicted_bytes(row: dict[str, Any]) -> int:
    """Returns the memory that the cost model expects, libraries included."""
    sizes = Sizes(row["n"], row["directed_edges"] + row["n"], row["features"], 16, row["labels"], 0, 0)
    return memory_bytes(sizes, messages_in_file=row["n"] > 5_000_000) + 400_000_000


def page(kept: dict[str, Any]) -> str:
    """Returns the tables of docs/research/scaling.md."""
    lines = [
        "## Measured",
        "",
        "`calirare train --preset paper --epochs 100`, 16 edges and 128 features per node, 200 labels, two threads.",
        "",
    ]
    lines += [
        "| nodes | directed edges | wall, s | prepare | train | check | messages, intervals | peak GB | model's GB |"
    ]
    lines += ["| " + " | ".join(["---"] * 9) + " |"]
    for row in kept["sizes"]:
        s = row["stages_s"]
        cells = [f"{row['n']:,}", f"{row['directed_edges']:,}", f"{row['wall_s']:.1f}", f"{s['prepare']:.2f}"]
        cells += [f"{s[name]:.2f}" for name in ("train", "check", "jackknife")]
        cells += [f"{row['peak_bytes'] / 1e9:.2f}", f"{predicted_bytes(row) / 1e9:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Above 5 million nodes messages were in a file, and the machine did other work at the same time."]
    fit, last = kept.get("fitted_exponents_62k_to_1M"), kept.get("exponents_of_the_last_doubling")
    if fit and last:
        lines += [
            "",
            "Exponents fitted from 62,500 to a million nodes, and of the last doubling in brackets: wall time",
        ]
        texts = [f"{fit[name]:.2f} ({last[name]:.2f})" for name in ("wall_s", "peak_bytes", "streamed_s")]
        lines += [f"{texts[0]}, peak memory {texts[1]}, what is streamed (prepare, messages, intervals) {texts[2]}."]
    if kept.get("many_labels"):
        lines += ["", *label_table(kept["many_labels"])]
    if "profile" in kept:
        lines += ["", *stage_table(kept["profile"])]
    lines += [
        "",
        "[benchmarks/results/scale.json](../../benchmarks/results/scale.json), measured in several runs of",
        f"`python benchmarks/bench_scale.py {EVERYTHING}`;",
        "a part that names no commit of its own is older than the file's.",
    ]
    return "\n".join(lines)


def label_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"As many labels on {rows[0]['n']:,} nodes, 2,098 parameters; the check trains five more networks, above",
        "4,000 labels intervals rest on 4,000 left-out models drawn at random:",
        "",
        "| labels | wall, s | train | check | messages, intervals | peak GB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        s = row["stages_s"]
        cells = [
            f"{row['labels']:,}",
            f"{row['wall_s']:.1f}",
            *(f"{s[name]:.2f}" for name in ("train", "check", "jackknife")),
        ]
        lines.append("| " + " | ".join([*cells, f"{row['peak_bytes'] / 1e9:.2f}"]) + " |")
    return lines


def stage_table(facts: dict[str, Any]) -> list[str]:
    """Returns the table of stages beside their floors."""
    peaks, n = facts["peaks"], facts["sizes"]["n"]
    copy, product = peaks["copy_bytes_per_s"] / 1e9, peaks["gemm_flops_per_s"] / 1e9
    lines = [f"Stages beside the cost model, {n:,} nodes, under the profiler, {facts['threads']} threads; copy"]
    lines += [f"{copy:.0f} GB/s and product {product:.0f} GFLOP/s in the same run.", ""]
    lines += ["| stage | seconds | GB | GFLOP | share of peak |", "| --- | --- | --- | --- | --- |"]
    for name, stage in facts["stages"].items():
        if "bytes" in stage:
            share, gb = f"{stage['share_of_peak']:.0%}", f"{stage['bytes'] / 1e9:.2f}"
            lines.append(f"| {name} | {stage['seconds']:.2f} | {gb} | {stage['flops'] / 1e9:.1f} | {share} |")
    return lines


def exponent(rows: list[dict[str, Any]], value: str) -> float:
    """Returns the slope of log value over log n by least squares."""
    xs, ys = [math.log(row["n"]) for row in rows], [math.log(row[value]) for row in rows]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--profile", type=int, default=0, help="size at which stages are held against the cost model")
    parser.add_argument("--labels", type=int, nargs="*", default=[], help="numbers of labels, on 62,500 nodes")
    parser.add_argument("--folder", type=Path, default=Path("scale-graphs"))
    options = parser.parse_args()
    if not (options.sizes or options.profile or options.labels):
        parser.error(f"nothing to measure: give some of {EVERYTHING}")
    options.folder.mkdir(parents=True, exist_ok=True)
    file = record.RESULTS / "scale.json"
    kept: dict[str, Any] = json.loads(file.read_text())["results"] if file.exists() else {}
    rows = {row["n"]: row for row in kept.get("sizes", [])}
    for n in options.sizes:
        path, seconds = graph_folder(options.folder, n)
        rows[n] = {"n": n, "generate_s": seconds or rows.get(n, {}).get("generate_s")}
        rows[n] |= {"directed_edges": np.load(path / "indices.npy", mmap_mode="r").size, "features": 128, "labels": 200}
        rows[n] |= run(options.folder, path, threads=2)
        print(json.dumps(rows[n]), flush=True)
    kept["sizes"] = [rows[n] for n in sorted(rows)]
    fitted = [row for row in kept["sizes"] if 62_000 <= row["n"] <= 1_000_000]
    if len(fitted) > 2:
        for row in fitted:
            # What grows with the graph: without start-up, and without what the 200 labels cost at any size.
            row["streamed_s"] = row["stages_s"]["prepare"] + row["stages_s"]["jackknife"]
        names = ("wall_s", "peak_bytes", "streamed_s")
        kept["fitted_exponents_62k_to_1M"] = {name: exponent(fitted, name) for name in names}
        last = fitted[-2:]
        kept["exponents_of_the_last_doubling"] = {name: exponent(last, name) for name in names}
    many = {row["labels"]: row for row in kept.get("many_labels", [])}
    for labels in options.labels:
        path, _ = graph_folder(options.folder, MANY_LABELS_NODES, labels)
        many[labels] = {"n": MANY_LABELS_NODES, "labels": labels, **run(options.folder, path, threads=2)}
        print(json.dumps(many[labels]), flush=True)
    kept["many_labels"] = [many[labels] for labels in sorted(many)]
    if options.profile:
        kept["profile"] = profile(options.folder, graph_folder(options.folder, options.profile)[0])
    record.write("scale", kept)
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, BEGIN, END, page(kept))


if __name__ == "__main__":
    main()
