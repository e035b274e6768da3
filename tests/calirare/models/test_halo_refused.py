"""Processes that do not score one graph with one run say so before they score; what is damaged gets no table."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import calirare
from calirare.graph import GraphOnDisk
from tests.calirare.models.test_halo import PROGRAM, job
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task


def error(tmp_path: Path, name: str, rank: int = 0) -> str:
    """Returns the one sentence that a process has ended with."""
    lines = (tmp_path / f"{name}{rank}" / "err").read_text().splitlines()
    (said,) = [line for line in lines if line.startswith("calirare: ")]
    assert not any("Traceback" in line for line in lines), lines
    assert len(said) <= 300
    assert not list(tmp_path.glob(f"{name}?/s.*"))
    return said


@pytest.mark.slow
def test_processes_that_do_not_score_one_graph_with_one_run_are_told(tmp_path):
    for month in (0, 1):
        dataclasses.replace(rare_task(seed=month), split=None).to_folder(tmp_path / f"g{month}")
    for rank in (0, 1):
        for month in (0, 1):
            GraphOnDisk.open(tmp_path / f"g{month}").part(rank, 2).write(tmp_path / f"month{month}" / str(rank))
        GraphOnDisk.open(tmp_path / f"g{rank}").part(rank, 2).write(tmp_path / "mixed" / str(rank))
        GraphOnDisk.open(tmp_path / "g0").part(rank, 2).write(tmp_path / "damaged" / str(rank))
    x = np.load(tmp_path / "damaged" / "1" / "x.npy")
    x[3, 0] += 1
    np.save(tmp_path / "damaged" / "1" / "x.npy", x)
    with rough_runs():
        calirare.train(rare_task(), model="gcn", folds=0, epochs=5).save(tmp_path / "run0")
        calirare.train(rare_task(), model="gcn", folds=0, epochs=5, seed=5).save(tmp_path / "run1")
        calirare.train(rare_task(), model="trees", folds=2).save(tmp_path / "trees0")
    (tmp_path / "other0").symlink_to("run0")
    (tmp_path / "other1").symlink_to("trees0")

    jobs = [
        job("mixed", 2, "../mixed/{rank}", run="run0"),
        job("trees", 2, "../mixed/{rank}", run="trees0"),
        job("runs", 2, "../month0/{rank}", run="run%r"),
        job("kinds", 2, "../month0/{rank}", run="other%r"),
        job("shares", 2, "../month0/{rank}", "--prevalence", "0.0%r1", run="run0"),
        job("lost", 3, "../month0/{rank}", run="run0"),
        job("damaged", 2, "../damaged/{rank}", run="run0"),
        job("good", 2, "../month0/{rank}", run="run0"),
    ]
    command = [sys.executable, "-c", PROGRAM, json.dumps(jobs)]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    codes = {each["name"]: json.loads(line) for each, line in zip(jobs, done.stdout.splitlines(), strict=True)}
    assert codes["good"] == [0, 0]

    for name in ("mixed", "trees"):
        assert codes[name] == [2, 2]
        for rank in (0, 1):
            assert "the checksum of the whole graph must be the same for all" in error(tmp_path, name, rank)
    for name in ("runs", "kinds"):
        assert codes[name] == [2, 2]
        assert "the checksum of the run must be the same for all" in error(tmp_path, name, 1)
    assert codes["shares"] == [2, 2]
    assert "--prevalence must be the same for all, got 0.001 for rank 0 and 0.011 for rank 1" in error(
        tmp_path, "shares"
    )
    assert sorted(codes["lost"]) == [1, 1, 2]
    assert "there is no folder ../month0/2, which rank 2 should score" in error(tmp_path, "lost", 2)
    assert sorted(codes["damaged"]) == [1, 2]
    assert "x.npy: the file is damaged" in error(tmp_path, "damaged", 1)
