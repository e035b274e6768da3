"""kill -9 at random moments: a run that loads is whole, nobody else's file is touched, a second start ends as one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

import calirare
from calirare import InputError
from calirare._util.run_files import changed_file
from tests.campaigns.jobs import JOBS, USERS, Job, contents, fresh, moment, start

PATIENCE = 300  # seconds


def measured(name: str, root: Path) -> tuple[float, dict[str, str]]:
    """Returns how long a job takes uninterrupted, and what it leaves."""
    run, began = fresh(root, f"{name}-whole"), time.monotonic()
    process = start(JOBS[name], root, run)
    out, err = process.communicate(timeout=PATIENCE)
    if process.returncode != 0:
        raise RuntimeError(f"{name}: {out}{err}")
    return time.monotonic() - began, contents(run)


def kill_once(name: str, root: Path, after: float, whole: dict[str, str], number: int) -> tuple[str, list[str]]:
    """Kills a job after some seconds; returns "killed" or "ended", and what was found."""
    job, run = JOBS[name], fresh(root, f"{name}-killed")
    process = start(job, root, run)
    try:
        process.wait(timeout=after)
        how = "ended"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, number)
        how = "killed"
    out, err = process.communicate(timeout=PATIENCE)
    found = [] if number == signal.SIGKILL or how == "ended" else _quiet(process.returncode, number, out, err)
    found += _kept(run)
    again = start(job, root, run)
    _, err = again.communicate(timeout=PATIENCE)
    if again.returncode != 0:
        found.append(f"a second start ends with {again.returncode}: {err[-300:]}")
    elif contents(run) != whole:
        other = sorted(key for key in whole | contents(run) if whole.get(key) != contents(run).get(key))
        found.append(f"a second start leaves other files: {other}")
    left = [path.name for path in run.parent.iterdir() if path.name not in (run.name, USERS)]
    if left:
        found.append(f"left beside the run: {left}")
    return how, found


def _quiet(code: int, number: int, out: str, err: str) -> list[str]:
    """Returns what is wrong with how a job ended that was asked to end."""
    if "Traceback" in out + err:
        return [f"a traceback at signal {number}: {err[-200:]}"]
    return [] if code in (128 + number, -number) else [f"exit code {code} at signal {number}"]


def _kept(run: Path) -> list[str]:
    """Returns what a killed job damaged: a file of the user's, or a run that loads though a file is another one."""
    found = [] if (run.parent / USERS).read_text() == "mine" else ["a file of the user's was changed"]
    if not run.exists():
        return [*found, "the run that was there has gone"]
    try:
        calirare.load(run)
    except InputError as error:
        return [*found, f"the run that was there is refused: {error}"]
    changed = changed_file(run)
    return found if changed is None else [*found, f"{changed} is not as it is listed"]


def campaign(root: Path, seconds: float, rng: np.random.Generator) -> dict[str, Any]:
    """Kills every job in turn for so many seconds; returns counts by job, and findings."""
    until, counts, whole = time.monotonic() + seconds, {}, {}
    findings: list[str] = []
    for name in JOBS:
        whole[name] = measured(name, root)
        counts[name] = {"killed": 0, "terminated": 0, "ended": 0}
    while time.monotonic() < until:
        for name in JOBS:
            number = signal.SIGTERM if rng.random() < 0.2 else signal.SIGKILL
            after = moment(rng, whole[name][0])
            how, found = kill_once(name, root, after, whole[name][1], number)
            counts[name]["terminated" if how == "killed" and number == signal.SIGTERM else how] += 1
            findings += [f"{name} after {after:.2f} s, signal {int(number)}: {each}" for each in found]
            for each in findings[len(findings) - len(found) :]:
                print(each, flush=True)
    return {"jobs": counts, "findings": findings}


__all__ = ["Job", "campaign"]
