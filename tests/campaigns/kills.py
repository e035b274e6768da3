"""kill -9 at random moments: a run that loads is whole, nobody else's file is touched, a second start ends as one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import calirare
from calirare import InputError
from calirare._util.run_files import changed_file
from tests.campaigns.jobs import JOBS, USERS, contents, ended, fork, fresh, moment, run_here

PATIENCE = 120  # seconds


def measured(name: str, root: Path) -> tuple[float, list[dict[str, str]]]:
    """Returns how long a job takes uninterrupted, and what it leaves, done once and twice.

    Twice: of a run whose maps are fitted anew, the maps of before are others when it is done again, and a job may be
    killed when its files are there and it has only to end.
    """
    run, began, left = fresh(root, f"{name}-killed"), time.monotonic(), []
    for _ in range(2):
        if ended(fork(JOBS[name], root, run), PATIENCE) != 0:
            raise RuntimeError(f"{name}: {(root / 'said.txt').read_text()}")
        left.append(contents(run))
    return (time.monotonic() - began) / 2, left


def kill_once(name: str, root: Path, after: float, whole: list[dict[str, str]], number: int) -> tuple[str, list[str]]:
    """Kills a job after some seconds; returns "killed" or "ended", and what was found."""
    job, run = JOBS[name], fresh(root, f"{name}-killed")
    process, found = fork(job, root, run), []
    if (code := ended(process, after)) is None:
        os.kill(process, number)
        code = ended(process, PATIENCE)
        said = (root / "said.txt").read_text()
        if code is None:
            os.kill(process, signal.SIGKILL)
            found.append(f"it does not end at signal {number}")
        elif code not in (-number, 128 + number, 0) or "Traceback" in said:
            found.append(f"exit code {code} at signal {number}: {said[-200:]}")
    how = "ended" if code == 0 else "killed"
    found += kept(run)
    if ended(fork(job, root, run), PATIENCE) != 0:
        found.append(f"a second start fails: {(root / 'said.txt').read_text()[-300:]}")
    elif (now := contents(run)) not in whole:
        other = sorted(key for key in whole[0] | now if whole[0].get(key) != now.get(key))
        found.append(f"a second start leaves other files: {other}")
    left = [path.name for path in run.parent.iterdir() if path.name not in (run.name, USERS)]
    if left:
        found.append(f"left beside the run: {left}")
    return how, found


def kept(run: Path) -> list[str]:
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
    counts: dict[str, dict[str, int]] = {}
    whole, findings = {}, list[str]()
    for name in JOBS:
        run_here(JOBS[name], root, fresh(root, "warm"))  # everything is imported before the first copy is made
    until = time.monotonic() + seconds
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
