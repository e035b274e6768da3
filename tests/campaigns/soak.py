"""Many jobs in one process: memory, files and threads must stay."""

from __future__ import annotations

import gc
import io
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch

import calirare
from calirare.graph import NO_PART, Graph
from calirare.pipeline import update
from calirare.run import Labels
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

MODELS = ("gcn", "trees", "hops", "forest", "auto")
WARM = 2 * len(MODELS)  # jobs before memory is looked at


def soak(root: Path, seconds: float) -> dict[str, Any]:
    """Trains, saves, scores, updates, explains and audits changing graphs; memory, files and threads must stay."""
    until, rows, jobs = time.monotonic() + seconds, [], 0
    saved = calirare.load(root / "base")
    with rough_runs():
        while time.monotonic() < until:
            model = MODELS[jobs % len(MODELS)]
            _one(saved, rare_task(n_nodes=200 + jobs % 40, seed=jobs), root / f"soak-{model}", model)
            jobs += 1
            gc.collect()
            if jobs >= WARM:
                rows.append((_rss(), len(list(Path("/proc/self/fd").iterdir())), threading.active_count()))
    if len(rows) < WARM:
        return {"jobs": jobs, "findings": ["too few jobs to tell"]}
    rss = np.array([row[0] for row in rows], dtype=float)
    half = len(rss) // 2
    per_100 = float((np.median(rss[half:]) / np.median(rss[:half]) - 1) * 100 / half)
    findings = [
        f"{what} grew from {rows[0][i]} to {rows[-1][i]}"
        for i, what in ((1, "files"), (2, "threads"))
        if rows[-1][i] > rows[0][i]
    ]
    if per_100 > 0.01:
        findings.append(f"memory grows by {per_100:.1%} per 100 jobs")
    return {
        "jobs": jobs,
        "seconds": seconds,
        "rss_mib_first": rows[0][0] >> 20,
        "rss_mib_last": rows[-1][0] >> 20,
        "rss_growth_per_100_jobs": round(per_100, 5),
        "files": [rows[0][1], rows[-1][1]],
        "threads": [rows[0][2], rows[-1][2]],
        "findings": findings,
    }


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


def _rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
