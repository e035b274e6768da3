"""`calirare profile`: where the time of a training goes, as a trace, a table and a picture."""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare._util.torch_state import PREFIX
from calirare.graph import Graph
from calirare.models import GcnFit
from calirare.run import Outcome, Settings, load, train, write_json
from calirare_ext import Csr
from calirare_lab.profile.cost import Sizes, stage_costs

FILES = ("trace.json", "profile.json", "timeline.png", "timeline.svg")
OTHER = "other"  # what no stage covers
QUIET = "99"  # above every level at which torch's profiler writes to the terminal
COPIED, MULTIPLIED = 1 << 26, 1024  # bytes of a copy, side of a product, when the machine's peaks are measured


@dataclass(frozen=True)
class Event:
    """A range of the trace.

    Attributes:
        name: of the stage or operator.
        start: microseconds since the first event.
        duration: microseconds.
        is_stage: whether it is one of ours.
    """

    name: str
    start: float
    duration: float
    is_stage: bool


def run_profile(run: Path | None, settings: Settings | None, out: Path, *, overwrite: bool) -> None:
    """Trains under torch's profiler and writes trace, table and timeline.

    Args:
        run: folder of a run to train again; or None.
        settings: how to train on which data; or None.
        out: folder to write into.
        overwrite: replace what is there.

    Raises:
        InputError: not just one of run and settings is given, or something cannot be read or written.
    """
    if (run is None) == (settings is None):
        raise InputError("profile: give either --run or --dataset")
    there = [name for name in FILES if (out / name).exists()]
    if there and not overwrite:
        raise InputError(f"profile: {out / there[0]} exists already: take another --out, or pass --overwrite")
    if out.exists() and not out.is_dir():
        raise InputError(f"profile: {out} is a file, a folder is wanted: take another --out")
    if run is not None:
        saved = load(run)
        graph, settings = saved.graph(), saved.settings
    else:
        assert settings is not None
        graph = settings.data.load(settings.seed)
    device = choose_device(settings.device)
    peaks = measure_peaks(device)
    with fresh_files(out, f"profile: {out}") as folder:
        outcome, seconds, events = trace(graph, settings, device, folder / "trace.json")
        facts = summary(outcome, events, peaks, seconds)
        write_json(facts, folder / "profile.json")
        draw(events, folder, f"{graph.name}: {graph.n_nodes:,} nodes, {seconds:.2f} s under the profiler on {device}")
    show(facts)
    for name in FILES:
        print(out / name)


def trace(graph: Graph, settings: Settings, device: torch.device, path: Path) -> tuple[Outcome, float, list[Event]]:
    """Trains under the profiler, writes the Chrome trace and returns the outcome, the seconds and the CPU's ranges."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)
    with profile(activities=activities) as profiler:
        started = time.perf_counter()  # without what the profiler does at its start
        outcome = train(graph, settings)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - started
    profiler.export_chrome_trace(str(path))
    return outcome, seconds, read_events(path)


def read_events(path: Path) -> list[Event]:
    """Returns the ranges of a Chrome trace that ran on the CPU, by start, longest first."""
    raw = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kept = [e for e in raw if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    first = min((e["ts"] for e in kept), default=0.0)
    events = []
    for e in kept:
        ours = e["cat"] == "user_annotation" and e["name"].startswith(PREFIX)
        if ours or e["cat"] == "cpu_op":
            events.append(Event(e["name"].removeprefix(PREFIX), e["ts"] - first, e["dur"], ours))
    return sorted(events, key=lambda event: (event.start, -event.duration))


def measure_peaks(device: torch.device) -> dict[str, float]:
    """Returns the machine's copy bandwidth (bytes read and written per second) and float32 product rate (flops/s)."""
    source = torch.ones(COPIED // 4, device=device)
    target = torch.empty_like(source)
    square = torch.ones(MULTIPLIED, MULTIPLIED, device=device)
    out = torch.empty_like(square)

    def best(work: Any) -> float:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - started)
        return min(times)

    copy = best(lambda: target.copy_(source))
    product = best(lambda: torch.mm(square, square, out=out))
    return {"copy_bytes_per_s": 2 * COPIED / copy, "gemm_flops_per_s": 2 * MULTIPLIED**3 / product}


def stage_times(events: list[Event], seconds: float) -> dict[str, dict[str, Any]]:
    """Returns seconds and share of the time per stage, and the stage it lies within.

    Args:
        events: by start, longest first.
        seconds: in all.

    Returns:
        {"seconds", "share_of_time", "within"} by stage, a stage before those within it, and `OTHER`, which makes up the
        rest: the stages within none add up to all.
    """
    stages: dict[str, dict[str, Any]] = {}
    open_stages: list[Event] = []
    covered = 0.0
    for event in (event for event in events if event.is_stage):
        while open_stages and open_stages[-1].start + open_stages[-1].duration <= event.start:
            open_stages.pop()
        within = open_stages[-1].name if open_stages else None
        covered += 0.0 if within else event.duration / 1e6
        stage = stages.setdefault(event.name, {"seconds": 0.0, "within": within})
        stage["seconds"] += event.duration / 1e6
        open_stages.append(event)
    stages[OTHER] = {"seconds": max(seconds - covered, 0.0), "within": None}
    for stage in stages.values():
        stage["share_of_time"] = stage["seconds"] / seconds
    return stages


def summary(outcome: Outcome, events: list[Event], peaks: dict[str, float], seconds: float) -> dict[str, Any]:
    """Returns what `profile.json` holds: machine, sizes, and per stage seconds, bytes, flops and share of the peak."""
    stages = stage_times(events, seconds)
    sizes = sizes_of(outcome)
    sparse = isinstance(outcome.graph.x, Csr)
    costs = {} if sparse else stage_costs(sizes)
    for name in stages.keys() & costs.keys():
        floor = costs[name].floor_seconds(peaks["copy_bytes_per_s"], peaks["gemm_flops_per_s"])
        share = floor / stages[name]["seconds"]
        stages[name] |= {"bytes": costs[name].bytes, "flops": costs[name].flops, "share_of_peak": share}
    return {
        "graph": {"name": outcome.graph.name, "nodes": outcome.graph.n_nodes, "directed_edges": outcome.graph.n_edges},
        "device": str(outcome.graph.device),
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "peaks": peaks,
        "sizes": vars(sizes),
        "sparse_features": sparse,
        "stages": stages,
    }


def sizes_of(outcome: Outcome) -> Sizes:
    """Returns the sizes that the cost of a run depends on; the check's trainings are counted as their own stage."""
    graph, fitted = outcome.graph, outcome.fit
    if not isinstance(fitted, GcnFit):
        raise InputError(f"profile: the run must hold one network, got a {type(fitted).__name__}: take --preset paper")
    rows = fitted.field.rows[0].numel()
    return Sizes(
        graph.n_nodes,
        graph.n_edges + graph.n_nodes,
        graph.n_features,
        max(fitted.model.hidden, 1),
        fitted.nodes.numel(),
        rows,
        outcome.epochs,
    )


def show(facts: dict[str, Any]) -> None:
    """Prints the table."""
    table = Table(
        title=f"{facts['graph']['name']}: {facts['seconds']:.2f} s on {facts['device']}", title_justify="left"
    )
    for name in ("stage", "seconds", "share of time", "GB", "GFLOP", "share of peak"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for name, stage in facts["stages"].items():
        known = "bytes" in stage
        table.add_row(
            f"  {name}" if stage["within"] else name,
            f"{stage['seconds']:.3f}",
            f"{stage['share_of_time']:.1%}",
            f"{stage['bytes'] / 1e9:.3f}" if known else "",
            f"{stage['flops'] / 1e9:.2f}" if known else "",
            f"{stage['share_of_peak']:.0%}" if known else "",
        )
    console = Console(width=None if Console().is_terminal else 120, markup=False, emoji=False)
    console.print(table, highlight=False)
    peaks = facts["peaks"]
    print(
        f"peaks measured now: copy {peaks['copy_bytes_per_s'] / 1e9:.1f} GB/s, product "
        f"{peaks['gemm_flops_per_s'] / 1e9:.0f} GFLOP/s in float32, {facts['threads']} threads"
    )
    print(
        "bytes and flops: what the stage must move and multiply (docs/scaling.md); gathers count without reuse in cache"
    )
    why = ": they are known for dense features alone" if facts["sparse_features"] else " where they are not known"
    print(f"GB, GFLOP and share of peak are empty{why}")
    if any(stage["within"] for stage in facts["stages"].values()):
        print("a stage further in is part of the one above it; the others add up to the whole time")


def draw(events: list[Event], folder: Path, title: str) -> None:
    """Draws the timeline: stages, stages within stages and operators, one row per depth."""
    from calirare_lab.profile.timeline import draw_timeline

    draw_timeline([(e.name, e.start / 1e6, e.duration / 1e6, e.is_stage) for e in events], folder, title)
