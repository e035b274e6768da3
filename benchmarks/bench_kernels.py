"""Every kernel with a CUDA twin against plain torch and the machine's copy bandwidth, on the CPU or a GPU.

    python benchmarks/bench_kernels.py --device cuda

Every answer is checked before it is timed. CUDA is timed by events, the CPU by a monotonic clock; each repeat runs an
operator often enough to last a millisecond. `share` is the time that moving the operator's least bytes would take at
the measured copy bandwidth, divided by the time taken (docs/kernels.md has the formulas). Writes
results/kernels_<device>.json.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import record
import torch
from torch import Tensor

from calirare_ext import Csr, reference
from calirare_ext._backend import _C
from calirare_ext.propagate import compiled

Case = tuple[dict[str, Any], Callable[[], Tensor], Callable[[], Tensor], float]

# Nodes and entries; the small two have the sizes of Cora and FaceBook with self-loops.
GRAPHS = {"small": (2_708, 13_264), "medium": (22_470, 364_474), "large": (1_000_000, 16_000_000)}
WIDTHS = (1, 2, 4, 8, 16, 64, 128, 160, 1280)
FLOAT = 4  # bytes


def power_law(n: int, nnz: int, device: torch.device) -> Csr:
    """Returns a random matrix with about `nnz` entries whose row and column sizes fall off as a power."""
    draw = torch.Generator(device).manual_seed(0)
    ends = (torch.rand(2, nnz, generator=draw, device=device, dtype=torch.float64) ** 2 * n).long()
    shuffle = torch.randperm(n, generator=draw, device=device)
    values = torch.rand(nnz, generator=draw, device=device)
    return Csr.from_coo(shuffle[ends[0]], shuffle[ends[1]], values, (n, n), sum_duplicates=True)


def propagate_cases(device: torch.device, most: int) -> Iterator[Case]:
    for name, (n, nnz) in GRAPHS.items():
        if n * WIDTHS[0] > most:
            continue
        a = power_law(n, nnz, device)
        face = compiled(a)
        plain = torch.sparse_csr_tensor(a.indptr.int(), a.indices, a.values, (n, n))
        for width in (w for w in WIDTHS if n * w <= most):
            x = torch.randn(n, width, device=device)
            out = torch.empty(n, width, device=device)
            least = a.nnz * (4 + FLOAT) + 8 * (n + 1) + 2 * n * width * FLOAT
            about = {"op": "propagate", "graph": name, "n": n, "nnz": a.nnz, "width": width}

            def ours(face: Any = face, x: Tensor = x, out: Tensor = out) -> Tensor:
                _C.propagate_out(face, x, out)
                return out

            yield about, ours, lambda plain=plain, x=x: plain @ x, least


def means_cases(device: torch.device, most: int) -> Iterator[Case]:
    for name, width in (("medium", 64), ("large", 16), ("large", 128)):
        n, nnz = GRAPHS[name]
        if n * width > most:
            continue
        a, x = power_law(n, nnz, device), torch.randn(n, width, device=device)
        face, out = compiled(a), torch.empty(n, width, device=device)
        plain = torch.sparse_csr_tensor(a.indptr.int(), a.indices, a.values, (n, n))
        total = (plain @ torch.ones(n, 1, device=device)).clamp(min=torch.finfo(x.dtype).tiny)

        def ours(face: Any = face, x: Tensor = x, out: Tensor = out) -> Tensor:
            _C.neighbour_means_out(face, x, out)
            return out

        least = a.nnz * (4 + FLOAT) + 8 * (n + 1) + 2 * n * width * FLOAT
        about = {"op": "neighbour_means", "graph": name, "n": n, "nnz": a.nnz, "width": width}
        yield about, ours, lambda plain=plain, x=x, total=total: plain @ x / total, least


def message_cases(device: torch.device, most: int) -> Iterator[Case]:
    for name, m in (("small", 140), ("medium", 80), ("medium", 640), ("medium", 2_000)):
        n, nnz = GRAPHS[name]
        if n * m > most:
            continue
        a = power_law(n, nnz, device)
        face, parts = compiled(a), [torch.randn(size, device=device) for size in (n, m)]
        messages, residuals = torch.randn(n, m, device=device), torch.rand(m, device=device)
        plain = torch.sparse_csr_tensor(a.indptr.int(), a.indices, a.values, (n, n))

        def ours(face: Any = face, sent: Tensor = messages, parts: Any = parts, r: Tensor = residuals) -> Tensor:
            return _C.message_interval(face, sent, *parts, r, 0.05, 0.95, 1.0, 0.0)

        def theirs(plain: Tensor = plain, sent: Tensor = messages, parts: Any = parts, r: Tensor = residuals) -> Tensor:
            scores = torch.sigmoid(plain @ sent + parts[0][:, None] + parts[1])
            return torch.stack(reference.jackknife_interval(scores, r, 0.05, 0.95), 1)

        least = FLOAT * (2 * a.nnz + n * m + 3 * n + 2 * m)
        about = {"op": "message_interval", "graph": name, "n": n, "nnz": a.nnz, "m": m}
        yield about, ours, theirs, least


def gradient_cases(device: torch.device, most: int) -> Iterator[Case]:
    for m, entries, d, h in ((80, 15, 128, 16), (640, 5, 1433, 16)):
        if m * d * h > most:
            continue
        ptr = torch.arange(m + 1, device=device) * entries
        nodes = torch.randint(0, 5000, (m * entries,), device=device, dtype=torch.int32)
        inputs = torch.randn(5000, d, device=device)
        delta = torch.randn(m * entries, h, device=device)
        out = torch.empty(m, (d + 1) * h, device=device)

        def ours(
            ptr: Tensor = ptr, nodes: Tensor = nodes, delta: Tensor = delta, x: Tensor = inputs, out: Tensor = out
        ) -> Tensor:
            _C.node_gradients_out(ptr, nodes, delta, x, out)
            return out

        def plain(nodes: Tensor = nodes, delta: Tensor = delta, x: Tensor = inputs, m: int = m) -> Tensor:
            rows = torch.cat([x[nodes.long()], x.new_ones(len(nodes), 1)], 1).view(m, -1, x.shape[1] + 1)
            return torch.bmm(rows.transpose(1, 2), delta.view(m, -1, delta.shape[1])).view(m, -1)

        least = FLOAT * (out.numel() + delta.numel() + m * entries * d)
        yield {"op": "node_gradients", "m": m, "entries": entries, "d": d, "h": h}, ours, plain, least


def interval_cases(device: torch.device, most: int) -> Iterator[Case]:
    for n, m in ((22_470, 80), (22_470, 640), (100_000, 140), (2_000, 5_000)):
        if n * m > most:
            continue
        scores, residuals = torch.rand(n, m, device=device), torch.rand(m, device=device)
        least = FLOAT * n * m + n * 2 * (FLOAT + 8)
        about = {"op": "jackknife_interval", "n": n, "m": m}
        yield (
            about,
            lambda s=scores, r=residuals: _C.jackknife_interval(s, r, 0.05, 0.95)[0],
            lambda s=scores, r=residuals: torch.stack(reference.jackknife_interval(s, r, 0.05, 0.95), 1),
            least,
        )


def cg_cases(device: torch.device, most: int) -> Iterator[Case]:
    steps = 20
    for b, p in ((80, 2_098), (140, 22_978), (1_000, 60_000)):
        if b * p > most:
            continue
        rhs, scale = torch.randn(b, p, device=device), torch.linspace(1, 50, p, device=device)

        def plain(rhs: Tensor = rhs, scale: Tensor = scale) -> Tensor:
            x, r = torch.zeros_like(rhs), rhs.clone()
            direction, rho = r.clone(), (r * r).sum(1, keepdim=True)
            for _ in range(steps):
                product = direction * scale
                alpha = rho / (direction * product).sum(1, keepdim=True)
                x += alpha * direction
                r -= alpha * product
                rho, before = (r * r).sum(1, keepdim=True), rho
                direction = r + rho / before * direction
            return x

        def ours(rhs: Tensor = rhs, scale: Tensor = scale) -> Tensor:
            return _C.block_cg(lambda v: v * scale, rhs, 0.0, steps, 0)[0]

        # a step reads p, ap, x, r, writes x, r; reads r, z, p, writes p; the product reads p, writes ap
        least = steps * 12 * b * p * FLOAT
        yield {"op": "block_cg", "b": b, "p": p, "steps": steps}, ours, plain, least


CASES = (
    *(propagate_cases, means_cases, gradient_cases, interval_cases),
    *(message_cases, cg_cases),
)


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> dict[str, float]:
    """Returns median and spread (half the interquartile range) of one call, in milliseconds."""

    def once(count: int) -> float:
        if device.type == "cuda":
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(count):
                work()
            stop.record()
            stop.synchronize()
            return start.elapsed_time(stop) / count
        begin = time.perf_counter()
        for _ in range(count):
            work()
        return (time.perf_counter() - begin) * 1e3 / count

    once(2)
    count = max(1, math.ceil(1.0 / max(once(2), 1e-4)))
    samples = [once(count) for _ in range(repeats)]
    low, middle, high = statistics.quantiles(samples, n=4)
    return {"median_ms": middle, "spread_ms": (high - low) / 2}


def copy_bandwidth(device: torch.device, repeats: int) -> float:
    """Returns bytes per second of a copy far larger than any cache, bytes read and written."""
    source = torch.randn(2**28 if device.type == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)
    return 2 * FLOAT * source.numel() / timed(lambda: target.copy_(source), device, repeats)["median_ms"] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--most", type=int, default=None, help="largest number of elements of a dense operand")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch's own notes on its CSR tensors
    device = torch.device(arguments.device)
    most = arguments.most or (2 * 10**9 if device.type == "cuda" else 5 * 10**7)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    bandwidth, rows = copy_bandwidth(device, arguments.repeats), []
    print(f"{name}: copy {bandwidth / 1e9:.0f} GB/s")
    for make in CASES:
        for about, ours, plain, least in make(device, most):
            wanted = plain()
            error = float((ours() - wanted).abs().max() / wanted.abs().max())
            if not error < 1e-3:
                raise SystemExit(f"{about}: differs from plain torch by {error:.2g} of the largest number")
            mine, theirs = timed(ours, device, arguments.repeats), timed(plain, device, arguments.repeats)
            share = least / bandwidth * 1e3 / mine["median_ms"]
            ratio = theirs["median_ms"] / mine["median_ms"]
            rows.append(about | {"ours": mine, "torch": theirs, "ratio": ratio, "least_bytes": least, "share": share})
            print(f"{about}  {mine['median_ms']:.4f} ms  {ratio:.2f}x torch  share {share:.2f}", flush=True)
    stem = re.sub(r"\W+", "_", name).strip("_").lower()
    print(record.write(f"kernels_{stem}", {"copy_bytes_per_second": bandwidth, "cases": rows}))


if __name__ == "__main__":
    main()
