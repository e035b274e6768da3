"""What attacks found, as one results file: fuzz and what it reached, kills, starvation, determinism, soak, sanitizers.

The campaigns take from minutes to hours, so they are run by themselves, each with `--out FILE`, and put together here:

    python -m tests.fuzz --minutes 20 --seed 1 --out fuzz.json
    python -m tests.campaigns --minutes 20 --seed 0 --out campaigns.json
    python benchmarks/bench_reliability.py fuzz.json campaigns.json

With `--keep` what no file holds stays as results/reliability.json has it: every kind says which commit it attacked. A
fuzz of `--target requests` alone is a kind of its own. Files of kills of different works, and of faults of different
ways, are added up. Which lines the fuzz reaches:

    coverage run --source python/calirare -m tests.fuzz --minutes 5 --seed 1
    coverage json -o coverage.json
    python benchmarks/bench_reliability.py --keep coverage.json

`--checks` measures here what the structure check of a sparse matrix takes, beside a whole training.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import record
import torch

import calirare
from calirare.datasets import load_dataset
from calirare_ext import Csr
from calirare_lab.published import data_roots

KINDS = (
    "fuzz", "coverage", "requests", "determinism", "starved", "kills", "faults", "soak", "sanitizers", "checks"
)  # fmt: skip
ADDED = ("kills", "faults")  # of several files
CHECKED = ("cora", "facebook", "fraud/sichuan.npz")


def main() -> None:
    """Reads the campaigns' files and writes results/reliability.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", help="what campaigns wrote")
    parser.add_argument("--keep", action="store_true", help="other kinds stay as they are")
    parser.add_argument("--checks", action="store_true", help="measure what the check of a matrix takes")
    options = parser.parse_args()
    results: dict[str, Any] = {"checks": checks()} if options.checks else {}
    for path in options.files:
        for kind, found in told(json.loads(path.read_text(encoding="utf-8"))).items():
            if kind in results and kind not in ADDED:
                parser.error(f"{path} holds {kind}, which another file holds too: give one of them")
            results[kind] = added(kind, results[kind], found) if kind in results else found
    measured = None
    if options.keep:
        measured = json.loads((record.COMMITTED / "reliability.json").read_text(encoding="utf-8"))
        results = measured.pop("results") | results
    ordered = {kind: results[kind] for kind in KINDS if kind in results}
    print(record.write("reliability", ordered, measured))


def told(values: dict[str, Any]) -> dict[str, Any]:
    """Returns what a campaign's file holds by kind, each with its seed and the commit it attacked."""
    facts = {name: values[name] for name in ("seed", "commit") if name in values}
    words = str(values.get("command", "")).split()
    facts |= {"command": " ".join(Path(word).name if word.startswith("/") else word for word in words)}
    if "targets" in values:
        findings = sum(target["findings"] for target in values["targets"].values())
        more = {name: values[name] for name in ("cases", "minutes", "mended_by") if name in values}
        kind = "requests" if set(values["targets"]) == {"requests"} else "fuzz"
        return {kind: facts | more | {"findings": findings, "targets": values["targets"]}}
    if "totals" in values:
        return {"coverage": reached(values["files"])}
    return {kind: facts | values[kind] for kind in KINDS if kind in values}


def added(kind: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns two campaigns as one: kills of different works, or faults of different ways."""
    jobs = dict(one["jobs"])
    for name, counts in other["jobs"].items():
        known = jobs.get(name)
        if known is not None and kind == "kills":
            raise SystemExit(f"two files hold kills of {name}: give one of them")
        every = dict(Counter(counts) + Counter(known or {}))
        jobs[name] = every | {key: counts[key] for key in counts if key == "calls"}
    summed = {key: one[key] + other[key] for key in ("findings", "took_s", "trials") if key in one}
    said = {key: " and ".join(dict.fromkeys([*one[key].split(" and "), other[key]])) for key in ("commit", "command")}
    seeds = {
        seed for each in (one, other) for seed in (each["seed"] if isinstance(each["seed"], list) else [each["seed"]])
    }
    return one | other | summed | said | {"seed": sorted(seeds), "jobs": jobs}


def reached(files: dict[str, Any]) -> dict[str, Any]:
    """Returns how many statements of each room a fuzz has run, of how many there are, from coverage.py's JSON."""
    statements, covered = Counter[str](), Counter[str]()
    for name, facts in files.items():
        room = Path(name).parts[2] if len(Path(name).parts) > 3 else "the front"  # python/calirare/ROOM/...
        statements[room] += facts["summary"]["num_statements"]
        covered[room] += facts["summary"]["covered_lines"]
    rooms = {room: [covered[room], statements[room]] for room in sorted(statements)}
    return {
        "covered": covered.total(),
        "statements": statements.total(),
        "rooms": rooms,
        "commit": record.environment()["commit"],
    }


def checks() -> dict[str, Any]:
    """Returns processor seconds of the structure check of each matrix, and of one training."""
    found = {}
    for name in CHECKED:
        file = next((root / name for root in data_roots() if name.endswith(".npz") and (root / name).exists()), name)
        graph = load_dataset(file, split=None if name == "cora" else "random")
        started = time.process_time()
        calirare.train(graph, model="gcn", folds=0)
        took = time.process_time() - started
        a = graph.adjacency
        check = min(_seconds(Csr, a) for _ in range(20)) - min(_seconds(Csr.unchecked, a) for _ in range(20))
        found[Path(name).stem] = {
            "entries": int(a.values.numel()),
            "check_s": check,
            "train_s": took,
            "share": check / took,
        }
    return found | {"threads": torch.get_num_threads(), "commit": record.environment()["commit"]}


def _seconds(make: Any, a: Csr) -> float:
    started = time.process_time()
    make(a.indptr, a.indices, a.values, a.n_cols)
    return time.process_time() - started


if __name__ == "__main__":
    main()
