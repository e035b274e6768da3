"""neighbour_means, whose sums run in double, beside propagate, whose sums run in float32, on a million nodes.

    python benchmarks/bench_means.py

The same matrix of 16 million entries, all of them 1, and the same X, on one thread; both take turns, medians. Of two
graphs: neighbours drawn evenly, so that nearly every row of X comes from memory, and by a power law, where many are in
the caches and arithmetic counts for more. `ratio` is the time of the means over that of the sums. Writes
results/means.json.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import record
import torch
from bench_kernels import power_law
from bench_propagate import in_turns

from calirare_ext import Csr
from calirare_ext._backend import _C
from calirare_ext.layouts import compiled

DEGREE = 16
PAGE = record.ROOT / "docs" / "kernels.md"


def evenly(n: int) -> Csr:
    """Returns a matrix of n rows with `DEGREE` entries each on average, anywhere."""
    ends = torch.randint(0, n, (2, DEGREE * n), generator=torch.Generator().manual_seed(0))
    return Csr.from_coo(*ends, torch.ones(DEGREE * n), (n, n), sum_duplicates=True)


def row_of(name: str, a: Csr, width: int, repeats: int) -> dict[str, Any]:
    face, x = compiled(a), torch.randn(a.n_cols, width, generator=torch.Generator().manual_seed(width))
    works = {"float32 sums": _C.propagate_out, "double means": _C.neighbour_means_out}
    times = in_turns({name: partial(work, face, x, torch.empty_like(x)) for name, work in works.items()}, repeats)
    ratio = times["double means"]["median_ms"] / times["float32 sums"]["median_ms"]
    return {"graph": name, "nodes": a.n_rows, "entries": a.nnz, "width": width, "times": times, "ratio": ratio}


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| neighbours | columns | float32 sums, ms | double means, ms | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        ms = [f"{times['median_ms']:,.0f}" for times in row["times"].values()]
        lines.append(f"| {row['graph']} | {row['width']} | {ms[0]} | {ms[1]} | {row['ratio']:.2f} |")
    file = "[means.json](../benchmarks/results/means.json)"
    return "\n".join([*lines, "", f"A million nodes, one thread, {file}: `python benchmarks/bench_means.py`."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 128])
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    graphs = {"evenly": evenly(options.nodes)}
    graphs["power law"] = power_law(options.nodes, DEGREE * options.nodes, torch.device("cpu"))
    rows = []
    for name, a in graphs.items():
        ones = Csr(a.indptr, a.indices, torch.ones_like(a.values), a.n_cols)
        for width in options.widths:
            rows.append(row_of(name, ones, width, options.repeats))
            print(rows[-1], flush=True)
    record.write("means", {"rows": rows})
    if record.RESULTS == record.COMMITTED:
        record.put_on_page(PAGE, "<!-- means:begin -->", "<!-- means:end -->", page(rows))


if __name__ == "__main__":
    main()
