"""Commands that campaigns run, each on a folder of its own, and what their folders hold."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

import calirare
from calirare.cli import main
from calirare.page import RARE, REST, SKIP, UNSURE, Verdicts
from tests.helpers.tasks import rare_task

TRAIN = ("train", "--dataset", "{root}/g.npz", "--model", "gcn", "--epochs", "20", "--folds", "2", "--no-report")
OTHER, ANSWERS = "{root}/later.npz", "{root}/answers.sqlite"
PATIENCE = 120  # seconds
SAYS = (RARE, REST, UNSURE, SKIP)
USERS = "notes.txt"  # a file of the user's beside the run


Job = tuple[str, ...]  # the words of a command after `calirare`; {root} is the folder of inputs, {run} that of the run
JOBS: dict[str, Job] = {
    "train": (*TRAIN, "--out", "{run}", "--overwrite"),
    "predict": ("predict", "--run", "{run}", "--graph", OTHER, "--out", "{run}/p.csv", "--overwrite"),
    "report": ("report", "--run", "{run}", "--overwrite"),
    "audit": ("audit", "--run", "{run}", "--overwrite"),
    "explain": (
        *("explain", "--run", "{run}", "--node", "7", "--out", "{run}/x.json"),
        "--overwrite",
    ),
    "update": ("update", "--run", "{root}/base", "--labels", "{root}/new.csv", "--out", "{run}", "--overwrite"),
    "export": ("review", "--run", "{run}", "--out", ANSWERS, "--export", "{run}/labels.csv", "--overwrite"),
    "recalibrate": ("recalibrate", "--run", "{run}", "--graph", OTHER, "--overwrite"),
}


def attacked() -> dict[str, str]:
    """Returns commit and command, for the file of a campaign."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    module = Path(sys.argv[0]).parent.name
    return {"commit": done.stdout.strip(), "command": " ".join(["python -m", f"tests.{module}", *sys.argv[1:]])}


def make_inputs(root: Path) -> None:
    """Writes the graphs, a finished run for jobs to start from, labels for an update, a review."""
    rare_task().to_npz(root / "g.npz")
    dataclasses.replace(rare_task(seed=1), split=None).to_npz(root / "later.npz")
    if ended(forked(lambda: run_here((*TRAIN, "--out", "{run}"), root, root / "base")), PATIENCE) != 0:
        raise RuntimeError(f"the first run failed: {(root / 'said.txt').read_text()[-600:]}")
    saved = calirare.load(root / "base")
    nodes = [str(node) for node in saved.to_frame()["node"].head(8)]
    (root / "new.csv").write_text("node,label\n" + "".join(f"{node},{i % 2}\n" for i, node in enumerate(nodes)))
    with Verdicts(root / "answers.sqlite", saved.fingerprint, saved.scorer.class_names) as verdicts:
        for i, node in enumerate(nodes):
            verdicts.say(node, SAYS[i % 4])


def command(job: Job, root: Path, run: Path) -> list[str]:
    """Returns the words of a process."""
    return [sys.executable, "-m", "calirare", *(word.format(root=root, run=run) for word in job)]


def run_here(job: Job, root: Path, run: Path) -> int:
    """Runs a job in this process and returns its exit code; what it says goes to `said.txt`."""
    with (root / "said.txt").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        sys.argv = ["calirare", *command(job, root, run)[3:]]
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 1


def forked(work: Callable[[], int]) -> int:
    """Starts a work in a copy of this process, in a group of its own; returns the copy's number."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        os.setpgid(0, 0)
        code = work()
    finally:
        os._exit(code)


def ended(number: int, seconds: float) -> int | None:
    """Waits for a copy; returns its exit code, negative for a signal, or None where it still runs."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(number, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.001)


def fresh(root: Path, name: str) -> Path:
    """Returns a copy of the finished run beside which a file of the user's lies."""
    place = root / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copytree(root / "base", place / "run")
    (place / USERS).write_text("mine")
    return place / "run"


def contents(run: Path) -> dict[str, str]:
    """Returns a checksum of every file of a run, but for recorded times and places."""
    found = {}
    for path in sorted(run.rglob("*")):
        if path.is_file() and path.name not in ("log.txt", "files.json") and not path.name.endswith(".lock"):
            found[str(path.relative_to(run))] = hashlib.sha256(_timeless(path)).hexdigest()
    return found


def _timeless(path: Path) -> bytes:
    content = path.read_bytes()
    if path.name == "metrics.json" or (path.suffix == ".json" and "paper" in path.parts):
        return json.dumps(json.loads(content, object_hook=_without_seconds), sort_keys=True).encode()
    if path.suffix == ".html":
        return b"\n".join(line for line in content.split(b"\n") if b" s " not in line)
    return content


def _without_seconds(values: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if key != "seconds"}


def moment(rng: np.random.Generator, seconds: float) -> float:
    """Returns when to kill: most often in the last half, where files are written."""
    return float(seconds * rng.uniform(0.0, 1.0) ** 0.5)
