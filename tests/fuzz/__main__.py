"""`python -m tests.fuzz --minutes 10 --seed 0`: runs every target in turn and counts; findings are told by number."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from tests.campaigns.jobs import attacked
from tests.fuzz.targets import AT_ONCE, NAMES, Target, targets_in

TURN = 1.0  # seconds of one target before the next one's turn
LONGEST = 10.0  # seconds of processor time of a case that is a finding for that alone


def main() -> int:
    """Runs what is asked for; returns 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help="one of them, may be given again; without it all")
    parser.add_argument("--case", type=int, help="one case, whose error is shown")
    parser.add_argument("--out", type=Path, help="JSON file for the counts")
    asked, said = parser.parse_args(), attacked()  # the commit that is imported, not the one of hours later
    with tempfile.TemporaryDirectory() as folder:
        targets = targets_in(Path(folder), tuple(asked.target or NAMES))
        if asked.case is not None:
            print(next(iter(targets.values()))(np.random.default_rng([asked.seed, asked.case])))
            return 0
        counts = run(targets, asked.minutes, asked.seed)
    found = sum(count["findings"] for count in counts.values())
    total = sum(count["cases"] for count in counts.values())
    print(f"{total:,} cases, {found} findings (seed {asked.seed})")
    if asked.out:
        said |= {"seed": asked.seed, "minutes": asked.minutes, "cases": total, "targets": counts}
        asked.out.write_text(json.dumps(said, indent=2) + "\n")
    return int(found > 0)


def run(targets: dict[str, Target], minutes: float, seed: int) -> dict[str, dict[str, int]]:
    """Returns per target how many cases there were, were refused, and were findings, whose numbers are printed."""
    counts = {name: {"calls": 0, "cases": 0, "refused": 0, "findings": 0} for name in targets}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for name, target in targets.items():
            until = time.monotonic() + TURN
            while time.monotonic() < until:
                _case(name, target, seed, counts[name])
    for name, count in counts.items():
        print(f"{name:<16}{count['cases']:>10,} cases{count['refused']:>10,} refused{count['findings']:>6} findings")
    return counts


def _case(name: str, target: Target, seed: int, count: dict[str, int]) -> None:
    """Runs the next call of a target, which is one case but for those of `AT_ONCE`, and counts it."""
    case, started = count["calls"], time.process_time()
    count["calls"] += 1
    count["cases"] += AT_ONCE.get(name, 1)
    said = ""
    try:
        count["refused"] += target(np.random.default_rng([seed, case]))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"
    if not said and time.process_time() - started > LONGEST:
        said = f"took {time.process_time() - started:.0f} s"
    if said:
        count["findings"] += 1
        print(f"--target {name} --seed {seed} --case {case}: {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
