"""`python -m tests.campaigns --minutes 10 --seed 0`: kills, repeats and soaks; counts and findings as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaigns import again, faults, kills, soak
from tests.campaigns.jobs import attacked, make_inputs
from tests.campaigns.works import WORKS

SHARES = {"kills": 0.4, "faults": 0.3, "soak": 0.3}  # of the minutes; the others take what they take


def main() -> int:
    """Runs what is asked for; returns 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["kills", "faults", "determinism", "soak"], action="append")
    parser.add_argument("--kills", type=int, help="of each work, in place of a share of the minutes")
    parser.add_argument("--work", choices=WORKS, action="append", help="kill this one alone, may be repeated")
    parser.add_argument("--way", choices=faults.WAYS, action="append", help="a fault, alone; may be repeated")
    parser.add_argument("--out", type=Path, help="JSON file for the counts")
    asked = parser.parse_args()
    seconds, said, rng = 60 * asked.minutes, attacked(), np.random.default_rng(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_inputs(root)
        ways: dict[str, Any] = {
            "determinism": lambda: again.determinism(root),
            "kills": lambda: kills.campaign(
                root, seconds * SHARES["kills"], rng, asked.kills, asked.work or tuple(WORKS)
            ),
            "faults": lambda: faults.campaign(root, seconds * SHARES["faults"], asked.way or tuple(faults.WAYS)),
            "soak": lambda: soak.soak(root, seconds * SHARES["soak"], asked.seed),
        }
        found = {}
        for name in asked.only or ways:
            began = time.monotonic()
            found[name] = ways[name]() | {"took_s": round(time.monotonic() - began)}
            print(f"{name}: {json.dumps(found[name])}", flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(said | {"seed": asked.seed, **found}, indent=2) + "\n")
    return int(any(each["findings"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
