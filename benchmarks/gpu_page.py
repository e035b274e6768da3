"""Writes what was measured on a GPU to docs/kernels.md, from the committed results of bench_kernels and bench_device.

python benchmarks/gpu_page.py
"""

from __future__ import annotations

import json
from typing import Any

import record

CARDS = {"H200": "nvidia_h200", "H100": "nvidia_h100_80gb_hbm3"}
PAGE = record.ROOT / "docs" / "kernels.md"
SIZES = {
    "propagate": "{graph}, {width} columns",
    "neighbour_means": "{graph}, {width} columns",
    "node_gradients": "{m} nodes of {entries} entries, d {d}, h {h}",
    "jackknife_interval": "{n:,} nodes, {m:,} models",
    "message_interval": "{graph}, {m:,} models",
    "block_cg": "{b:,} columns of {p:,}, {steps} steps",
}
JOBS = {"training": "training", "jackknife": "the jackknife"}


def results(name: str) -> dict[str, dict[str, Any]]:
    """Returns a benchmark's committed results files, by card."""
    files = {card: record.COMMITTED / f"{name}_{stem}.json" for card, stem in CARDS.items()}
    return {card: json.loads(file.read_text(encoding="utf-8")) for card, file in files.items()}


def links(name: str) -> str:
    """Returns links to them."""
    each = [f"{name}_{stem}.json" for stem in CARDS.values()]
    return ", ".join(f"[{file}](../benchmarks/results/{file})" for file in each)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table."""
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


def kernels() -> str:
    """Returns the table of kernels."""
    files, rows = results("kernels"), list[list[str]]()
    head = ["kernel", "of", *(f"{card}, {unit}" for card in CARDS for unit in ("ms", "torch takes", "share"))]
    for cases in zip(*(file["results"]["cases"] for file in files.values()), strict=True):
        op, size = cases[0]["op"], SIZES[cases[0]["op"]].format(**cases[0])
        shown = [
            value
            for case in cases
            for value in (f"{case['ours']['median_ms']:.4f}", f"{case['ratio']:.2f} times", f"{case['share']:.2f}")
        ]
        rows.append([f"`{op}`", size, *shown])
    first = next(iter(files.values()))
    copies = " and ".join(
        f"{file['machine']['gpu']} (copy {file['results']['copy_bytes_per_second'] / 1e12:.2f} TB/s)"
        for file in files.values()
    )
    about = (
        f"{copies}, torch {first['versions']['torch']}; small, medium and large are random matrices of a power law "
        "with 13 thousand, 363 thousand and 16 million entries. torch: its operators, for products cuSPARSE. share: of "
        f"the copy bandwidth, counting the least bytes. {links('kernels')}: `{first['command']}`."
    )
    return "\n".join([*table(head, rows), "", about])


def jobs() -> str:
    """Returns the table of whole jobs."""
    files, rows = results("device"), list[list[str]]()
    head = [
        "graph",
        "nodes",
        "labels",
        "job",
        *(f"{card}, {what}" for card in CARDS for what in ("CPU", "GPU", "times")),
    ]
    first = next(iter(files.values()))
    for name, row in first["results"].items():
        for job, title in JOBS.items():
            shown = list[str]()
            for file in files.values():
                cpu, gpu = (file["results"][name][kind][job]["median_s"] for kind in ("cpu", "cuda"))
                shown += [f"{cpu:.3f} s", f"{gpu:.3f} s", f"{cpu / gpu:.1f}"]
            rows.append([name, f"{row['nodes']:,}", f"{row['labels']:,}", title, *shown])
    about = (
        f"Each card beside {first['machine']['cores']} cores of its machine: {links('device')}: `{first['command']}`."
    )
    return "\n".join([*table(head, rows), "", about])


if __name__ == "__main__":
    record.put_on_page(PAGE, "<!-- gpu-kernels:begin -->", "<!-- gpu-kernels:end -->", kernels())
    record.put_on_page(PAGE, "<!-- gpu-jobs:begin -->", "<!-- gpu-jobs:end -->", jobs())
