"""Writes what was measured on a GPU to docs/kernels.md, from the committed results of bench_kernels and bench_device.

python benchmarks/gpu_page.py
"""

from __future__ import annotations

import json
from typing import Any

import record

STEM = "nvidia_h200"
PAGE = record.ROOT / "docs" / "kernels.md"
SIZES = {
    "propagate": "{graph}, {width} columns",
    "neighbour_means": "{graph}, {width} columns",
    "node_gradients": "{m} nodes of {entries} entries, d {d}, h {h}",
    "jackknife_interval": "{n:,} nodes, {m:,} models",
    "message_interval": "{graph}, {m:,} models",
    "masked_sum": "{r:,} rows, {s} directions, h {h}",
    "block_cg": "{b:,} columns of {p:,}, {steps} steps",
}
JOBS = {"training": "training", "jackknife": "the jackknife"}


def results(name: str) -> dict[str, Any]:
    """Returns a committed results file."""
    found: dict[str, Any] = json.loads((record.COMMITTED / f"{name}_{STEM}.json").read_text(encoding="utf-8"))
    return found


def kernels() -> str:
    """Returns the table of kernels."""
    file = results("kernels")
    found = file["results"]
    lines = ["| kernel | of | ms | torch takes | share |", "| --- | --- | --- | --- | --- |"]
    for case in found["cases"]:
        size = SIZES[case["op"]].format(**case)
        ms, ratio = case["ours"]["median_ms"], case["ratio"]
        lines.append(f"| `{case['op']}` | {size} | {ms:.4f} | {ratio:.2f} times | {case['share']:.2f} |")
    about = (
        f"{file['machine']['gpu']}, torch {file['versions']['torch']}, copy "
        f"{found['copy_bytes_per_second'] / 1e12:.2f} TB/s; small, medium and large are random matrices of a power law "
        "with 13 thousand, 363 thousand and 16 million entries. torch: its operators, for products cuSPARSE. share: of "
        "the copy bandwidth, counting the least bytes. "
        f"[kernels_{STEM}.json](../benchmarks/results/kernels_{STEM}.json): `{file['command']}`."
    )
    return "\n".join([*lines, "", about])


def jobs() -> str:
    """Returns the table of whole jobs."""
    file = results("device")
    lines = [
        "| graph | nodes | labels | job | CPU, s | GPU, s | times |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in file["results"].items():
        for job, title in JOBS.items():
            cpu, gpu = (row[kind][job]["median_s"] for kind in ("cpu", "cuda"))
            sizes = f"{name} | {row['nodes']:,} | {row['labels']:,}"
            lines.append(f"| {sizes} | {title} | {cpu:.3f} | {gpu:.3f} | {cpu / gpu:.1f} |")
    about = (
        f"{file['machine']['gpu']} beside {file['machine']['cores']} cores of its machine: "
        f"[device_{STEM}.json](../benchmarks/results/device_{STEM}.json): `{file['command']}`."
    )
    return "\n".join([*lines, "", about])


if __name__ == "__main__":
    record.put_on_page(PAGE, "<!-- gpu-kernels:begin -->", "<!-- gpu-kernels:end -->", kernels())
    record.put_on_page(PAGE, "<!-- gpu-jobs:begin -->", "<!-- gpu-jobs:end -->", jobs())
