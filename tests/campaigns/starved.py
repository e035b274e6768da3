"""Every command without what it takes for granted: streams, a home, a locale, room on the disk, being alone."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

from tests.campaigns.jobs import JOBS, USERS, command, contents, fresh, start

PATIENCE = 300
LIMIT = 3000  # bytes that a file may have where the disk is full


def campaign(root: Path) -> dict[str, Any]:
    """Runs every job in every way; returns how many runs there were, and findings."""
    ways = {
        "LANG=C": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "no HOME": {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "MPLCONFIGDIR": "/nonexistent"},
    }
    findings, runs = [], 0
    for name in JOBS:
        for way, env in ways.items():
            runs, findings = runs + 1, findings + _fails(name, way, root, **env)
        for way in ("2>&-", ">&-", "<&- >&- 2>&-"):
            runs, findings = runs + 1, findings + _closed(name, way, root)
        runs, findings = runs + 1, findings + _full(name, root)
        runs, findings = runs + 1, findings + _two(name, root)
        print(f"starved: {name}, {runs} runs, {len(findings)} findings", flush=True)
    return {"runs": runs, "findings": findings}


def _fails(name: str, way: str, root: Path, **env: str) -> list[str]:
    process = start(JOBS[name], root, fresh(root, f"{name}-starved"), **env)
    out, err = process.communicate(timeout=PATIENCE)
    return [] if process.returncode == 0 else [f"{name}, {way}: {process.returncode}: {(out + err)[-300:]}"]


def _closed(name: str, way: str, root: Path) -> list[str]:
    line = " ".join([*command(JOBS[name], root, fresh(root, f"{name}-starved")), way])
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
    return [] if done.returncode == 0 else [f"{name}, {way}: {done.returncode}: {done.stderr[-300:]}"]


def _full(name: str, root: Path) -> list[str]:
    """No file may grow beyond a limit, as on a full disk: the job says so, and the run is as it was."""
    run = fresh(root, f"{name}-starved")
    before = contents(run)
    words = command(JOBS[name], root, run)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))  # noqa: E731
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=limit, env=env)
    where = f"{name}, disk full"
    if done.returncode == 0:
        return [] if name == "explain" else [f"{where}: it ended as if there were room"]
    found = [] if done.returncode == 2 and "Traceback" not in done.stderr else [f"{where}: {done.stderr[-300:]}"]
    if contents(run) != before or (run.parent / USERS).read_text() != "mine":
        found.append(f"{where}: files are others than before")
    return found


def _two(name: str, root: Path) -> list[str]:
    """Two at once on one folder: each ends or is refused in a sentence, and what is there is whole."""
    run = fresh(root, f"{name}-starved")
    both = [start(JOBS[name], root, run) for _ in range(2)]
    said = [process.communicate(timeout=PATIENCE)[1] for process in both]
    codes = [process.returncode for process in both]
    if 0 not in codes or not set(codes) <= {0, 2} or any("Traceback" in text for text in said):
        return [f"{name}, two at once: {codes}: {' '.join(said)[-300:]}"]
    found, alone = contents(run), fresh(root, f"{name}-starved")  # the same place: a run may name its own
    start(JOBS[name], root, alone).communicate(timeout=PATIENCE)
    return [] if found == contents(alone) else [f"{name}, two at once: other files than of one"]
