"""Many jobs in one process: memory, files and threads must stay."""

from __future__ import annotations

import ctypes
import functools
import gc
import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

import calirare
from calirare.graph import Graph
from calirare.graph.labelled import NO_PART
from calirare.run import Labels, update
from tests.campaigns import growth
from tests.campaigns.growth import Reading
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

MODELS = ("gcn", "trees", "hops", "forest", "auto")
WARM = 2 * len(MODELS)  # jobs before memory is looked at
BLOCK = 32  # bytes counted per block of Python's allocator, which tells only their number: an int, a short tuple
PROC = Path("/proc/self")


def soak(root: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Trains, saves, scores, updates, explains and audits changing graphs; memory, files and threads must stay."""
    saved = calirare.load(root / "base")

    def job(number: int, model: str) -> None:
        graph = rare_task(n_nodes=200 + number % 40, seed=1_000_000 * seed + number)
        _one(saved, graph, root / f"soak-{model}", model)

    with rough_runs():
        readings = watched(job, seconds)
    return {"jobs": WARM + len(readings), "seconds": seconds, **growth.judge(readings)}


def watched(job: Callable[[int, str], None], seconds: float) -> list[Reading]:
    """Runs jobs for so long, and until there are enough to judge; returns a reading after each but the first `WARM`."""
    until, readings, number = time.monotonic() + seconds, list[Reading](), 0
    while time.monotonic() < until or len(readings) < growth.LEAST * len(MODELS):
        model = MODELS[number % len(MODELS)]
        job(number, model)
        number += 1
        if number > WARM:
            readings.append(reading(model))
    return readings


def reading(kind: str) -> Reading:
    """Returns what this process holds, without garbage, caches that have a bound, and memory that is free already."""
    for one in gc.get_objects():
        if type(one) is type(_cached) and one.cache_parameters()["maxsize"] is not None:
            one.cache_clear()
    gc.collect()
    library = ctypes.CDLL(None)
    library.malloc_trim(0)
    library.mallinfo2.restype = _Mallinfo2  # glibc 2.33 and later
    heap = library.mallinfo2()
    resident = next(line for line in (PROC / "status").read_text().splitlines() if line.startswith("RssAnon"))
    return Reading(
        kind,
        heap.uordblks + heap.hblkhd + BLOCK * sys.getallocatedblocks(),
        1024 * int(resident.split()[1]),
        len(list((PROC / "fd").iterdir())),
        len(list((PROC / "task").iterdir())),
    )


@functools.lru_cache
def _cached() -> None:
    """Is here for its type, which functools does not export."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _one(saved: Any, graph: Graph, folder: Path, model: str) -> None:
    outcome = calirare.train(graph, model=model, **({"epochs": 10, "folds": 2} if model == "gcn" else {}))
    outcome.save(folder, overwrite=folder.exists())
    saved.score(graph, lambda line: None)
    assert graph.y is not None
    assert graph.split is not None
    nodes = graph.split.train[:2]
    fresh = Labels(nodes, 1 - graph.y[nodes], torch.full_like(nodes, NO_PART))
    update(calirare.load(folder), graph, fresh, report=lambda *_: None).summary()
    outcome.explain([3, 5])
    outcome.audit().summary()
    with redirect_stdout(io.StringIO()):
        print(outcome.summary())
