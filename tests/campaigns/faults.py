"""Every call that changes a file, one after the other: killed before it or within a write, disk full, no power.

`faults.c` stands between the process and the C library, counts the calls of a command below its folder, and lets the
k-th one be the last, or fail; k goes through all of them, as far as the time reaches. What random moments rarely hit,
the microseconds between two renames, is hit each time. Where the power goes, files also lose what was written to them
after their last fsync, while names are as they were left.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calirare._util.run_files import changed_file
from tests.campaigns import reviewing
from tests.campaigns.jobs import JOBS, USERS, contents, ended, forked, fresh, run_here
from tests.campaigns.kills import kept
from tests.helpers.command import rough_runs

SOURCE = Path(__file__).with_name("faults.c")
WAYS = {  # number of faults.c, and the calls that are disturbed
    "killed": (2, "womtfru"),
    "torn": (3, "w"),
    "full": (4, "womtf"),
    "read_only": (5, ""),
    "power": (6, "womtfru"),
}
COUNT, PATIENCE, SURVIVED, WORKERS = 1, 120, 0, 2
OURS = (".partial", ".old", ".part", ".tmp", ".lock", "-wal", "-shm", "-journal")  # none outlives a second start


@dataclass
class Tried:
    """What became of one command.

    Attributes:
        calls: that change files, in the order of an undisturbed run, as letters of `faults.c`.
        whole: what may be there in the end: done once, and once more.
        before: what is there at first.
        counts: trials by way.
    """

    calls: str
    whole: list[dict[str, str]]
    before: dict[str, str]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))

    def trials(self, ways: Sequence[str]) -> list[tuple[str, int]]:
        """Returns ways and numbers of calls; near ones far from each other, so that a part of them is spread."""
        found = [(way, k + 1) for way in ways for k, letter in enumerate(self.calls) if letter in WAYS[way][1]]
        return [("read_only", 1)] * ("read_only" in ways) + [*(found[i] for i in _spread(len(found)))]


def _spread(n: int) -> Iterator[int]:
    """Gives 0 to n - 1 in the order of their reversed bits."""
    bits = max(n - 1, 1).bit_length()
    yield from (i for i in (int(f"{j:0{bits}b}"[::-1], 2) for j in range(1 << bits)) if i < n)


def campaign(root: Path, seconds: float, ways: Sequence[str] = tuple(WAYS)) -> dict[str, Any]:
    """Compiles the layer and tries every command below it, in processes of their own; returns counts and findings."""
    library = root / "faults.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    env = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    places = [shutil.copytree(root, root.with_name(f"{root.name}-faults-{i}")) for i in range(WORKERS)]
    try:
        words = [sys.executable, "-m", "tests.campaigns.faults"]
        workers = [
            subprocess.Popen([*words, str(place), str(seconds), str(i), *ways], env=env)
            for i, place in enumerate(places)
        ]
        if any([worker.wait() != 0 for worker in workers]):  # noqa: C419 - all are waited for
            raise RuntimeError("a worker of the faults failed, see above")
        found = [json.loads((place / "faults.json").read_text()) for place in places]
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
    jobs = {name: counts for each in found for name, counts in each["jobs"].items()}
    return {
        "jobs": {name: jobs[name] for name in (*JOBS, "review")},
        "trials": sum(job[way] for job in jobs.values() for way in WAYS),
        "findings": [finding for each in found for finding in each["findings"]],
    }


def tried(root: Path, seconds: float, part: int, ways: Sequence[str]) -> dict[str, Any]:
    """Tries a worker's part of the commands in turn until the time is over."""
    works: dict[str, Callable[[Path, Path], int]] = {
        name: lambda root, run, job=job: run_here(job, root, run)  # type: ignore[misc]
        for name, job in JOBS.items()
    } | {"review": reviewing.answer_all}
    works = dict(list(works.items())[part::WORKERS])
    with rough_runs():
        for work in works.values():
            work(root, fresh(root, "warm"))  # everything is imported before the first copy is made
        states = {name: _undisturbed(name, work, root) for name, work in works.items()}
        queues = {name: iter(state.trials(ways)) for name, state in states.items()}
        findings, until = list[str](), time.monotonic() + seconds
        while queues and time.monotonic() < until:
            for name in list(queues):
                trial = next(queues[name], None)
                if trial is None:
                    del queues[name]
                    continue
                for each in _try(name, works[name], states[name], root, *trial):
                    findings.append(f"{name}, {trial[0]} at call {trial[1]} of {len(states[name].calls)}: {each}")
                    print(findings[-1], flush=True)
                states[name].counts[trial[0]] += 1
    jobs = {
        name: {"calls": len(state.calls), "planned": len(state.trials(ways)), **state.counts}
        for name, state in states.items()
    }
    return {"jobs": jobs, "findings": findings}


def _forked(work: Callable[[Path, Path], int], root: Path, run: Path, way: int = 0, k: int = 0) -> int:
    """Starts a copy of this process that works below the layer; returns its number."""

    def below() -> int:
        layer = ctypes.CDLL(None)
        layer.fault_arm(os.fsencode(run.parent), way, ctypes.c_long(k))
        code = work(root, run)
        layer.fault_kinds.restype = ctypes.c_char_p
        (root / "calls.txt").write_bytes(layer.fault_kinds())
        return code

    return forked(below)


def _said(root: Path) -> str:
    return (root / "said.txt").read_text()[-300:]


def _undisturbed(name: str, work: Callable[[Path, Path], int], root: Path) -> Tried:
    """Returns what a command does when nothing is in its way."""
    run, whole, calls = fresh(root, f"{name}-faults"), [], []
    before = contents(run)
    for _ in range(2):
        if ended(_forked(work, root, run, COUNT), PATIENCE) != 0:
            raise RuntimeError(f"{name}: {_said(root)}")
        whole.append(contents(run))
        calls.append((root / "calls.txt").read_text())
    return Tried(calls[0], whole, before)


def _try(name: str, work: Callable[[Path, Path], int], state: Tried, root: Path, way: str, k: int) -> list[str]:
    """Returns what was found when the k-th call was disturbed and the command started again."""
    run, killed = fresh(root, f"{name}-faults"), way in ("killed", "torn", "power")
    code = ended(_forked(work, root, run, WAYS[way][0], k), PATIENCE)
    found = kept(run) + (reviewing.lost(root, run) if name == "review" else [])
    if killed and code not in (-9, SURVIVED):
        found.append(f"exit code {code}: {_said(root)}")
    if not killed:
        found += _refused(code, run, state, root)
    if ended(_forked(work, root, run), PATIENCE) != 0:
        found.append(f"a second start fails: {_said(root)}")
    elif (now := contents(run)) not in state.whole:
        found.append(f"a second start leaves other files: {_others(state.whole[0], now)}")
    elif changed_file(run) is not None:
        found.append(f"after a second start {changed_file(run)} is not as it is listed")
    return found + _left(run)


def _refused(code: int | None, run: Path, state: Tried, root: Path) -> list[str]:
    """Returns what was wrong with a refusal: a sentence, nothing left, every file as before or as new."""
    if code == SURVIVED:  # a call whose failure does not matter, such as the removal of what is not needed any more
        return [] if contents(run) in state.whole else ["it ended as if all were written"]
    found = [] if code == 2 and "Traceback" not in _said(root) else [f"exit code {code}: {_said(root)}"]
    now = contents(run)
    mixed = [name for name in state.before | now if now.get(name) not in _known(name, state)]
    return found + ([f"neither old nor new: {mixed}"] if mixed else []) + _left(run)


def _known(name: str, state: Tried) -> list[str | None]:
    return [each.get(name) for each in (state.before, *state.whole)]


def _others(whole: dict[str, str], now: dict[str, str]) -> list[str]:
    return sorted(key for key in whole | now if whole.get(key) != now.get(key))


def _left(run: Path) -> list[str]:
    """Returns what lies beside a run and in it that no finished command leaves."""
    beside = [path.name for path in run.parent.iterdir() if path.name not in (run.name, USERS, reviewing.FILE)]
    inside = [path.name for path in run.rglob("*") if path.name.endswith(OURS)]
    return [f"left behind: {beside + inside}"] if beside or inside else []


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "faults.json").write_text(json.dumps(tried(place, float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))
