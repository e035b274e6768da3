"""What attacks found, as one results file: fuzz, kills, starvation, determinism, soak, sanitizers.

The campaigns take from minutes to hours, so they are run by themselves, each with `--out FILE`, and put together here:

    python -m tests.fuzz --minutes 20 --seed 1 --out fuzz.json
    python -m tests.campaigns --minutes 20 --seed 0 --out campaigns.json
    python benchmarks/bench_reliability.py fuzz.json campaigns.json

With `--keep` what no file holds stays as results/reliability.json has it: every kind says which commit it attacked. A
fuzz of `--target requests` alone is a kind of its own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import record

KINDS = ("fuzz", "requests", "determinism", "starved", "kills", "faults", "soak", "sanitizers")


def main() -> None:
    """Reads the campaigns' files and writes results/reliability.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="what campaigns wrote")
    parser.add_argument("--keep", action="store_true", help="other kinds stay as they are")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for path in options.files:
        for kind, found in told(json.loads(path.read_text(encoding="utf-8"))).items():
            if kind in results:
                parser.error(f"{path} holds {kind}, which another file holds too: give one of them")
            results[kind] = found
    measured = None
    if options.keep:
        measured = json.loads((record.COMMITTED / "reliability.json").read_text(encoding="utf-8"))
        results = measured.pop("results") | results
    ordered = {kind: results[kind] for kind in KINDS if kind in results}
    print(record.write("reliability", ordered, measured))


def told(values: dict[str, Any]) -> dict[str, Any]:
    """Returns what a campaign's file holds by kind, each with its seed and the commit it attacked."""
    facts = {name: values[name] for name in ("seed", "commit", "command") if name in values}
    if "targets" in values:
        findings = sum(target["findings"] for target in values["targets"].values())
        more = {name: values[name] for name in ("cases", "minutes", "mended_by") if name in values}
        kind = "requests" if set(values["targets"]) == {"requests"} else "fuzz"
        return {kind: facts | more | {"findings": findings, "targets": values["targets"]}}
    return {kind: facts | values[kind] for kind in KINDS if kind in values}


if __name__ == "__main__":
    main()
