"""kill -9 at random moments: a run that loads is whole, nobody else's file is touched, a second start ends as one."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import calirare
from calirare import InputError
from calirare._util.run_files import changed_file
from tests.campaigns import reviewing
from tests.campaigns.jobs import USERS, contents, ended, forked, fresh, moment
from tests.campaigns.works import WORKS
from tests.helpers.command import rough_runs

PATIENCE = 120  # seconds
TERMINATED = 0.2  # share of SIGTERM among the signals


def measured(name: str, root: Path) -> tuple[float, list[dict[str, str]]]:
    """Returns how long a work takes uninterrupted, and what it leaves, done once and twice.

    Twice: of a run whose maps are fitted anew, the maps of before are others when it is done again, and a job may be
    killed when its files are there and it has only to end.
    """
    run, took, left = fresh(root, f"{name}-killed"), float("inf"), []
    for _ in range(2):
        began = time.monotonic()
        if ended(forked(lambda: WORKS[name].run(root, run)), PATIENCE) != 0:
            raise RuntimeError(f"{name}: {_said(root)}")
        took = min(took, time.monotonic() - began)
        left.append(contents(run))
    return took, left


def kill_once(name: str, root: Path, after: float, whole: list[dict[str, str]], rng: np.random.Generator) -> _Trial:
    """Kills a work after some seconds and starts it again."""
    work, run = WORKS[name], fresh(root, f"{name}-killed")
    number = signal.SIGTERM if rng.random() < TERMINATED else signal.SIGKILL
    for file in ("said.txt", reviewing.TOLD):
        for path in root.rglob(file):
            path.unlink()
    process, found, how = forked(lambda: work.run(root, run)), list[str](), "ended"
    if (code := ended(process, after)) is None:
        how = "terminated" if number == signal.SIGTERM else "killed"
        found += _struck(process, root, number)
    elif code != 0:
        found.append(f"exit code {code} before it was killed: {_said(root)}")
    found += kept(run) + work.lost(root, run)
    if ended(forked(lambda: work.run(root, run)), PATIENCE) != 0:
        found.append(f"a second start fails: {_said(root)}")
    elif (now := contents(run)) not in whole:
        other = sorted(key for key in whole[0] | now if whole[0].get(key) != now.get(key))
        found.append(f"a second start leaves other files: {other}")
    left = [path.name for path in run.parent.iterdir() if path.name not in (run.name, USERS, reviewing.FILE)]
    if left:
        found.append(f"left beside the run: {left}")
    return how, [f"{name} after {after:.2f} s, signal {int(number)}: {each}" for each in found]


_Trial = tuple[str, list[str]]


def _struck(process: int, root: Path, number: int) -> list[str]:
    """Sends a process a signal; returns what was wrong with its end."""
    os.kill(process, number)
    code = ended(process, PATIENCE)
    if code is None:
        os.kill(process, signal.SIGKILL)
        ended(process, PATIENCE)
        return [f"it does not end at signal {number}"]
    if code not in (-number, 128 + number, 0) or "Traceback" in _said(root):
        return [f"exit code {code} at signal {number}: {_said(root)}"]
    return []


def _said(root: Path) -> str:
    """Returns the end of what the processes of a trial said."""
    return " ".join(path.read_text()[-300:] for path in sorted(root.rglob("said.txt")))


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


def campaign(
    root: Path, seconds: float, rng: np.random.Generator, kills: int | None = None, names: Sequence[str] = tuple(WORKS)
) -> dict[str, Any]:
    """Kills works in turn; returns counts by work, and findings.

    Args:
        root: of the inputs.
        seconds: how long, where `kills` is None.
        rng: of moments and signals.
        kills: how often signal 9 is to kill each; a fifth as many again are terminated.
        names: of the works.
    """
    counts = {name: {"killed": 0, "terminated": 0, "ended": 0} for name in names}
    findings = list[str]()
    with rough_runs():
        for name in names:
            WORKS[name].run(root, fresh(root, "warm"))  # everything is imported before the first copy is made
        for heard in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # as before the first command: copies begin so
            signal.signal(heard, signal.SIG_DFL)
        whole, until = {name: measured(name, root) for name in names}, time.monotonic() + seconds
        took = {name: seconds for name, (seconds, _) in whole.items()}
        while time.monotonic() < until if kills is None else _left(counts, kills):
            for name in _left(counts, kills):
                how, found = kill_once(name, root, moment(rng, took[name]), whole[name][1], rng)
                took[name] *= 0.95 if how == "ended" else 1.005  # the load of the machine changes on the way
                counts[name][how] += 1
                findings += found
                print("".join(f"{each}\n" for each in found), end="", flush=True)
            print(f"kills: {json.dumps(counts)}", file=sys.stderr, flush=True)
    return {"jobs": counts, "findings": findings}


def _left(counts: dict[str, dict[str, int]], kills: int | None) -> list[str]:
    """Returns the works that signal 9 has not killed so often yet."""
    every = kills is None
    return [name for name, each in counts.items() if every or each["killed"] < (kills or 0)]
