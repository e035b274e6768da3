"""propagate on the CPU beside MKL, SciPy, a scatter and torch-sparse: graph by graph, width by width.

    python benchmarks/bench_propagate.py [--quick] [--fresh] [--seconds 150] [--graphs cora ...] [--widths 1 ...]

Every answer is checked before it is timed. All contenders read the same aligned buffers, write into buffers made once
(torch-sparse has no such call and allocates its answer), and take turns, so that a busy moment meets all of them. A
sample runs a contender often enough to last a millisecond; medians. `ours` is what propagate does once a matrix has
multiplied often enough for a layout of its own (`layout`, made in `prepare_s` seconds, which `pays_after` so many
products); `ours, first products` is A as it came. `copy` reads X once and writes Y once, on the same threads in the
same run; the floor is that time, longer by the bytes of A. A finished cell is kept in results/propagate.json
while its layout exists: stopped by --seconds, the next run goes on. Cells and contenders that are left out say why.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import record
import torch
from bench_kernels import power_law
from scipy.sparse import _sparsetools
from torch import Tensor

from calirare.datasets import load_dataset
from calirare_ext import Csr, Layout, gcn_norm, prepare
from calirare_ext._backend import _C
from calirare_ext.layouts import compiled, write

GRAPHS = ("cora", "facebook", "dblp", "power_law_1m")
WIDTHS = (1, 16, 64, 160, 1280)
QUICK = {"graphs": ("cora", "facebook"), "widths": (1, 16, 160)}
MEMORY = 4 * 10**9  # bytes of one buffer; a machine of 16 GB holds the operands and one of these
LONG = 2.0  # seconds: calls above are repeated five times, not twenty
COLD = 0.05  # seconds: operands of longer calls do not stay in cache
HOPELESS = 3.0  # times the fastest: such a contender is timed three times where a call takes a tenth of a second

FIRST = "ours, first products"
RATIOS = ("ratio", "ratio_first_products", "times_the_floor")

Work = Callable[[], Any]


def graph_of(name: str) -> Csr:
    return power_law(1_000_000, 16_000_000, torch.device("cpu")) if name == "power_law_1m" else _normal(name)


def _normal(name: str) -> Csr:
    return gcn_norm(load_dataset(name).adjacency)


def mkl(a: Csr, x: Tensor) -> Iterator[tuple[str, Work, Tensor]]:
    plain = torch.sparse_csr_tensor(a.indptr.int(), a.indices, a.values, a.shape)
    out = torch.empty(a.n_rows, x.shape[1], dtype=x.dtype)
    yield "mkl", lambda: torch.addmm(out, plain, x, beta=0, out=out), out
    if x.shape[1] == 1:
        vector, column = torch.empty(a.n_rows, dtype=x.dtype), x[:, 0]
        yield "mkl_vector", lambda: torch.addmv(vector, plain, column, beta=0, out=vector), vector[:, None]


def scipy(a: Csr, x: Tensor) -> Iterator[tuple[str, Work, Tensor]]:
    out, width = torch.empty(a.n_rows, x.shape[1], dtype=x.dtype), x.shape[1]
    parts = (a.indptr.int().numpy(), a.indices.numpy(), a.values.numpy(), x.numpy().ravel(), out.numpy().ravel())

    def work() -> None:
        out.zero_()  # SciPy's loops add to their answer
        if width == 1:
            _sparsetools.csr_matvec(a.n_rows, a.n_cols, *parts)
        else:
            _sparsetools.csr_matvecs(a.n_rows, a.n_cols, width, *parts)

    yield "scipy", work, out


def scatter(a: Csr, x: Tensor) -> Iterator[tuple[str, Work, Tensor]]:
    rows, cols, weights = a.rows(), a.indices.long(), a.values[:, None]
    messages = torch.empty(a.nnz, x.shape[1], dtype=x.dtype)
    out = torch.empty(a.n_rows, x.shape[1], dtype=x.dtype)

    def work() -> None:
        torch.index_select(x, 0, cols, out=messages)
        messages.mul_(weights)
        out.zero_().index_add_(0, rows, messages)

    yield "index_add", work, out


def torch_sparse(a: Csr, x: Tensor) -> Iterator[tuple[str, Work, Tensor]]:
    try:
        from torch_sparse import SparseTensor, matmul
    except ImportError:
        return
    matrix = SparseTensor(rowptr=a.indptr, col=a.indices.long(), value=a.values, sparse_sizes=a.shape, is_sorted=True)
    out = torch.empty(a.n_rows, x.shape[1], dtype=x.dtype)
    holder = [out]

    def work() -> None:
        holder[0] = matmul(matrix, x)

    work()
    out.copy_(holder[0])
    yield "torch_sparse", work, out


def contenders(a: Csr, x: Tensor, layout: Layout, left_out: dict[str, str]) -> dict[str, Work]:
    """Returns ours, the rivals and the copy, each checked against ours, which is checked against float64."""
    face, out = compiled(a), torch.empty(a.n_rows, x.shape[1], dtype=x.dtype)
    prepared = torch.empty_like(out)
    works: dict[str, Work] = {
        "ours": lambda: write(a, layout, x, prepared),
        FIRST: lambda: _C.propagate_out(face, x, out),
    }
    for work in works.values():
        work()
    _check(a, x, out)
    if not torch.equal(prepared, out):
        raise SystemExit(f"the layout {layout} changes the product")
    for make in (mkl, scipy, scatter, torch_sparse):
        size = a.nnz * x.shape[1] * x.element_size() if make is scatter else out.numel() * x.element_size()
        if size > MEMORY:
            left_out[make.__name__] = f"one buffer would take {size / 1e9:.1f} GB"
            continue
        for name, work, answer in make(a, x):
            work()
            error = float((answer - out).abs().max() / out.abs().max())
            if not error < 1e-5:
                raise SystemExit(f"{name} differs by {error:.1g} of the largest number")
            works[name] = work
    if "torch_sparse" not in works:
        left_out.setdefault("torch_sparse", "not installed")
    target = torch.empty_like(x)
    works["copy"] = lambda: target.copy_(x)
    return works


def _check(a: Csr, x: Tensor, out: Tensor) -> None:
    """Compares some rows and all columns with NumPy in float64."""
    draw = np.random.default_rng(0)
    for r in draw.choice(a.n_rows, 200, replace=False):
        entries = slice(int(a.indptr[r]), int(a.indptr[r + 1]))
        terms = a.values[entries].double()[:, None] * x[a.indices[entries].long()].double()
        bound = (2 + len(terms)) * torch.finfo(x.dtype).eps * terms.abs().sum(0)
        if not bool(((out[r].double() - terms.sum(0)).abs() <= bound).all()):
            raise SystemExit(f"propagate is wrong in row {r}")


def in_turns(works: dict[str, Work], repeats: int) -> dict[str, dict[str, float]]:
    """Returns median, spread and number of samples of each, in milliseconds."""
    calls, first = {}, {}
    for name, work in works.items():
        work()
        begin = time.perf_counter()
        work()
        first[name] = time.perf_counter() - begin
        calls[name] = max(1, math.ceil(1e-3 / first[name]))
    fastest = min((t for name, t in first.items() if name != "copy"), default=math.inf)
    turns = {}
    for name, t in first.items():
        turns[name] = 3 if t > HOPELESS * fastest and t > 0.1 else repeats if t < LONG else min(5, repeats)
    samples: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats):
        for name, work in works.items():
            if turn < turns[name]:
                if first[name] < COLD:
                    work()  # its operands may still be in cache, the others' are not: the same for all
                begin = time.perf_counter()
                for _ in range(calls[name]):
                    work()
                samples[name].append((time.perf_counter() - begin) * 1e3 / calls[name])
    found = {}
    for name, ms in samples.items():
        low, middle, high = statistics.quantiles(ms, n=4)
        found[name] = {"median_ms": middle, "spread_ms": (high - low) / 2, "samples": len(ms)}
    return found


def other_load() -> bool:
    """Returns whether something else keeps a core: a copy on all threads takes longer than on one."""
    source, threads = torch.ones(2**20), torch.get_num_threads()
    target, ms = torch.empty_like(source), {}
    for count in (1, max(threads, 2)):
        torch.set_num_threads(count)
        ms[count] = in_turns({"copy": lambda: target.copy_(source)}, 9)["copy"]["median_ms"]
    torch.set_num_threads(threads)
    return ms.popitem()[1] > 1.2 * ms[1]


def empty_call() -> float:
    """Returns the microseconds of a call that has nothing to do."""
    a = Csr(torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), torch.zeros(0), 1)
    face, x, out = compiled(a), torch.ones(1, 1), torch.ones(1, 1)
    return in_turns({"ours": lambda: _C.propagate_out(face, x, out)}, 20)["ours"]["median_ms"] * 1e3


def cell(name: str, a: Csr, width: int, threads: int, dtype: torch.dtype, repeats: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    about = {"graph": name, "n": a.n_rows, "nnz": a.nnz, "width": width, "threads": threads, "dtype": str(dtype)[6:]}
    left_out: dict[str, str] = {}
    if a.n_rows * width * torch.finfo(dtype).bits // 8 > MEMORY:
        return about | {"skipped": f"X and Y would take {2 * a.n_rows * width * torch.finfo(dtype).bits / 8e9:.0f} GB"}
    x = torch.randn(a.n_cols, width, dtype=dtype, generator=torch.Generator().manual_seed(width))
    a = Csr(a.indptr, a.indices, a.values.to(dtype), a.n_cols)  # without the layouts of other cells
    begin = time.perf_counter()
    layout = prepare(a, width)
    prepare_s = time.perf_counter() - begin
    before = other_load()
    times = in_turns(contenders(a, x, layout, left_out), repeats)
    rivals = [name for name in times if name not in {"ours", FIRST, "copy"}]
    ms = {name: time["median_ms"] for name, time in times.items()}
    best = min(rivals, key=lambda name: ms[name])
    operands = 2 * x.numel() * x.element_size()
    floor = ms["copy"] * (1 + (a.nnz * (4 + x.element_size()) + 8 * (a.n_rows + 1)) / operands)
    saved = ms[FIRST] - ms["ours"]
    return about | {
        "times": times,
        "best": best,
        "ratio": ms[best] / ms["ours"],
        "ratio_first_products": ms[best] / ms[FIRST],
        "times_the_copy": ms["ours"] / ms["copy"],
        "floor_ms": floor,
        "times_the_floor": ms["ours"] / floor,
        "best_rival_times_the_floor": ms[best] / floor,
        "layout": layout,
        "prepare_s": prepare_s,
        "pays_after": math.ceil(prepare_s * 1e3 / saved) if layout != "plain" and saved > 0 else None,
        "left_out": left_out,
        "other_load": before or other_load(),  # such a cell is measured again by the next run
        "commit": record.environment()["commit"],
    }


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    timed = [c for c in cells if "ratio" in c]
    worst = min(timed, key=lambda c: c["ratio"])
    mean = {key: math.exp(statistics.fmean(math.log(c[key]) for c in timed)) for key in RATIOS}
    return {
        "cells": len(timed),
        "cells_beside_other_load": sum(c["other_load"] for c in timed),
        "geometric_mean_ratio": mean["ratio"],
        "geometric_mean_ratio_first_products": mean["ratio_first_products"],
        "geometric_mean_times_the_floor": mean["times_the_floor"],
        "worst_ratio": worst["ratio"],
        "worst_cell": [worst[key] for key in ("graph", "width", "threads", "dtype")],
        "cells_below_1.2": sum(c["ratio"] < 1.2 for c in timed),
        "cells_at_least_2": sum(c["ratio"] >= 2 for c in timed),
        "empty_call_us": empty_call(),
    }


def show(c: dict[str, Any]) -> None:
    where = f"{c['graph']:>13} {c['dtype']} width {c['width']:>4} threads {c['threads']}"
    if "skipped" in c:
        print(f"{where}  skipped: {c['skipped']}", flush=True)
        return
    times = " ".join(f"{name} {t['median_ms']:.3f}" for name, t in c["times"].items())
    where += " (other load)" if c["other_load"] else ""
    first, floors = c["ratio_first_products"], (c["times_the_floor"], c["best_rival_times_the_floor"])
    told = f"{c['ratio']:.2f}x {c['best']} with {c['layout']} ({first:.2f}x at first), {c['times_the_copy']:.1f} copies"
    print(f"{where}  {told}, {floors[0]:.1f} floors, rival {floors[1]:.1f}  [ms: {times}]", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS)
    parser.add_argument("--widths", nargs="+", type=int)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "float64"), default=["float32"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no cell after this time")
    parser.add_argument("--fresh", action="store_true", help="forget finished cells")
    parser.add_argument("--quick", action="store_true", help="two graphs, three widths; writes propagate_quick.json")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch's own note on its CSR tensors
    stem = "propagate_quick" if arguments.quick else "propagate"
    path, begin = record.RESULTS / f"{stem}.json", time.perf_counter()
    kept = path.exists() and not arguments.fresh and not arguments.quick
    cells = json.loads(path.read_text(encoding="utf-8"))["results"]["cells"] if kept else []
    cells = [c for c in cells if not c.get("other_load", False) and c.get("layout", "plain") in get_args(Layout)]
    done = {(c["graph"], c["width"], c["threads"], c["dtype"]) for c in cells}
    for name in arguments.graphs or (QUICK["graphs"] if arguments.quick else GRAPHS):
        a = None
        for width in arguments.widths or (QUICK["widths"] if arguments.quick else WIDTHS):
            for dtype in arguments.dtypes:
                for threads in arguments.threads:
                    if (name, width, threads, dtype) in done or time.perf_counter() - begin > arguments.seconds:
                        continue
                    a = graph_of(name) if a is None else a
                    cells.append(cell(name, a, width, threads, getattr(torch, dtype), arguments.repeats))
                    show(cells[-1])
                    if any("ratio" in c for c in cells):
                        record.write(stem, {"summary": summary(cells), "cells": cells})
    print(json.dumps(summary(cells), indent=2))


if __name__ == "__main__":
    main()
