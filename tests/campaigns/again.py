"""Every command in fresh processes: the same bytes with another hash seed, the same digits on more threads.

`python -m tests.campaigns.again ROOT [quick]` does every command once and prints what each left, as JSON; "quick" draws
no pictures and computes on two threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from calirare_multilabel.data import save_multilabel
from tests.campaigns.jobs import JOBS, command, contents, fresh
from tests.campaigns.works import TABLE, tiny_tables
from tests.helpers.command import call, empty_pictures
from tests.helpers.multilabel import small_data

AUTO = ("train", "--dataset", "{root}/g.npz", "--model", "auto", "--epochs", "4", "--folds", "2", "--no-report")
LABELS = ("multilabel", "train", "--dataset", "{root}/labels.npz", "--loss", "cmlcc", "--epochs", "3")
MORE = {
    "auto": (*AUTO, "--out", "{run}/auto"),
    "next": ("suggest", "--run", "{run}", "--top", "5", "--overwrite"),
    "metrics": (
        *("evaluate", "{run}/predictions.csv", "--y", "y", "--p", "p_rare", "--where", "split=test"),
        *("--rare-class", "1", "--out", "{run}/measured"),
    ),
    "multilabel": (*LABELS, "--hidden", "8", "--floors", "0", "--out", "{run}/labels"),
    "paper": TABLE,
    "datasets": ("datasets", "--root", "{root}"),
}
PROBABILITIES = ("p_raw", "p_rare", "p_balanced")
DIGITS = 1e-4  # between P(rare) on one thread and on two


def done(root: Path, quick: bool) -> dict[str, Any]:
    """Returns of every command its exit code, what it said and the checksums of what it left."""
    found = {}
    save_multilabel(small_data(200), root / "labels.npz")
    with tiny_tables(), empty_pictures() if quick else nullcontext():
        for name, job in (JOBS | MORE).items():
            run = fresh(root, f"{name}-again")
            said = call(*command(job, root, run)[3:], pictures=not quick)
            timeless = re.sub(r"Took [\d,]+ s", "", said.out)
            words = said.err[-300:] if said.code else hashlib.sha256(timeless.encode()).hexdigest()
            found[name] = {"code": said.code, "said": words, "files": contents(run)}
    return found


def process(root: Path, quick: bool = False, **changes: str) -> dict[str, Any]:
    """Returns `done` of a fresh process, with other environment variables."""
    env = os.environ | {"OMP_NUM_THREADS": "1"} | changes
    words = [sys.executable, "-m", "tests.campaigns.again", str(root), *["quick"] * quick]
    ended = subprocess.run(words, env=env, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-600:])
    return json.loads(ended.stdout)


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Returns what two processes did otherwise, and commands that did not end well."""
    found = [f"{name}: exit code {each['code']}: {each['said']}" for name, each in one.items() if each["code"]]
    for name, each in one.items():
        if each["said"] != other[name]["said"]:
            found.append(f"{name}: other words")
        files, others = each["files"], other[name]["files"]
        names = sorted(file for file in files | others if files.get(file) != others.get(file))
        found += [f"{name}: other bytes in {', '.join(names)}"] * bool(names)
    return found


def probabilities(root: Path) -> dict[str, np.ndarray]:
    """Returns the columns of probabilities that the last process left, by command."""
    tables = {path.relative_to(root).parts[0]: path for path in sorted(root.glob("*-again/**/predictions.csv"))}
    return {name: pd.read_csv(path).filter(items=PROBABILITIES).to_numpy() for name, path in tables.items()}


def largest_gap(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Returns the largest difference between two answers of `probabilities`."""
    return max(float(np.nanmax(np.abs(one[name] - other[name]))) for name in one)


def determinism(root: Path) -> dict[str, Any]:
    """Returns how many commands there were, and those whose files or words differ."""
    first, *others = (process(root, PYTHONHASHSEED=seed) for seed in ("0", "1", "4242"))
    findings = [found for other in others for found in differences(first, other)]
    alone = probabilities(root)
    process(root, OMP_NUM_THREADS="2")
    gap = largest_gap(alone, probabilities(root))
    if gap > DIGITS:
        findings.append(f"P(rare) differs by {gap:.2g} between one thread and two")
    return {
        "commands": len(first),
        "processes_each": 3,
        "largest_gap_of_p_on_two_threads": gap,
        "findings": sorted(set(findings)),
    }


if __name__ == "__main__":
    if quick := "quick" in sys.argv[2:]:
        torch.set_num_threads(2)
    print(json.dumps(done(Path(sys.argv[1]), quick)))
